"""Metadata from Kafka: topics and their ids, where partitions begin and end, consumer groups and their offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from orchestration.kafka import clients
from orchestration.kafka.consumer_groups import assignors, topics_read
from orchestration.kafka.tls import wants_tls
from orchestration.kafka.topic_settings import configs, not_readable
from orchestration.settings import rejected
from publisher import RejectedPropertiesError, kafka_error, redact

_Client = TypeVar("_Client")

_TIMEOUT_SECONDS = 10.0

# How many groups a client is kept for; each client has threads of its own. Other groups get a new client each time, which takes 40 ms.
_KEPT_GROUPS = 32

# Errors while a group's coordinator moves to another broker: they pass within moments.
_MOVING = frozenset({KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS})
_PAUSE_SECONDS = 0.1

# The topic id in the answer of a broker that has no topic ids: Kafka before 2.8, and some compatible ones.
_ID_OF_NONE = "AAAAAAAAAAAAAAAAAAAAAA"

# The offset of a partition without a record at or after the moment that was asked for.
_NONE_SINCE = -1

NO_ID = "name:"
"""The prefix of a topic's id if Kafka has none; the name follows."""


class ClusterError(Exception):
    """Kafka did not answer, or refused the request. The loop asks again later. name: Kafka's name of the error, such as `_TRANSPORT`."""

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Topic:
    """A topic that exists: its name, Kafka's id of it (another one when it is created again), and its number of partitions.

    If Kafka has no ids, the id is `name:` and the name; then a topic that was created again can't be told from the old one.
    """

    name: str
    id: str
    partitions: int

    @property
    def all_partitions(self) -> list[Partition]:
        """Its partitions, by number."""
        return [Partition(self.name, self.id, number) for number in range(self.partitions)]


@dataclass(frozen=True)
class Partition:
    """One partition of a topic. The topic's id is part of it, as a topic that is created again has other offsets."""

    topic: str
    topic_id: str
    number: int

    @property
    def key(self) -> str:
        """The partition's key in the column `next_offsets` of `ticks`."""
        return f"{self.topic_id}/{self.number}"


@dataclass(frozen=True)
class Range:
    """Offsets [begin, end) of one partition, for one source."""

    source: str
    partition: Partition
    begin: int
    end: int

    @property
    def rows(self) -> int:
        """Upper bound of the records in it: transaction markers and compacted records count, too."""
        return self.end - self.begin


class Cluster:
    """A Kafka cluster. It uses one admin client, and one client for each consumer group.

    Methods raise ClusterError when Kafka gives no answer, but `max_message_bytes` leaves out the topics concerned, and `create` returns the
    error of each topic. The constructor raises SettingsError for properties that a client doesn't take.
    """

    def __init__(self, kafka: Mapping[str, str], timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._timeout = timeout_seconds
        self._refused: KafkaError | None = None
        self._unreached: tuple[KafkaError, float] | None = None
        self._kafka = kafka
        self._admin = self._new_admin()
        self._keepers: dict[str, Consumer] = {}

    def _new_admin(self) -> AdminClient:
        return self._accepted(lambda: clients.admin(self._kafka, error_cb=self._on_error))

    def _new_keeper(self, group: str) -> Consumer:
        return self._accepted(lambda: clients.keeper(self._kafka, group, error_cb=self._on_error))

    def _accepted(self, make: Callable[[], _Client]) -> _Client:
        try:
            return make()
        except RejectedPropertiesError as error:
            raise rejected(error) from None

    def topic_names(self) -> list[str]:
        """All topics that this user may see, without Kafka's internal ones."""
        try:
            topics = self._admin.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise self._unanswered("list its topics", error) from None
        return sorted(name for name in topics if not name.startswith("__"))

    def describe(self, names: Iterable[str], denied: set[str] | None = None) -> dict[str, Topic]:
        """The topics of these names that exist. denied: if given, gets those that may not be described, for which it raises otherwise."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        found: dict[str, Topic] = {}
        try:
            futures = self._admin.describe_topics(TopicCollection(wanted), request_timeout=self._timeout)
            for name, future in futures.items():
                try:
                    description = future.result()
                except KafkaException as error:
                    if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                        continue
                    if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and denied is not None:
                        denied.add(name)
                        continue
                    raise
                topic_id = str(description.topic_id)
                found[name] = Topic(name, f"{NO_ID}{name}" if topic_id == _ID_OF_NONE else topic_id, len(description.partitions))
        except KafkaException as error:
            raise self._unanswered(f"describe {', '.join(wanted[:3])}", error) from None
        return found

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The last stable offset of each partition: what may be read without seeing a transaction that is still open.

        A partition that gives no answer is left out. Raises ClusterError if none gives one.
        """
        return self._offsets(dict.fromkeys(partitions, _latest()))

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first offset of each partition that retention has not removed. Partitions without an answer: as in `ends`."""
        return self._offsets(dict.fromkeys(partitions, _earliest()))

    def since(self, moments: Mapping[Partition, int], silent: list[Partition] | None = None) -> dict[Partition, tuple[int, int]]:
        """The offsets [begin, end) of what was written to each partition since a moment, in epoch milliseconds, by the records' timestamps.

        Records of open transactions count. silent: if given, gets the partitions without an answer, for which it raises otherwise. Raises
        ClusterError if no partition gives an answer.
        """
        ends = self._offsets(dict.fromkeys(moments, _latest()), IsolationLevel.READ_UNCOMMITTED)
        written_since = {partition: OffsetSpec.for_timestamp(moments[partition]) for partition in ends}
        begins = self._offsets(written_since, IsolationLevel.READ_UNCOMMITTED, lowest=_NONE_SINCE)
        unanswered = [partition for partition in moments if partition not in begins]
        if silent is not None:
            silent += unanswered
        elif unanswered:
            why = f"no answer about {unanswered[0].topic}/{unanswered[0].number}"
            raise self._unanswered("return the offsets of its partitions", KafkaException(KafkaError(KafkaError._TIMED_OUT, why)))
        return {partition: (ends[partition] if begin == _NONE_SINCE else begin, ends[partition]) for partition, begin in begins.items()}

    def _offsets(
        self, asked: Mapping[Partition, OffsetSpec], isolation: IsolationLevel = IsolationLevel.READ_COMMITTED, lowest: int = 0
    ) -> dict[Partition, int]:
        wanted = {TopicPartition(partition.topic, partition.number): partition for partition in asked}
        if not wanted:
            return {}
        found: dict[Partition, int] = {}
        reason = KafkaException(KafkaError(KafkaError._TIMED_OUT))
        try:
            futures = self._admin.list_offsets(
                {where: asked[partition] for where, partition in wanted.items()},
                isolation_level=isolation,
                request_timeout=self._timeout,
            )
        except KafkaException as error:
            raise self._unanswered("return the offsets of its partitions", error) from None
        for where, partition in wanted.items():
            try:
                offset = futures[where].result().offset
            except KafkaException as error:
                reason = error
            else:
                # for partitions of a broker that did not answer, librdkafka (2.16) returns offset -1001 and no error
                if offset >= lowest:
                    found[partition] = offset
        if not found:
            raise self._unanswered("return the offsets of its partitions", reason) from None
        return found

    def max_message_bytes(self, names: Iterable[str]) -> dict[str, int]:
        """The largest record that each topic takes; a topic whose configuration may not be read is left out."""
        found = {name: config.get("max.message.bytes") or "" for name, config in self.configs(names).items()}
        return {name: int(size) for name, size in found.items() if size.isdigit()}

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str | None]]:
        """The configuration of each topic; a topic whose configuration may not be read is left out."""
        return configs(self._admin, names, self._timeout)

    def not_readable(self, names: Iterable[str]) -> set[str]:
        """Those of the topics whose records this user may not read, as far as the broker tells."""
        return not_readable(self._admin, names, self._timeout)

    def groups(self) -> dict[str, set[str]]:
        """The consumer groups that have committed offsets, and the topics they read."""
        try:
            # a new client, which knows no coordinators: an older one would end the process if it asked one that has moved (see `committed`)
            admin = self._new_admin()
            return topics_read(admin, self._timeout)
        except KafkaException as error:
            raise self._unanswered("list its consumer groups", error) from None

    def assignors(self, groups: Iterable[str]) -> dict[str, str | None]:
        """The name of the assignor of each group that has members now; None if the group can't be described."""
        try:
            # a new client, as in `groups`
            return assignors(self._new_admin(), groups, self._timeout)
        except KafkaException as error:
            raise self._unanswered("describe its consumer groups", error) from None

    def committed(self, group: str, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The offsets that a group has committed, by topic and partition.

        It uses a consumer, which consumes nothing: an admin client ends the process when the group's coordinator has moved (seen with
        librdkafka 2.16: its issue 5040).
        """
        asked = [TopicPartition(topic, number) for topic, number in partitions]
        keeper: Consumer | None = None
        try:
            keeper = self._keepers.pop(group, None) or self._new_keeper(group)
            found = self._committed(keeper, asked)
        except KafkaException as error:
            if keeper is not None:
                keeper.poll(0)  # calls the error callback
            raise self._unanswered(f"say how far the consumer group {group} is", error) from None
        keeper.poll(0)
        if len(self._keepers) < _KEPT_GROUPS:
            self._keepers[group] = keeper
        return {(where.topic, where.partition): where.offset for where in found if where.error is None and where.offset >= 0}

    def keep_only(self, groups: Container[str]) -> None:
        """Drops the clients of other groups."""
        self._keepers = {group: keeper for group, keeper in self._keepers.items() if group in groups}

    def _committed(self, keeper: Consumer, asked: list[TopicPartition]) -> list[TopicPartition]:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                found = keeper.committed(asked, max(deadline - time.monotonic(), _PAUSE_SECONDS))
                for where in found:
                    # the offsets of a deleted topic are deleted, too
                    if where.error is not None and where.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise KafkaException(where.error)
                return found
            except KafkaException as error:
                if error.args[0].code() not in _MOVING or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def create(self, topics: Iterable[Any]) -> dict[str, str | None]:
        """Creates topics (NewTopic). Returns Kafka's objection, or None, by name."""
        wanted = list(topics)
        created: dict[str, str | None] = {}
        if not wanted:
            return created
        for name, future in self._admin.create_topics(wanted, request_timeout=self._timeout).items():
            try:
                future.result()
                created[name] = None
            except KafkaException as error:
                created[name] = redact(kafka_error(error).str(), self._kafka)
        return created

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._refused = error
        elif error.code() in (KafkaError._RESOLVE, KafkaError._TRANSPORT):
            self._unreached = (error, time.monotonic())

    def _unanswered(self, what: str, error: KafkaException) -> ClusterError:
        """Why there is no answer.

        A refused login, an address that can't be resolved and a connection that is closed at once are reported in the background; the call
        itself only times out.
        """
        self._admin.poll(0)
        raised = kafka_error(error)
        reason, self._refused = self._refused, None
        if reason is None and raised.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT) and self._unreached is not None:
            unreached, heard = self._unreached
            reason = unreached if time.monotonic() - heard <= self._timeout + 1 else None
        reason = reason or raised
        if raised.code() == KafkaError._TIMED_OUT:
            # a new client: librdkafka keeps using its old connection to a group's coordinator, even after the broker is back
            self._admin = self._new_admin()
        why = redact(reason.str(), self._kafka)
        if reason.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT) and (address := wants_tls(self._kafka)):
            why = f"{address} asks for TLS: set security.protocol to ssl or sasl_ssl"
        return ClusterError(f"Kafka did not {what}: {why} ({reason.name()})", reason.name())


def _latest() -> OffsetSpec:
    spec: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return spec


def _earliest() -> OffsetSpec:
    spec: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    return spec
