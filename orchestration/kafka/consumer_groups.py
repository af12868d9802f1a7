"""What consumer groups read, and how they share it. Functions raise KafkaException."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient


def topics_read(admin: AdminClient, timeout: float) -> dict[str, set[str]]:
    """The consumer groups that have committed offsets, and the topics they read."""
    names = [group.group_id for group in admin.list_consumer_groups(request_timeout=timeout).result().valid]
    read: dict[str, set[str]] = {}
    for name in names:
        # one request takes one group
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)], request_timeout=timeout)
        read[name] = {where.topic for where in asked[name].result().topic_partitions}
    return read


def assignors(admin: AdminClient, groups: Iterable[str], timeout: float) -> dict[str, str | None]:
    """How the members of each group share its partitions: the name of the assignor, of groups that have members now.

    None: the group can't be described, for instance as this user may not.
    """
    wanted = sorted(set(groups))
    if not wanted:
        return {}
    asked = admin.describe_consumer_groups(wanted, request_timeout=timeout)
    found: dict[str, str | None] = {}
    for group, described in asked.items():
        try:
            if assignor := described.result().partition_assignor:
                found[group] = assignor
        except KafkaException:
            found[group] = None
    return found
