"""Puts a loop in charge: its generation into Kafka, and an end to whatever older loops are still sending.

init_transactions always succeeds and fences whoever held the id, so it alone cannot tell the newer from the older. The
order does: a loop takes the number after its tables' last, writes it into Kafka, sees that it can be read, then initialises
every slot. A task initialises its slot, then reads, then sends. So a task of an older loop either initialised before the
newer loop did, and is fenced, or initialises after it, and reads the higher number.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaError

from publisher.clients import Background, make_keeper
from publisher.destinations import existing
from publisher.errors import FencedError, SessionLostError
from publisher.fence import generation_in_charge, mark, refuse_superseded
from publisher.session import Session
from publisher.settings import PublisherSettings
from publisher.trouble import trouble, trouble_of

# The last part of the transactional.id that numbers are written with, where a task has its slot.
_NAME: Final = "generation"

# Slots that are initialised at once: 0.1 s each, and there may be hundreds.
_AT_ONCE: Final = 8

# How long to wait before looking again for what was just written, in seconds.
_PAUSE: Final = 0.05


def take_charge(settings: PublisherSettings, topics: Sequence[str], slots: int) -> bool:
    """Puts the loop of `settings.generation` in charge; no older one can send when it returns.

    Called at the start, before the number is taken in the tables, so that an older loop can still write down there what it
    has sent. May be called again while nothing is being sent: Kafka forgets the number after offsets.retention.minutes
    (7 days by default), and then only the tables know it.

    topics: the number is kept beside the offsets of each that exists, and of `settings.fence_topics`. Several, as it is lost
    with a topic; and those that older loops had as their fence_topics, as that is where their tasks look.
    slots: slots 0 to slots - 1 are taken from older loops: as many as any of them ever had.

    Says whether the number is kept anywhere: not if none of the topics exists.

    Raises SupersededError when a higher number is there: end this loop. Raises SessionLostError when Kafka gives no
    answer, or not the permission (on the group, on the topics, on the transactional ids): wait, then call again.
    """
    settings = replace(settings, fence_topics=tuple(existing([*topics, *settings.fence_topics], settings)))
    if settings.fence_topics and not settings.transactions:
        _write_plainly(settings)
        _await_written(settings)
    elif settings.fence_topics:
        try:
            _write(settings)
        except FencedError:
            # Somebody else has begun to write. Reading again tells whether theirs is a higher number.
            _write(settings)
        _await_written(settings)
    if not settings.transactions:
        return bool(settings.fence_topics)
    with ThreadPoolExecutor(_AT_ONCE, "take-charge") as threads:
        list(threads.map(lambda slot: _fence(settings, slot), range(slots)))
    return bool(settings.fence_topics)


def _write(settings: PublisherSettings) -> None:
    """Writes the number unless a higher one is there, even if this process sleeps for an hour in between: as the init
    comes before the reading, whoever writes in that hour fences this producer."""
    with Session(settings, _NAME) as session:
        producer = session.fence()
        refuse_superseded(settings)
        offsets = [mark(topic, settings.generation) for topic in settings.fence_topics]
        group = make_keeper(settings, settings.fence_group, Background()).consumer_group_metadata()
        for step in (
            lambda _: producer.begin_transaction(),
            lambda seconds: producer.send_offsets_to_transaction(offsets, group, seconds),
            producer.commit_transaction,
        ):
            error = session.repeated(step)
            if error is not None:
                raise session.lost(error)


def _write_plainly(settings: PublisherSettings) -> None:
    """Writes the number unless a higher one is there, without a transaction: a loop that freezes between the two can
    overwrite a higher number."""
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
        raise SessionLostError(trouble_of(error, settings))


def _await_written(settings: PublisherSettings) -> None:
    """A commit is certain when it returns, and read by everybody a moment later."""
    deadline = time.monotonic() + settings.metadata_timeout_ms / 1000
    while (generation_in_charge(settings, settings.fence_topics) or 0) < settings.generation:
        if time.monotonic() >= deadline:
            text = f"the generation was written to the group {settings.fence_group} and is not there"
            raise SessionLostError(trouble(KafkaError.UNKNOWN_TOPIC_OR_PART, text, settings))
        time.sleep(_PAUSE)
    refuse_superseded(settings)


def _fence(settings: PublisherSettings, slot: int) -> None:
    with Session(settings, slot) as session:
        session.fence()
