"""What can go wrong: the publisher's exceptions, and what an error code of Kafka says about a send.

What Kafka does to a send is never an exception of `publish`: it is the outcome in a result row. Exceptions are for what only a person can
correct, and while `publish` runs, even these become a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from confluent_kafka import KafkaError, KafkaException


class PublisherError(Exception):
    """The base of every exception that the publisher raises itself."""


class SettingsError(PublisherError):
    """The settings cannot work: a bound is out of range, or the table of error kinds is unreadable. Nothing was sent."""


class ContradictedPropertyError(SettingsError):
    """A Kafka property would undo a guarantee of the publisher."""


class RejectedPropertiesError(SettingsError):
    """The Kafka client does not take the properties. names: those at fault, where that can be told."""

    def __init__(self, message: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names


class ContractError(PublisherError):
    """The rows are not rows of `ready`: a column is missing or cannot be read as its type. None of them was sent."""


class Scope(StrEnum):
    """What an error concerns."""

    RECORD = "record"
    """This record and no other is refused: it is found by splitting, then charged."""

    TOPIC = "topic"
    """Every record of the topic is refused, and each is charged."""

    CONNECTION = "connection"
    """Says nothing about any record: none is charged, and nothing more is sent to the destination for a while."""


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row of the seed `publish_error_kinds`. code: of the Kafka protocol (0 and above) or of librdkafka (negative)."""

    code: int
    name: str
    kind: str
    scope: Scope


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something was not sent: the columns `error_*` of a result. The message is without secrets."""

    error: ErrorKind
    message: str

    @property
    def scope(self) -> Scope:
        return self.error.scope


class SessionLostError(PublisherError):
    """Nothing more can be sent in this call, but perhaps in the next: brokers don't answer, or refuse to."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble

    def __reduce__(self) -> tuple[Any, ...]:
        # Executors send exceptions to the driver pickled. The default would call the class with the text alone.
        return type(self), (self.trouble,)


class FencedError(SessionLostError):
    """A newer producer has begun with the same transactional.id, and no newer loop is known to be behind it."""


class SupersededError(SessionLostError):
    """A loop with a higher generation is in charge: this one must not send any more."""

    def __init__(self, trouble: Trouble, by: int) -> None:
        super().__init__(trouble)
        self.by = by

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.trouble, self.by)


def error_kinds_from_rows(rows: Iterable[Mapping[str, object]]) -> dict[int, ErrorKind]:
    """The error kinds by code, from rows with the columns `code`, `name`, `error_kind` and `scope`; others are ignored.

    Raises SettingsError for a missing column, an unreadable code, an unknown scope, or a code that is listed twice.
    """
    kinds: dict[int, ErrorKind] = {}
    for number, row in enumerate(rows, start=1):
        try:
            kind = ErrorKind(int(str(row["code"])), str(row["name"]), str(row["error_kind"]), Scope(str(row["scope"])))
        except (KeyError, ValueError) as error:
            raise SettingsError(f"publish error kinds, row {number}: {error}") from error
        if kind.code in kinds:
            raise SettingsError(f"publish error kinds, row {number}: code {kind.code} is listed twice")
        kinds[kind.code] = kind
    return kinds


def classify(code: int, kinds: Mapping[int, ErrorKind]) -> ErrorKind:
    """The kind of an error code.

    A code that is not listed charges no message and closes no delivery: a code that a newer broker introduces must not turn good records
    into dead letters.
    """
    return kinds.get(code) or ErrorKind(code, KafkaError(code).name(), "retriable", Scope.CONNECTION)


def kafka_error(exception: KafkaException) -> KafkaError:
    """The error that an exception of the Kafka client carries."""
    error = exception.args[0] if exception.args else None
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(exception))


@contextmanager
def fatal_as_kafka_exception() -> Iterator[None]:
    """Around a call that reads delivery reports: an error that is fatal to the client is raised as KafkaException.

    A flush reads on while the exception of a fatal error is pending, and Python then raises a SystemError from the next report's callback,
    with that exception as its cause (seen with confluent-kafka 2.16).
    """
    try:
        yield
    except SystemError as error:
        if not isinstance(error.__cause__, KafkaException):
            raise
        raise error.__cause__ from None
