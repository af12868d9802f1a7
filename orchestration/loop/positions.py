"""How far the sources are read, which offsets are missing, and how much one intake step reads of each partition."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestration.kafka.cluster import Partition, Range
from orchestration.logs import event

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceOffsets:
    """How far the sources are read. next: the next offset of each partition (`Partition.key`). started: the sources that were begun."""

    next: Mapping[str, int] = field(default_factory=dict)
    started: frozenset[str] = frozenset()

    def of(self, partition: Partition) -> int:
        """The next offset of a partition; 0 where it has none."""
        return self.next.get(partition.key, 0)

    def has(self, partition: Partition) -> bool:
        """Whether it is decided where reading a partition begins."""
        return partition.key in self.next

    def moved(self, offsets: Mapping[Partition, int]) -> SourceOffsets:
        """With other next offsets of some partitions."""
        return replace(self, next={**self.next, **{partition.key: offset for partition, offset in offsets.items()}})

    def begun(self, source: str) -> SourceOffsets:
        """After a source was begun."""
        return replace(self, started=self.started | {source})

    def raised(self, other: SourceOffsets) -> SourceOffsets:
        """The higher next offset of each partition, of these and others."""
        higher = {key: max(offset, self.next.get(key, 0)) for key, offset in other.next.items()}
        return SourceOffsets({**self.next, **higher}, self.started | other.started)


@dataclass(frozen=True)
class Gap:
    """Offsets [begin, end) that are missing: retention removed them before they were read, or the partition was cut short afterwards.

    goes_on_at: the next offset to read. After a removal: `end`. After a cut: `begin`, or 0 if Kafka has no topic ids; from there on, the
    partition has another topic id.
    """

    source: str
    partition: Partition
    begin: int
    end: int
    goes_on_at: int


def log_removed(gap: Gap) -> None:
    """Logs that records, or rows of a table, were removed before they were read."""
    event(
        log, logging.WARNING, "unread_records_removed",
        source=gap.source, topic=gap.partition.topic, partition=gap.partition.number, first_offset=gap.begin, last_offset=gap.end - 1,
    )  # fmt: skip


def cut_id(topic_id: str, batch: int) -> str:
    """The topic id for a partition that was cut short: under it, offsets that were read before belong to other records.

    batch: the batch of the gap that records the cut. Neither Kafka's topic ids nor names of topics contain a `~`.
    """
    return f"{topic_id.split('~')[0]}~{batch}"


def ids_in_force(offsets: SourceOffsets) -> dict[str, str]:
    """The topic ids of partitions that were cut short, by `topic id/partition` as Kafka has it. After several cuts, the last one counts."""
    cut = [key.rpartition("/") for key in offsets.next if "~" in key]
    last = sorted((int(topic_id.rpartition("~")[2]), topic_id, number) for topic_id, _, number in cut)
    return {f"{topic_id.split('~')[0]}/{number}": topic_id for _, topic_id, number in last}


def share(available: list[Range], max_rows: int) -> list[Range]:
    """Cuts what is available to max_rows: every source gets the same, every partition of a source the same.

    What one of them doesn't need goes to the others: a busy source may fill a step alone, but never starves another. The beginning of each
    range is kept.
    """
    by_source: dict[str, list[Range]] = defaultdict(list)
    for part in available:
        if part.rows > 0:
            by_source[part.source].append(part)
    allowed = _fill({source: sum(part.rows for part in parts) for source, parts in by_source.items()}, max_rows)
    taken: list[Range] = []
    for source, parts in by_source.items():
        rows = _fill({part.partition.key: part.rows for part in parts}, allowed[source])
        taken += [
            Range(source, part.partition, part.begin, part.begin + rows[part.partition.key])
            for part in parts
            if rows[part.partition.key] > 0
        ]
    return taken


def _fill(wanted: Mapping[str, int], total: int) -> dict[str, int]:
    """Divides `total`: those that want less than an equal part get what they want, the others equal parts of the rest."""
    given: dict[str, int] = {}
    left = total
    for number, (name, asked) in enumerate(sorted(wanted.items(), key=lambda item: (item[1], item[0]))):
        given[name] = min(asked, -(-left // (len(wanted) - number)))
        left -= given[name]
    return given
