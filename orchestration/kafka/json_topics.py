"""A topic to which the loop writes JSON for others, record by record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from orchestration.kafka import clients
from orchestration.kafka.cluster import Cluster
from publisher import RejectedPropertiesError, fatal_as_kafka_exception, kafka_error, redact

# Seconds to wait for the brokers.
_PATIENCE = 20


class JsonTopicError(Exception):
    """Not everything could be written: the caller writes it again."""


@dataclass
class JsonTopic:
    """Writes records with a key and JSON to one topic, in their order. At least once: after an error the caller writes them again."""

    cluster: Cluster
    kafka: Mapping[str, str]
    topic: str
    _producer: Producer | None = field(default=None, init=False)

    def write(self, records: Iterable[tuple[str, str]]) -> int:
        """Writes records (key, value) and waits for the brokers; returns how many. Raises JsonTopicError, ClusterError."""
        # put back only after success: a producer doesn't recover from a fatal error, and after a failure it may not keep the order
        producer, self._producer = self._producer, None
        problems: list[str] = []

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                problems.append(error.str())

        written = 0
        # without this check, the producer would wait for a missing topic until the message times out
        if self.topic not in self.cluster.topic_names():
            raise JsonTopicError(f"{self.topic}: there is no such topic")
        try:
            if producer is None:
                producer = clients.producer(self.kafka, _PATIENCE, {"linger.ms": 20})
            with fatal_as_kafka_exception():
                for key, value in records:
                    while True:
                        try:
                            producer.produce(self.topic, value, key, on_delivery=report)
                            break
                        except BufferError:
                            producer.poll(0.1)
                    producer.poll(0)
                    written += 1
                left = producer.flush(_PATIENCE)
        except RejectedPropertiesError as error:
            raise JsonTopicError(f"{self.topic}: {error}") from None
        except KafkaException as error:
            raise JsonTopicError(f"{self.topic}: {redact(kafka_error(error).str(), self.kafka)}") from None
        if problems or left:
            raise JsonTopicError(f"{self.topic}: {redact(problems[0], self.kafka) if problems else f'no answer within {_PATIENCE} s'}")
        self._producer = producer
        return written
