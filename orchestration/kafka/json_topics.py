"""A topic to which the loop writes JSON for others, record by record, or all of a write in one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, Producer, TopicPartition

from orchestration.kafka import clients
from orchestration.kafka.cluster import Cluster
from publisher import RejectedPropertiesError, fatal_as_kafka_exception, kafka_error, redact

# Seconds to wait for the brokers.
_PATIENCE = 20


class JsonTopicError(Exception):
    """Not everything could be written: the caller writes it again."""


@dataclass
class JsonTopic:
    """Writes records with a key and JSON to one topic, in their order. At least once: after an error the caller writes them again.

    transactional_id: if given, each write is a transaction, and a loop that begins to write shuts out the one before it.
    """

    cluster: Cluster
    kafka: Mapping[str, str]
    topic: str
    transactional_id: str | None = None
    _producer: Producer | None = field(default=None, init=False)
    _id: str | None = field(default=None, init=False)
    """The id of the topic that `begin` has read."""

    def begin(self) -> dict[str, str]:
        """Shuts out other writers, and reads what the topic says now: the last value of each key. Raises JsonTopicError, ClusterError."""
        self.write([])
        self._id = self._present_id()
        return self._read()

    def is_lost(self) -> bool:
        """Whether the topic that `begin` has read was deleted or created again since then. Raises ClusterError."""
        return self._present_id() != self._id

    def _present_id(self) -> str | None:
        found = self.cluster.describe([self.topic]).get(self.topic)
        return None if found is None else found.id

    def write(self, records: Iterable[tuple[str, str | None]]) -> int:
        """Writes records (key, value) and waits for the brokers; returns how many. Raises JsonTopicError, ClusterError.

        A null value removes what was written under the key before.
        """
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
                producer = self._new_producer()
            with fatal_as_kafka_exception():
                if self.transactional_id is not None:
                    producer.begin_transaction()
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
                if self.transactional_id is not None and not left and not problems:
                    producer.commit_transaction(_PATIENCE)
        except RejectedPropertiesError as error:
            raise JsonTopicError(f"{self.topic}: {error}") from None
        except KafkaException as error:
            raise JsonTopicError(f"{self.topic}: {redact(kafka_error(error).str(), self.kafka)}") from None
        if problems or left:
            raise JsonTopicError(f"{self.topic}: {redact(problems[0], self.kafka) if problems else f'no answer within {_PATIENCE} s'}")
        self._producer = producer
        return written

    def _new_producer(self) -> Producer:
        if self.transactional_id is None:
            return clients.producer(self.kafka, _PATIENCE, {"linger.ms": 20})
        producer = clients.producer(self.kafka, _PATIENCE, {"linger.ms": 0, "transactional.id": self.transactional_id})
        producer.init_transactions(_PATIENCE)
        return producer

    def _read(self) -> dict[str, str]:
        """The last value of each key, without those that were removed."""
        found: dict[str, str] = {}
        deadline = time.monotonic() + _PATIENCE
        reader = clients.reader(self.kafka, f"{self.transactional_id}-reader", **{"auto.offset.reset": "earliest"})
        try:
            (described,) = self.cluster.describe([self.topic]).values()
            reader.assign([TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in range(described.partitions)])
            left = described.partitions
            while left:
                if time.monotonic() > deadline:
                    raise JsonTopicError(f"{self.topic}: could not be read within {_PATIENCE} s")
                record = reader.poll(0.5)
                if record is None:
                    continue
                if (problem := record.error()) is not None:
                    if problem.code() != KafkaError._PARTITION_EOF:
                        raise JsonTopicError(f"{self.topic}: {problem.str()}")
                    left -= 1
                    continue
                key, value = (part.decode(errors="replace") if isinstance(part, bytes) else part for part in (record.key(), record.value()))
                if key is not None and value is None:
                    found.pop(key, None)
                elif key is not None and value is not None:
                    found[key] = value
        except RejectedPropertiesError as error:
            raise JsonTopicError(f"{self.topic}: {error}") from None
        except KafkaException as error:
            raise JsonTopicError(f"{self.topic}: {redact(kafka_error(error).str(), self.kafka)}") from None
        finally:
            reader.close()
        return found
