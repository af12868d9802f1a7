"""The ids of deliveries that were sent without a decision: `outbox:NAME/ROW#direct.INSTALLATION.MOMENT`, both last parts hexadecimal.

They end otherwise than those of decisions, and a read of the topics finds what this installation has sent by them.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from orchestration.settings import Settings

_MARK: Final = "#direct."


def direct_suffix(settings: Settings, micros: int) -> str:
    """What is added to the id of a message. micros: when it is sent; a row is sent again, if at all, at another moment."""
    return f"{_MARK}{_installation(settings)}.{micros:x}"


def direct_id_pattern(settings: Settings) -> str:
    """A regular expression for the ids of what this installation has sent. Its first group is the id of the message."""
    return rf"(?s)^(outbox:.*){re.escape(_MARK + _installation(settings))}\.[0-9a-f]+$"


def _installation(settings: Settings) -> str:
    """A short hash of what names this installation in Kafka: another one may have an outbox of the same name, and the same topics."""
    return hashlib.sha256(f"{settings.transactional_prefix}.{settings.instance}".encode()).hexdigest()[:8]
