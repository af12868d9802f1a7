"""What an error code of Kafka says about a send: whose fault it is, and what follows.

The table is data (one row per code, kept with the other rules); this module only reads it. Codes are those of the Kafka
protocol (0 and above) and of librdkafka (negative).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from confluent_kafka import KafkaError

from publisher.errors import SettingsError

# What an unlisted code is taken for. With scope `connection` it charges no message and closes no delivery: a code that
# a newer broker invents must not turn good records into dead letters.
_UNLISTED_KIND: Final = "retriable"


class Scope(StrEnum):
    """How far a refusal reaches."""

    RECORD = "record"
    """This record, and no other, is refused: found by splitting, then charged."""

    TOPIC = "topic"
    """Every record of the topic is refused, and each is charged."""

    CONNECTION = "connection"
    """Says nothing about any record: nobody is charged, the destination is left alone for a while."""


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row of the table of publish errors."""

    code: int
    name: str
    kind: str
    scope: Scope


def error_kinds_from_rows(rows: Iterable[Mapping[str, object]]) -> dict[int, ErrorKind]:
    """The table by code, from rows with the columns `code`, `name`, `error_kind` and `scope`; others are ignored.

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
    """The kind of an error code; one that is not listed is retriable and charges nothing."""
    listed = kinds.get(code)
    if listed is not None:
        return listed
    return ErrorKind(code, KafkaError(code).name(), _UNLISTED_KIND, Scope.CONNECTION)
