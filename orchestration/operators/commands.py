"""An operator's request for a command: what, who, why and how; parsed from the command line, and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestration.clock import EPOCH, parse_duration, parse_moment
from orchestration.rules.seeds import Seeds
from orchestration.rules.topic_patterns import is_source
from orchestration.settings import Settings

_PER = {"s": 1, "m": 60, "h": 3600}
# The last moment that the SQL of commands takes: limits.sql, moment_ms.
_LATEST = datetime(2100, 1, 1, tzinfo=UTC)
# More than a list may have, and than that SQL reads.
_MOST_CANARIES = 1_000_000


class CommandError(Exception):
    """The command can't be given, or was not written. The message says what is wrong."""

    exit_code = 2


@dataclass(frozen=True)
class CommandRequest:
    """One command. of: the command that a pause, resume or stop is about."""

    what: str
    reason: str
    who: str
    ticket: str | None = None
    rate: float | None = None
    at: datetime | None = None
    canary: int | None = None
    assume_after: timedelta | None = None
    to: str | None = None
    of: str | None = None

    def fields(self) -> dict[str, object]:
        """The fields of the record that closes the command: see sending.py."""
        words = {
            "what": self.what,
            "who": self.who,
            "reason": self.reason,
            "ticket": self.ticket,
            "rate": None if self.rate is None else f"{self.rate:.9f}".rstrip("0").rstrip("."),
            "at": None if self.at is None else round(self.at.timestamp() * 1000),
            "canary": self.canary,
            "assume_after": None if self.assume_after is None else round(self.assume_after.total_seconds() * 1000),
            "to": self.to,
            "of": self.of,
        }
        return {word: value for word, value in words.items() if value is not None}


def parse_rate(text: str) -> float:
    """Messages a second: of `50/s`, `10/m`, `1/h`. Raises CommandError."""
    parsed = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)/([smh])", text.strip())
    rate = float(parsed[1]) / _PER[parsed[2]] if parsed else 0.0
    if rate < 1e-6:
        raise CommandError(f"--rate {text!r} is not a rate; examples: 50/s, 10/m, 1/h")
    return rate


def parse_assume_after(text: str) -> timedelta:
    """A duration: of `500ms`, `90s`, `5m`, `2h`, `1d`. Raises CommandError."""
    try:
        return parse_duration(text)
    except ValueError:
        raise CommandError(f"--assume-after {text!r} is not a duration; examples: 90s, 5m, 2h") from None


def parse_at(text: str) -> datetime:
    """A moment: ISO 8601, in UTC unless it has a zone. Raises CommandError."""
    try:
        return parse_moment(text)
    except (ValueError, OverflowError):
        raise CommandError(f"--at {text!r} is not a time; example: 2026-03-01T12:00") from None


def check_request(settings: Settings, seeds: Seeds, request: CommandRequest) -> None:
    """Checks whether the command can be executed. Raises CommandError."""
    if not request.reason.strip():
        raise CommandError("--reason must say something: it is what others read later")
    if not settings.commands_topic:
        raise CommandError("commands_topic (REDRIVE_COMMANDS_TOPIC) is empty: no commands are executed")
    if not request.who.strip():
        raise CommandError("--who must say something: it is what others read later")
    if request.canary is not None and not 1 <= request.canary <= _MOST_CANARIES:
        raise CommandError(f"--canary must be 1 to {_MOST_CANARIES:,}")
    if request.at is not None and not EPOCH <= request.at < _LATEST:
        raise CommandError(f"--at {request.at.isoformat()}: it must be a time from 1970 to 2099")
    if request.of is not None and not re.fullmatch(r"[0-9a-f-]{36}", request.of):
        raise CommandError(f"{request.of!r} is not the id of a command: `select command, state from redrives` shows them")
    if request.to in (None, "retry", "original"):
        return
    assert request.to is not None
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", request.to):
        raise CommandError(f"--to {request.to!r}: retry, original, or the name of a topic")
    if settings.is_internal(request.to):
        raise CommandError(
            f"--to {request.to}: it is an internal topic, and no message is sent there (docs/configuration.md, protected_topics)"
        )
    if is_source(seeds, request.to):
        raise CommandError(f"--to {request.to}: it is read by redrive itself, and what is sent there would come back")
