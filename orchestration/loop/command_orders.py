"""The orders of a command, as events: one row for each message that is issued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from orchestration.tables.rows import collected
from orchestration.tables.synthetic_events import COORDINATES, command_order

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
        rows = [
            (*command_order(batch, place), delivery_id, due_at, sent)
            for (delivery_id, due_at, place), sent in zip(chosen, at, strict=False)
        ]
        orders = self.spark.createDataFrame(rows, f"{COORDINATES}, delivery_id string, due_at timestamp, record_timestamp timestamp")
        dues = [due for _, due, _ in chosen]
        if what in _WAITING_KINDS:
            orders = self._looked_up(what, orders, dues, now)
        else:
            orders = orders.withColumns({"kind": F.lit(what), "detail": F.lit(None).cast("string")})
        if what == "redrive":
            orders = self._with_reports(orders.withColumn("detail", F.lit(destination).cast("string")), dues)
        return orders.withColumn("command", F.lit(command))

    def _looked_up(self, what: str, orders: DataFrame, dues: list[datetime], now: datetime) -> DataFrame:
        """The orders; `detail` is `not_waiting` where the delivery no longer waits: it may have been sent, and must not be sent again."""
        first, last = F.lit(min(dues)), F.lit(max(dues))
        in_time = F.col("due_at").between(first, last)
        in_slot = F.col("due_hour").between(F.date_trunc("hour", first), F.date_trunc("hour", last))
        ready = self.spark.table(f"{self.schema}.ready").where(in_time & in_slot)
        waits = ready.where(F.col("not_before").isNull() | (F.col("not_before") <= F.lit(now))).select("delivery_id", "due_at")
        if what == "cancel":
            held = self.spark.table(f"{self.schema}.held_deliveries").where(in_time & in_slot)
            waits = waits.unionByName(held.select("delivery_id", "due_at"))
        found = waits.distinct().withColumn("waits", F.lit(True))
        detail = F.when(F.col("waits").isNull(), "not_waiting")
        return orders.join(found, ["delivery_id", "due_at"], "left").withColumns({"kind": F.lit(what), "detail": detail}).drop("waits")

    def _with_reports(self, orders: DataFrame, dues: list[datetime]) -> DataFrame:
        """The orders. If a message was refused and `events` still has its report, the report replaces the order and is decided anew."""
        names = ["delivery_id", "due_at"]
        refusals = collected(
            self.spark.table(f"{self.schema}.deliveries")
            .where(F.col("due_at").between(F.lit(min(dues)), F.lit(max(dues))) & (F.col("decision") == "refused"))
            .join(F.broadcast(orders.where("coalesce(detail, 'retry') = 'retry'").select(*names)), names)
            .join(self.spark.table(f"{self.schema}.purges").withColumnRenamed("life_cycle", "purged_life_cycle"), "message_id", "left")
            .where("purged_life_cycle is null or life_cycle > purged_life_cycle")
            .select(*names, "input_id", "batch")
            .distinct()
        )
        if not refusals:
            return orders
        batches = [row["batch"] for row in refusals]
        input_ids = self.spark.createDataFrame([row[:3] for row in refusals], "delivery_id string, due_at timestamp, input_id string")
        copied = ("source", "topic", "key", "value", "headers", "record_timestamp", "stamped_by_broker")
        reports = (
            self.spark.table(f"{self.schema}.events")
            .where(F.col("batch").between(min(batches), max(batches)) & (F.col("kind") == "report"))
            # maintenance empties the reports of purged messages: these can't be decided anew
            .where("key is not null or value is not null or headers is not null")
            .select(F.concat_ws("/", "topic_id", "partition", "offset", "index").alias("input_id"), *copied)
            .join(F.broadcast(input_ids), "input_id")
        )
        again = F.col("input_id").isNotNull()
        return (
            orders.withColumnRenamed("record_timestamp", "send_at")
            .join(reports, names, "left")
            .withColumns(
                {
                    "kind": F.when(again, "report").otherwise(F.col("kind")),
                    "detail": F.coalesce("input_id", "detail"),
                    "record_timestamp": F.when(again, F.col("record_timestamp")).otherwise(F.col("send_at")),
                }
            )
            .drop("input_id", "send_at")
        )
