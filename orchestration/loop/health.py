"""The parts of the loop, sources and destinations that don't work, why, and when each is tried again, after growing pauses.

Single partitions, consumer groups and refused releases have pauses of their own: discovery.py, consumer_progress.py, circuit_breakers.py.

The status file, the metrics, the log and Dagster's checks show its entries. Whether a step may run is decided by the part and by the time,
never by the text of a reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from orchestration.logs import event
from orchestration.output import redacted
from orchestration.status import Entry

log = logging.getLogger(__name__)

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=60)

Kind: TypeAlias = Literal[
    "kafka",
    "partitions",
    "source",
    "outbox",
    "seeds",
    "decide",
    "sends",
    "ledgers",
    "consumers",
    "decision_feed",
    "circuit_breakers",
    "sequences",
    "status",
    "destination",
]


class Part(NamedTuple):
    """A part of the loop, a source or a destination that may have trouble."""

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind


KAFKA = Part("kafka")
PARTITIONS = Part("partitions")
SEEDS = Part("seeds")
DECIDE = Part("decide")
SENDS = Part("sends")
LEDGERS = Part("ledgers")
CONSUMERS = Part("consumers")
DECISION_FEED = Part("decision_feed")
CIRCUIT_BREAKERS = Part("circuit_breakers")
SEQUENCES = Part("sequences")
STATUS = Part("status")


def source(name: str) -> Part:
    """The part that reads one source."""
    return Part("source", name)


def outbox(name: str) -> Part:
    """The part that reads one outbox, and writes back into it."""
    return Part("outbox", name)


def destination(topic: str) -> Part:
    """The part that sends to one topic."""
    return Part("destination", topic)


@dataclass(frozen=True)
class Reason:
    """Why something doesn't work: a text for people, and Kafka's name of the error where there is one, such as `_TRANSPORT`."""

    text: str
    error: str | None = None


@dataclass(frozen=True)
class Pause:
    """The pause of a part that doesn't work: it is tried again at `until`. Each further failure doubles the pause."""

    reason: Reason
    until: datetime
    pause: timedelta = FIRST_PAUSE

    @property
    def why(self) -> str:
        """The reason, for people."""
        return self.reason.text

    @property
    def longer(self) -> timedelta:
        """The pause after the next failure."""
        return min(self.pause * 2, LONGEST_PAUSE)

    def prolonged(self, reason: Reason, now: datetime) -> Pause:
        """After the next failure."""
        return Pause(reason, now + self.longer, self.longer)


class Health(Mapping[Part, Pause]):
    """The parts that don't work, each with its pause. Destinations have theirs in the state, as `ticks` keeps them: see `entries`.

    unsure: a step has failed, and the loop doesn't know what the tables hold. Until it has read them again, it takes in, decides and sends
    nothing.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._pauses: dict[Part, Pause] = {}
        self.unsure = False

    def __getitem__(self, part: Part) -> Pause:
        return self._pauses[part]

    def __iter__(self) -> Iterator[Part]:
        return iter(self._pauses)

    def __len__(self) -> int:
        return len(self._pauses)

    def may_be_tried(self, part: Part) -> bool:
        """Whether the part works, or its pause is over."""
        pause = self._pauses.get(part)
        return pause is None or pause.until <= self._now()

    def may(self, part: Part) -> bool:
        """Whether the part may be tried; the ledgers not while the loop is unsure."""
        return self.may_be_tried(part) and not (part == LEDGERS and self.unsure)

    def failed(self, part: Part, reason: Reason) -> None:
        """Pauses the part, each time for longer. Logs it if the reason is new."""
        now = self._now()
        reason = Reason(redacted(reason.text), reason.error)
        before = self._pauses.get(part)
        self._pauses[part] = before.prolonged(reason, now) if before else Pause(reason, now + FIRST_PAUSE)
        if before is None or before.why != reason.text:
            until = self._pauses[part].until
            event(
                log, logging.WARNING, "part_failed",
                part=part.kind, name=part.name or None, retry_at=until, error=reason.error, reason=reason.text,
            )  # fmt: skip

    def recovered(self, part: Part) -> None:
        """The part works."""
        if self._pauses.pop(part, None):
            event(log, logging.WARNING, "part_recovered", part=part.kind, name=part.name or None)

    def entries(self, paused: Mapping[str, Pause]) -> list[Entry]:
        """All that doesn't work, and the destinations that are paused."""
        pauses = {**self._pauses, **{destination(topic): pause for topic, pause in paused.items()}}
        return [Entry(part.kind, part.name, pause.why, pause.reason.error) for part, pause in pauses.items()]
