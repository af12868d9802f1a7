"""Builds every Kafka client of the program: properties, defaults, and errors without secrets."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from publisher.errors import RejectedPropertiesError
from publisher.redaction import masked, parts_of, redact
from publisher.settings import ALIASES, PublisherSettings

_Client = TypeVar("_Client")

DEFAULT_BATCH_SIZE: Final = 1_000_000  # librdkafka's own
_MESSAGE_MAX_BYTES: Final = 1_000_000_000  # librdkafka's maximum, so that only the topic's limit in the broker applies

# Defaults of a producer, which settings may override.
_TUNING: Final = {
    # Fills batches at 50k rows/s over many partitions. Nothing waits for it: each transaction is flushed at its end.
    "linger.ms": "50",
    # A transaction is bounded already; a second bound would only make the hand-over wait for room.
    "queue.buffering.max.messages": "0",
    "queue.buffering.max.kbytes": "2097151",
    "message.max.bytes": str(_MESSAGE_MAX_BYTES),
    # Commits are small requests that are waited for.
    "socket.nagle.disable": "true",
    # librdkafka waits half of this time between its first connections, and each task and each abort makes new connections.
    "reconnect.backoff.ms": "20",
    # How long a topic that the admin client has just seen may be missing from the metadata of another broker.
    "topic.metadata.propagation.max.ms": "5000",
}


class Background:
    """Errors that the client reports by callback, such as a failed login; its calls only time out. hopeless: waiting can't cure it."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        self.hopeless: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        self.last = error
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._FATAL):
            self.hopeless = error

    def explain(self, error: KafkaError) -> KafkaError:
        """The error reported in the background, if the call itself only timed out; else the error of the call."""
        timed_out = error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
        return (self.hopeless or self.last or error) if timed_out else error


def kafka_error(exception: KafkaException) -> KafkaError:
    """The error that an exception of the Kafka client carries."""
    error = exception.args[0] if exception.args else None
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(exception))


@contextmanager
def fatal_as_kafka_exception() -> Iterator[None]:
    """Around a call that reads delivery reports: raises an error that is fatal to the client as KafkaException."""
    # A flush goes on while that exception is pending, and Python raises a SystemError in the next callback (confluent-kafka 2.16).
    try:
        yield
    except SystemError as error:
        if not isinstance(error.__cause__, KafkaException):
            raise
        raise error.__cause__ from None


def batch_size_of(settings: PublisherSettings) -> int:
    """The largest batch in bytes that the settings allow."""
    return int(settings.kafka.get("batch.size", DEFAULT_BATCH_SIZE))


def largest_message(settings: PublisherSettings) -> int:
    """The largest message in bytes that the client itself takes."""
    return int(settings.kafka.get("message.max.bytes", _MESSAGE_MAX_BYTES))


def make_producer(settings: PublisherSettings, transactional_id: str | None, batch_size: int, background: Background) -> Producer:
    """An idempotent producer; with an id a transactional one, not yet initialised. Raises RejectedPropertiesError."""
    properties: dict[str, Any] = {
        **_TUNING,
        **{name: value for name, value in settings.kafka.items() if name not in ALIASES},
        **settings.guarantees,
        **({} if transactional_id is None else {"transactional.id": transactional_id}),
        "batch.size": batch_size,
        # The one property that confluent-kafka reads itself: it must be a bool, not a text.
        "delivery.report.only.error": False,
        "error_cb": background,
    }
    return make_client(Producer, properties, settings.kafka)


def make_admin(settings: PublisherSettings, background: Background) -> AdminClient:
    """An admin client. Raises RejectedPropertiesError."""
    return make_client(AdminClient, {**settings.kafka, "allow.auto.create.topics": "false", "error_cb": background}, settings.kafka)


def make_keeper(settings: PublisherSettings, group: str, background: Background, **own: Any) -> Consumer:
    """A consumer of a group that it doesn't join: it reads and writes the group's offsets, and consumes only what is assigned to it.

    own: further properties. Raises RejectedPropertiesError.
    """
    properties: dict[str, Any] = {
        **settings.kafka,
        "group.id": group,
        "enable.auto.commit": "false",
        "allow.auto.create.topics": "false",
        # A read waits for an offset whose transaction has not ended.
        "isolation.level": "read_committed",
        "error_cb": background,
        **own,
    }
    return make_client(Consumer, properties, settings.kafka)


def make_reader(settings: PublisherSettings, background: Background) -> Consumer:
    """A consumer of all records that are still there, for places that the caller assigns. Raises RejectedPropertiesError."""
    own = {
        # what failed may have been read before its transaction ended
        "isolation.level": "read_uncommitted",
        "enable.partition.eof": "true",
        # else a place that retention has removed would be skipped without a word
        "auto.offset.reset": "error",
        # it reads some records here and some there: fetching far ahead would be for nothing
        "queued.min.messages": "1000",
        # with so few, the default would have each read but the first wait for a second
        "fetch.queue.backoff.ms": "10",
    }
    return make_keeper(settings, settings.fence_group, background, **own)


def make_client(client: Callable[..., _Client], properties: Mapping[str, Any], kafka: Mapping[str, str]) -> _Client:
    """A Kafka client of any class. properties: passed on as they are, bootstrap.servers in the configured order; kafka: the user's own.

    Raises RejectedPropertiesError, which names the properties at fault and has none of their values in its text.
    """
    # No log of the client's own: it goes to standard error without redaction, and has nothing that its errors don't have.
    wanted = {"log_level": "0", **properties}
    try:
        return client(wanted)
    except (KafkaException, TypeError, ValueError) as error:
        reason = kafka_error(error).str() if isinstance(error, KafkaException) else str(error)
    # Raised outside of the except block, so that no context is attached: its text contains the rejected value.
    names = _at_fault(client, wanted, kafka)
    # A short value may be part of any word, so it is masked only where it is quoted.
    values = [part for name in names for part in (*parts_of(kafka[name]), f'"{kafka[name]}"') if len(part) > 4]
    which = f"{', '.join(names)}: " if names else ""
    raise RejectedPropertiesError(f"the Kafka client does not take its properties: {which}{redact(masked(reason, values), kafka)}", names)


def _at_fault(client: Callable[..., Any], properties: Mapping[str, Any], kafka: Mapping[str, str]) -> tuple[str, ...]:
    """Each property whose removal is enough to make a client; if there is none, each that is refused as the only one of `kafka`."""

    def is_refused(chosen: dict[str, Any]) -> bool:
        try:
            client(chosen)
        except (KafkaException, TypeError, ValueError):
            return True
        return False

    needed = {name: value for name, value in properties.items() if name not in kafka}
    without = tuple(name for name in kafka if not is_refused({other: properties[other] for other in properties if other != name}))
    return without or tuple(name for name in kafka if name in properties and is_refused({**needed, name: properties[name]}))
