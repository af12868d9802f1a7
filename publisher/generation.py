"""Which loop is in charge: the highest generation in the offsets of a consumer group that nobody consumes with.

init_transactions always succeeds and fences whoever held the id, so it alone cannot tell the newer from the older. The order does: a loop
takes the number after its tables' last, writes it into Kafka, sees that it can be read, then initialises every slot. A task initialises its
slot, then reads, then sends. So a task of an older loop either initialised before the newer loop did, and is fenced, or initialises after
it, and reads the higher number.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from publisher.clients import Background, make_keeper
from publisher.contract import SUPERSEDED, SUPERSEDED_CODE, superseded_message
from publisher.destinations import existing
from publisher.errors import ErrorKind, FencedError, Scope, SessionLostError, SupersededError, Trouble, classify, kafka_error
from publisher.session import Session
from publisher.settings import PublisherSettings

# No record has this offset. As it lies behind every record, the group does not look like a consumer that is late.
_OFFSET: Final = 2**62

_METADATA: Final = re.compile(r"generation (\d{1,18})")

# How long one try to read may take, and how long to wait between two, in seconds.
_GLANCE: Final = 0.5
_PAUSE: Final = 0.05

# The last part of the transactional.id that numbers are written with, where a task has its slot.
_NAME: Final = "generation"

# Slots that are initialised at once: 0.1 s each, and there may be hundreds.
_AT_ONCE: Final = 8

# The client that reads, for the latest group and Kafka properties only: a process works for one loop. Connecting takes 40 ms, asking 1 ms,
# and unlike a producer it holds nothing that another process could take away.
_kept: dict[tuple[str, frozenset[tuple[str, str]]], tuple[Consumer, Background]] = {}


def mark(topic: str, generation: int) -> TopicPartition:
    """The offset to commit that carries a generation."""
    return TopicPartition(topic, 0, _OFFSET, f"generation {generation}")


def refuse_superseded(settings: PublisherSettings) -> None:
    """Raises SupersededError when a generation above ours is in Kafka, SessionLostError when Kafka doesn't answer.

    If there is none at all, nothing is raised: Kafka forgets offsets in time, and the tables are guarded, too.
    """
    found = generation_in_charge(settings, settings.fence_topics)
    if found is not None and found > settings.generation:
        kind = ErrorKind(SUPERSEDED_CODE, SUPERSEDED, "fenced", Scope.CONNECTION)
        raise SupersededError(Trouble(kind, superseded_message(settings.generation, found)), found)


def generation_in_charge(settings: PublisherSettings, topics: Iterable[str]) -> int | None:
    """The highest generation that is written beside one of the topics; None if there is none.

    A write that has not ended is waited for. Raises SessionLostError when Kafka doesn't answer.
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
        keeper.poll(0)  # calls `background`
        passes = classify(error.code(), settings.error_kinds).kind == "retriable" and background.hopeless is None
        if not passes or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE)
    # Whatever is wrong with this client, the next question gets a new one.
    _kept.clear()
    error = background.explain(error)
    text = f"the generation in charge can't be read from the group {settings.fence_group}: {error.str()}"
    raise SessionLostError(settings.trouble(error.code(), text))


def take_charge(settings: PublisherSettings, topics: Sequence[str], slots: int) -> bool:
    """Puts the loop of `settings.generation` in charge; no older one can send when it returns.

    Called at the start, before the number is taken in the tables, so that an older loop can still record there what it has sent. May be
    called again while nothing is being sent: Kafka forgets the number after offsets.retention.minutes (7 days by default), and then only
    the tables have it.

    topics: the number is kept beside the offsets of each that exists, and of `settings.fence_topics`. Several, as it is lost with a topic;
    and those that older loops had as their fence_topics, as that is where their tasks look.
    slots: slots 0 to slots - 1 are taken from older loops: as many as any of them ever had.

    Returns whether the number is kept anywhere: not if none of the topics exists.

    Raises SupersededError when a higher number is there: end this loop. Raises SessionLostError when Kafka gives no answer, or not the
    permission (on the group, on the topics, on the transactional ids): wait, then call again.
    """
    settings = replace(settings, fence_topics=tuple(existing([*topics, *settings.fence_topics], settings)))
    if settings.fence_topics:
        if settings.transactions:
            try:
                _write(settings)
            except FencedError:
                # Another loop has begun to write. Reading again tells whether its number is higher.
                _write(settings)
        else:
            _write_without_transaction(settings)
        _await_written(settings)
    if settings.transactions:
        with ThreadPoolExecutor(_AT_ONCE, "take-charge") as threads:
            list(threads.map(lambda slot: _fence(settings, slot), range(slots)))
    return bool(settings.fence_topics)


def _keeper(settings: PublisherSettings) -> tuple[Consumer, Background]:
    """A client to read the group's offsets with.

    A consumer, though it consumes nothing: the admin client ends the process when the group's coordinator moves while it asks for offsets
    (seen with librdkafka 2.16: its issue 5040).
    """
    key = (settings.fence_group, frozenset(settings.kafka.items()))
    kept = _kept.get(key)
    if kept is None:
        background = Background()
        kept = make_keeper(settings, settings.fence_group, background), background
        _kept.clear()
        _kept[key] = kept
    return kept


def _highest(offsets: Iterable[TopicPartition]) -> int | None:
    highest: int | None = None
    for where in offsets:
        # A topic that is gone has taken its offset with it.
        if where.error is not None and where.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(where.error)
        found = _METADATA.fullmatch(where.metadata or "")
        if found and (highest is None or int(found[1]) > highest):
            highest = int(found[1])
    return highest


def _write(settings: PublisherSettings) -> None:
    """Writes the number unless a higher one is there, even if this process sleeps for an hour in between: the init comes before the
    reading, so a loop that writes in that hour fences this producer."""
    with Session(settings, _NAME, refuse_superseded) as session:
        producer = session.fence()
        refuse_superseded(settings)
        offsets = [mark(topic, settings.generation) for topic in settings.fence_topics]
        group = _group(settings)
        for step in (
            lambda _: producer.begin_transaction(),
            lambda seconds: producer.send_offsets_to_transaction(offsets, group, seconds),
            producer.commit_transaction,
        ):
            error = session.repeated(step)
            if error is not None:
                raise session.lost(error)


def _group(settings: PublisherSettings) -> Any:
    """The group as a transaction names it."""
    return make_keeper(settings, settings.fence_group, Background()).consumer_group_metadata()


def _write_without_transaction(settings: PublisherSettings) -> None:
    """Writes the number unless a higher one is there. A loop that freezes between the two can overwrite a higher number."""
    refuse_superseded(settings)
    answers: list[KafkaError | None] = []
    background = Background()
    keeper = make_keeper(settings, settings.fence_group, background, lambda error, _: answers.append(error))
    keeper.commit(offsets=[mark(topic, settings.generation) for topic in settings.fence_topics], asynchronous=True)
    deadline = time.monotonic() + settings.metadata_timeout_ms / 1000
    while not answers and background.hopeless is None and time.monotonic() < deadline:
        keeper.poll(_PAUSE)
    error = answers[0] if answers else background.explain(KafkaError(KafkaError._TIMED_OUT, "no answer about the generation"))
    if error is not None:
        raise SessionLostError(settings.trouble_of(error))


def _await_written(settings: PublisherSettings) -> None:
    """A commit is certain when it returns, and read by everybody a moment later."""
    deadline = time.monotonic() + settings.metadata_timeout_ms / 1000
    while (generation_in_charge(settings, settings.fence_topics) or 0) < settings.generation:
        if time.monotonic() >= deadline:
            text = f"the generation was written to the group {settings.fence_group} and is not there"
            raise SessionLostError(settings.trouble(KafkaError.UNKNOWN_TOPIC_OR_PART, text))
        time.sleep(_PAUSE)
    refuse_superseded(settings)


def _fence(settings: PublisherSettings, slot: int) -> None:
    with Session(settings, slot, refuse_superseded) as session:
        session.fence()
