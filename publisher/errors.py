"""What can go wrong: exceptions for what only a person can correct, and what an error code of Kafka says about a send."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from confluent_kafka import KafkaError


class SettingsError(Exception):
    """The settings cannot work: a bound is out of range, or the table of error kinds is unreadable. Nothing was sent."""


class ContradictedPropertyError(SettingsError):
    """A Kafka property would undo a guarantee of the publisher."""


class RejectedPropertiesError(SettingsError):
    """The Kafka client does not take the properties. names: those at fault, if known."""

    def __init__(self, message: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names


class ContractError(Exception):
    """The rows are not rows of `ready`: a column is missing or cannot be read as its type. None of them was sent."""


class Concerns(StrEnum):
    """What an error concerns. record: one record, which is found by splitting and then fails. topic: each record of the topic fails.
    connection: nothing more is sent to the destination for a while, and no record fails but those with `publish_charge` = `all`."""

    RECORD = "record"
    TOPIC = "topic"
    CONNECTION = "connection"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row of the seed `publish_error_kinds`. code: of the Kafka protocol (-1 and above) or of librdkafka (-200 to -100)."""

    code: int
    name: str
    kind: str
    concerns: Concerns


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something was not sent: the columns `error_*` of a result. The message is without secrets."""

    error: ErrorKind
    message: str


class SessionLostError(Exception):
    """Nothing more can be sent in this call, but perhaps in the next: brokers don't answer, or refuse to."""

    def __init__(self, trouble: Trouble, *more: object) -> None:
        super().__init__(trouble, *more)  # executors pickle exceptions, and unpickling calls the class with these arguments
        self.trouble = trouble

    def __str__(self) -> str:
        return self.trouble.message


class FencedError(SessionLostError):
    """A newer producer has begun with the same transactional.id, and no loop with a higher generation was found."""


class SupersededError(SessionLostError):
    """A loop with a higher generation is in charge: this one must not send any more. by: that generation."""

    def __init__(self, trouble: Trouble, by: int) -> None:
        super().__init__(trouble, by)
        self.by = by


def error_kinds_from_rows(rows: Iterable[Mapping[str, object]]) -> dict[int, ErrorKind]:
    """The error kinds by code, from rows with the columns `code`, `name`, `error_kind`, `concerns` or more. Raises SettingsError."""
    kinds: dict[int, ErrorKind] = {}
    for number, row in enumerate(rows, start=1):
        try:
            kind = ErrorKind(int(str(row["code"])), str(row["name"]), str(row["error_kind"]), Concerns(str(row["concerns"])))
        except (KeyError, ValueError) as error:
            raise SettingsError(f"publish error kinds, row {number}: {error}") from error
        if kind.code in kinds:
            raise SettingsError(f"publish error kinds, row {number}: code {kind.code} is listed twice")
        kinds[kind.code] = kind
    return kinds


def classify(code: int, kinds: Mapping[int, ErrorKind]) -> ErrorKind:
    """The kind of an error code. One that is not listed concerns the connection, so that it turns no good record into a dead letter."""
    return kinds.get(code) or ErrorKind(code, KafkaError(code).name(), "retriable", Concerns.CONNECTION)
