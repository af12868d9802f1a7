"""librdkafka's mock cluster: brokers in this process, real on the wire, that fail on command.

It ships inside confluent-kafka's wheel and is driven through ctypes; confluent-kafka itself only starts one. It knows
no configs of topics (so size limits are unknown to the publisher) and no authorisation, shows aborted records to
consumers, and keeps no offsets that a transaction commits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_PRODUCER = 0
_BROKER = 1


class Api(IntEnum):
    """Request types, by their key in Kafka's protocol."""

    PRODUCE = 0
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26


def _librdkafka() -> ctypes.CDLL:
    (path,) = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    for name in ("rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class MockCluster:
    """Mock brokers, one unless told otherwise. Topics that nobody created are missing, as on a cluster without auto-creation."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = _librdkafka()
        error = ctypes.create_string_buffer(512)
        self._client = ctypes.c_void_p(self._library.rd_kafka_new(_PRODUCER, None, error, ctypes.c_size_t(512)))
        assert self._client, error.value
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._client, brokers))
        # Descriptions of topics are asked of the controller, and without this the mock has none.
        self._library.rd_kafka_mock_set_controller_id(self._cluster, _BROKER)
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create(self, topic: str, partitions: int = 1) -> str:
        self._call("rd_kafka_mock_topic_create", topic.encode(), partitions, 1)
        return topic

    def fail(self, api: Api, *codes: int) -> None:
        """The next requests of this type get these errors, in order; 0 lets one pass."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._call("rd_kafka_mock_push_request_errors_array", ctypes.c_int16(api), ctypes.c_size_t(len(codes)), array)

    def fail_produce(self, topic: str, *codes: int) -> None:
        """The next batches for partition 0 of the topic get these errors, in order; 0 lets one pass."""
        count = ctypes.c_size_t(len(codes))
        self._call("rd_kafka_mock_partition_push_request_errors", topic.encode(), 0, ctypes.c_int16(Api.PRODUCE), count, *codes)

    def delay(self, api: Api, milliseconds: int) -> None:
        """The next request of this type is carried out, but answered so much later."""
        self.answer(api, (0, milliseconds))

    def answer(self, api: Api, *answers: tuple[int, int]) -> None:
        """The next requests of this type get these errors, each after so many milliseconds, in order; 0 lets one pass."""
        count = ctypes.c_size_t(len(answers))
        flat = [number for answer in answers for number in answer]
        self._call("rd_kafka_mock_broker_push_request_error_rtts", _BROKER, ctypes.c_int16(api), count, *flat)

    def break_topic(self, topic: str, code: int) -> None:
        """Metadata answers this error for the topic from now on."""
        self._call("rd_kafka_mock_topic_set_error", topic.encode(), code)

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """Makes a broker the leader of a partition; -1: none is."""
        self._call("rd_kafka_mock_partition_set_leader", topic.encode(), partition, broker)

    @contextmanager
    def down(self, broker: int = _BROKER) -> Iterator[None]:
        self._call("rd_kafka_mock_broker_set_down", broker)
        try:
            yield
        finally:
            self._call("rd_kafka_mock_broker_set_up", broker)

    def commit(self, group: str, topic: str, metadata: str) -> None:
        """Commits an offset for partition 0 of the topic, outside any transaction."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 1, metadata)], asynchronous=False)
        finally:
            consumer.close()

    def read(self, topic: str, count: int, partition: int = 0) -> list[Message]:
        """The first `count` records of a partition. Fails when they don't come."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader", "log_level": 0})
        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            messages = consumer.consume(count, timeout=10)
        finally:
            consumer.close()
        assert len(messages) == count, f"{len(messages)} of {count} records came"
        return messages

    def end(self, topic: str, partition: int = 0) -> int:
        """The offset after the last record of a partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader", "log_level": 0})
        try:
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        finally:
            consumer.close()
        return high

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def _call(self, function: str, *arguments: object) -> None:
        result = getattr(self._library, function)(self._cluster, *arguments)
        # The functions without a result leave whatever was in the register, so only the known errors are told apart.
        assert result not in (KafkaError._INVALID_ARG, KafkaError.UNKNOWN_TOPIC_OR_PART), f"{function} said {result}"
