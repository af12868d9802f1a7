"""Announcements: each decision as JSON on a topic, for whoever counts, opens tickets, or wants to know what became of a message.

At least once: what was announced last is kept in `ticks`, and a decision is announced again if the loop ended before that row was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark.sql import SparkSession

from orchestration.cluster import Cluster

# Seconds to wait for the brokers.
_PATIENCE = 20


class AnnounceError(Exception):
    """Not everything could be announced: it is tried again from the same place."""


@dataclass
class Announcer:
    """Writes the decisions of some batches to a topic, keyed by message, in the order in which they were made."""

    spark: SparkSession
    schema: str
    cluster: Cluster
    kafka: Mapping[str, str]
    topic: str
    _producer: Producer | None = field(default=None, init=False)

    def announce(self, after: int, upto: int) -> int:
        """Announces what was decided after a batch and up to another; returns how many decisions. Raises AnnounceError, ClusterError."""
        if self._producer is None:
            self._producer = Producer({**self.kafka, "enable.idempotence": True, "linger.ms": 20, "message.timeout.ms": _PATIENCE * 1000})
        problems: list[str] = []

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                problems.append(error.str())

        rows = self.spark.sql(
            f"select message_id, announcement from {self.schema}.announcements where batch > {after:d} and batch <= {upto:d} order by batch"
        )
        announced = 0
        try:
            # a topic that is missing would be waited for as long as a message may take
            if self.topic not in self.cluster.topic_names():
                raise AnnounceError(f"{self.topic}: there is no such topic")
            for row in rows.toLocalIterator():
                while True:
                    try:
                        self._producer.produce(self.topic, row["announcement"], row["message_id"], on_delivery=report)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
                self._producer.poll(0)
                announced += 1
            left = self._producer.flush(_PATIENCE)
        except KafkaException as error:
            raise AnnounceError(f"{self.topic}: {error.args[0].str()}") from error
        if problems or left:
            # an idempotent producer that has failed once gives nothing any more in the right order
            self._producer = None
            raise AnnounceError(f"{self.topic}: {problems[0] if problems else f'no answer within {_PATIENCE} s'}")
        return announced
