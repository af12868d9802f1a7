"""What a publish step did, and results that could not be appended."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import DataFrame

from orchestration.loop.outcomes import Outcomes
from orchestration.tables.ledgers import AppendError


@dataclass(frozen=True)
class Stop:
    """A destination (None: Kafka as a whole) that takes no sends at the moment, and why."""

    topic: str | None
    reason: str
    error: str | None = None
    """Kafka's name of the error."""
    is_superseded: bool = False
    """Whether the reason is that a newer loop is in charge."""
    is_missing: bool = False
    """Whether there is no such topic."""


@dataclass(frozen=True, kw_only=True)
class Published(Outcomes):
    """What one publish step did.

    upto: everything due up to there was read. complete: whether that was all.
    """

    upto: datetime
    complete: bool
    stops: tuple[Stop, ...] = ()
    lateness_ms: tuple[int, int] | None = None

    @property
    def sent(self) -> int:
        """Rows that have a result."""
        return self.delivered + self.failed + self.unknown


@dataclass(frozen=True)
class Unrecorded:
    """Results whose append has failed. They are kept: without them, messages would be sent again only because a catalog was locked.

    published: the step; since: when it began. results: the rows that Spark keeps. rows: those of them to append. tried: the batches under
    which an append was tried.
    """

    published: Published
    since: datetime
    results: DataFrame
    rows: DataFrame
    tried: list[int] = field(default_factory=list)


class UnrecordedError(AppendError):
    """Messages were sent, but their results could not be appended: they must be, before anything else is sent."""

    def __init__(self, unrecorded: Unrecorded, message: str) -> None:
        super().__init__(message)
        self.unrecorded = unrecorded


class ResultsLostError(AppendError):
    """The results of sends are lost with the part of Spark that kept them, an executor for instance: the topics have to be read back."""
