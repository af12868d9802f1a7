"""What must be known of a topic before anything is sent to it: whether it exists, its partitions, its size limit.

Asked through the admin client, which never creates a topic by asking. Kept for a while in the process: Spark reuses its
Python workers, and a tick with few rows should not pay for a description each time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from publisher.clients import Background, make_admin
from publisher.errors import SessionLostError
from publisher.settings import PublisherSettings
from publisher.trouble import Trouble, kafka_error, trouble, trouble_of

# Kafka's rule for topic names (org.apache.kafka.common.internals.Topic): 1 to 249 of these, and not `.` or `..`.
_LEGAL_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")

# How often a wait looks whether it has become pointless, in seconds.
_GLANCE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Destination:
    """A topic that exists."""

    topic: str
    partitions: int
    max_message_bytes: int | None
    """The largest record batch that its brokers take, in bytes; None where asking is not permitted or not possible."""


# By what was asked (cluster and login, then topic): (monotonic seconds when it was read, what it said).
_Key = tuple[frozenset[tuple[str, str]], str]
_known: dict[_Key, tuple[float, Destination]] = {}


def describe(topics: Iterable[str], settings: PublisherSettings) -> dict[str, Destination | Trouble]:
    """Each topic as a destination, or why nothing can be sent to it. Waits at most twice `metadata_timeout_ms`.

    Raises SessionLostError when no broker answers: that says nothing about a topic.
    """
    cluster = frozenset(settings.kafka.items())
    oldest = time.monotonic() - settings.metadata_max_age_ms / 1000
    found: dict[str, Destination | Trouble] = {}
    unknown: list[str] = []
    for topic in topics:
        kept = _known.get((cluster, topic))
        if kept is not None and kept[0] > oldest:
            found[topic] = kept[1]
        elif _LEGAL_NAME.fullmatch(topic):
            unknown.append(topic)
        else:
            found[topic] = trouble(KafkaError.TOPIC_EXCEPTION, "not a legal name of a topic", settings)
    for topic, said in _ask(unknown, settings).items():
        found[topic] = said
        if isinstance(said, Destination):
            _known[cluster, topic] = (time.monotonic(), said)
    return found


def forget(topic: str, settings: PublisherSettings) -> None:
    """Asks again next time: a send to the topic went wrong, so it may have changed."""
    _known.pop((frozenset(settings.kafka.items()), topic), None)


def existing(topics: Iterable[str], settings: PublisherSettings) -> list[str]:
    """Those of the topics that exist now, in their order. Raises SessionLostError when no broker answers."""
    legal = [topic for topic in dict.fromkeys(topics) if _LEGAL_NAME.fullmatch(topic)]
    if not legal:
        return []
    background = Background()
    with make_admin(settings, background) as admin:
        return [topic for topic, said in _partitions(admin, legal, settings, background).items() if isinstance(said, int)]


def _ask(topics: list[str], settings: PublisherSettings) -> dict[str, Destination | Trouble]:
    if not topics:
        return {}
    background = Background()
    with make_admin(settings, background) as admin:
        partitions = _partitions(admin, topics, settings, background)
        limits = _limits(admin, [topic for topic in topics if isinstance(partitions[topic], int)], settings, background)
    return {topic: said if isinstance(said, Trouble) else Destination(topic, said, limits.get(topic)) for topic, said in partitions.items()}


def _partitions(admin: AdminClient, topics: list[str], settings: PublisherSettings, background: Background) -> dict[str, int | Trouble]:
    asked = admin.describe_topics(TopicCollection(topics), request_timeout=settings.metadata_timeout_ms / 1000)
    found: dict[str, int | Trouble] = {}
    for topic, answer in _answers(admin, asked, settings, background).items():
        if not isinstance(answer, KafkaError):
            found[topic] = len(answer.partitions)
        elif answer.code() < 0:
            # The client's own error: no broker was there to say anything.
            raise SessionLostError(trouble_of(answer, settings))
        else:
            found[topic] = trouble_of(answer, settings)
    return found


def _limits(admin: AdminClient, topics: list[str], settings: PublisherSettings, background: Background) -> dict[str, int]:
    """Size limits by topic; a topic whose limit cannot be read is left out, and its brokers decide for each record."""
    if not topics:
        return {}
    resources = {ConfigResource(ConfigResource.Type.TOPIC, topic): topic for topic in topics}
    asked = admin.describe_configs(list(resources), request_timeout=settings.metadata_timeout_ms / 1000)
    futures = {resources[resource]: future for resource, future in asked.items()}
    limits = {topic: _limit(answer) for topic, answer in _answers(admin, futures, settings, background).items()}
    return {topic: limit for topic, limit in limits.items() if limit is not None}


def _limit(answer: Any | KafkaError) -> int | None:
    """The limit among a topic's configs; None where it is not told, or its value is hidden."""
    try:
        return None if isinstance(answer, KafkaError) else int(answer["max.message.bytes"].value)
    except (KeyError, TypeError, ValueError):
        return None


def _answers(
    admin: AdminClient, futures: Mapping[str, Future[Any]], settings: PublisherSettings, background: Background
) -> dict[str, Any | KafkaError]:
    """What each future says, or the error why it says nothing."""
    deadline = time.monotonic() + settings.metadata_timeout_ms / 1000
    waiting = set(futures.values())
    while waiting and background.hopeless is None and time.monotonic() < deadline:
        waiting = wait(waiting, timeout=_GLANCE).not_done
        admin.poll(0)  # hears what happened in the background
    return {topic: _answer(future, background) for topic, future in futures.items()}


def _answer(future: Future[Any], background: Background) -> Any | KafkaError:
    if not future.done():
        return background.explain(KafkaError(KafkaError._TIMED_OUT, "no answer about the destination"))
    try:
        return future.result()
    except KafkaException as error:
        return background.explain(kafka_error(error))
