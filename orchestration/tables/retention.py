"""Removes what is finished and old: messages, with all their rows; and rows of `ticks` that nothing reads any more.

A message is finished if it was processed, sent, cancelled or dropped by its policy, and nothing was decided or recorded about it since.
What waits stays, and so do dead, discarded and refused messages, whatever their age. Of rows of outboxes, what is not written back stays,
and those that were not published: in a table without a status they look pending, and would be published if their rows were removed here.

`deliveries` comes first; a result or an event is removed because its delivery or decision is gone. So a run that was interrupted is
completed by the next, and no delivery is ever open again because its result went first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from orchestration.clock import EPOCH, literal
from orchestration.tables.procedures import Table
from orchestration.tables.spark import set_table_property, table_property

# States of `messages` after which nothing more is done about a message.
_FINISHED: Final = ("recovered", "sent", "cancelled", "dropped")

# Those of them in which a row of an outbox is still in its table.
_NOT_PUBLISHED: Final = ("cancelled", "dropped")


# The property of `deliveries` that has the time of the last removal, in milliseconds of the epoch.
_PROPERTY: Final = "redrive.finished-before"


def removed_before(spark: SparkSession, schema: str) -> datetime:
    """Of what was recorded before this time, rows may be missing: finished messages were removed, or are being removed."""
    return EPOCH + timedelta(milliseconds=int(table_property(spark, f"{schema}.deliveries", _PROPERTY) or 0))


@dataclass(frozen=True)
class Retention:
    """Removes rows recorded before a time, of batches up to `batch`: these are decided.

    written: by outbox, the last batch that is written back.
    attempt: removes rows of the table that it is given, or leaves them for the next run if other commits come first.
    """

    spark: SparkSession
    schema: str
    batch: int
    written: Mapping[str, int]
    attempt: Callable[[str, Callable[[], int]], int | None]

    def remove_finished(self, before: datetime) -> dict[str, int | None]:
        """Removes finished messages; returns how many rows, by table. None: left for the next run."""
        finished = self.spark.sql(self._finished(before)).localCheckpoint()
        finished.createOrReplaceTempView("finished_messages")
        finished = finished.unionByName(self.spark.sql(self._refused_before())).localCheckpoint()
        finished.createOrReplaceTempView("finished_messages")
        old = f"recorded_at < {literal(before)} and batch <= {self.batch:d}"
        conditions = {
            "deliveries": f"""
                due_at < {literal(before)} and {old} and {self._is_written("message_id")}
                and message_id in (select message_id from finished_messages)
            """,
            "publish_results": f"""
                due_at < {literal(before)} and {old} and delivery_id is not null and {self._is_written("message_id")}
                and not exists (
                    select 1 from {self.schema}.deliveries as kept
                    where kept.delivery_id = publish_results.delivery_id and kept.due_at = publish_results.due_at
                )
                -- a row of an outbox that was sent without a decision: that it was published again is known from its result alone
                and not exists (
                    select 1 from {self.schema}.deliveries as kept
                    where publish_results.kind = 'publish' and kept.message_id = publish_results.message_id
                )
            """,
            "events": f"""
                {old} and kind not in ('start', 'gap', 'command')
                and (kind <> 'row' or {self._is_written("concat('outbox:', source, '/')")})
                and not exists (
                    select 1 from {self.schema}.deliveries as kept
                    where kept.input_id = concat_ws('/', events.topic_id, events.partition, events.offset, events.index)
                )
            """,
        }
        removed = {table: self._remove(table, where, lambda: self._note(before)) for table, where in conditions.items()}
        self.spark.catalog.dropTempView("finished_messages")
        return removed

    def _note(self, before: datetime) -> None:
        """Notes what is being removed: until it is all gone, some of its rows lack the others."""
        if before > removed_before(self.spark, self.schema):
            millis = -((EPOCH - before) // timedelta(milliseconds=1))
            set_table_property(self.spark, f"{self.schema}.deliveries", _PROPERTY, millis)

    def trim_ticks(self, before: datetime, finished: datetime | None) -> dict[str, int | None]:
        """Removes rows of ticks, except those of starts and ends, the last of each opening of a circuit breaker, and the last that says how
        far a consumer group got in a partition: without that, messages that were recovered would count as sent.

        finished: finished messages older than this are removed; None: none are. Since when younger ones are recovered is known from
        every row that says how far their group got.
        """
        ticks = f"{self.schema}.ticks"
        where = f"""
            kind = 'tick' and recorded_at < {literal(before)}
            and not exists (
                select 1 from (
                    select max(batch) as batch from {ticks}

                    union all

                    select max(batch) as batch
                    from (select batch, explode(circuit_breakers) as (breaker_key, breaker) from {ticks}) as openings
                    group by breaker_key, breaker.opened_at

                    union all

                    select max(batch) as batch
                    from (select batch, explode(settled) as place from {ticks}) as places
                    group by place.consumer_group, place.topic, place.partition

                    union all

                    select batch from {ticks}
                    where cardinality(settled) > 0 and {f"recorded_at >= {literal(finished)}" if finished else "true"}
                ) as needed
                where needed.batch = ticks.batch
            )
        """
        return {"ticks": self._remove("ticks", where)}

    def _finished(self, before: datetime) -> str:
        return f"""
            select messages.message_id from {self.schema}.messages as messages
            left anti join (
                select message_id from {self.schema}.deliveries
                where due_at >= {literal(before)} or recorded_at >= {literal(before)} or batch > {self.batch:d}
                union all
                -- what waited for long was sent only now
                select message_id from {self.schema}.publish_results
                where message_id is not null and (recorded_at >= {literal(before)} or batch > {self.batch:d})
            ) as recent on messages.message_id = recent.message_id
            where messages.state in {_FINISHED} and not (messages.message_id like 'outbox:%' and messages.state in {_NOT_PUBLISHED})
        """

    def _refused_before(self) -> str:
        """The ids that finished messages had when their reports were refused. Without it, a refusal would be listed again, and could be
        redriven, as nothing shows any more that its report was decided anew.
        """
        return f"""
            select distinct refused.message_id
            from {self.schema}.events as events
            inner join {self.schema}.deliveries as anew
                on anew.input_id = concat_ws('/', events.topic_id, events.partition, events.offset, events.index)
            inner join {self.schema}.deliveries as refused on events.delivery_id = refused.delivery_id and refused.decision = 'refused'
            where
                events.kind = 'report' and events.delivery_id is not null and anew.decision <> 'refused'
                and anew.message_id in (select message_id from finished_messages)
        """

    def _is_written(self, message_id: str) -> str:
        """The condition that what became of a row of an outbox is written back, or that it is no such row."""
        waits = (f"(startswith({message_id}, 'outbox:{name}/') and batch > {batch:d})" for name, batch in self.written.items())
        return f"not ({' or '.join([*waits, 'false'])})"

    def _remove(self, table: str, where: str, first: Callable[[], None] = lambda: None) -> int | None:
        return self.attempt(table, lambda: Table(self.spark, f"{self.schema}.{table}").remove(where, first))
