"""The order of rows of outboxes, and of messages that have waited for an earlier one: what belongs to one sequence is sent in its order,
through one slot.

A row is left out while an earlier one of its sequence is open that isn't sent before it in the same step: one that waits for its next
attempt, or whose last send has failed or is of unknown outcome.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from orchestration.loop.due import Due

TURN = "turn_at"
"""When a row can be sent: when it is due, and all those before it in its sequence."""


def in_order(rows: DataFrame, what: Due, open_rows: DataFrame) -> DataFrame:
    """The rows of `ready` that may be sent, with TURN. open_rows: `bulk_open`, since the first that is open.

    While inputs are undecided, none that must stay in order is sent: one of the inputs may be the failed send of an earlier row.
    """
    if what.undecided_after is not None:
        return rows.where(F.col("sequence").isNull()).withColumn(TURN, F.col("due_at"))
    left = open_rows.where(F.col("sequence").isNotNull()).join(rows.select("delivery_id", "due_at"), ["delivery_id", "due_at"], "left_anti")
    blocked = left.groupBy("sequence").agg(F.min("sequence_place").alias("blocked_from"))
    so_far = Window.partitionBy("sequence").orderBy("sequence_place").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    turn = F.when(F.col("sequence").isNull(), F.col("due_at")).otherwise(F.max("due_at").over(so_far))
    return (
        rows.join(blocked, "sequence", "left")
        .where(F.col("blocked_from").isNull() | (F.col("sequence_place") < F.col("blocked_from")))
        .withColumn(TURN, turn)
        .where(F.col(TURN) <= F.lit(what.upto))
        .drop("blocked_from")
    )


def divided(rows: DataFrame, slots: int) -> DataFrame:
    """The rows divided among the slots: each sequence is in one of them, in its order."""
    by = F.coalesce("sequence", "delivery_id")
    return rows.repartition(slots, by).sortWithinPartitions("sequence_place")
