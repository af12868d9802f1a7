"""Announcements: each decision as JSON on a topic, for whoever counts, opens tickets, or wants to know what became of a message.

At least once: what was announced last is kept in `ticks`, and a decision is announced again if the loop ended before that row was written.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from orchestration.outlet import Outlet


@dataclass
class Announcer:
    """Tells the decisions of some batches, keyed by message, in the order in which they were made."""

    spark: SparkSession
    schema: str
    outlet: Outlet

    def announce(self, after: int, upto: int) -> int:
        """Announces what was decided after a batch and up to another; returns how many decisions. Raises OutletError, ClusterError."""
        rows = self.spark.sql(
            f"select message_id, announcement from {self.schema}.announcements where batch > {after:d} and batch <= {upto:d} order by batch"
        )
        return self.outlet.tell((row["message_id"], row["announcement"]) for row in rows.toLocalIterator())
