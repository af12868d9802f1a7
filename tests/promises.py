"""What `redrive verify` finds, for tests that judge tables and topics."""

from __future__ import annotations

from orchestration.operators.verification import verify
from orchestration.settings import Settings


def broken_promises(settings: Settings) -> list[str]:
    """The promises that are broken, as text. Raises what `verify` raises."""
    return [f"{found.promise.name}: {found.broken}, such as {found.named[:3]}" for found in verify(settings).findings if found.broken]
