"""The consumer: processes records one after another, reports what fails, and puts off what must wait for it.

A report is in Kafka before the offset of its record is committed. redrive relies on that: once it sees the offset, and has read the report
topics to their ends, it knows that what lies before has succeeded.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from reporter.holds import Holds, Sequence
from reporter.reports import Place, PreviousMessageWasRecovered, Report, Reporter, header
from reporter.sequence_ids import check_place, sequence_id

log = logging.getLogger("reporter")

# Seconds that one wait for records or for an answer takes at most.
_POLL, _ANSWER = 0.2, 20.0

# How often a consumer that waits for redrive says so, in seconds.
_SAYS_SO_EVERY = 30.0


class NotAlignedError(Exception):
    """The assignor has given a partition of an original topic and that of its retries to two consumers: no order could be kept."""


@dataclass(frozen=True)
class Topics:
    """The topics. retries: for each original topic, the retry topic of its route for this group.

    sequences: where redrive writes which sequences are held; None: no order is kept. circuit_breakers: where it writes which circuit
    breakers are open; None: they are not heeded.
    """

    retries: Mapping[str, str]
    reports: str = "redrive.failures"
    sequences: str | None = None
    circuit_breakers: str | None = None


def _nothing(*_: object) -> None:
    pass


@dataclass
class ReportingConsumer:
    """Consumes topics and the retries of their records, for one consumer group.

    kafka: properties for all clients, `bootstrap.servers` at least. sequence: where records carry the id of their sequence, as in the
    route: `key`, the name of a header, or a path ($.order.id). before_report, after_report: called with each report; an exception of the
    first ends the consumer before the report is written, and the record is read again. Raises ValueError if `sequence` is no path.
    """

    kafka: Mapping[str, str]
    group: str
    topics: Topics
    sequence: str = "key"
    before_report: Callable[[Report], None] = _nothing
    after_report: Callable[[Report, Place], None] = _nothing
    holds: Holds = field(default_factory=Holds, init=False)

    def __post_init__(self) -> None:
        check_place(self.sequence)
        self._reporter = Reporter(self.kafka, self.topics.reports, self.group)
        self._original_of = {retry: original for original, retry in self.topics.retries.items()}
        self._state: Consumer | None = None
        self._waits_for: dict[str, int] = {}
        self._says_so_after = 0.0
        self._assigned: set[tuple[str, int]] = set()
        self._open: set[str] = set()
        self._read_upto: dict[tuple[str, int], int] = {}

    def run(self, process: Callable[[Message], None], stop: threading.Event) -> None:
        """Processes records until `stop` is set. Raises KafkaException if a report can't be written, NotAlignedError.

        process: an exception of it is reported; PreviousMessageWasRecovered, if the record is to be processed after an earlier one.
        """
        self._consumer = Consumer(
            {
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 5000,
                **self.kafka,
                "group.id": self.group,
                # both topics of a partition must come to one consumer: the range assignor does that for equal numbers of partitions
                "partition.assignment.strategy": "range",
                # an offset is stored when its record is processed or reported, and committed every second: it would never be without this
                "enable.auto.commit": True,
                "enable.auto.offset.store": False,
                "auto.commit.interval.ms": 1000,
                "isolation.level": "read_committed",
            },
            logger=log,
        )
        self._state = self._state_reader()
        self._consumer.subscribe(
            [*self.topics.retries, *self._original_of], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )
        try:
            while not stop.is_set():
                self._read_state()
                record = self._consumer.poll(_POLL)
                if record is None:
                    continue
                if problem := record.error():
                    if problem.fatal():
                        raise KafkaException(problem)
                    log.warning("Kafka: %s", problem.str())
                    continue
                # what redrive has written before it sent this record is read first
                self._read_state()
                self._handle(record, process)
                self._consumer.store_offsets(record)
        finally:
            self._consumer.close()
            if self._state is not None:
                self._state.close()

    # ---------- one record

    def _handle(self, record: Message, process: Callable[[Message], None]) -> None:
        sequence, is_retry = self._sequence(record)
        if sequence is not None and not self.holds.may_process(sequence, header(record, "redrive-sequence-epoch"), is_retry=is_retry):
            waits = PreviousMessageWasRecovered("an earlier message of its sequence has failed")
            self.holds.followed(sequence, self._report(Report(record, waits)))
            return
        try:
            process(record)
        except PreviousMessageWasRecovered as error:
            place = self._report(Report(record, error))
            if sequence is not None:
                # as a failure: what was sent along with it must not overtake it
                self.holds.failed(sequence, place)
        except Exception as error:
            place = self._report(Report(record, error))
            if sequence is not None:
                self.holds.failed(sequence, place)

    def _report(self, report: Report) -> Place:
        self.before_report(report)
        place = self._reporter.report(report)
        self.after_report(report, place)
        return place

    def _sequence(self, record: Message) -> tuple[Sequence | None, bool]:
        """The sequence of a record, and whether it is a retry."""
        topic, partition = str(record.topic()), int(record.partition() or 0)
        is_retry = topic in self._original_of
        if self.topics.sequences is None:
            return None, is_retry
        found = sequence_id(self.sequence, record)
        if is_retry:
            place = header(record, "redrive-original-partition")
            if header(record, "redrive-sequence") is None or place is None or not place.isdecimal():
                return None, True
            topic, partition = header(record, "redrive-original-topic") or self._original_of[topic], int(place)
        return (None if found is None else Sequence(self.group, topic, partition, found)), is_retry

    # ---------- partitions come and go

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assigned |= {(one.topic, one.partition) for one in partitions}
        if self._state is None:
            return
        if self.topics.sequences is not None:
            self._objects_if_scattered()
            # what an earlier owner has reported by now must be decided before anything is processed here
            self._waits_for, self._says_so_after = self._ends_of_reports(), time.monotonic() + _SAYS_SO_EVERY
        # here, as only what is assigned can be paused
        consumer.assign([TopicPartition(topic, partition) for topic, partition in sorted(self._assigned)])
        self._read_state()
        if self._waits_for and partitions:
            consumer.pause(partitions)
        else:
            self._pause_or_resume()

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {(one.topic, one.partition) for one in partitions}
        self._assigned -= gone
        self.holds.forget(gone)

    def _objects_if_scattered(self) -> None:
        for original, retry in self.topics.retries.items():
            here = [{partition for topic, partition in self._assigned if topic == name} for name in (original, retry)]
            if here[0] and here[1] and here[0] != here[1]:
                raise NotAlignedError(
                    f"this consumer has the partitions {sorted(here[0])} of {original}, and {sorted(here[1])} of {retry}:"
                    " use the range assignor, and as many partitions for both topics"
                )

    def _ends_of_reports(self) -> dict[str, int]:
        # not up to the first open transaction of others only: reports may lie behind it
        reader = Consumer({**self.kafka, "group.id": f"{self.group}-state", "isolation.level": "read_uncommitted"}, logger=log)
        try:
            found = reader.list_topics(self.topics.reports, _ANSWER).topics[self.topics.reports]
            if found.error is not None:
                raise KafkaException(found.error)
            ends: dict[str, int] = {}
            for partition in found.partitions:
                _, end = reader.get_watermark_offsets(TopicPartition(self.topics.reports, partition), _ANSWER)
                ends[f"{self.topics.reports}/{partition}"] = end
            return ends
        finally:
            reader.close()

    # ---------- what redrive says

    def _state_reader(self) -> Consumer | None:
        """A consumer of the topics that redrive writes its state to, from their beginnings on."""
        names = [name for name in (self.topics.sequences, self.topics.circuit_breakers) if name]
        if not names:
            return None
        reader = Consumer(
            {
                **self.kafka,
                "group.id": f"{self.group}-state",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            },
            logger=log,
        )
        found = reader.list_topics(timeout=_ANSWER).topics
        missing = [name for name in names if name not in found]
        if missing:
            reader.close()
            raise KafkaException(f"there is no topic {missing[0]}")
        reader.assign([TopicPartition(name, number, 0) for name in names for number in found[name].partitions])
        return reader

    def _read_state(self) -> None:
        """Reads what redrive has written since the last time."""
        if self._state is None:
            return
        while records := self._state.consume(1000, 0.0):
            for record in records:
                if (problem := record.error()) is not None:
                    log.warning("%s: %s", record.topic(), problem.str())
                else:
                    self._read(record)
        if self._waits_for and self.holds.covers(self._waits_for):
            self._waits_for = {}
            self._pause_or_resume()
        elif self._waits_for and time.monotonic() > self._says_so_after:
            log.warning(
                "waits until redrive has decided the reports before %s; it has decided those before %s", self._waits_for, self.holds.decided
            )
            self._says_so_after = time.monotonic() + _SAYS_SO_EVERY

    def _read(self, record: Message) -> None:
        key, value = (None if part is None else bytes(part).decode() for part in (_bytes(record.key()), _bytes(record.value())))
        self._notice_a_new_topic(str(record.topic()), int(record.partition() or 0), int(record.offset() or 0))
        if key is None:
            return
        if record.topic() == self.topics.sequences:
            self.holds.read(key, value)
            return
        is_open = value is not None and json.loads(value)["state"] == "open"
        if is_open != (key in self._open):
            self._open = self._open | {key} if is_open else self._open - {key}
            if not self._waits_for:
                self._pause_or_resume()

    def _notice_a_new_topic(self, topic: str, partition: int, offset: int) -> None:
        """Offsets that begin anew are those of a topic that was deleted and created again."""
        last, self._read_upto[topic, partition] = self._read_upto.get((topic, partition), -1), offset
        if offset > last:
            return
        log.warning("%s was created again", topic)
        if topic == self.topics.sequences:
            self.holds.begin_anew()
        else:
            self._open = set()
            if not self._waits_for:
                self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        """Pauses the original topics of open circuit breakers, not their retries, among which is the probe."""
        paused = {one for one in self._assigned if self._keys(one) & self._open}
        for which, change in ((paused, self._consumer.pause), (self._assigned - paused, self._consumer.resume)):
            if which:
                change([TopicPartition(topic, partition) for topic, partition in sorted(which)])

    def _keys(self, place: tuple[str, int]) -> set[str]:
        topic, partition = place
        return {f"{self.group}:{topic}", f"{self.group}:{topic}/{partition}"}


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


__all__: Final = ["NotAlignedError", "ReportingConsumer", "Topics"]
