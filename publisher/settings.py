"""What a task of the publisher must be told. Picklable: Spark carries it from the driver to the executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from publisher.error_kinds import ErrorKind
from publisher.errors import SettingsError
from publisher.guarantees import refuse_contradictions

_MiB: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class PublisherSettings:
    """Settings of the publisher. Raises SettingsError when they cannot work."""

    kafka: Mapping[str, str] = field(repr=False)
    """librdkafka properties for every client, passed through untouched. Not shown in the repr: they hold secrets."""

    error_kinds: Mapping[int, ErrorKind] = field(repr=False)
    """The table of publish errors by code; see `error_kinds_from_rows`."""

    transactional_prefix: str = "redrive"
    instance: str = "default"
    """Together with the slot they make the transactional.id: `{prefix}.{instance}.{slot}`."""

    generation: int = 0
    """Number of the loop that these settings belong to. A task that finds a higher one in Kafka sends nothing; see
    `take_charge`."""

    fence_topics: tuple[str, ...] = ()
    """Where to look for it: the topics that `take_charge` was given. Without any, nothing is looked for."""

    transactions: bool = True
    """Whether the brokers have transactions. Without them each row's outcome is its own report: what got none in time is
    `unknown`, since it may have been written, and innocent rows of a refused batch come after the rows behind them. An
    older loop is not fenced: it reads the generation before each load, and may still be sending the one before."""

    max_rows: int = 50_000
    """Rows in one transaction. More rows make fewer commits, and more to send again when one is aborted."""

    max_bytes: int = 64 * _MiB
    """Bytes in one transaction, as estimated on the wire. A single larger row makes a transaction of its own."""

    transaction_timeout_ms: int = 60_000
    """After so long the broker aborts a transaction by itself. A third is for handing rows over, a third for the
    reports of the last of them, a third for the commit. The broker's transaction.max.timeout.ms (15 minutes) bounds
    it. Without transactions it bounds the same phases, and how long a row of unknown outcome is not sent again."""

    metadata_timeout_ms: int = 10_000
    """How long to wait for the description of the destinations, before Kafka counts as unreachable."""

    metadata_max_age_ms: int = 300_000
    """How long a process remembers the partitions and the size limit of a destination (librdkafka's own default)."""

    max_splits: int = 200
    """Aborted transactions that a task may spend on finding records that brokers refuse, and on dead letters that go with
    less in them. One bad record among 50,000 takes 17. When they are spent, the rest stays unsent and its destination is
    left alone for a while."""

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_bytes", "metadata_timeout_ms", "metadata_max_age_ms", "max_splits"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, not {getattr(self, name)}")
        # librdkafka refuses less than a second; a third of it must still be worth waiting for.
        if self.transaction_timeout_ms < 3_000:
            raise SettingsError(f"transaction_timeout_ms must be at least 3000, not {self.transaction_timeout_ms}")
        refuse_contradictions(self.kafka, self.transaction_timeout_ms)

    @property
    def phase_ms(self) -> int:
        """A third of the transaction timeout, in milliseconds: what each phase of a transaction may take."""
        return self.transaction_timeout_ms // 3

    @property
    def fence_group(self) -> str:
        """The consumer group whose offsets carry the generation in charge. Nobody consumes with it."""
        return f"{self.transactional_prefix}.{self.instance}"

    def transactional_id(self, slot: int | str) -> str:
        """The transactional.id of a slot: the same for every task that takes the slot's turn."""
        return f"{self.transactional_prefix}.{self.instance}.{slot}"
