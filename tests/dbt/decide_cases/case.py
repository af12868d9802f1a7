"""A case: inputs that come in run after run, in rounds, and what must be decided about them. A table of cases is made of these parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row

from tests.dbt.harness import Report, Result, failed_again, order, pointer

RETRY = ("retry", "retriable")
DEAD = ("dead_letter", "fatal")
ANSWERED_ALREADY = ("duplicate", "answered_already")
KNOWN_ALREADY = ("duplicate", "known_already")
ORPHAN = ("orphan", "orphan")
ADOPTED = ("adopted", "adopted")
REDRIVEN = ("redrive", "redrive")
NO_ORIGINAL_TOPIC = ("refused", "no_original_topic")
INTERNAL = ("refused", "destination_is_internal")

Input = Report | Result
Round = Callable[[list[Row]], list[Input]]


@dataclass(frozen=True)
class Case:
    """What comes in, run after run, and what must be decided about it.

    Each round is given the decisions so far, in the order of their inputs, and returns what comes in before the next run. Of a result,
    only a failed one is an input.
    """

    name: str
    rounds: tuple[Round, ...]
    decided: tuple[tuple[str, str], ...]
    then: Callable[[list[Row]], bool] = lambda decisions: True


def comes(*inputs: Input) -> Round:
    """A round that doesn't depend on what was decided."""
    return lambda decisions: list(inputs)


def delivered_at(offset: int, place: int = -1) -> Round:
    """The delivery is sent, and its copy lies there."""
    return lambda decisions: [Result(decisions[place], offset=offset)]


def refused(error_name: str = "MSG_SIZE_TOO_LARGE", error_kind: str = "poison") -> Round:
    """Kafka refuses what was decided last."""
    return lambda decisions: [Result(decisions[-1], "failed", error_name=error_name, error_kind=error_kind)]


def held(place: int = -1) -> Round:
    """A circuit breaker holds what was decided."""
    return lambda decisions: [Result(decisions[place], "held")]


def asks(kind: str, place: int = -1, times: int = 1) -> Round:
    """An order about what was decided, of the loop (probe, release) or of an operator (redrive, discard, ...)."""
    return lambda decisions: [order(kind, decisions[place])] * times


def fails_again(offset: int, place: int = -1, times: int = 1) -> Round:
    """The consumer fails on the retry, and reports where it read it, in headers of its own alone."""
    return lambda decisions: [failed_again(decisions[place], offset)] * times


def fails_pointing(offset: int, place: int = -1, **but: Any) -> Round:
    """The consumer fails on the retry, and its report carries the retry's headers as well."""
    return lambda decisions: [failed_again(decisions[place], offset).with_headers(*pointer(decisions[place])).but(**but)]


def attempts(*expected: int | None) -> Callable[[list[Row]], bool]:
    return lambda decisions: [row["attempt"] for row in decisions] == list(expected)


def stated(kind: str, reported: Report) -> Report:
    """The same report, whose reporter says of what kind the error is."""
    return reported.but(headers=(*(reported.headers or ()), ("redrive-error-kind", kind.encode())))


def dead_already(reported: Report) -> Report:
    """The same report, as a dead letter that somebody else wrote."""
    return reported.but(source="graves")


def same_message(decisions: list[Row]) -> bool:
    return len({row["message_id"] for row in decisions}) == 1
