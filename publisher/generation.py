"""Which loop is in charge: the highest generation in the offsets of a consumer group that nobody consumes with.

init_transactions always succeeds and fences whoever held the id, so it alone cannot tell the newer from the older. The order of steps can:
a loop takes the number after the last one in its tables, writes it into Kafka, waits until it can be read, then initialises every slot. A
task initialises its slot, then reads, then sends. So a task of an older loop is fenced, or it initialised later, and then reads the number.
"""

import re
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from publisher.clients import Background, kafka_error, make_keeper
from publisher.contract import SUPERSEDED, SUPERSEDED_CODE, superseded_message
from publisher.destinations import existing
from publisher.errors import Concerns, ErrorKind, FencedError, SessionLostError, SupersededError, Trouble, classify
from publisher.session import Session
from publisher.settings import PublisherSettings

# How long one try to read may take, and how long to wait between two, in seconds.
_GLANCE: Final = 0.5
_PAUSE: Final = 0.05
# The client that reads, for the latest group and Kafka properties only: a process works for one loop. Connecting takes 40 ms, asking 1 ms;
# and unlike a producer, it holds nothing that another process could fence.
_kept: dict[tuple[str, frozenset[tuple[str, str]]], tuple[Consumer, Background]] = {}


def mark(topic: str, generation: int, fence: int = 0) -> TopicPartition:
    """The offset to commit, whose metadata is the generation. It is higher than that of any record, so that the group has no lag."""
    return TopicPartition(topic, 0, 2**62, f"generation {generation}" + (f" fence {fence}" if fence else ""))


def refuse_superseded(settings: PublisherSettings) -> None:
    """Raises SupersededError when a generation or a fence above ours is in Kafka, SessionLostError when Kafka doesn't answer."""
    # If Kafka has no generation, that is no error: it forgets offsets after some time, and the guards of the tables still hold.
    found = generation_in_charge(settings, settings.fence_topics)
    if found is not None and found > (settings.generation, settings.fence):
        kind = ErrorKind(SUPERSEDED_CODE, SUPERSEDED, "fenced", Concerns.CONNECTION)
        raise SupersededError(Trouble(kind, superseded_message(settings.generation, found[0])), found[0])


def generation_in_charge(settings: PublisherSettings, topics: Iterable[str]) -> tuple[int, int] | None:
    """The highest generation stored with one of the topics, and its fence. Raises SessionLostError when Kafka doesn't answer."""
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
        is_temporary = classify(error.code(), settings.error_kinds).kind == "retriable" and background.hopeless is None
        if not is_temporary or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE)
    _kept.clear()  # the next call gets a new client, as this one may be broken
    error = background.explain(error)
    text = f"the generation in charge can't be read from the group {settings.fence_group}: {error.str()}"
    raise SessionLostError(settings.trouble(error.code(), text))


def take_charge(settings: PublisherSettings, topics: Sequence[str], slots: int) -> bool:
    """Puts the loop of `settings.generation` in charge. With transactions, no older loop can send after it has returned True.

    Called at the start, before the loop takes the number in the tables, so that an older loop can still record there what it has sent.
    Called again, while nothing is being sent, to fence this loop's own sends. topics: the number is stored as a committed offset of each
    that exists, and of each of `settings.fence_topics`. Give several, as it is lost when a topic is deleted. Include the fence_topics of
    older loops, as their tasks look there. slots: how many slots are fenced; give the most that any older loop had. Returns whether the
    number is stored anywhere: not if none of the topics exists.

    Raises SupersededError when a higher number is there: end this loop. Raises SessionLostError when Kafka gives no answer, or refuses
    permission (for the group, the topics or the transactional ids): wait, then call again.
    """

    def fence(slot: int) -> None:
        with Session(settings, slot, refuse_superseded) as session:
            session.fence()

    settings = replace(settings, fence_topics=tuple(existing([*topics, *settings.fence_topics], settings)))
    renew_charge(settings)
    if settings.transactions:
        with ThreadPoolExecutor(8, "take-charge") as threads:  # 0.1 s each, and there may be hundreds
            list(threads.map(fence, range(slots)))
    return bool(settings.fence_topics)


def renew_charge(settings: PublisherSettings) -> None:
    """Writes the generation into Kafka, which forgets it after offsets.retention.minutes (7 days by default). Raises as take_charge."""
    if settings.fence_topics:
        write = _write if settings.transactions else _write_without_transaction
        try:
            write(settings)
        except FencedError:
            # Another loop has begun to write. Reading again tells whether its number is higher.
            write(settings)
        _await_written(settings)


def _keeper(settings: PublisherSettings) -> tuple[Consumer, Background]:
    """The kept consumer. An admin client would end the process if the group's coordinator moved during a call (librdkafka issue 5040)."""
    key = (settings.fence_group, frozenset(settings.kafka.items()))
    kept = _kept.get(key)
    if kept is None:
        _kept.clear()
        background = Background()
        kept = _kept[key] = make_keeper(settings, settings.fence_group, background), background
    return kept


def _highest(offsets: Iterable[TopicPartition]) -> tuple[int, int] | None:
    numbers = []
    for where in offsets:
        # Not for a deleted topic: its offset is deleted, too.
        if where.error is not None and where.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(where.error)
        if found := re.fullmatch(r"generation (\d{1,18})(?: fence (\d{1,18}))?", where.metadata or ""):
            numbers.append((int(found[1]), int(found[2] or 0)))
    return max(numbers, default=None)


def _write(settings: PublisherSettings) -> None:
    """Writes the number unless a higher one is there. A loop that writes a higher one after the check here fences this producer."""
    with Session(settings, "generation", refuse_superseded) as session:
        producer = session.fence()
        refuse_superseded(settings)
        offsets = [mark(topic, settings.generation, settings.fence) for topic in settings.fence_topics]
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
    return make_keeper(settings, settings.fence_group, Background()).consumer_group_metadata()


def _write_without_transaction(settings: PublisherSettings) -> None:
    """Writes the number unless a higher one is there. A loop that freezes between check and write can overwrite a higher number."""
    refuse_superseded(settings)
    answers: list[KafkaError | None] = []
    background = Background()
    keeper = make_keeper(settings, settings.fence_group, background, on_commit=lambda error, _: answers.append(error))
    keeper.commit(offsets=[mark(topic, settings.generation, settings.fence) for topic in settings.fence_topics], asynchronous=True)
    deadline = time.monotonic() + settings.metadata_timeout_ms / 1000
    while not answers and background.hopeless is None and time.monotonic() < deadline:
        keeper.poll(_PAUSE)
    error = answers[0] if answers else background.explain(KafkaError(KafkaError._TIMED_OUT, "no answer about the generation"))
    if error is not None:
        raise SessionLostError(settings.trouble_of(error))


def _await_written(settings: PublisherSettings) -> None:
    """Waits until the number can be read: a commit that has returned is certain, but it may be readable only a moment later."""
    deadline = time.monotonic() + settings.metadata_timeout_ms / 1000
    while (generation_in_charge(settings, settings.fence_topics) or (0, 0)) < (settings.generation, settings.fence):
        if time.monotonic() >= deadline:
            text = f"the generation was written to the group {settings.fence_group} and is not there"
            raise SessionLostError(settings.trouble(KafkaError.UNKNOWN_TOPIC_OR_PART, text))
        time.sleep(_PAUSE)
    refuse_superseded(settings)
