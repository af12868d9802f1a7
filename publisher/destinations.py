"""What must be known of a topic before anything is sent to it: whether it exists, its partitions, its size limit.

It asks the admin client, as its requests never create a topic. Answers are kept in the process, as Spark reuses its Python workers.
"""

import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource

from publisher.clients import Background, kafka_error, make_admin
from publisher.errors import SessionLostError, Trouble
from publisher.settings import PublisherSettings

# Kafka's rule for topic names (org.apache.kafka.common.internals.Topic): 1 to 249 of these, and not `.` or `..`.
_LEGAL_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")
# Seconds between two checks for an error that makes waiting pointless.
_GLANCE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Destination:
    """A topic that exists. max_message_bytes: the largest record batch that its brokers take; None if it can't be read."""

    topic: str
    partitions: int
    max_message_bytes: int | None


# By cluster and login, then topic: when it was read (monotonic seconds), and the answer.
_known: dict[tuple[frozenset[tuple[str, str]], str], tuple[float, Destination]] = {}


def describe(topics: Iterable[str], settings: PublisherSettings) -> dict[str, Destination | Trouble]:
    """Each topic as a destination, or why nothing can be sent to it. Raises SessionLostError when no broker answers."""
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
            found[topic] = settings.trouble(KafkaError.TOPIC_EXCEPTION, "not a legal name of a topic")
    asked = _ask(unknown, settings)
    _known.update(((cluster, topic), (time.monotonic(), answer)) for topic, answer in asked.items() if isinstance(answer, Destination))
    return found | asked


def forget(topic: str, settings: PublisherSettings) -> None:
    """Has the topic described anew the next time. Called after a send to it has failed, as the topic may have changed."""
    _known.pop((frozenset(settings.kafka.items()), topic), None)


def existing(topics: Iterable[str], settings: PublisherSettings) -> list[str]:
    """Those of the topics that exist now, in their order. Raises SessionLostError when no broker answers."""
    wanted = list(dict.fromkeys(topics))
    for topic in wanted:
        forget(topic, settings)
    return [topic for topic, answer in describe(wanted, settings).items() if isinstance(answer, Destination)]


def _ask(topics: list[str], settings: PublisherSettings) -> dict[str, Destination | Trouble]:
    if not topics:
        return {}
    background = Background()
    found: dict[str, Destination | Trouble] = {}
    with make_admin(settings, background) as admin:
        asked = admin.describe_topics(TopicCollection(topics), request_timeout=settings.metadata_timeout_ms / 1000)
        answers = _answers(admin, asked, settings, background)
        limits = _limits(admin, [topic for topic, answer in answers.items() if not isinstance(answer, KafkaError)], settings, background)
    for topic, answer in answers.items():
        if not isinstance(answer, KafkaError):
            found[topic] = Destination(topic, len(answer.partitions), limits.get(topic))
        elif answer.code() < KafkaError.UNKNOWN:  # the client's own error: no broker has answered
            raise SessionLostError(settings.trouble_of(answer))
        else:
            found[topic] = settings.trouble_of(answer)
    return found


def _limits(admin: AdminClient, topics: list[str], settings: PublisherSettings, background: Background) -> dict[str, int]:
    """Size limits by topic. A topic whose limit cannot be read is left out, and its brokers decide for each record."""
    limits: dict[str, int] = {}
    if not topics:
        return limits
    resources = {ConfigResource(ConfigResource.Type.TOPIC, topic): topic for topic in topics}
    asked = admin.describe_configs(list(resources), request_timeout=settings.metadata_timeout_ms / 1000)
    futures = {resources[resource]: future for resource, future in asked.items()}
    for topic, answer in _answers(admin, futures, settings, background).items():
        with suppress(KeyError, TypeError, ValueError):  # an error has no items; a limit may be missing or hidden
            limits[topic] = int(answer["max.message.bytes"].value)
    return limits


def _answers(admin: AdminClient, futures: Mapping[str, Future[Any]], settings: PublisherSettings, background: Background) -> dict[str, Any]:
    """The result of each future, or the KafkaError for which it has none."""
    deadline = time.monotonic() + settings.metadata_timeout_ms / 1000
    waiting = set(futures.values())
    while waiting and background.hopeless is None and time.monotonic() < deadline:
        waiting = wait(waiting, timeout=_GLANCE).not_done
        admin.poll(0)  # calls `background`
    answers: dict[str, Any] = {}
    for topic, future in futures.items():
        try:
            answers[topic] = future.result(0)
        except TimeoutError:
            answers[topic] = background.explain(KafkaError(KafkaError._TIMED_OUT, "no answer about the destination"))
        except KafkaException as error:
            answers[topic] = background.explain(kafka_error(error))
    return answers
