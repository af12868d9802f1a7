"""The orders of a command, as events: one row for each message that is issued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from orchestration.tables import synthetic_events
from orchestration.tables.rows import collected

_WAITING_KINDS = ("send_now", "cancel")


@dataclass(frozen=True)
class Orders:
    """Makes the events of commands; the caller appends them."""

    spark: SparkSession
    schema: str

    def of(
        self,
        command: str,
        what: str,
        destination: str | None,
        chosen: Sequence[tuple[str, datetime, int]],
        batch: int,
        now: datetime,
        send_at: Sequence[datetime] | None = None,
    ) -> DataFrame:
        """The events for some deliveries of a command's list. chosen: delivery id, due time and place in the list.

        send_at: when each message is to be sent; its event has this time as `record_timestamp`. None: as soon as it is decided.
        """
        at: Sequence[datetime | None] = send_at or [None] * len(chosen)
        events = (
            synthetic_events.command_order(batch, place, command, what, delivery_id, due_at, destination, sent)
            for (delivery_id, due_at, place), sent in zip(chosen, at, strict=False)
        )
        orders = synthetic_events.as_rows(self.spark, events)
        dues = [due for _, due, _ in chosen]
        if what in _WAITING_KINDS:
            return synthetic_events.not_waiting(orders, self._waiting(what, dues, now))
        if what == "in_turn":
            return synthetic_events.with_epochs(orders, self.spark.table(f"{self.schema}.followers"))
        return self._with_reports(orders, dues) if what == "redrive" else orders

    def _waiting(self, what: str, dues: list[datetime], now: datetime) -> DataFrame:
        """What waits among the deliveries due at these times. Any other may have been sent, and must not be sent again."""
        first, last = F.lit(min(dues)), F.lit(max(dues))
        in_time = F.col("due_at").between(first, last)
        in_slot = F.col("due_hour").between(F.date_trunc("hour", first), F.date_trunc("hour", last))
        ready = self.spark.table(f"{self.schema}.ready").where(in_time & in_slot)
        waits = ready.where(F.col("not_before").isNull() | (F.col("not_before") <= F.lit(now))).select("delivery_id", "due_at")
        if what == "cancel":
            held = self.spark.table(f"{self.schema}.held_deliveries").where(in_time & in_slot)
            waits = waits.unionByName(held.select("delivery_id", "due_at"))
        return waits

    def _decided_anew(self, refusals: DataFrame, since: int) -> DataFrame:
        """The refusals whose report was written into `events` once more, unless that was refused, too."""
        events = self.spark.table(f"{self.schema}.events").where(F.col("batch") > since)
        named = F.broadcast(refusals.select("delivery_id", "due_at"))
        again = synthetic_events.decided_before(events).join(named, ["delivery_id", "due_at"])
        refused = self.spark.table(f"{self.schema}.deliveries").where("decision = 'refused' and input_id like 'loop/%'").select("input_id")
        return again.join(refused, "input_id", "left_anti").select("delivery_id", "due_at").distinct()

    def _with_reports(self, orders: DataFrame, dues: list[datetime]) -> DataFrame:
        """The orders. If a message was refused and `events` still has its report, the report replaces the order and is decided anew."""
        names = ["delivery_id", "due_at"]
        refused = F.col("due_at").between(F.lit(min(dues)), F.lit(max(dues))) & (F.col("decision") == "refused")
        purged = self.spark.table(f"{self.schema}.purged_decisions").where(refused).select(*names)
        refusals = collected(
            self.spark.table(f"{self.schema}.deliveries")
            .where(refused)
            .join(F.broadcast(orders.where("coalesce(detail, 'retry') = 'retry'").select(*names)), names)
            .join(purged, names, "left_anti")
            .select(*names, "input_id", "batch")
            .distinct()
        )
        if not refusals:
            return orders
        batches = [row["batch"] for row in refusals]
        named = self.spark.createDataFrame([row[:3] for row in refusals], "delivery_id string, due_at timestamp, input_id string")
        before = self._decided_anew(named, min(batches)).localCheckpoint()
        orders, input_ids = synthetic_events.answered_already(orders, before), named.join(before, names, "left_anti")
        reports = (
            self.spark.table(f"{self.schema}.events")
            .where(F.col("batch").between(min(batches), max(batches)) & (F.col("kind") == "report"))
            # maintenance empties the reports of purged messages: these can't be decided anew
            .where("key is not null or value is not null or headers is not null")
            .select(F.concat_ws("/", "topic_id", "partition", "offset", "index").alias("input_id"), *synthetic_events.REPORTED)
            .join(F.broadcast(input_ids), "input_id")
        )
        return synthetic_events.decided_anew(orders, reports)
