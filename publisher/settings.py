"""The settings of a publishing task. Picklable: Spark carries them from the driver to the executors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError

from publisher.errors import ContradictedPropertyError, ErrorKind, SettingsError, Trouble, classify
from publisher.redaction import redact

# Without these a send may be lost, doubled, reordered, or put into another partition than by a Java client.
_GUARANTEES: Final[Mapping[str, str]] = {
    "enable.idempotence": "true",
    "acks": "all",
    # Java's default for keyed records; librdkafka's own default puts the same key elsewhere.
    "partitioner": "murmur2_random",
    # A request for metadata must not create a misspelt destination.
    "allow.auto.create.topics": "false",
    # Offsets come from the reports of successful sends.
    "delivery.report.only.error": "false",
}

# librdkafka's aliases of properties that are guaranteed.
ALIASES: Final[Mapping[str, str]] = {"request.required.acks": "acks", "delivery.timeout.ms": "message.timeout.ms"}


@dataclass(frozen=True, kw_only=True)
class PublisherSettings:
    """Settings of the publisher. Raises SettingsError when they cannot work.

    kafka: librdkafka properties for every client, passed on unchanged. Not in the repr, as they contain secrets.
    error_kinds: the error kinds by code; see `error_kinds_from_rows`.
    transactional_prefix, instance: with the slot they make the transactional.id `{prefix}.{instance}.{slot}`.
    generation: number of the loop that these settings belong to. A task that finds a higher one in Kafka sends nothing; see `take_charge`.
    fence: how often this loop has taken charge since it was in charge first: tasks that it has given up have a lower one, and send nothing.
    fence_topics: the topics with whose offsets that number is stored: those given to `take_charge`. If there are none, nothing is checked.
    transactions: whether the brokers have them. If not, a row without a report in time is `unknown`, as it may have been written; innocent
    rows of a refused batch are sent after later rows; an older loop goes on sending until it reads the generation before its next load.
    max_rows: rows in one transaction. More make fewer commits, and more to send again when one is aborted.
    max_bytes: bytes in one transaction, as estimated on the wire. A single larger row makes a transaction of its own.
    transaction_timeout_ms: after this time the broker aborts a transaction. A third is for handing rows over, a third for the reports of
    the last of them, a third for the commit. The broker's transaction.max.timeout.ms (15 minutes) bounds it. Without transactions it
    bounds the same phases, and how long a row of unknown outcome is not sent again.
    metadata_timeout_ms: how long to wait for the description of the destinations before Kafka counts as unreachable.
    metadata_max_age_ms: how long a process remembers the partitions and the size limit of a destination; no property of the client.
    max_splits: how often a task may divide rows to find a record that brokers refuse, or send a dead letter again with less in it. One bad
    record among 50,000 takes 16 divisions. After that the rest stays unsent, and its destination is paused.
    """

    kafka: Mapping[str, str] = field(repr=False)
    error_kinds: Mapping[int, ErrorKind] = field(repr=False)
    transactional_prefix: str = "redrive"
    instance: str = "default"
    generation: int = 0
    fence: int = 0
    fence_topics: tuple[str, ...] = ()
    transactions: bool = True
    max_rows: int = 50_000
    max_bytes: int = 64 * 1024 * 1024
    transaction_timeout_ms: int = 60_000
    metadata_timeout_ms: int = 10_000
    metadata_max_age_ms: int = 300_000
    max_splits: int = 200

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_bytes", "metadata_timeout_ms", "metadata_max_age_ms", "max_splits"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, not {getattr(self, name)}")
        # librdkafka takes 1000 or more, but a third of the value must be long enough for one phase.
        if self.transaction_timeout_ms < 3_000:
            raise SettingsError(f"transaction_timeout_ms must be at least 3000, not {self.transaction_timeout_ms}")
        needed = self.guarantees
        for name, value in self.kafka.items():
            known = ALIASES.get(name, name)
            given = "all" if known == "acks" and value.strip() == "-1" else value.strip().lower()
            if known == "transactional.id":
                wanted = "an id of its own for each slot"
            elif known in needed and given != needed[known]:
                wanted = f"{known} = {needed[known]}"
            else:
                continue
            raise ContradictedPropertyError(
                f"Kafka property {name} has a value that would undo a guarantee of the publisher, which needs {wanted}"
            )

    @property
    def guarantees(self) -> dict[str, str]:
        """The Kafka properties that the publisher's promises rest on. `kafka` may set any other."""
        return {
            **_GUARANTEES,
            "transaction.timeout.ms": str(self.transaction_timeout_ms),
            # A row without a report in a third of the time fails, so that a third is left for the commit.
            "message.timeout.ms": str(self.phase_ms),
        }

    @property
    def phase_ms(self) -> int:
        """A third of the transaction timeout, in milliseconds: what each phase of a transaction may take."""
        return self.transaction_timeout_ms // 3

    @property
    def fence_group(self) -> str:
        """The consumer group whose offsets carry the generation in charge. Nobody consumes with it."""
        return f"{self.transactional_prefix}.{self.instance}"

    def transactional_id(self, slot: int | str) -> str:
        """The transactional.id of a slot: the same for each task of the slot, one after another."""
        return f"{self.transactional_prefix}.{self.instance}.{slot}"

    def trouble(self, code: int, message: str) -> Trouble:
        """The trouble that an error code stands for, with its message redacted."""
        return Trouble(classify(code, self.error_kinds), redact(message, self.kafka))

    def trouble_of(self, error: KafkaError) -> Trouble:
        """The trouble that an error of the Kafka client stands for."""
        return self.trouble(error.code(), error.str())
