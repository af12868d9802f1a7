"""What happens to a message, as seen from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Failed:
    """An attempt failed. at_ms: loop time; is_after: whether the rules had changed by then."""

    error: str
    at_ms: int
    is_after: bool


@dataclass(frozen=True)
class Came:
    """A record came: a retry, or a dead letter. seen_ms: loop time when it was seen first."""

    is_dead: bool
    delivery: str
    attempt: int
    due_ms: int
    seen_ms: int
    is_intact: bool


@dataclass(frozen=True)
class Ordered:
    """An operator ordered something about the message: redrive, discard, send_now or cancel."""

    what: str


Event: TypeAlias = Failed | Came | Ordered
