"""An outlet: a topic on which the loop tells others what it does, record by record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from orchestration.cluster import Cluster

# Seconds to wait for the brokers.
_PATIENCE = 20


class OutletError(Exception):
    """Not everything could be told: it is told again."""


@dataclass
class Outlet:
    """Writes records with a key and JSON to one topic, in their order. At least once: what failed is told again by the caller."""

    cluster: Cluster
    kafka: Mapping[str, str]
    topic: str
    _producer: Producer | None = field(default=None, init=False)

    def tell(self, records: Iterable[tuple[str, str]]) -> int:
        """Writes records (key, value) and waits for the brokers; returns how many. Raises OutletError, ClusterError."""
        if self._producer is None:
            self._producer = Producer({**self.kafka, "enable.idempotence": True, "linger.ms": 20, "message.timeout.ms": _PATIENCE * 1000})
        problems: list[str] = []

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                problems.append(error.str())

        told = 0
        try:
            # a topic that is missing would be waited for as long as a message may take
            if self.topic not in self.cluster.topic_names():
                raise OutletError(f"{self.topic}: there is no such topic")
            for key, value in records:
                while True:
                    try:
                        self._producer.produce(self.topic, value, key, on_delivery=report)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
                self._producer.poll(0)
                told += 1
            left = self._producer.flush(_PATIENCE)
        except KafkaException as error:
            raise OutletError(f"{self.topic}: {error.args[0].str()}") from error
        if problems or left:
            # an idempotent producer that has failed once gives nothing any more in the right order
            self._producer = None
            raise OutletError(f"{self.topic}: {problems[0] if problems else f'no answer within {_PATIENCE} s'}")
        return told
