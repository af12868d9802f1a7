"""Sends rows of outboxes as they are read, without a decision: what Kafka takes leaves a result in `publish_results`, and nothing else.

A row goes this way if nothing speaks against it. All others are taken into the tables: those that Kafka refuses, that come after one of
their sequence that is still open, or whose topic had no row of this installation lately. docs/decisions/0067 has the reasons.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from orchestration.clock import EPOCH, LoopClock, literal
from orchestration.logs import event
from orchestration.loop.health import SENDS, Health, Reason
from orchestration.loop.leadership import DIRECT_SENDS, Leadership
from orchestration.loop.open_slot import OpenSlot
from orchestration.loop.sequences_held import SequencesHeld
from orchestration.loop.state import LoopState
from orchestration.loop.steps import BULK, Sent, StepReport
from orchestration.loop.stored import Stored
from orchestration.outbox.direct_ids import direct_suffix
from orchestration.rules.topic_patterns import is_source
from orchestration.tables.rows import collected
from publisher import DELIVERED, READY, RESULTS, STOPPED, SUPERSEDED_CODE, UNKNOWN

log = logging.getLogger(__name__)

KNOWN_FOR = timedelta(hours=1)
"""How long a topic that a row was published to is one that rows are sent to directly. A start reads such topics back."""


def topics_published_to(stored: Stored, since: datetime) -> dict[str, datetime]:
    """The topics that rows of outboxes were published to since a moment, in loop time, each with the last due time of these rows."""
    found = stored.spark.sql(
        f"""
        select topic, max(due_at) as last from {stored.schema}.publish_results
        where kind = 'publish' and outcome = '{DELIVERED}' and due_at >= {literal(since)}
        group by topic
        """
    )
    return {row["topic"]: row["last"] for row in collected(found)}


@dataclass(frozen=True)
class PageSent:
    """What became of pending rows. What is in neither stays pending in its outbox.

    left: the rows (TAKEN) that are to be taken into the tables. row_ids: those that were sent, and have results in `batch`. in_doubt:
    whether others may have been sent.
    """

    left: pa.Table
    row_ids: Sequence[str] = ()
    batch: int = 0
    in_doubt: bool = False


@dataclass
class DirectSends:
    """Sends rows of outboxes directly.

    sending: held while rows are sent, until their results are appended. knows_what_was_sent: whether every send has a result; if not,
    nothing is sent, and no pending row is read: it may have been sent. doubt: notes that sends since a moment may have no result.
    in_doubt: the outboxes of which rows may have been sent without a result since their states were written back.
    """

    leadership: Leadership
    health: Health
    clock: LoopClock
    sending: threading.Lock
    knows_what_was_sent: Callable[[], bool]
    doubt: Callable[[datetime], None]
    in_doubt: set[str] = field(default_factory=set)
    _topics: dict[str, datetime] = field(default_factory=dict)
    """Where rows were published to within KNOWN_FOR, and until when this is so."""
    _held: SequencesHeld = field(default_factory=SequencesHeld)

    def __post_init__(self) -> None:
        self._slot = OpenSlot(self.leadership, self.clock, DIRECT_SENDS)

    def send(self, report: StepReport, name: str, pages: Iterable[pa.Table]) -> PageSent:
        """Sends what may be sent directly of pages of pending rows (TAKEN), in their order. The results of all pages are appended at once.

        pages: at least one. The next is asked for if all of the one before was sent. Raises AppendError, after which `knows_what_was_sent`
        is false.
        """
        delivered: list[pa.Table] = []
        began: datetime | None = None
        is_certain = True
        with self.sending:
            try:
                for rows in pages:
                    ready = rows.filter(self._may_go(report, name, rows))
                    sent = None
                    if ready.num_rows:
                        now = self.clock.now()
                        began = began or now
                        sent = self._publish(report, name, ready, now)
                        delivered.append(sent)
                    is_certain = name not in self.in_doubt and report.superseded_by is None
                    # later rows of a sequence must not go before one that may be sent again
                    left = self._left(name, _others(name, rows, sent)) if is_certain else rows.slice(0, 0)
                    if left.num_rows or not is_certain:
                        break
                results = pa.concat_tables([RESULTS.empty_table(), *delivered])
                batch = self._record(results, began) if began is not None and results.num_rows else 0
            except BaseException:
                if began is not None:
                    self._note_doubt(name, began)
                raise
        _count(report, results)
        row_ids = pc.utf8_slice_codeunits(results.column("message_id"), len(f"outbox:{name}/")).to_pylist()
        return PageSent(left, row_ids, batch, not is_certain)

    def look_again(self) -> None:
        """Has the tables asked again for open sequences: an operator's order may open one."""
        self._held.known = None

    def use_rules(self) -> None:
        """Has the topics looked up again: by other rules, one of them may be a source."""
        self._topics = {}

    def end(self) -> None:
        """Ends the producer."""
        self._slot.end()

    # ---------- what may be sent

    def _may_send(self, report: StepReport) -> bool:
        """Whether rows may be sent directly now. Without transactions no order is kept, and nothing is read back."""
        if not self.leadership.settings.transactions or not self.leadership.in_charge:
            return False
        if SENDS in self.health or report.has_failed(SENDS):
            return False
        if self._held.known is None:
            self._look(report.state)
        return self._held.known is not None

    def _may_go(self, report: StepReport, name: str, rows: pa.Table) -> pa.Array:
        """Which of the rows may be sent directly."""
        if not rows.num_rows or not self._may_send(report):
            return pa.repeat(False, rows.num_rows)
        now, window = self.clock.now(), report.state.window
        named = [topic for topic in rows.column("topic").unique().to_pylist() if topic]
        if any(self._topics.get(topic, now) <= now for topic in named):
            self._topics = {topic: last + KNOWN_FOR for topic, last in topics_published_to(self.leadership.stored, now - KNOWN_FOR).items()}
        seeds = self.leadership.rules.seeds
        topics = [
            topic for topic in named if self._topics.get(topic, now) > now and topic not in window.paused and not is_source(seeds, topic)
        ]
        begins = pc.equal(pc.fill_null(rows.column("attempts"), 0), 0)
        waits = pc.fill_null(pc.greater(rows.column("next_retry_at"), pa.scalar(now)), False)
        is_first = pc.and_(begins, pc.invert(waits))
        may = pc.and_(is_first, pc.is_in(rows.column("topic"), pa.array(topics, pa.string())))
        # all of a sequence goes the same way from the first row on that may not be sent directly
        sequences = _sequences(name, rows)
        closed = _distinct(sequences.filter(pc.invert(may))) | self._held_among(_distinct(sequences.filter(may)), report.state)
        if not closed:
            return may
        return pc.and_(may, pc.invert(pc.is_in(sequences, pa.array(sorted(closed), pa.string()))))

    def _held_among(self, sequences: set[str], state: LoopState) -> set[str]:
        """The sequences of which rows may be open in the tables. Asks these, if it may make a difference."""
        held = self._held.among(sequences)
        if held and time.monotonic() >= self._held.next_look:
            self._look(state)
            # not known: an order is not decided yet
            held = held if self._held.known is None else self._held.among(held)
        return held

    def _look(self, state: LoopState) -> None:
        self._held.look(self.leadership.stored, state.watermark, state.window.lowest_floor)

    def _left(self, name: str, rows: pa.Table) -> pa.Table:
        """Notes the sequences of rows that are taken into the tables."""
        self._held.add(_distinct(_sequences(name, rows)))
        return rows

    # ---------- sending

    def _publish(self, report: StepReport, name: str, rows: pa.Table, now: datetime) -> pa.Table:
        """Sends rows (TAKEN); returns the results (RESULTS) of those that Kafka has."""
        results = pa.Table.from_batches(self._slot.publish(self._ready(name, rows, now)), RESULTS)
        outcomes = results.column("outcome")
        unknown = pc.sum(pc.equal(outcomes, UNKNOWN)).as_py()
        if unknown:
            self._note_doubt(name, now)
            event(log, logging.WARNING, "direct_sends_unknown", outbox=name, rows=unknown)
        for stop in results.filter(pc.equal(outcomes, STOPPED)).to_pylist():
            if stop["error_code"] == SUPERSEDED_CODE:
                report.superseded_by = self.leadership.newest()
            elif stop["topic"] is None:
                # other outboxes need not wait for Kafka, too
                report.failed(SENDS, Reason(f"nothing can be sent: {stop['error_message']} ({stop['error_name']})", stop["error_name"]))
        return results.filter(pc.equal(outcomes, DELIVERED))

    def _ready(self, name: str, rows: pa.Table, now: datetime) -> pa.RecordBatch:
        """Rows of an outbox (TAKEN) as deliveries that are due now (READY)."""
        count = rows.num_rows
        message = _message_ids(name, rows)
        micros = (now - EPOCH) // timedelta(microseconds=1)
        given = {
            "delivery_id": pc.binary_join_element_wise(message, direct_suffix(self.leadership.settings, micros), ""),
            "due_at": pa.repeat(pa.scalar(micros - micros % 1_000, READY.field("due_at").type), count),
            "kind": pa.repeat("publish", count),
            "message_id": message,
            **{column: rows.column(column) for column in ("topic", "key", "value", "headers", "sequence")},
            # a failed connection concerns no row: then all go through the tables, where failures are charged
            "publish_charge": pa.repeat("record", count),
            "original_timestamp": rows.column("created_at"),
        }
        made = pa.table({field.name: given.get(field.name, pa.nulls(count, field.type)) for field in READY})
        return made.cast(READY).combine_chunks().to_batches()[0]

    def _record(self, delivered: pa.Table, began: datetime) -> int:
        """Appends results; returns the batch."""
        batch = self.leadership.stored.ledgers.append("publish_results", delivered, self.clock.now())
        until = began + KNOWN_FOR
        self._topics.update(dict.fromkeys(delivered.column("topic").unique().to_pylist(), until))
        return batch

    def _note_doubt(self, name: str, began: datetime) -> None:
        self.in_doubt.add(name)
        self.doubt(began)


def _message_ids(name: str, rows: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(f"outbox:{name}", rows.column("row_id"), "/")


def _sequences(name: str, rows: pa.Table) -> pa.ChunkedArray:
    return pc.coalesce(rows.column("sequence"), _message_ids(name, rows))


def _distinct(sequences: pa.ChunkedArray) -> set[str]:
    return {*sequences.unique().to_pylist()}


def _others(name: str, rows: pa.Table, sent: pa.Table | None) -> pa.Table:
    """Those of the rows (TAKEN) that Kafka has not. sent: RESULTS."""
    return rows if sent is None else rows.filter(pc.invert(pc.is_in(_message_ids(name, rows), sent.column("message_id"))))


def _count(report: StepReport, delivered: pa.Table) -> None:
    """Adds what was sent (RESULTS) to the counts of the step."""
    rows = delivered.num_rows
    if not rows:
        return
    report.count("delivered", rows)
    late = pc.subtract(pc.cast(delivered.column("sent_at"), pa.int64()), pc.cast(delivered.column("due_at"), pa.int64()))
    median, highest = pc.quantile(pc.divide(late, 1_000), [0.5, 0.99]).to_pylist()
    report.has_sent(BULK, Sent(rows, (round(median), round(highest))))
