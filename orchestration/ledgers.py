"""Appends to the ledgers: one function, one batch number each, strictly one after another."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

LEDGERS = ("events", "publish_results", "ticks")


class AppendError(Exception):
    """An append to a ledger failed. What is in the ledger now must be read before anything else is done."""


class Ledgers:
    """The ledgers of one installation, written by one loop.

    `batch` is the number of the last append, counted over all ledgers; each append takes the next and is committed before the next
    begins, so that whoever reads up to a batch sees all of it.
    """

    def __init__(self, spark: SparkSession, schema: str, generation: int = 0) -> None:
        self._spark = spark
        self._schema = schema
        self.generation = generation
        self.batch = 0

    def name(self, ledger: str) -> str:
        """The ledger's table as SQL names it."""
        return f"{self._schema}.{ledger}"

    def read_end(self) -> int:
        """Reads the last batch from the tables: at a start, and after an append that failed. Iceberg answers from metadata."""
        ends = " union all ".join(f"select max(batch) as batch from {self.name(ledger)}" for ledger in LEDGERS)
        self.batch = self._spark.sql(f"select coalesce(max(batch), 0) as batch from ({ends})").first()["batch"]  # type: ignore[index]
        return self.batch

    def has(self, ledger: str, batch: int) -> bool:
        """Whether this loop's append of a batch is in the ledger."""
        found = self._spark.sql(f"select 1 from {self.name(ledger)} where batch = {batch} and generation = {self.generation} limit 1")
        return bool(found.collect())

    def append(self, ledger: str, rows: DataFrame, recorded_at: datetime) -> int:
        """Appends rows and returns their batch. Columns that the rows don't have are null; batch, generation and recorded_at are added.

        An append of no rows would be a commit all the same: callers count first. Raises AppendError; the caller then reads the end again.
        """
        batch = self.batch + 1
        columns = self._spark.table(self.name(ledger)).schema
        added: dict[str, Column] = {
            "batch": F.lit(batch),
            "generation": F.lit(self.generation),
            "recorded_at": F.lit(recorded_at),
        }
        present = set(rows.columns)
        frame = rows.select(
            *(
                added.get(column.name, F.col(column.name) if column.name in present else F.lit(None))
                .cast(column.dataType)
                .alias(column.name)
                for column in columns
            )
        )
        try:
            frame.writeTo(self.name(ledger)).append()
        except Exception as error:
            raise AppendError(f"batch {batch} could not be appended to {ledger}: {error}") from error
        self.batch = batch
        return batch
