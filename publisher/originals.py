"""Reads the original records of messages whose payload was not stored: the payloads of rows with `by_reference`.

Key and value go out as they are there, and the headers of that record come before those that the row has itself. A record that is gone
fails its row for good; a dead letter goes out all the same, and says so. A record that can't be read now leaves its row unsent.
"""

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from publisher.clients import Background, kafka_error, make_reader
from publisher.contract import DEAD_LETTER, GONE, GONE_CODE, MISSING_TOPIC, READY
from publisher.errors import Concerns, ErrorKind, Trouble
from publisher.headers import Headers
from publisher.settings import PublisherSettings

Place = tuple[str, int, int]

# Records that are fetched at once. How far behind the last one the next has to be so that skipping costs less than reading what is between.
_AT_ONCE: Final = 1_000
_FAR: Final = 5_000
# When a topic or partition that a broker doesn't know is asked for again, in seconds.
_LOOKS_AGAIN: Final = (0.5, 1.0, 2.0)
# In seconds: between two looks at the clock.
_GLANCE: Final = 0.2
# Rows whose payloads are read at once: first, and at most. Between these, as many as have a quarter of the bytes of a transaction.
_FEW: Final = 100
_MANY: Final = 5_000
# How far a stated timestamp may be from the record's, in milliseconds: some reporters keep whole seconds.
_SAME_MS: Final = 1_000
# The header that tells the reader of a dead letter that the message had a payload, which is not there any more.
_PAYLOAD_GONE: Final = {"key": "redrive-payload", "value": b"gone"}
# The longest name of a header that is compared with an expression, in bytes: as in the macro is_denied_header.
_LONGEST_NAME: Final = 1_024


@dataclass(frozen=True, slots=True)
class Original:
    """A record as it lies in its topic. millis: its timestamp, in epoch milliseconds; None if it has none."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    millis: int | None


@dataclass(frozen=True, slots=True)
class Completed:
    """Rows of `READY` with their payloads. omitted: the positions of dead letters that go out without one, as it is gone.

    troubles: by position, the rows that can't go out: their payload is gone (concerns the record), or can't be read now.
    """

    rows: pa.RecordBatch
    omitted: frozenset[int] = frozenset()
    troubles: Mapping[int, Trouble] = field(default_factory=dict)


class Originals:
    """Reads original records, with a consumer that is opened when a row needs it, and stays open until `close`."""

    def __init__(self, settings: PublisherSettings) -> None:
        self._settings = settings
        self._consumer: Consumer | None = None
        self._background = Background()
        self._missing: set[tuple[str, int]] = set()

    def completed(self, rows: pa.RecordBatch) -> Iterator[Completed]:
        """All rows (`READY`) in their order, with their payloads; in parts, if payloads have to be read. Raises RejectedPropertiesError."""
        start, size = 0, _FEW
        while start < rows.num_rows:
            if not pc.any(rows.column("by_reference").slice(start)).as_py():
                yield Completed(rows.slice(start))
                return
            part = self._completed(rows.slice(start, size))
            yield part
            start += size
            of_a_row = max(1, part.rows.nbytes // max(1, part.rows.num_rows))
            size = min(max(1, self._settings.max_bytes // 4 // of_a_row), _MANY, size * 10)

    def close(self) -> None:
        """Closes the consumer. Another read opens another one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _completed(self, rows: pa.RecordBatch) -> Completed:
        columns: dict[str, list[Any]] = {name: rows.column(name).to_pylist() for name in _READ}
        places = {
            row: (columns["original_topic"][row], columns["original_partition"][row], columns["original_offset"][row])
            for row, refers in enumerate(columns["by_reference"])
            if refers
        }
        found = self.read(places.values())
        troubles: dict[int, Trouble] = {}
        omitted: set[int] = set()
        for row, place in places.items():
            original = _checked(place, found[place], columns["original_timestamp"][row])
            if isinstance(original, Original):
                columns["key"][row], columns["value"][row] = original.key, original.value
                columns["headers"][row] = _joined(original.headers, columns["headers"][row] or [], columns["denied_headers"][row] or [])
            elif original.error.concerns != Concerns.RECORD or columns["kind"][row] != DEAD_LETTER:
                troubles[row] = original
            else:
                columns["dead_letter_headers"][row] = [*(columns["dead_letter_headers"][row] or []), _PAYLOAD_GONE]
                omitted.add(row)
        made = {name: pa.array(columns[name], READY.field(name).type) for name in _WRITTEN}
        arrays = [made[name] if name in made else rows.column(name) for name in READY.names]
        return Completed(pa.RecordBatch.from_arrays(arrays, schema=READY), frozenset(omitted), troubles)

    def read(self, places: Iterable[Place]) -> dict[Place, Original | Trouble]:
        """The record at each place, or why there is none: GONE, or an error of Kafka's for what can't be read now."""
        reading = _Reading(places, self._settings, self._missing)
        try:
            consumer = self._opened()
            reading.find(consumer)
            consumer.assign(reading.next)
            heard = time.monotonic()
            while left := reading.left:
                # no more than are left: it would wait for as many as it is asked for
                messages = consumer.consume(min(_AT_ONCE, left), timeout=_GLANCE)
                if reading.see(messages, consumer):
                    heard = time.monotonic()
                elif time.monotonic() - heard > self._settings.metadata_timeout_ms / 1000 or self._background.hopeless is not None:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the original record could not be read in time"))
            # what was fetched beyond it would only take memory
            consumer.unassign()
        except KafkaException as error:
            reading.give_up(self._settings.trouble_of(self._background.explain(kafka_error(error))))
            self.close()
        return reading.found

    def _opened(self) -> Consumer:
        if self._consumer is None:
            self._background = Background()
            self._consumer = make_reader(self._settings, self._background)
        return self._consumer


# The columns of `READY` that are looked at, and those of them that change.
_WRITTEN: Final = ("key", "value", "headers", "dead_letter_headers")
_READ: Final = (
    *_WRITTEN,
    *("by_reference", "kind", "denied_headers", "original_topic", "original_partition", "original_offset", "original_timestamp"),
)


class _Reading:
    """One read of places. found: what became of each. missing: the partitions that are known not to exist."""

    def __init__(self, places: Iterable[Place], settings: PublisherSettings, missing: set[tuple[str, int]]) -> None:
        self._missing = missing
        self.found: dict[Place, Original | Trouble] = {}
        self._settings = settings
        self._left: dict[tuple[str, int], deque[int]] = {}
        for topic, partition, offset in sorted(set(places)):
            self._left.setdefault((topic, partition), deque()).append(offset)

    @property
    def left(self) -> int:
        """How many records are still to be read."""
        return sum(map(len, self._left.values()))

    @property
    def next(self) -> list[TopicPartition]:
        """Where the next record of each partition lies; empty if nothing is left to be read."""
        return [TopicPartition(*where, offsets[0]) for where, offsets in self._left.items()]

    def find(self, consumer: Consumer) -> None:
        """Notes which of the topics and partitions don't exist: a consumer only waits for them. Raises KafkaException."""
        missing, seconds = {*self._left}, self._settings.metadata_timeout_ms / 1000
        for pause in (*_LOOKS_AGAIN, None):
            known = {topic: consumer.list_topics(topic, seconds).topics[topic] for topic in {topic for topic, _ in missing}}
            missing = {where for where in missing if where[1] not in known[where[0]].partitions}
            if self._missing >= missing or pause is None:
                break
            # a broker that has just started, or is behind, doesn't know all topics and partitions; without its record a message is dead
            time.sleep(pause)
        for where in missing:
            self._missing.add(where)
            error = known[where[0]].error
            is_missing = error is None or error.code() in MISSING_TOPIC
            self._settle(where, "there is no such topic or partition" if is_missing else self._settings.trouble_of(error))

    def see(self, messages: Iterable[Message], consumer: Consumer) -> bool:
        """Notes what was read, and has the consumer skip what is not needed. Returns whether it went on."""
        before = len(self.found)
        seen: dict[tuple[str, int], int] = {}
        lost: set[tuple[str, int]] = set()
        for message in messages:
            where = (message.topic() or "", -1 if (number := message.partition()) is None else number)
            error = message.error()
            if where not in self._left:
                continue
            if error is None:
                seen[where] = message.offset() or 0
                self._note(where, message)
            elif error.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) > self._left[where][0]:
                self._settle(where, "nothing lies there")
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._PARTITION_EOF):
                # a new leader gives out its last records only when the others have them: the end is asked for
                lost.add(where)
            else:
                self._settle(where, self._settings.trouble_of(error))
        for where in lost & self._left.keys():
            low, high = consumer.get_watermark_offsets(TopicPartition(*where), timeout=self._settings.metadata_timeout_ms / 1000)
            self._settle(where, "retention has removed it", below=low)
            # else reading goes on, up to the end of the partition
            if where in self._left and self._left[where][0] >= high:
                self._settle(where, "the topic ends before it")
        if lost or any(where in self._left and self._left[where][0] - last > _FAR for where, last in seen.items()):
            consumer.assign(self.next)
        elif ended := [TopicPartition(*where) for where in seen if where not in self._left]:
            # not paused: a partition that was paused is fetched again only a second after it is assigned again
            consumer.incremental_unassign(ended)
        return len(self.found) > before or bool(seen)

    def give_up(self, trouble: Trouble) -> None:
        """What was not found has this trouble."""
        for where in list(self._left):
            self._settle(where, trouble)

    def _note(self, where: tuple[str, int], message: Message) -> None:
        offset = message.offset() or 0
        self._settle(where, "compaction has removed it, or it is no record but the end of a transaction", below=offset)
        if where in self._left and self._left[where][0] == offset:
            place = (*where, offset)
            self.found[place] = _record(place, message)
            self._left[where].popleft()
            if not self._left[where]:
                del self._left[where]

    def _settle(self, where: tuple[str, int], why: str | Trouble, below: int | None = None) -> None:
        """Notes why what is left of a partition is not found; below: only what lies before this offset."""
        # called for each record that is read: it must not look at all that is left
        left = self._left[where]
        while left and (below is None or left[0] < below):
            place = (*where, left.popleft())
            self.found[place] = _unread(place, why) if isinstance(why, Trouble) else _gone(place, why)
        if not left:
            del self._left[where]


def _record(place: Place, message: Message) -> Original | Trouble:
    kind, millis = message.timestamp()
    try:
        pairs: Any = message.headers() or ()
    except Exception:
        return _gone(place, "a name of its headers is not UTF-8, which the Kafka client can't read")
    headers = [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
    key, value = ((part.encode() if isinstance(part, str) else part) for part in (message.key(), message.value()))
    return Original(key, value, headers, None if kind == TIMESTAMP_NOT_AVAILABLE else millis)


def _checked(place: Place, found: Original | Trouble, timestamp: Any) -> Original | Trouble:
    """The record, unless it is another one: a topic that was deleted and created again has others at the same places."""
    if isinstance(found, Original) and timestamp is not None and found.millis is not None:
        millis = round(timestamp.timestamp() * 1000)
        if abs(millis - found.millis) >= _SAME_MS:
            return _gone(place, f"the record that lies there has the timestamp {found.millis}, not {millis}")
    return found


def _unread(place: Place, why: Trouble) -> Trouble:
    # it is shown as the reason why a destination is paused, and would seem to be about that topic
    topic, partition, offset = place
    return Trouble(why.error, f"the original record {topic}/{partition}/{offset} can't be read: {why.message}")


def _gone(place: Place, why: str) -> Trouble:
    topic, partition, offset = place
    return Trouble(ErrorKind(GONE_CODE, GONE, "fatal", Concerns.RECORD), f"the payload is gone: {topic}/{partition}/{offset}: {why}")


def _joined(original: Headers, own: list[Mapping[str, Any]], denied: list[str]) -> list[Mapping[str, Any]]:
    """The record's headers without those that are denied, then those of the row that the record doesn't have."""
    there = set(original)
    kept = [{"key": name, "value": value} for name, value in original if not any(_matches(name, one) for one in denied)]
    return [*kept, *(header for header in own if (header["key"], header["value"]) not in there)]


def _matches(name: str, denied: str) -> bool:
    if denied.startswith("^"):
        return len(name.encode()) > _LONGEST_NAME or re.search(denied, name, re.IGNORECASE) is not None
    return name.lower() == denied.lower()
