"""The decision feed: each decision as JSON on a topic, for programs that count decisions, open tickets, or follow a message.

Delivery is at least once: the last batch written is kept in `ticks`, and decisions are written again if the loop ends before that row is.
Each step is bounded: otherwise the backlog after a day without the topic would delay all other steps, and each failure would restart it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from orchestration.kafka.json_topics import JsonTopic

# The most decisions that one step writes; more only if a single batch has more.
_DECISIONS_AT_ONCE = 10_000

# The most batches whose decisions one step counts.
_BATCHES_AT_ONCE = 1_000


@dataclass(frozen=True)
class Written:
    """What one step has written: how many decisions, and up to which batch."""

    decisions: int
    upto: int


@dataclass
class DecisionFeedWriter:
    """Writes the decisions of some batches, keyed by message, in the order in which they were made."""

    spark: SparkSession
    schema: str
    topic: JsonTopic

    def write(self, after: int, upto: int) -> Written:
        """Writes the decisions of the batches in (after, upto], or the first of these batches. Raises JsonTopicError, ClusterError."""
        upto = self._step(after, upto)
        rows = self.spark.sql(
            f"select message_id, record from {self.schema}.decision_feed where batch > {after:d} and batch <= {upto:d} order by batch"
        )
        return Written(self.topic.write((row["message_id"], row["record"]) for row in rows.toLocalIterator()), upto)

    def _step(self, after: int, upto: int) -> int:
        """The last batch of a step: whole batches, as many as fit; at least one."""
        upto = min(upto, after + _BATCHES_AT_ONCE)
        batches = self.spark.sql(
            f"select batch, count(*) as rows from {self.schema}.deliveries where batch > {after:d} and batch <= {upto:d} group by batch"
        ).collect()
        rows = 0
        for batch in sorted(batches):
            if rows and rows + batch["rows"] > _DECISIONS_AT_ONCE:
                return int(batch["batch"]) - 1
            rows += batch["rows"]
        return upto
