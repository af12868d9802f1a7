"""Why something was not sent: an error, what kind it is, and a text that is safe to keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from publisher.error_kinds import ErrorKind, Scope, classify
from publisher.redaction import redact
from publisher.settings import PublisherSettings


@dataclass(frozen=True, slots=True)
class Trouble:
    """One reason. Ends up in the columns `error_*` of a result."""

    error: ErrorKind
    message: str

    @property
    def scope(self) -> Scope:
        return self.error.scope


def trouble(code: int, message: str, settings: PublisherSettings) -> Trouble:
    """A reason from an error code, its text without secrets."""
    return Trouble(classify(code, settings.error_kinds), redact(message, settings.kafka))


def trouble_of(error: KafkaError, settings: PublisherSettings) -> Trouble:
    """A reason from an error of the Kafka client."""
    return trouble(error.code(), error.str(), settings)


def kafka_error(exception: KafkaException) -> KafkaError:
    """The error that an exception of the Kafka client carries."""
    error = exception.args[0] if exception.args else None
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(exception))


@contextmanager
def untangled() -> Iterator[None]:
    """Around a call that reads reports: raises what is fatal to the client as KafkaException, whatever was read after it.

    A flush reads on while the exception of a fatal error is already pending, and Python makes a SystemError of the next
    report's callback, caused by that exception (seen with confluent-kafka 2.16).
    """
    try:
        yield
    except SystemError as error:
        if not isinstance(error.__cause__, KafkaException):
            raise
        raise error.__cause__ from None
