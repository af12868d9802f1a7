"""What circuit breakers hold, by the tables: which deliveries are released next, and which ones the rules in force refuse."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from orchestration.tables.rows import collected

AGE = ("first_failed_at", "original_partition", "original_offset")
"""The columns that deliveries are ordered by: the lowest goes first."""


def age(row: Row) -> tuple[object, ...]:
    """The value that a delivery is ordered by: the lowest goes first, and null before all others, as in SQL."""
    return tuple((row[name] is not None, row[name]) for name in AGE)


def oldest_held(spark: SparkSession, schema: str, floor: datetime, most: Mapping[str, int]) -> list[Row]:
    """The oldest held deliveries, by key and age. most: how many of each key; floor: nothing held was due before."""
    asked = spark.createDataFrame(list(most.items()), "breaker_key string, most int")
    ranked = (
        _held_by(spark, schema, floor, most)
        .where("not is_refused")
        .select("breaker_key", "delivery_id", "due_at", *AGE)
        .withColumn("place", F.row_number().over(Window.partitionBy("breaker_key").orderBy(*AGE)))
    )
    few = ranked.join(F.broadcast(asked), "breaker_key").where("place <= most")
    return collected(few.orderBy("breaker_key", "place"))


def refused_by_rules(spark: SparkSession, schema: str, floor: datetime, keys: Collection[str]) -> dict[str, int]:
    """How many deliveries of each key the rules in force refuse to release: ordered again, they would be refused again."""
    refused = _held_by(spark, schema, floor, keys).where("is_refused").groupBy("breaker_key").count()
    return {row["breaker_key"]: int(row["count"]) for row in collected(refused)}


def _held_by(spark: SparkSession, schema: str, floor: datetime, keys: Collection[str]) -> DataFrame:
    first = F.lit(floor)
    held = spark.table(f"{schema}.held_deliveries")
    return held.where(F.col("breaker_key").isin(*keys) & (F.col("due_at") >= first) & (F.col("due_hour") >= F.date_trunc("hour", first)))
