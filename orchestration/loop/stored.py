"""Reads the loop's state from the ledgers, and writes it as rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orchestration.clock import LoopClock, literal
from orchestration.kafka.sent_records import MARGIN
from orchestration.loop.positions import SourceOffsets
from orchestration.loop.state import LoopState
from orchestration.loop.window import SendWindow
from orchestration.tables import synthetic_events
from orchestration.tables.ledgers import Ledgers
from orchestration.tables.rows import collected


@dataclass
class Stored:
    """The ledgers as the loop reads and writes its own state in them."""

    spark: SparkSession
    schema: str
    ledgers: Ledgers
    clock: LoopClock
    _unrecorded_since: datetime | None = None
    """`unrecorded_since` of the last row, by the wall clock: from there on, a start looks for sends without a result."""

    @property
    def clock_was_set(self) -> bool:
        """Whether the wall clock was set back since the last row: that row would have a start look for sends where none are."""
        return self._unrecorded_since is not None and self.clock.wall() < self._unrecorded_since - MARGIN / 2

    # ---------- what is read

    def last_row(self) -> SparkRow | None:
        """The last row of `ticks`, read by its batch: the table only grows, and must not be read as a whole for one row."""
        rows = collected(self.spark.sql(f"select * from {self.schema}.ticks where batch = {self.ledgers.end_of('ticks'):d}"))
        return rows[0] if rows else None

    def raised(self, state: LoopState, last: SparkRow | None) -> LoopState:
        """The state, its offsets and issued commands raised to those of a row of `ticks` and of the events appended since."""
        if last is not None:
            before = LoopState.from_row(last)
            state = replace(state, offsets=state.offsets.raised(before.offsets), commands=state.commands.raised(before.commands.issued))
        since = int(last["batch"]) if last else 0
        read = self.spark.sql(
            f"""
            with

            read as (
                select concat_ws('/', topic_id, partition) as key, offset + 1 as next, source from {self.schema}.events
                where batch >= {since} and kind in ('report', 'command') and delivery_id is null

                union all

                -- a gap holds the offset where reading goes on: without it, the gap would be recorded twice, or new records would be
                -- skipped
                select cast(key as string), try_cast(cast(value as string) as bigint), source from {self.schema}.events
                where batch >= {since} and kind = 'gap' and key is not null
            )

            select key, max(next) as next, any_value(source) as source from read group by key
            """
        ).collect()
        issued = self.spark.sql(
            f"""
            select command, max(index) + 1 as next from {self.schema}.events
            where batch >= {since} and command is not null and kind <> 'command'
            group by command
            """
        ).collect()
        offsets = SourceOffsets({row["key"]: int(row["next"]) for row in read}, frozenset(row["source"] for row in read))
        commands = state.commands.raised({row["command"]: int(row["next"]) for row in issued})
        return replace(state, offsets=state.offsets.raised(offsets), commands=commands)

    def with_undecided(self, state: LoopState) -> tuple[LoopState, int | None]:
        """The state with the undecided inputs in the ledgers, left by another loop, or by a decide run for the next one.

        Returns the batch of the first, too.
        """
        undecided = " union all ".join(
            f"select batch, recorded_at from {self.ledgers.name(ledger)} where batch > {state.watermark}{which}"
            # rows that record a takeover don't count: they are decided with the next inputs, and nothing should wait for them
            for ledger, which in (("events", " and kind <> 'start'"), ("publish_results", " and outcome = 'failed'"))
        )
        (row,) = collected(self.spark.sql(f"select count(*) as inputs, min(recorded_at) as since, min(batch) as first from ({undecided})"))
        window = state.window.all_decided()
        if row["inputs"]:
            window = window.awaiting(int(row["inputs"]), row["since"])
        return replace(state, window=window), None if row["first"] is None else int(row["first"])

    def with_unknown_sends(self, window: SendWindow) -> SendWindow:
        """The window with the sends of earlier loops whose outcome is unknown, and which may not be repeated yet."""
        still = self.spark.sql(
            f"""
            select min(due_at) as since, max(not_before) as until from {self.schema}.publish_results
            where not_before > {literal(self.clock.now())}
            """
        )
        (row,) = collected(still)
        return window.with_unknown(row["since"], row["until"]) if row["until"] else window

    def last_decided(self) -> int:
        """The last batch of `deliveries`."""
        return int(self.spark.sql(f"select coalesce(max(batch), 0) as batch from {self.schema}.deliveries").collect()[0]["batch"])

    def most_slots(self) -> int:
        """The most publishing slots that any loop had: 0 where none has started."""
        return int(self.spark.sql(f"select max(slots) as slots from {self.schema}.ticks").collect()[0]["slots"] or 0)

    def open_deliveries(self) -> int:
        """How many deliveries are open, due or not, or held."""
        # held deliveries that the rules in force refuse don't count: they wait for other rules
        open_ones = [f"select count(*) as n from {self.schema}.{view}" for view in ("ready", "held_deliveries where not is_refused")]
        rows = self.spark.sql(f"select sum(n) as n from ({' union all '.join(open_ones)})").collect()
        return int(rows[0]["n"])

    # ---------- what is written

    def append(self, state: LoopState) -> None:
        """Writes the state as a row of `ticks`."""
        now = self.clock.now()
        self.ledgers.append("ticks", self.row(replace(state, loop_time=now)), now)
        self._unrecorded_since = state.unrecorded_since

    def row(self, state: LoopState) -> pa.Table:
        """The state as a row of `ticks`."""
        row = state.as_row()
        schema = self.spark.table(self.ledgers.name("ticks")).schema
        return pa.Table.from_pylist([row], schema=to_arrow_schema(StructType([schema[name] for name in row])))

    def seal(self, ledger: str, state: LoopState) -> None:
        """Appends a row that only records that this loop is in charge: an append that was begun before it is refused from then on."""
        if ledger == "ticks":
            self.append(state.of_kind("tick"))
            return
        now = self.clock.now()
        if ledger == "events":
            row = synthetic_events.as_rows(self.spark, [synthetic_events.start(self.ledgers.next_batch, state.instance)])
        else:
            row = self.spark.createDataFrame([("start", "start", now)], "kind string, outcome string, due_at timestamp")
        self.ledgers.append(ledger, row, now)
