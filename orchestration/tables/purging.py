"""Removes the payloads of messages that operators have purged from rows that the loop has finished with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pyspark.sql import Row, SparkSession

from orchestration.tables.procedures import Table

# The columns, by table, that are emptied in rows that an operator has purged. In `deliveries`, payload_bytes = 0 marks such a row.
_PURGED: Final = {
    "events": ("key", "value", "headers"),
    "deliveries": ("key", "value", "headers", "by_reference", "error_message", "error_stack", "matched"),
}


def purge(
    spark: SparkSession, schema: str, past: str, attempt: Callable[[Callable[[], int], str, list[str]], int | None]
) -> dict[str, int | None]:
    """Empties rows that operators have purged; returns how many, by table. None: left for the next run, as other commits came first.

    past: the condition that a row of `deliveries` is settled. attempt: takes a step, or leaves it. `events` first: an emptied row of
    `deliveries` means that its event is empty, too.
    """
    if all(row["viewName"] != "purged_decisions" for row in spark.sql(f"show views in {schema}").collect()):
        # the view doesn't exist before the first start of a version that has it
        return {}
    rows = spark.sql(
        f"""
        select distinct input_id, batch from {schema}.purged_decisions
        where {past} and has_payload
        """
    ).collect()
    if not rows:
        return {}
    _name_inputs(spark, rows)
    # a purged message whose report was refused before, under another id: nothing else finds that one
    rows += spark.sql(
        f"""
        select distinct input_id, batch from {schema}.deliveries
        where {past} and decision = 'refused' and delivery_id in (
            select delivery_id from {schema}.events
            where
                kind = 'report' and delivery_id is not null
                and concat_ws('/', topic_id, partition, offset, index) in (select input_id from purged_inputs)
        )
        """
    ).collect()
    _name_inputs(spark, rows)
    batches = [row["batch"] for row in rows]
    among = f"batch between {min(batches):d} and {max(batches):d} and"
    holds = " or ".join(f"{column} is not null" for column in _PURGED["events"])
    conditions = {
        "events": f"{among} concat_ws('/', topic_id, partition, offset, index) in (select input_id from purged_inputs) and ({holds})",
        "deliveries": f"{among} {past} and input_id in (select input_id from purged_inputs)",
    }
    emptied: dict[str, int | None] = {}
    for table, where in conditions.items():
        changes = [*(f"{column} = null" for column in _PURGED[table]), *(["payload_bytes = 0"] if table == "deliveries" else [])]
        emptied[table] = attempt(partial(Table(spark, f"{schema}.{table}").empty, changes, where), "payloads", [])
        if emptied[table] is None:
            emptied = {"deliveries": None, **emptied}
            break
    spark.catalog.dropTempView("purged_inputs")
    return emptied


def _name_inputs(spark: SparkSession, rows: Sequence[Row]) -> None:
    spark.createDataFrame([(row["input_id"],) for row in rows], "input_id string").createOrReplaceTempView("purged_inputs")
