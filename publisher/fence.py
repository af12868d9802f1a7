"""Reads which generation is in charge: the highest number in the offsets of a consumer group that nobody consumes with.

`generation` writes it there. Each task reads it, so the client is kept in the process: connecting takes 40 ms, asking 1 ms,
and unlike a producer it holds nothing that somebody else could take away.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from publisher.clients import Background, make_keeper
from publisher.contract import SUPERSEDED, SUPERSEDED_CODE, superseded_message
from publisher.error_kinds import ErrorKind, Scope, classify
from publisher.errors import SessionLostError, SupersededError
from publisher.settings import PublisherSettings
from publisher.trouble import Trouble, kafka_error, trouble

# No record has this offset. As it lies behind every record, the group does not look like a consumer that is late.
_OFFSET: Final = 2**62

_METADATA: Final = re.compile(r"generation (\d{1,18})")

# How long one try to read may take, and how long to wait between two, in seconds.
_GLANCE: Final = 0.5
_PAUSE: Final = 0.05


def mark(topic: str, generation: int) -> TopicPartition:
    """The offset to commit that carries a generation."""
    return TopicPartition(topic, 0, _OFFSET, f"generation {generation}")


def refuse_superseded(settings: PublisherSettings) -> None:
    """Raises SupersededError when a generation above ours is in Kafka, SessionLostError when Kafka doesn't say.

    None at all stops nobody: Kafka forgets offsets in time, and the tables are guarded, too.
    """
    found = generation_in_charge(settings, settings.fence_topics)
    if found is not None and found > settings.generation:
        kind = ErrorKind(SUPERSEDED_CODE, SUPERSEDED, "fenced", Scope.CONNECTION)
        raise SupersededError(Trouble(kind, superseded_message(settings.generation, found)), found)


def generation_in_charge(settings: PublisherSettings, topics: Iterable[str]) -> int | None:
    """The highest generation that is written beside one of the topics; None where there is none.

    What is being written at the moment is waited for. Raises SessionLostError when Kafka doesn't say.
    """
    partitions = [TopicPartition(topic, 0) for topic in topics]
    if not partitions:
        return None
    keeper, background = _keeper(settings)
    deadline = time.monotonic() + settings.metadata_timeout_ms / 1000
    while True:
        try:
            return _highest(keeper.committed(partitions, _GLANCE))
        except KafkaException as exception:
            error = kafka_error(exception)
        keeper.poll(0)  # hears what happened in the background
        passes = classify(error.code(), settings.error_kinds).kind == "retriable" and background.hopeless is None
        if not passes or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE)
    # Whatever has befallen this client, the next one starts anew.
    _kept.clear()
    error = background.explain(error)
    text = f"the generation in charge can't be read from the group {settings.fence_group}: {error.str()}"
    raise SessionLostError(trouble(error.code(), text, settings))


def _highest(offsets: Iterable[TopicPartition]) -> int | None:
    highest: int | None = None
    for where in offsets:
        # A topic that is gone has taken its offset with it.
        if where.error is not None and where.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(where.error)
        said = _METADATA.fullmatch(where.metadata or "")
        if said and (highest is None or int(said[1]) > highest):
            highest = int(said[1])
    return highest


_Key = tuple[str, frozenset[tuple[str, str]]]

# Of the latest settings only: a process works for one loop.
_kept: dict[_Key, tuple[Consumer, Background]] = {}


def _keeper(settings: PublisherSettings) -> tuple[Consumer, Background]:
    """A client to read the group's offsets with.

    A consumer, though it consumes nothing: the admin client ends the process when the group's coordinator moves while it
    asks for offsets (seen with librdkafka 2.16: its issue 5040).
    """
    key = (settings.fence_group, frozenset(settings.kafka.items()))
    kept = _kept.get(key)
    if kept is None:
        background = Background()
        kept = make_keeper(settings, settings.fence_group, background), background
        _kept.clear()
        _kept[key] = kept
    return kept
