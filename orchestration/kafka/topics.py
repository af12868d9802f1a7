"""Creates retry and dead letter topics, with as many partitions as the original topics, and room for redrive's headers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka.cimpl import NewTopic

from orchestration.kafka.cluster import Cluster, ClusterError, Topic
from orchestration.logs import event
from orchestration.settings import Settings

log = logging.getLogger(__name__)

# By how many bytes max.message.bytes of a retry or dead letter topic must exceed the original's, as our headers make records larger.
HEADER_ROOM_BYTES = 64 * 1024

# The assumed limit of a topic whose configuration can't be read: Kafka's default.
_DEFAULT_MAX_BYTES = 1_048_588

# The most topics that one loop creates: reports may name any group, and a group may be part of a topic's name.
_MOST_MADE = 100


def room(sizes: Mapping[str, int], original: str) -> int:
    """The max.message.bytes that a topic needs for the messages of another one with our headers."""
    return sizes.get(original, _DEFAULT_MAX_BYTES) + HEADER_ROOM_BYTES


def new_topic(name: str, originals: Iterable[Topic], sizes: Mapping[str, int], replication: int) -> NewTopic:
    """A topic for messages of other topics, with as many partitions as the largest of them, and room for the largest record."""
    wanted = list(originals)
    return NewTopic(
        name,
        num_partitions=max(topic.partitions for topic in wanted),
        replication_factor=replication,
        config={"max.message.bytes": str(max(room(sizes, topic.name) for topic in wanted))},
    )


@dataclass
class TopicMaker:
    """Creates missing destinations, if `create_topics` allows it."""

    cluster: Cluster
    settings: Settings
    made: int = 0
    """How many topics this loop has created."""

    def objection(self, name: str) -> str | None:
        """Why this loop must not create a topic, whichever topic its messages come from; None if it may."""
        if self.settings.is_internal(name):
            return "it is an internal topic"
        if self.made >= _MOST_MADE:
            return f"this loop has created {_MOST_MADE} topics since its start, the most that it may; `redrive check --create` creates more"
        return None

    def make(self, name: str, originals: Iterable[str]) -> str | None:
        """Creates one topic for messages of some others. Returns the objection, or None."""
        if (objection := self.objection(name)) is not None:
            return objection
        try:
            found = self.cluster.describe(originals)
            if not found:
                return "none of the topics that its messages come from exists, so the number of partitions that it needs is not known"
            new = new_topic(name, found.values(), self.cluster.max_message_bytes(found), self.settings.create_topics_replication)
            objection = self.cluster.create([new])[name]
        except ClusterError as error:
            return str(error)
        if objection is None:
            self.made += 1
            event(log, logging.WARNING, "topic_created", topic=name, partitions=new.num_partitions)
        return objection
