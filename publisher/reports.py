"""Collects the delivery reports of one transaction: where each row lies, and which topics refused something."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message

from publisher.error_kinds import ErrorKind, Scope, classify

Report = Callable[[KafkaError | None, Message], None]
Place = tuple[int, int]
"""Partition and offset."""

# What librdkafka says of rows that were fine themselves, when the transaction or the batch around them was not.
_CONSEQUENCES: Final = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._INVALID_DIFFERENT_RECORD,
        KafkaError._STATE,
        KafkaError._FATAL,
    }
)

# The farther-reaching refusal explains the others; an error of the connection explains nothing.
_WEIGHT: Final = {Scope.CONNECTION: 0, Scope.RECORD: 1, Scope.TOPIC: 2}


class Reports:
    """Delivery reports carry no row id. Two ways lead back to the row:

    - `in_order`, one shared callback: for rows whose partition is given. An idempotent producer appends the rows of one
      partition in the order in which it got them, so the n-th offset belongs to the n-th row.
    - `of_row`, a callback for each row: for rows whose partition the key decides. It costs more.
    """

    def __init__(self, kinds: Mapping[int, ErrorKind]) -> None:
        self._kinds = kinds
        self._offsets: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self._places: dict[int, Place] = {}
        self._delivered: Counter[str] = Counter()
        self.errors: dict[str, KafkaError] = {}
        """For each topic that refused something, the refusal that explains most."""

    def in_order(self, error: KafkaError | None, message: Message) -> None:
        """The shared callback."""
        if error is None:
            self._offsets[message.topic(), message.partition()].append(message.offset())  # type: ignore[index, arg-type]
        else:
            self.refused(str(message.topic()), error)

    def of_row(self, row: int) -> Report:
        """The callback for one row."""
        return partial(self._of_row, row)

    def _of_row(self, row: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._places[row] = (message.partition(), message.offset())  # type: ignore[assignment]
            self._delivered[str(message.topic())] += 1
        else:
            self.refused(str(message.topic()), error)

    def refused(self, topic: str, error: KafkaError) -> None:
        """Notes a refusal; of several for a topic the farther-reaching one is kept, of equal ones the first."""
        if error.code() in _CONSEQUENCES:
            return
        before = self.errors.get(topic)
        if before is None or self._weight(error) > self._weight(before):
            self.errors[topic] = error

    def outstanding(self, topics: Sequence[str]) -> set[str]:
        """Those topics of the rows handed over so far (one entry for each row) that have not reported all of them."""
        reported = self._delivered.copy()
        for (topic, _), offsets in self._offsets.items():
            reported[topic] += len(offsets)
        return {topic for topic, handed in Counter(topics).items() if reported[topic] < handed}

    def places(self, topics: Sequence[str], partitions: Sequence[int | None]) -> list[Place | None]:
        """Where each row lies; `partitions` says which were given. None where the reports don't tell.

        Only for a committed transaction. Where a partition has another number of reports than of rows, none of its
        offsets can be trusted to be the row's own.
        """
        given = Counter(zip(topics, partitions, strict=True))
        # Sorted: the order of the log, whatever the order in which the reports were read.
        offsets = {
            where: iter(sorted(reported)) for where, reported in self._offsets.items() if len(reported) == given[where]
        }
        found: list[Place | None] = []
        for row, (topic, partition) in enumerate(zip(topics, partitions, strict=True)):
            if partition is None:
                found.append(self._places.get(row))
            elif (topic, partition) in offsets:
                found.append((partition, next(offsets[topic, partition])))
            else:
                found.append(None)
        return found

    def _weight(self, error: KafkaError) -> int:
        return _WEIGHT[classify(error.code(), self._kinds).scope]
