"""The flow of one call: rows of `ready` in, results out. Each Spark task calls `publish` once."""

import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from publisher import sending
from publisher.contract import CHARGE_ALL, DELIVERED, FAILED, FINAL, PUBLICATION, READY, RECORDS, RESULTS, STOPPED, UNKNOWN
from publisher.destinations import Destination, describe, forget
from publisher.errors import Concerns, FencedError, SessionLostError, SupersededError, Trouble
from publisher.fitting import by_batch_size, lightened, misfits, with_partitions
from publisher.generation import refuse_superseded
from publisher.handover import Clock
from publisher.ready import as_records, complete, first_of_sequences, joined, loads, of_topics, sequences_in, topics_in, without_sequences
from publisher.sending import Aborted, Outcome, Sent, Unanswered
from publisher.session import Session
from publisher.settings import PublisherSettings

_MS: Final = pa.timestamp("ms", tz="UTC")
# The columns that a result has from its row. Its partition is the one that Kafka reports.
_CARRIED: Final = {*RECORDS.names} & {*RESULTS.names} - {"partition"}


def epoch_ms() -> int:
    """The wall clock, in whole milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def publish(
    batches: Iterable[pa.RecordBatch], settings: PublisherSettings, slot: int, clock: Clock = epoch_ms, kept: Session | None = None
) -> Iterator[pa.RecordBatch]:
    """Sends every row of `batches` (schema `READY`) in order and yields what became of them (schema `RESULTS`).

    A row without a result was not sent and stays due; a result with the outcome `stopped` then says why. Rows of one destination partition
    keep their order. A slot must not be used by two calls at once: the later one fences the earlier. kept: a session that stays open.

    Raises nothing: an exception would lose the results of all tasks, whose rows would be sent again. An error becomes a `stopped` result.
    """
    session = kept or Session(settings, slot, refuse_superseded)
    task = Task(session, settings, slot, clock)
    try:
        with session:
            for load in loads(task.complete(batches), settings.max_rows, settings.max_bytes):
                task.send(load)
                yield from task.take_results()
    except SessionLostError as lost:
        task.stop(None, lost.trouble)
    except Exception as error:
        # The traceback is shown nowhere, so the text says where the error was raised.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
        task.stop(None, settings.trouble(KafkaError._APPLICATION, text))
    yield from task.take_results()


class Task:
    """The state of one call of `publish`: results not yet taken; topics to which nothing more is sent, and those that refuse every row;
    sequences of which nothing more is sent, as a row of theirs was not, and is tried again.
    """

    def __init__(self, session: Session, settings: PublisherSettings, slot: int, clock: Clock) -> None:
        self._session = session
        self._settings = settings
        self._slot = slot
        self._clock = clock
        self._results: list[pa.RecordBatch] = []
        self._stopped: dict[str, Trouble] = {}
        self._refused: dict[str, Trouble] = {}
        self._interrupted: set[str] = set()
        self._splits_left = settings.max_splits
        self._fenced = False

    def complete(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of `READY` as `RECORDS`, with the payloads that they refer to. Those whose payload is gone fail. Raises ContractError."""
        for batch in batches:
            for part in self._session.originals.completed(as_records(batch, READY)):
                records = complete(part.rows, part.omitted)
                for row, trouble in part.troubles.items():
                    if trouble.error.concerns == Concerns.RECORD:
                        self._fail(records.slice(row, 1), trouble)
                    else:
                        # not only this row: others that go there may have to stay behind it
                        self.stop(records.column("topic")[row].as_py(), trouble)
                yield _taken(records, [row for row in range(records.num_rows) if row not in part.troubles]) if part.troubles else records

    def take_results(self) -> Iterator[pa.RecordBatch]:
        """The results since the last time, in one batch; none when there are none."""
        if self._results:
            yield joined(self._results)
            self._results.clear()

    def send(self, load: pa.RecordBatch) -> None:
        """Sends the rows of a load. Raises SessionLostError when no further load can be sent."""
        try:
            rows = self._unsettled(load)
            destinations = self._described(rows)
            rows = self._fitting(self._unsettled(rows), destinations)
            for batch_size, topics in by_batch_size(destinations, self._settings).items():
                self._send(of_topics(rows, topics) if len(topics) < len(destinations) else rows, batch_size)
        except SessionLostError as lost:
            if not isinstance(lost, SupersededError):
                self._fail(self._charging_all(load), lost.trouble)
            raise
        for topic, trouble in self._stopped.items():
            self._fail(of_topics(self._charging_all(load), [topic]), trouble)

    def stop(self, topic: str | None, trouble: Trouble) -> None:
        """Sends nothing more to a topic for the rest of the call, or to any topic if `topic` is None."""
        if topic not in self._stopped:
            self._add(STOPPED, None, trouble, topic=[topic])
        if topic is not None:
            self._stopped.setdefault(topic, trouble)

    def _described(self, rows: pa.RecordBatch) -> dict[str, Destination]:
        """The destinations that can be sent to. The other topics of the rows are stopped, or noted as refusing every row."""
        found: dict[str, Destination] = {}
        for topic, answer in describe(topics_in(rows), self._settings).items():
            if isinstance(answer, Destination):
                found[topic] = answer
            elif answer.error.concerns == Concerns.CONNECTION:
                self.stop(topic, answer)
            else:
                self._refused[topic] = answer
        return found

    def _unsettled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose topic is neither stopped nor refuses every row, and whose sequence isn't interrupted. Rows of a topic that refuses
        every row fail.
        """
        if self._stopped or self._refused:
            for topic, trouble in self._refused.items():
                self._fail(of_topics(rows, [topic]), trouble)
            rows = of_topics(rows, [*self._stopped, *self._refused], others=True)
        return without_sequences(rows, self._interrupted)

    def _fitting(self, rows: pa.RecordBatch, destinations: dict[str, Destination]) -> pa.RecordBatch:
        """The rows that their destinations may take, dead letters with less in them if necessary. The others fail."""
        lighter: list[pa.RecordBatch] = []
        places = list(range(rows.num_rows))
        for row, trouble in misfits(rows, destinations, self._settings).items():
            fits = lightened(rows.slice(row, 1), trouble)
            while fits is not None and (left := misfits(fits, destinations, self._settings)):
                fits = lightened(fits, left[0])
            places[row] = -1 if fits is None else rows.num_rows + len(lighter)
            if fits is None:
                self._settle(rows.slice(row, 1), trouble)
            else:
                lighter.append(fits)
        if lighter or -1 in places:
            rows = self._unsettled(_taken(joined([rows, *lighter]), [place for place in places if place >= 0]))
        return with_partitions(rows, destinations)

    def _send(self, group: pa.RecordBatch, batch_size: int) -> None:
        """Sends rows that suit one batch size, in as many transactions as their refusals make necessary."""
        # A stack, the earliest rows on top: the two halves of a topic's rows stay in their order.
        waiting = [group]
        while waiting:
            rows = self._unsettled(waiting.pop())
            if rows.num_rows == 0:
                continue
            match self._attempt(rows, batch_size):
                case Sent() as sent:
                    waiting += self._sorted_out(rows, sent)
                case Aborted() as aborted:
                    waiting += self._again(rows, aborted)
                case Unanswered(sent_at, trouble):
                    self._unknown(rows.slice(0, len(sent_at)), sent_at, trouble)
                    raise SessionLostError(trouble)

    def _attempt(self, rows: pa.RecordBatch, batch_size: int) -> Outcome:
        """Sends rows in one transaction, or without transactions."""
        attempt = sending.in_transaction if self._settings.transactions else sending.without_transaction
        try:
            return attempt(self._session, rows, batch_size, self._settings, self._clock)
        except FencedError:
            # Tried again once: nothing was delivered, and a new producer checks whether a newer loop or a task of this loop fenced it.
            if self._fenced:
                raise
        self._fenced = True
        self._session.close()
        return self._attempt(rows, batch_size)

    def _sorted_out(self, rows: pa.RecordBatch, sent: Sent) -> Iterator[pa.RecordBatch]:
        """Adds results for rows that were handed over. Yields what to try next, in reverse order, as it goes onto a stack."""
        handed = rows.slice(0, len(sent.sent_at))
        others = {*sent.refused, *sent.innocent, *sent.unanswered}
        if not others:
            self._add(DELIVERED, handed, None, sent_at=sent.sent_at, partition=sent.partitions, offset=sent.offsets)
            yield rows.slice(handed.num_rows)
            return
        kept = [row for row in range(handed.num_rows) if row not in others]
        if kept:
            sent_at, partition, offset = ([column[row] for row in kept] for column in (sent.sent_at, sent.partitions, sent.offsets))
            self._add(DELIVERED, _taken(rows, kept), None, sent_at=sent_at, partition=partition, offset=offset)
        for some, trouble in _by_reason(rows, sent.unanswered):
            self._unknown(_taken(rows, some), [sent.sent_at[row] for row in some], trouble)
            self._settle(_taken(rows, some), trouble)
        if sent.lost is not None:
            raise SessionLostError(sent.lost)
        yield rows.slice(handed.num_rows + (handed.num_rows in sent.refused))
        if sent.innocent:
            yield _taken(rows, sorted(sent.innocent))
        for some, trouble in reversed(_by_reason(rows, sent.refused)):
            yield from self._narrowed(_taken(rows, some), trouble)

    def _again(self, rows: pa.RecordBatch, aborted: Aborted) -> Iterator[pa.RecordBatch]:
        """After an abort: settles the rows to blame. Yields what to try again, in reverse order, as it goes onto a stack."""
        blamed = aborted.blamed
        if not blamed:
            if aborted.trouble.error.concerns == Concerns.CONNECTION:
                raise SessionLostError(aborted.trouble)
            topics = topics_in(rows)
            if len(topics) > 1:
                yield from (of_topics(rows, [topic]) for topic in reversed(topics))
                return
            blamed = {topics[0]: aborted.trouble}
        for topic, trouble in blamed.items():
            yield from self._narrowed(of_topics(rows, [topic]), trouble)
        yield of_topics(rows, blamed, others=True)

    def _narrowed(self, rows: pa.RecordBatch, trouble: Trouble) -> Iterator[pa.RecordBatch]:
        """Yields what to try next of a topic's refused rows: halves, or a lighter dead letter. If nothing is left to try, settles them."""
        again: list[pa.RecordBatch] = []
        if trouble.error.concerns == Concerns.RECORD and rows.num_rows > 1:
            middle = rows.num_rows // 2
            again = [rows.slice(middle), rows.slice(0, middle)]
        elif trouble.error.concerns == Concerns.RECORD:
            lighter = lightened(rows, trouble)
            again = [] if lighter is None else [lighter]
            forget(topics_in(rows)[0], self._settings)
        if not again:
            self._settle(rows, trouble)
        elif self._splits_left == 0:
            self.stop(topics_in(rows)[0], trouble)
        else:
            self._splits_left -= 1
            yield from again

    def _settle(self, rows: pa.RecordBatch, trouble: Trouble) -> None:
        """Fails rows of one topic that are refused, or stops their topic."""
        topic = topics_in(rows)[0]
        forget(topic, self._settings)
        if trouble.error.concerns == Concerns.CONNECTION:
            self.stop(topic, trouble)
            return
        if trouble.error.concerns == Concerns.TOPIC:
            self._refused[topic] = trouble
        self._fail(rows, trouble)

    def _charging_all(self, load: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a load without a result whose route counts every failed send (`publish_charge` = `all`)."""
        rows = load.filter(pc.fill_null(pc.equal(load.column("publish_charge"), CHARGE_ALL), False))
        if rows.num_rows == 0 or not self._results:
            return rows
        settled = pa.chunked_array([some.column("delivery_id") for some in self._results])
        return rows.filter(pc.invert(pc.is_in(rows.column("delivery_id"), settled)))

    def _fail(self, rows: pa.RecordBatch, trouble: Trouble) -> None:
        """Adds results. Of a sequence, only the first row fails if it is tried again: those after it wait, and are charged nothing."""
        if trouble.error.kind not in FINAL or _is_tried_first(rows):
            rows = first_of_sequences(without_sequences(rows, self._interrupted))
            self._interrupted |= sequences_in(rows)
        if rows.num_rows:
            self._add(FAILED, rows, trouble, omitted=[None] * rows.num_rows)

    def _unknown(self, rows: pa.RecordBatch, sent_at: Sequence[int], trouble: Trouble) -> None:
        self._interrupted |= sequences_in(rows)
        not_before = [self._clock() + self._settings.transaction_timeout_ms] * rows.num_rows
        self._add(UNKNOWN, rows, trouble, sent_at=sent_at, not_before=not_before)

    def _add(self, outcome: str, rows: pa.RecordBatch | None, trouble: Trouble | None, **columns: Sequence[Any]) -> None:
        """Adds results with one outcome: one for each row, or a single one if `rows` is None. columns: values that `rows` does not have."""
        same: dict[str, Any] = {"outcome": outcome, "slot": self._slot}
        if trouble is not None:
            error = trouble.error
            same |= {"error_code": error.code, "error_name": error.name, "error_kind": error.kind, "error_message": trouble.message}
        given: dict[str, pa.Array] = {} if rows is None else {name: rows.column(name) for name in _CARRIED}
        for name, values in columns.items():
            kind = RESULTS.field(name).type
            given[name] = pa.array(values, pa.int64()).cast(_MS).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)
        for field in RESULTS:
            if field.name not in given:
                given[field.name] = pa.repeat(pa.scalar(same.get(field.name), field.type), 1 if rows is None else rows.num_rows)
        self._results.append(pa.RecordBatch.from_arrays([given[name] for name in RESULTS.names], schema=RESULTS))


def _is_tried_first(rows: pa.RecordBatch) -> bool:
    """Whether these are rows of outboxes whose refusal counts nothing yet: they are sent once more, and nothing may overtake them."""
    return bool(rows.num_rows and rows.column("kind")[0].as_py() == PUBLICATION and rows.column("publish_charge")[0].as_py() != CHARGE_ALL)


def _taken(rows: pa.RecordBatch, positions: Sequence[int]) -> pa.RecordBatch:
    return rows.take(pa.array(positions, pa.int64()))


def _by_reason(rows: pa.RecordBatch, troubles: Mapping[int, Trouble]) -> list[tuple[list[int], Trouble]]:
    """Groups of positions, in order, of rows that share topic and trouble, each with its trouble."""
    topics = dict(zip(troubles, _taken(rows, list(troubles)).column("topic").to_pylist(), strict=True))
    groups: dict[tuple[str, Trouble], list[int]] = {}
    for row in sorted(troubles):
        groups.setdefault((topics[row], troubles[row]), []).append(row)
    return [(some, trouble) for (_, trouble), some in groups.items()]
