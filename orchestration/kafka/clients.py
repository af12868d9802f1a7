"""The Kafka clients of orchestration/, each with the properties that its use needs. The publisher has its own: publisher/clients.py.

kafka: the user's properties; those that are set here take precedence. own: further properties of one caller. Each function raises
RejectedPropertiesError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from publisher import make_client


def admin(kafka: Mapping[str, str], **own: Any) -> AdminClient:
    """An admin client."""
    return make_client(AdminClient, {**kafka, **own}, kafka)


def reader(kafka: Mapping[str, str], group: str, **own: Any) -> Consumer:
    """A consumer of committed records, for partitions and offsets that the caller assigns. It neither joins the group nor commits."""
    properties = {
        **kafka,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        # says where a partition ends, even if only markers of transactions are left
        "enable.partition.eof": True,
        # an offset that retention has removed is an error: reading on elsewhere would skip records
        "auto.offset.reset": "error",
        **own,
    }
    return make_client(Consumer, properties, kafka)


def keeper(kafka: Mapping[str, str], group: str, **own: Any) -> Consumer:
    """A consumer that reads a group's offsets, or commits those that it is told to. It consumes nothing, and commits nothing by itself."""
    return make_client(Consumer, {**kafka, "group.id": group, "enable.auto.commit": False, **own}, kafka)


def producer(kafka: Mapping[str, str], patience: int, own: Mapping[str, Any]) -> Producer:
    """An idempotent producer: its own retries neither duplicate nor reorder records.

    A record without an answer after `patience` seconds is reported as failed, although Kafka may have written it.
    """
    return make_client(Producer, {**kafka, "enable.idempotence": True, "message.timeout.ms": patience * 1000, **own}, kafka)
