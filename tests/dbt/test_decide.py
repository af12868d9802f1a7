"""The decide step: what must be decided about what comes in, that nothing is lost or doubled on the way, and that it can be repeated."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import Row

from orchestration.settings import load_settings
from orchestration.tables import decide_statements
from orchestration.tables.dbt import DbtError
from orchestration.tables.decide_statements import DecideError, DecideRunner, filled
from orchestration.tables.spark import start_session
from tests.dbt.harness import PROJECT, Home, Report, Result, copy_of_the_project, failed_again, order, pointer, report, spring_report

RETRY = ("retry", "retriable")
DEAD = ("dead_letter", "fatal")
EXHAUSTED = ("dead_letter", "exhausted")
ANSWERED_ALREADY = ("duplicate", "answered_already")
KNOWN_ALREADY = ("duplicate", "known_already")
ORPHAN = ("orphan", "orphan")
UNREADABLE = ("orphan", "unreadable")
ADOPTED = ("adopted", "adopted")
REDRIVEN = ("redrive", "redrive")
NO_ORIGINAL_TOPIC = ("refused", "no_original_topic")
INTERNAL = ("refused", "destination_is_internal")

# Kafka's and the Schema Registry's, and those that the settings of `Home` name.
INTERNAL_TOPICS = ("__consumer_offsets", "_schemas", "announced", "guarded-gates", "other-commands", "staging-any")

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
    """The loop asks for a delivery that a circuit breaker held."""
    return lambda decisions: [order(kind, decisions[place])] * times


def redrives_both_to(to: str | None) -> Round:
    """An operator wants the first two sent there."""
    return lambda decisions: [order("redrive", row, to) for row in decisions[:2]]


def fails_again(offset: int, place: int = -1, times: int = 1) -> Round:
    """The consumer fails on the retry, and reports where it read it, in headers of its own alone."""
    return lambda decisions: [failed_again(decisions[place], offset)] * times


def fails_pointing(offset: int, place: int = -1, **but: bytes) -> Round:
    """The consumer fails on the retry, and its report carries the retry's headers as well."""
    return lambda decisions: [failed_again(decisions[place], offset).with_headers(*pointer(decisions[place])).but(**but)]


def no_room_again(offset: int) -> Round:
    """The consumer has no room for the retry, either."""
    return lambda decisions: [stated("backpressure", failed_again(decisions[-1], offset))]


def first_topic_ends(end: str) -> Callable[[list[Row]], bool]:
    return lambda decisions: bool(decisions[0]["topic"].endswith(end))


def attempts(*expected: int | None) -> Callable[[list[Row]], bool]:
    return lambda decisions: [row["attempt"] for row in decisions] == list(expected)


def stated(kind: str, reported: Report) -> Report:
    """The same report, whose reporter says of what kind the error is."""
    return reported.but(headers=(*(reported.headers or ()), ("redrive-error-kind", kind.encode())))


def quota(topic: str, offset: int) -> Report:
    return stated("quota", report(topic, offset))


LONG_DEAD = report("adopted-twice", failed_at=datetime(2026, 1, 1, tzinfo=UTC))


def dead_already(reported: Report) -> Report:
    """The same report, as a dead letter that somebody else wrote."""
    return reported.but(source="graves")


def same_message(decisions: list[Row]) -> bool:
    return len({row["message_id"] for row in decisions}) == 1


CASES = [
    # ---------- first failures
    Case("a first failure waits for its retry", (comes(report("first", 7)),), (RETRY,), attempts(1)),
    Case("a bug is not retried", (comes(report("bug", error="KeyError")),), (DEAD,)),
    Case("an unknown error is retried", (comes(report("odd", error="Odd")),), (RETRY,)),
    Case("no error class is retried", (comes(report("none", error=None)),), (RETRY,)),
    Case("no group is no reason to stop", (comes(report("groupless", group=None)),), (RETRY,)),
    Case("a group of control characters is none", (comes(report("control", group="a\x01")),), (RETRY,)),
    Case(
        "key and value go out as they came in, null and empty told apart",
        (comes(report("bytes", 1, key=None, value=b""), report("bytes", 2, key=b"\x00\xff", value=None)),),
        (RETRY, RETRY),
        lambda rows: [(row["key"], row["value"]) for row in rows] == [(None, b""), (b"\x00\xff", None)],
    ),
    Case(
        "the report's own headers are not the message's",
        (comes(report("headers")),),
        (RETRY,),
        lambda rows: [tuple(header) for header in rows[0]["headers"]] == [("trace", b"\x00\xff")],
    ),
    # ---------- routes
    *(
        Case(
            f"the most specific route for {group} and {topic}: {what}",
            (comes(report(topic, group=group)),),
            (RETRY,),
            first_topic_ends(f".{what}"),
        )
        for what, topic, group in [
            ("expression", "routed-us", "billing"),
            ("longer", "routed-eu-2", "billing"),
            ("name", "routed-eu-1", "other"),
            ("name", "routed-eu-1", None),
            ("group", "routed-eu-1", "billing"),
        ]
    ),
    Case(
        "a kind has a route of its own; out of time, what it drops is kept, and no copy sent",
        (
            comes(quota("routed-eu-1", 9)),
            delivered_at(507),
            lambda rows: [failed_again(rows[0], 507).but(headers=quota(rows[0]["topic"], 507).headers)],
        ),
        (("retry", "quota"), ("dropped", "out_of_time")),
        lambda rows: rows[0]["topic"] == "routed-eu-1.kind" and rows[1]["delivery_id"] is None and attempts(1, 2)(rows),
    ),
    Case(
        "what was turned away for want of room is charged nothing, ever",
        (
            comes(stated("backpressure", report("no-room"))),
            *(part for n in range(6) for part in (delivered_at(520 + n), no_room_again(520 + n))),
            delivered_at(530),
            fails_again(530),
        ),
        (*[("retry", "backpressure")] * 7, RETRY),
        lambda rows: attempts(*[0] * 7, 1)(rows) and {row["delay_ms"] for row in rows[:7]} == {1000},
    ),
    # ---------- reported again
    Case("twice in one decide run", (comes(report("twice"), report("twice")),), (RETRY, KNOWN_ALREADY), same_message),
    Case("again in the next", (comes(report("again")), comes(report("again"))), (RETRY, KNOWN_ALREADY), same_message),
    Case(
        "other content under the same coordinates is another message",
        (comes(report("other", value=b"a"), report("other", value=b"b")), comes(report("other", value=b"b"))),
        (RETRY, RETRY, KNOWN_ALREADY),
        lambda rows: [row["message_id"] for row in rows][1:] == [rows[1]["message_id"]] * 2 and not same_message(rows),
    ),
    # ---------- a retry that failed
    Case(
        "recognised by where its copy lies",
        (comes(report("coordinates")), delivered_at(500), fails_again(500)),
        (RETRY, RETRY),
        lambda rows: attempts(1, 2)(rows) and same_message(rows) and rows[1]["prior_delivery"] == rows[0]["delivery_id"],
    ),
    Case(
        "recognised by its pointer, before its result is written",
        (comes(report("pointer")), comes(), fails_pointing(501)),
        (RETRY, RETRY),
        lambda rows: attempts(1, 2)(rows) and same_message(rows),
    ),
    Case(
        "the original coordinates that it carried will do",
        (comes(report("carried", 3)), comes(), lambda rows: [report("carried", 3).with_headers(*pointer(rows[0]))]),
        (RETRY, RETRY),
        attempts(1, 2),
    ),
    Case(
        "answered twice in one decide run",
        (comes(report("answered")), delivered_at(502), fails_again(502, times=2)),
        (RETRY, RETRY, ANSWERED_ALREADY),
    ),
    Case(
        "answered again in the next",
        (comes(report("late")), delivered_at(503), fails_again(503), fails_again(503, place=0)),
        (RETRY, RETRY, ANSWERED_ALREADY),
    ),
    Case(
        "attempts run out",
        (comes(report("twice-at-most")), delivered_at(504), fails_again(504)),
        (RETRY, EXHAUSTED),
        lambda rows: rows[1]["topic"] == "twice-at-most.dlq" and rows[0]["delay_ms"] == 100,
    ),
    Case(
        "a dead letter that was sent closes the message; a new failure begins another life cycle",
        (
            comes(report("life_cycle", error="KeyError")),
            delivered_at(505),
            comes(report("life_cycle", error="KeyError")),
        ),
        (DEAD, DEAD),
        lambda rows: [row["life_cycle"] for row in rows] == [1, 2],
    ),
    # ---------- pointers that don't count
    Case(
        "a pointer with other content is forged",
        (comes(report("forged")), comes(), fails_pointing(506, value=b"forged")),
        (RETRY, ORPHAN),
    ),
    Case(
        "a pointer from another topic is forged",
        (comes(report("mine")), comes(), lambda rows: [report("not-mine").with_headers(*pointer(rows[0]))]),
        (RETRY, RETRY),
        attempts(1, 1),
    ),
    Case(
        "a pointer that can't be read is none",
        (comes(report("garbage").with_headers(("redrive-delivery", b"x" * 2000), ("redrive-due", b"\xff"))),),
        (RETRY,),
    ),
    Case(
        "a pointer to nothing is none",
        (comes(report("nothing").with_headers(("redrive-delivery", b"x"), ("redrive-due", b"1772366400000"))),),
        (RETRY,),
    ),
    # ---------- sends that failed
    Case("a retry that Kafka refuses is dead", (comes(report("large")), refused()), (RETRY, ("dead_letter", "send_failed")), same_message),
    Case(
        "a dead letter that Kafka refuses is sent again, with the reason of death",
        (comes(report("stubborn", error="KeyError")), refused(), refused("TOPIC_AUTHORIZATION_FAILED", "fatal")),
        (DEAD, ("dead_letter", "dead_letter_failed"), ("dead_letter", "dead_letter_failed")),
        lambda rows: (
            [(row["error_class"], row["publish_attempt"]) for row in rows] == [("KeyError", n) for n in (0, 1, 2)]
            and rows[2]["due_at"] > rows[2]["recorded_at"]
        ),
    ),
    Case(
        "where all failed sends count, one that passes is sent again, until they are too many; the next report begins to count anew",
        (
            comes(report("charged", 1), report("charged", 2)),
            lambda rows: [Result(row, "failed", error_name="_MSG_TIMED_OUT", error_kind="retriable") for row in rows],
            lambda rows: [
                Result(rows[2], "failed", error_name="_MSG_TIMED_OUT", error_kind="retriable"),
                Result(rows[3], offset=540),
            ],
            fails_again(540, place=3),
        ),
        (RETRY, RETRY, RETRY, RETRY, ("dead_letter", "send_failed"), RETRY),
        lambda rows: (
            attempts(1, 1, 1, 1, 1, 2)(rows)
            and [row["publish_attempt"] for row in rows] == [0, 0, 1, 1, 2, 0]
            and rows[4]["error_class"] == "_MSG_TIMED_OUT"
        ),
    ),
    # ---------- circuit breakers
    Case(
        "what a circuit breaker held goes where it was to go, uncharged, and once",
        (comes(stated("blocking", report("blocked"))), held(), asks("probe", times=2)),
        (("retry", "blocking"), ("retry", "probe"), ANSWERED_ALREADY),
        lambda rows: (
            attempts(1, 1, None)(rows)
            and same_message(rows)
            and rows[0]["breaker_key"] == rows[1]["breaker_key"] == "billing:blocked"
            and rows[1]["due_at"] == rows[1]["recorded_at"]
            and all(
                rows[0][name] == rows[1][name]
                for name in (
                    "topic",
                    "key",
                    "value",
                    "headers",
                    "failed_at",
                    "error_class",
                    "error_kind",
                    "rule",
                    "matched",
                    "content_hash",
                )
            )
        ),
    ),
    Case(
        "what is held is no news when it is reported again; after its release it is a message like any other",
        (
            comes(report("held-twice", 4)),
            held(),
            comes(report("held-twice", 4)),
            asks("release", place=0),
            delivered_at(550),
            fails_again(550),
        ),
        (RETRY, KNOWN_ALREADY, ("retry", "release"), RETRY),
        attempts(1, None, 1, 2),
    ),
    Case(
        "what is held is released after weeks, too",
        (
            comes(report("held-long")),
            held(),
            lambda rows: [order("release", rows[0]), order("release", Row(delivery_id="nowhere", due_at=rows[0]["due_at"]))],
        ),
        (RETRY, ("retry", "release"), ("refused", "no_such_delivery")),
    ),
    # ---------- what operators want
    Case(
        "a redriven message begins anew: another life_cycle, no attempts, today's route, at once; and may die again",
        (
            comes(report("redriven", error="KeyError").with_headers(("dlq-reason", b"of an earlier death"))),
            delivered_at(600),
            asks("redrive"),
            delivered_at(601),
            fails_again(601),
            delivered_at(602),
            lambda rows: [failed_again(rows[-1], 602, error="KeyError")],
            asks("redrive", place=3),
        ),
        (DEAD, ("redrive", "redrive"), RETRY, DEAD, ("redrive", "redrive")),
        lambda rows: (
            attempts(1, 0, 1, 2, 0)(rows)
            and same_message(rows)
            and [row["life_cycle"] for row in rows] == [1, 2, 2, 2, 3]
            and (rows[1]["kind"], rows[1]["topic"], rows[1]["error_kind"]) == ("redrive", "redriven-billing-retry", "fatal")
            and rows[1]["due_at"] == rows[1]["recorded_at"]
            and rows[1]["first_failed_at"] is None
            and rows[2]["first_failed_at"] == rows[2]["failed_at"] > rows[0]["failed_at"]
            and (rows[1]["key"], rows[1]["value"]) == (rows[0]["key"], rows[0]["value"])
            and [header["key"] for header in rows[1]["headers"]] == ["trace"]
            and rows[1]["breaker_key"] == "billing:redriven"
        ),
    ),
    Case(
        "a redrive goes where the operator says, if nothing is read there",
        (
            comes(*(report("redrive-to", offset, error="KeyError") for offset in range(5))),
            lambda rows: [
                order("redrive", row, to)
                for row, to in zip(rows, ("original", "elsewhere", "failures-topic", "no topic", "redrive.commands"), strict=True)
            ],
        ),
        (
            *(DEAD,) * 5,
            ("redrive", "redrive"),
            ("redrive", "redrive"),
            ("refused", "destination_is_a_source"),
            ("refused", "destination_not_legal"),
            INTERNAL,
        ),
        lambda rows: [row["topic"] for row in rows[5:]] == ["redrive-to", "elsewhere", None, None, None],
    ),
    Case(
        "asked twice, it is redriven once; a refused redrive may be asked for again",
        (
            comes(report("redriven-twice", error="KeyError")),
            lambda rows: [order("redrive", rows[0], "failures-topic")],
            asks("redrive", place=0, times=2),
            asks("redrive", place=0),
        ),
        (DEAD, ("refused", "destination_is_a_source"), ("redrive", "redrive"), ANSWERED_ALREADY, ANSWERED_ALREADY),
    ),
    Case(
        "what nobody knows the origin of is redriven nowhere but where the operator says",
        (
            comes(report("lost-redriven.dlq")),
            asks("redrive", place=0),
            lambda rows: [order("redrive", rows[0], "original")],
            lambda rows: [order("redrive", rows[0], "elsewhere")],
        ),
        (ORPHAN, NO_ORIGINAL_TOPIC, NO_ORIGINAL_TOPIC, ("redrive", "redrive")),
    ),
    Case(
        "a redrive that can't be sent is a dead letter again, at the count that it had",
        (comes(report("redriven-in-vain", error="KeyError")), asks("redrive"), refused(), asks("redrive", place=2)),
        (DEAD, ("redrive", "redrive"), ("dead_letter", "send_failed"), ("redrive", "redrive")),
        lambda rows: attempts(1, 0, 0, 0)(rows) and [row["life_cycle"] for row in rows] == [1, 2, 2, 3],
    ),
    Case(
        "a redrive that a circuit breaker holds is released as what it is",
        (
            comes(report("redriven-held", error="KeyError")),
            asks("redrive"),
            held(),
            asks("release"),
            delivered_at(610),
            fails_again(610),
        ),
        (DEAD, ("redrive", "redrive"), ("retry", "release"), RETRY),
        attempts(1, 0, 0, 1),
    ),
    Case(
        "what is said about a dead letter answers nothing, and takes nobody's turn",
        (
            comes(report("said", error="KeyError")),
            lambda rows: [order(kind, rows[0]) for kind in ("note", "discard", "restore", "redrive", "note", "discard")],
        ),
        (
            DEAD,
            *(("noted", "note"), ("discarded", "discard"), ("restored", "restore"), ("redrive", "redrive")),
            *(("noted", "note"), ("discarded", "discard")),
        ),
        lambda rows: {(row["prior_delivery"], row["error_class"]) for row in rows[1:]} == {(rows[0]["delivery_id"], "KeyError")},
    ),
    Case(
        "what waits is sent now, as it is, and not again later",
        (
            comes(report("now")),
            lambda rows: [order("send_now", rows[0]), order("send_now", rows[0])],
            delivered_at(620, 1),
            fails_again(620, 1),
        ),
        (RETRY, ("retry", "send_now"), ANSWERED_ALREADY, RETRY),
        lambda rows: (
            attempts(1, 1, None, 2)(rows)
            and rows[1]["due_at"] == rows[1]["recorded_at"]
            and (rows[1]["topic"], rows[1]["error_class"]) == (rows[0]["topic"], rows[0]["error_class"])
        ),
    ),
    Case(
        "an order with a time of its own is due then, or at once if that is over; no other time of the message changes",
        (
            comes(report("paced", 1, error="KeyError"), report("paced", 2, error="KeyError"), report("paced", 3)),
            lambda rows: [
                order("redrive", rows[0]).but(at=rows[0]["recorded_at"] + timedelta(hours=1)),
                order("redrive", rows[1]).but(at=rows[1]["recorded_at"] - timedelta(hours=1)),
                order("send_now", rows[2]).but(at=rows[2]["recorded_at"] + timedelta(hours=1)),
            ],
        ),
        (DEAD, DEAD, RETRY, ("redrive", "redrive"), ("redrive", "redrive"), ("retry", "send_now")),
        lambda rows: (
            [row["due_at"] - rows[0]["recorded_at"] for row in (rows[3], rows[5])] == [timedelta(hours=1)] * 2
            and rows[4]["due_at"] == rows[4]["recorded_at"]
            and [row["failed_at"] for row in rows[3:]] == [row["failed_at"] for row in rows[:3]]
        ),
    ),
    Case(
        "a cancelled message has ended; if it fails anew it lives again",
        (comes(report("cancelled", 1)), asks("cancel"), asks("cancel", place=0), comes(report("cancelled", 1))),
        (RETRY, ("cancelled", "cancel"), ANSWERED_ALREADY, RETRY),
        lambda rows: rows[3]["life_cycle"] == 2 and rows[1]["kind"] is None and rows[3]["attempt"] == 1,
    ),
    Case(
        "what is on its way is left alone",
        (comes(report("on-its-way")), lambda rows: [order("send_now", rows[0], "not_waiting"), order("cancel", rows[0], "not_waiting")]),
        (RETRY, ("duplicate", "not_waiting"), ("duplicate", "not_waiting")),
        same_message,
    ),
    Case(
        "an order for another kind of delivery is refused",
        (
            comes(report("wrong", 1), report("wrong", 2, error="KeyError")),
            lambda rows: [
                *(order(kind, rows[0]) for kind in ("redrive", "discard", "restore", "note")),
                *(order(kind, rows[1]) for kind in ("send_now", "cancel", "release")),
            ],
        ),
        (RETRY, DEAD, *(("refused", "wrong_kind_of_delivery"),) * 7),
    ),
    Case(
        "what is discarded can be purged, and is not redriven then, restored or not",
        (
            comes(report("purged", error="KeyError")),
            *(asks(kind, place=0) for kind in ("purge", "discard", "purge", "redrive", "restore", "purge", "redrive", "discard", "purge")),
        ),
        (
            DEAD,
            ("refused", "not_discarded"),
            ("discarded", "discard"),
            ("purged", "purge"),
            ("refused", "payload_was_dropped"),
            ("restored", "restore"),
            ("refused", "not_discarded"),
            ("refused", "payload_was_dropped"),
            ("discarded", "discard"),
            ("purged", "purge"),
        ),
        lambda rows: same_message(rows) and {row["life_cycle"] for row in rows if row["decision"] != "refused"} == {1},
    ),
    Case(
        "in one decide run as in many: discarded, purged, and not redriven; redriven, and not purged",
        (
            comes(report("purged-at-once", 1, error="KeyError"), report("purged-at-once", 2, error="KeyError")),
            lambda rows: [
                *(order(kind, rows[0]) for kind in ("discard", "note", "purge", "redrive")),
                *(order(kind, rows[1]) for kind in ("discard", "redrive", "purge", "discard", "purge")),
            ],
        ),
        (
            *(DEAD, DEAD, ("discarded", "discard"), ("noted", "note"), ("purged", "purge"), ("refused", "payload_was_dropped")),
            *(("discarded", "discard"), ("redrive", "redrive"), ("refused", "not_discarded")),
            *(("discarded", "discard"), ("purged", "purge")),
        ),
    ),
    Case(
        "about what was refused something can be said; it is not sent as it is, nor elsewhere, nor without its report",
        (
            comes(report("into-a-source", 1)),
            lambda rows: [order(kind, rows[0]) for kind in ("note", "discard", "purge", "restore", "send_now", "cancel", "redrive")],
            lambda rows: [order("redrive", rows[0], "elsewhere")],
        ),
        (
            ("refused", "destination_is_a_source"),
            *(("noted", "note"), ("discarded", "discard"), ("purged", "purge"), ("restored", "restore")),
            *(("refused", "wrong_kind_of_delivery"), ("refused", "wrong_kind_of_delivery"), ("refused", "payload_was_dropped")),
            ("refused", "wrong_kind_of_delivery"),
        ),
        lambda rows: same_message(rows) and rows[0]["kind"] is None and rows[1]["prior_delivery"] == rows[0]["delivery_id"],
    ),
    Case(
        "a report can't answer what was refused",
        (
            comes(report("into-a-source", 2)),
            lambda rows: [report("into-a-source", 2).with_headers(*pointer(rows[0]))],
        ),
        (("refused", "destination_is_a_source"),) * 2,
        attempts(1, 1),
    ),
    Case("a command is noted", (comes(Report(None, None, b"{}", kind="command", source="@commands")),), (("note", "command"),)),
    # ---------- dead letters that others wrote
    Case(
        "a dead letter of others is adopted: read like a report, classified, kept, and sent nowhere",
        (
            comes(
                spring_report(("adopted", 0, 1), ("adopted-retry-0", 0, 9)).but(source="spring-graves"), dead_already(report("adopted", 2))
            ),
        ),
        (ADOPTED, ADOPTED),
        lambda rows: (
            attempts(1, 1)(rows)
            and [row["message_id"] for row in rows] == ["billing:adopted/0/1", "billing:adopted/0/2"]
            and all(row["kind"] is None and row["topic"] is None and row["delivery_id"] for row in rows)
            and [(row["error_class"], row["error_kind"]) for row in rows]
            == [("java.net.ConnectException", "retriable"), ("TimeoutError", "retriable")]
            and all((row["key"], row["value"]) == (b"key", b"value") for row in rows)
            and all([header["key"] for header in row["headers"]] == ["trace"] for row in rows)
        ),
    ),
    Case(
        "the same dead letter taken in twice is one, in the same decide run or a later one",
        (comes(*[dead_already(LONG_DEAD)] * 2), comes(dead_already(LONG_DEAD))),
        (ADOPTED, KNOWN_ALREADY, KNOWN_ALREADY),
        same_message,
    ),
    Case(
        "an adopted letter is redriven once, by today's route, and may die again as one of ours",
        (
            comes(dead_already(report("adopted-redriven", error="KeyError"))),
            asks("redrive"),
            asks("redrive", place=0),
            delivered_at(630, 1),
            fails_pointing(630, 1),
            delivered_at(631),
            lambda rows: [failed_again(rows[-1], 631, error="KeyError")],
            asks("redrive"),
        ),
        (ADOPTED, REDRIVEN, ANSWERED_ALREADY, RETRY, DEAD, REDRIVEN),
        lambda rows: (
            attempts(1, 0, None, 1, 2, 0)(rows)
            and same_message(rows)
            and [row["life_cycle"] for row in rows] == [1, 2, 2, 2, 2, 3]
            and (rows[1]["kind"], rows[1]["topic"], rows[1]["error_kind"]) == ("redrive", "adopted-redriven-billing-retry", "fatal")
            and (rows[1]["key"], rows[1]["value"]) == (b"key", b"value")
            and [header["key"] for header in rows[1]["headers"]] == ["trace"]
            and rows[1]["prior_delivery"] == rows[0]["delivery_id"]
        ),
    ),
    Case(
        "a redriven letter that comes back as a dead letter of others is adopted again, in its next life cycle; twice, it is one",
        (
            comes(dead_already(report("adopted-again"))),
            asks("redrive"),
            delivered_at(640),
            lambda rows: [dead_already(failed_again(rows[1], 640).with_headers(*pointer(rows[1])))] * 2,
            asks("redrive", place=2),
        ),
        (ADOPTED, REDRIVEN, ADOPTED, ANSWERED_ALREADY, REDRIVEN),
        lambda rows: same_message(rows) and [row["life_cycle"] for row in rows] == [1, 2, 2, 2, 3],
    ),
    Case(
        "a retry of ours that others wrote off is dead",
        (comes(report("adopted-retry-of-ours")), delivered_at(650), lambda rows: [dead_already(failed_again(rows[0], 650))]),
        (RETRY, ADOPTED),
        lambda rows: attempts(1, 2)(rows) and same_message(rows) and rows[1]["prior_delivery"] == rows[0]["delivery_id"],
    ),
    Case(
        "a dead letter of ours is not adopted",
        (
            comes(report("adopted-known", error="KeyError")),
            delivered_at(660),
            lambda rows: [dead_already(report("adopted-known").with_headers(*pointer(rows[0])))],
        ),
        (DEAD, ("refused", "answers_a_dead_letter")),
    ),
    Case(
        "a waiting message's dead letter from elsewhere, which names no delivery, repeats what is known",
        (comes(report("adopted-waits")), comes(dead_already(report("adopted-waits")))),
        (RETRY, KNOWN_ALREADY),
        same_message,
    ),
    Case(
        "an adopted message that fails anew lives again",
        (comes(dead_already(report("adopted-revived"))), comes(report("adopted-revived"))),
        (ADOPTED, RETRY),
        lambda rows: same_message(rows) and [row["life_cycle"] for row in rows] == [1, 2],
    ),
    Case(
        "an adopted letter of which no original topic is known can be redirected, not redriven",
        (
            comes(dead_already(report("adopted-odd", "x")), dead_already(report("adopted.dlq"))),
            *(redrives_both_to(to) for to in (None, "original", "graves-topic", "elsewhere")),
        ),
        (*(ADOPTED,) * 2, *(NO_ORIGINAL_TOPIC,) * 4, *(("refused", "destination_is_a_source"),) * 2, *(REDRIVEN,) * 2),
        lambda rows: {row["topic"] for row in rows[8:]} == {"elsewhere"} and {row["original_topic"] for row in rows} == {"graves-topic"},
    ),
    Case(
        "what can be said about a dead letter can be said about an adopted one, and nothing else",
        (
            comes(dead_already(report("adopted-said"))),
            lambda rows: [order(kind, rows[0]) for kind in ("note", "discard", "restore", "send_now", "cancel")],
        ),
        (ADOPTED, ("noted", "note"), ("discarded", "discard"), ("restored", "restore"), *(("refused", "wrong_kind_of_delivery"),) * 2),
    ),
    Case(
        "privacy holds for what is adopted: what it drops is not there to be redriven",
        (
            comes(dead_already(report("dropped-things")).with_headers(("authorization", b"secret"))),
            asks("redrive"),
        ),
        (ADOPTED, ("refused", "payload_was_dropped")),
        lambda rows: (
            (rows[0]["key"], rows[0]["value"], rows[0]["error_message"], rows[0]["error_stack"]) == (None,) * 4
            and [header["key"] for header in rows[0]["headers"]] == ["trace"]
        ),
    ),
    Case("who may not speak for a topic adopts nothing of it", (comes(dead_already(report("others"))),), (("refused", "not_spoken_for"),)),
    # ---------- where it may go
    Case("no way back into a source", (comes(report("into-a-source")),), (("refused", "destination_is_a_source"),)),
    Case(
        "no retry to an internal topic, whatever a report without a group names",
        (comes(*(report(topic, group=None) for topic in INTERNAL_TOPICS)),),
        (INTERNAL,) * len(INTERNAL_TOPICS),
        lambda rows: {(row["kind"], row["topic"]) for row in rows} == {(None, None)},
    ),
    Case(
        "no retry to an internal topic that a report's group completes",
        (comes(report("_schemas"), report("into-a-group", group="forbidden")),),
        (INTERNAL,) * 2,
    ),
    Case(
        "no dead letter to an internal topic",
        (
            comes(
                report("__consumer_offsets", 5, group=None, error="KeyError"),
                report("into-a-group", 1, group="forbidden", error="KeyError"),
            ),
        ),
        (INTERNAL,) * 2,
    ),
    Case("no orphan to an internal topic", (comes(Report(None, None, None).but(source="_internal")),), (INTERNAL,)),
    Case(
        "no redrive to an internal topic: neither to one that an operator names nor to the original one",
        (
            comes(
                *(report("redrive-internal", offset, error="KeyError") for offset in range(len(INTERNAL_TOPICS) + 1)),
            ),
            lambda rows: [order("redrive", row, to) for row, to in zip(rows, (*INTERNAL_TOPICS, "redrive.commands"), strict=True)],
        ),
        (*(DEAD,) * (len(INTERNAL_TOPICS) + 1), *(INTERNAL,) * (len(INTERNAL_TOPICS) + 1)),
    ),
    Case(
        "a topic that only resembles an internal one is a destination",
        (comes(*(report(topic, group=None) for topic in ("other_schemas", "announced2", "guarded", "staging"))),),
        (RETRY,) * 4,
    ),
    Case("one of our topics, and nothing sent there", (comes(report("lost.dlq")),), (ORPHAN,)),
    Case("a source that nobody declares", (comes(report("undeclared").but(source="nobody")),), (("refused", "unknown_source"),)),
    Case(
        "a source speaks for its topics, with its group",
        (comes(report("spoken-for").but(source="narrow"), report("not-spoken-for").but(source="narrow")),),
        (RETRY, ("refused", "not_spoken_for")),
        lambda rows: rows[0]["consumer_group"] == "declared",
    ),
    # ---------- hostile values
    Case("an offset that is no number", (comes(report("unreadable", "x")),), (UNREADABLE,)),
    Case("an offset beyond any", (comes(report("unreadable", "9" * 40)),), (UNREADABLE,)),
    Case("a negative partition", (comes(report("unreadable", partition=-1)),), (UNREADABLE,)),
    Case("a topic that isn't one", (comes(report("bad topic")),), (UNREADABLE,)),
    Case("nothing at all", (comes(Report(None, None, None)),), (UNREADABLE,)),
    Case("what retention removed is noted", (comes(Report(None, None, None, kind="gap")),), (("note", "gap"),)),
    # ---------- Spring
    Case(
        "spring: the cause counts, not the listener's wrapper",
        (comes(spring_report(("spring-pay", 0, 1)), spring_report(("spring-pay", 0, 2), error="java.lang.NullPointerException")),),
        (RETRY, DEAD),
    ),
    Case(
        "spring: the first hop is the origin, the last the failure",
        (comes(spring_report(("spring-inv", 1, 77), ("spring-inv-billing-retry", 0, 9)), spring_report(("spring-inv", 1, 78))),),
        (ORPHAN, RETRY),
    ),
    Case(
        "spring: a retry that failed is recognised",
        (
            comes(spring_report(("spring-back", 0, 1))),
            delivered_at(507),
            lambda rows: [spring_report(("spring-back", 0, 1), (rows[0]["topic"], 0, 507))],
        ),
        (RETRY, RETRY),
        attempts(1, 2),
    ),
    Case("spring: a negative offset", (comes(spring_report(("spring-pay", 0, -5))),), (UNREADABLE,)),
]


@pytest.fixture(scope="module")
def decided(home: Home) -> dict[str, list[Row]]:
    """The decisions of each case, in the order of its inputs. All cases go through the same decide runs: each has its own topics."""
    input_ids: dict[str, list[str]] = {case.name: [] for case in CASES}
    for number in range(max(len(case.rounds) for case in CASES)):
        known = home.decisions()
        reports: list[tuple[str, Report]] = []
        results: list[tuple[str, Result]] = []
        for case in CASES:
            if number < len(case.rounds):
                for what in case.rounds[number]([known[input_id] for input_id in input_ids[case.name]]):
                    if isinstance(what, Report):
                        reports.append((case.name, what))
                    else:
                        results.append((case.name, what))
        if results:
            for (name, result), input_id in zip(results, home.append_results(*(result for _, result in results)), strict=True):
                input_ids[name] += [input_id] if result.outcome == "failed" else []
        if reports:
            for (name, _), input_id in zip(reports, home.append_reports(*(one for _, one in reports)), strict=True):
                input_ids[name].append(input_id)
        home.decide()
        home.later(minutes=5)
    known = home.decisions()
    return {name: [known[input_id] for input_id in its_input_ids] for name, its_input_ids in input_ids.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_decided(case: Case, decided: dict[str, list[Row]]) -> None:
    decisions = decided[case.name]
    assert tuple((row["decision"], row["reason"]) for row in decisions) == case.decided
    assert case.then(decisions), [row.asDict() for row in decisions]


@pytest.mark.long
def test_a_dbt_run_by_hand_decides_the_same(home: Home, decided: dict[str, list[Row]]) -> None:
    """The same inputs, of every kind, in the same decide runs: every column is the same, whoever runs the SQL."""
    first = min(row["batch"] for rows in decided.values() for row in rows)
    by_the_loop = [row for row in home.read("deliveries") if row["batch"] >= first]
    runs = {row["decide_run"] for row in by_the_loop}
    ends = sorted(max(row["batch"] for row in by_the_loop if row["decide_run"] == run) for run in runs)
    home.forget(first - 1)
    # each takes its time: most kinds of inputs are in the first four
    for end in ends[:4]:
        home.decide_by_hand(end)
    by_hand = [row for row in home.read("deliveries") if row["batch"] >= first]
    home.decide()
    everything = [row for row in home.read("deliveries") if row["batch"] >= first]
    assert _by_input(everything) == _by_input(by_the_loop)
    assert {row["decision"] for row in by_hand} >= {"retry", "redrive", "dead_letter", "orphan", "cancelled", "note"}


def _by_input(rows: Iterable[Row]) -> dict[str, dict[str, object]]:
    return {row["input_id"]: {name: value for name, value in row.asDict().items() if name != "decide_run"} for row in rows}


def test_a_decide_run_has_its_own_settings_whatever_others_were_used_in_the_process(home: Home) -> None:
    # these name no protected topic
    start_session(load_settings(home=home.path, project=PROJECT))
    (input_id,) = home.append_reports(report("into-a-group", 900, group="forbidden"))
    home.decide()
    assert home.decisions()[input_id]["reason"] == "destination_is_internal"


def test_every_input_has_one_decision_and_nothing_else_has(home: Home, decided: dict[str, list[Row]]) -> None:
    inputs = [f"{row['topic_id']}/{row['partition']}/{row['offset']}/{row['index']}" for row in home.read("events")]
    inputs += [f"{row['delivery_id']}@{row['batch']}" for row in home.read("publish_results") if row["outcome"] == "failed"]
    # what other tests remember has no inputs
    assert sorted(row["input_id"] for row in home.read("decisions") if not row["input_id"].startswith("remembered/")) == sorted(inputs)


def test_nothing_is_due_before_it_was_known(decided: dict[str, list[Row]]) -> None:
    assert [row for rows in decided.values() for row in rows if row["due_at"] < row["recorded_at"]] == []


def test_what_a_later_batch_says_of_a_message_is_decided_after_what_an_earlier_one_said(home: Home) -> None:
    """Each pair of batches is there before either is decided."""
    dead, sent, redriven = (
        home.append_reports(report("one-after-another", offset, error=error))[0]
        for offset, error in enumerate(("KeyError", "TimeoutError", "KeyError"))
    )
    home.decide()
    known = home.decisions()
    home.append_results(Result(known[sent], offset=700), Result(known[redriven], offset=701))
    home.later(minutes=5)
    before = home.batch
    expected: dict[str, tuple[str, str]] = {}

    def come(*inputs: tuple[Report | Result, tuple[str, str]]) -> None:
        for what, decision in inputs:
            input_ids = home.append_reports(what) if isinstance(what, Report) else home.append_results(what)
            expected.update(dict.fromkeys(input_ids, decision))
            home.later(seconds=1)

    come(
        # a redrive that is refused leaves the dead letter open: its failed send is answered by another one
        (order("redrive", known[dead], "failures-topic"), ("refused", "destination_is_a_source")),
        (Result(known[dead], "failed", error_name="_MSG_TIMED_OUT", error_kind="retriable"), ("dead_letter", "dead_letter_failed")),
        # what was discarded, and is succeeded by then, is no longer discarded
        (order("discard", known[dead]), ("discarded", "discard")),
        # a retry is recognised by where it lies; then, by its original coordinates, its message is known
        (failed_again(known[sent], 700), RETRY),
        (report("one-after-another", 1), KNOWN_ALREADY),
        # a message that is sent again has no new life cycle when it is reported anew
        (order("redrive", known[redriven]), REDRIVEN),
        (report("one-after-another", 2, error="KeyError"), KNOWN_ALREADY),
        # what was adopted is dead already, so that a failure after that begins another life cycle
        (dead_already(report("adopted-one-after-another")), ADOPTED),
        (report("adopted-one-after-another"), RETRY),
        # no copy can be known to lie there before it is
        (report(known[sent]["topic"], 702), ORPHAN),
        (Result(known[sent], offset=702), ORPHAN),
    )
    home.decide()
    decided = home.decisions()
    assert {input_id: (decided[input_id]["decision"], decided[input_id]["reason"]) for input_id in expected if input_id in decided} == {
        input_id: decision for input_id, decision in expected.items() if input_id in decided
    }
    assert len([row for row in home.read("deliveries") if row["batch"] > before]) == len(expected) - 1


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.long), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 12))]
)
def test_how_inputs_are_grouped_into_runs_changes_nothing(home: Home, seed: int) -> None:
    """Inputs that often are about the same few messages, in batches, each decided alone; then the same in random groups of batches."""
    chance = random.Random(seed)
    home.decide()
    home.later(days=1)
    before = home.batch
    world = World(chance, f"grouped-{seed}")
    rounds: list[list[int]] = []
    for _ in range(2):
        rounds.append([])
        decisions = [row for row in home.read("deliveries") if row["batch"] > before]
        for _ in range(3):
            inputs = [world.something(decisions) for _ in range(chance.randint(1, 3))]
            results = [one for one in inputs if isinstance(one, Result)]
            reports = [one for one in inputs if isinstance(one, Report)]
            if results:
                home.append_results(*results)
                rounds[-1].append(home.batch)
            if reports:
                home.append_reports(*reports)
                rounds[-1].append(home.batch)
            home.later(seconds=chance.choice([0, 1, 90]))
        for batch in rounds[-1]:
            home.decide(upto=batch)
    alone = _decisions_after(home, before)
    assert len(alone) > 3
    for _ in range(1 if seed == 1 else 3):
        home.forget(before)
        for batches in rounds:
            ends = {batches[-1], *(batch for batch in batches if seed > 1 and chance.random() < 0.3)}
            for end in sorted(ends):
                home.decide(upto=end)
        assert _decisions_after(home, before) == alone


@dataclass
class World:
    """Makes up what comes next: about few messages, so that inputs often meet."""

    chance: random.Random
    name: str
    offset: int = 1000
    closed: set[str] = field(default_factory=set)
    """The deliveries that have a result. No send has two."""

    def something(self, decisions: list[Row]) -> Input:
        """A report of a message, or something about a delivery."""
        named = [row for row in decisions if row["delivery_id"] is not None]
        sent = [row for row in named if row["kind"] is not None]
        kind = self.chance.choice(["report", "again", "result", "result", "order", "order", "order"])
        if kind == "again" and sent:
            return self._fails_again(self.chance.choice(sent))
        waiting = [row for row in sent if row["delivery_id"] not in self.closed]
        if kind == "result" and waiting:
            return self._result(self.chance.choice(waiting))
        if kind == "order" and named:
            what = self.chance.choice(
                [
                    *(("redrive", to) for to in (None, "failures-topic", "elsewhere")),
                    *((kind, None) for kind in ("discard", "restore", "purge", "note", "send_now", "cancel", "release")),
                ]
            )
            return order(what[0], self.chance.choice(named), what[1])
        return self._report()

    def _report(self) -> Report:
        topic, adopts = self.chance.choice([(self.name, False), (f"adopted-{self.name}", True), (f"adopted-{self.name}", False)])
        made = report(
            self.chance.choice([topic, topic, topic, "into-a-source"]),
            self.chance.randint(0, 1) if topic == self.name else 0,
            error=self.chance.choice(["TimeoutError", "KeyError"]),
            value=self.chance.choice([b"value", b"value", b"other"]),
        )
        return dead_already(made) if adopts else made

    def _fails_again(self, delivery: Row) -> Report:
        self.offset += 1
        again = failed_again(delivery, self.offset, error=self.chance.choice(["TimeoutError", "KeyError"]))
        by_original = report(delivery["original_topic"], delivery["original_offset"], key=delivery["key"], value=delivery["value"])
        return self.chance.choice(
            [again, again.with_headers(*pointer(delivery)), by_original, by_original.with_headers(*pointer(delivery))]
        )

    def _result(self, delivery: Row) -> Result:
        self.closed.add(delivery["delivery_id"])
        self.offset += 1
        if self.chance.random() < 0.5:
            return Result(delivery, offset=self.offset)
        return Result(delivery, "failed", error_name="MSG_SIZE_TOO_LARGE", error_kind=self.chance.choice(["poison", "retriable"]))


def statements_of_a_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of a decide run, with their bounds."""
    statements: list[str] = []

    def recorded(statement: str, slots: Mapping[str, str]) -> str:
        statements.append(filled(statement, slots))
        return statements[-1]

    monkeypatch.setattr(decide_statements, "filled", recorded)
    home.decide()
    return statements


def test_a_decide_run_looks_up_what_its_inputs_name_and_nothing_between(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions are filled unevenly, and one report makes up an offset."""
    places = [(0, 2_000_010), (0, 2_000_015), (1, 31), (1, 44), (1, 4_000_000_000)]
    home.append_reports(*(report("bounded", offset, partition=partition) for partition, offset in places))
    statements = statements_of_a_run(home, monkeypatch)
    topic, partition, offset = ("original_topic", "original_partition", "original_offset")
    bounds = rf"{topic} = 'bounded' and {partition} = ([0-9]+) and {offset} between ([0-9]+) and ([0-9]+)"
    asked = {found for statement in statements for found in re.findall(bounds, statement)}
    assert asked == {("0", "2000010", "2000015"), ("1", "31", "44"), ("1", "4000000000", "4000000000")}


def test_a_decide_run_reads_the_hours_that_its_inputs_point_to_and_none_between(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """One report makes up a delivery that was due days ago."""
    hour, dues = timedelta(hours=1), [home.now - timedelta(days=6), home.now - timedelta(minutes=70), home.now - timedelta(minutes=10)]
    said = [report("pointing", offset) for offset in range(len(dues))]
    home.append_reports(
        *(
            replace(
                one,
                headers=(*(one.headers or ()), ("redrive-delivery", b"d"), ("redrive-due", str(round(due.timestamp() * 1000)).encode())),
            )
            for one, due in zip(said, dues, strict=True)
        )
    )
    statements = statements_of_a_run(home, monkeypatch)
    begins = sorted({due.replace(minute=0, second=0, microsecond=0) for due in dues})
    hours = {(round(begin.timestamp()), round((begin + hour).timestamp())) for begin in begins}
    for column in ("due_at", "prior_due"):
        asked = re.compile(rf"\({column} >= timestamp_seconds\(([0-9]+)\) and {column} < timestamp_seconds\(([0-9]+)\)\)")
        assert {(int(begin), int(end)) for statement in statements for begin, end in asked.findall(statement)} == hours


def test_no_batch_is_decided_twice_whatever_the_rules_are_by_then(home: Home, seeds: Path) -> None:
    """A decide run whose commit went through, of which nobody was told, is repeated under other rules."""
    home.decide()
    before = home.batch
    (input_id,) = home.append_reports(report("decided-once", 1))
    home.decide()
    policies = seeds / "retry_policies.csv"
    policies.write_text(policies.read_text().replace("initial=1s, factor=2, max=60s", "initial=2h, factor=2, max=9h"))
    home.load_rules()
    already = f"batches up to {home.batch} are decided already, not up to {before} only"
    with pytest.raises(DbtError, match=already):
        home.decide(watermark=before, upto=home.batch)
    with pytest.raises(DecideError, match=already):
        DecideRunner(home.spark, home.schema, home._dbt).run(before, home.batch, None)
    (later,) = home.append_reports(report("decided-once", 2))
    home.decide()
    rows = {row["input_id"]: row for row in home.read("deliveries") if row["batch"] > before}
    assert len([row for row in home.read("deliveries") if row["batch"] > before]) == 2
    assert rows[input_id]["due_at"] < rows[input_id]["recorded_at"] + timedelta(hours=1) < rows[later]["due_at"]


def test_of_two_runs_at_once_under_different_rules_one_is_refused(home: Home, tmp_path: Path) -> None:
    home.decide()
    before = home.batch
    (input_id,) = home.append_reports(report("decided-at-once"))
    home.decide()
    # what the other decide run decides: by its rules it is due in another hour. It commits when this one has looked at everything already
    (row,) = (row for row in home.read("deliveries") if row["batch"] > before)
    other = {
        **row.asDict(),
        "decide_run": 7,
        "due_at": row["due_at"] + timedelta(hours=3),
        "due_hour": row["due_hour"] + timedelta(hours=3),
    }
    schema = home.spark.table(f"{home.schema}.deliveries").schema
    home.spark.createDataFrame([tuple(other[name] for name in schema.names)], schema).createOrReplaceTempView("other_run")
    home.forget(before)
    project = copy_of_the_project(tmp_path)
    slots = project / "macros" / "decide" / "read_slots.sql"
    hook = f"{{%- do run_query('insert into {home.schema}.deliveries by name select * from other_run') -%}}"
    slots.write_text(slots.read_text().replace("{{ return(slots) }}", f"{hook}{{{{ return(slots) }}}}"))
    with pytest.raises(DbtError, match="Found conflicting files that can contain records matching"):
        home.decide(project=project)
    home.spark.catalog.dropTempView("other_run")
    (ready,) = (row for row in home.read("ready") if row["batch"] > before)
    assert ready["due_at"] == home.decisions()[input_id]["due_at"] == other["due_at"]
    assert len(_decisions_after(home, before)) == 1


def test_a_decide_run_with_nothing_to_decide_writes_nothing(home: Home) -> None:
    home.decide()
    snapshots = home.spark.table(f"{home.schema}.deliveries.snapshots").count()
    home.append_tick(home.batch)
    home.decide()
    home.decide()
    assert home.spark.table(f"{home.schema}.deliveries.snapshots").count() == snapshots


def test_a_decide_run_leaves_nothing_in_sparks_memory(home: Home) -> None:
    home.decide()
    home.append_reports(report("kept-in-memory"))
    kept = home.spark.sparkContext._jsc.getPersistentRDDs
    before = set(kept())
    home.decide()
    assert set(kept()) <= before
    assert not home.spark.catalog.tableExists("__dbt__cte__inputs_gathered")
    assert not home.spark.catalog.tableExists("__dbt__cte__deliveries")


@pytest.fixture
def broken_rule(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of the project in which one rule ends otherwise."""

    def break_it(ending: str) -> Path:
        project = copy_of_the_project(tmp_path)
        rule = project / "models" / "retry" / "2_classify" / "errors_classified.sql"
        text = rule.read_text()
        assert text.endswith("select * from classified\n")
        rule.write_text(text.removesuffix("select * from classified\n") + ending)
        return project

    return break_it


@pytest.mark.parametrize(
    ("ending", "complaint"),
    [
        pytest.param(
            "select * from classified where original_offset <> 1",
            "the decide step made 0 decisions for input",
            id="drops one",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "select * from classified union all select * from classified where original_offset = 1",
            "the decide step made 2 decisions for input",
            id="doubles one",
        ),
    ],
)
def test_a_rule_that_loses_or_doubles_an_input_stops_the_decide_step(
    home: Home, broken_rule: Callable[[str], Path], ending: str, complaint: str
) -> None:
    home.decide()
    before = home.batch
    input_ids = home.append_reports(report(f"broken-{before}", 0), report(f"broken-{before}", 1))
    with pytest.raises(DbtError, match=f"{complaint} {input_ids[1]}"):
        home.decide(project=broken_rule(ending))
    assert _decisions_after(home, before) == []
    home.decide()
    assert len(_decisions_after(home, before)) == 2


def test_rules_that_changed_meanwhile_stop_the_decide_step(home: Home) -> None:
    home.decide()
    before = home.batch
    home.append_reports(report("changed"))
    with pytest.raises(DbtError, match="the rules changed since the loop loaded them"):
        home.decide(rules_hash="0" * 64)
    assert _decisions_after(home, before) == []
    home.decide()
    (row,) = (row for row in home.read("deliveries") if row["batch"] > before)
    home.forget(before)
    home.decide(rules_hash=row["rules_hash"])
    assert len(_decisions_after(home, before)) == 1


def _decisions_after(home: Home, batch: int) -> list[str]:
    """Every row that was written for later batches, as text, copies included; without the decide step that wrote it."""
    return sorted(
        repr(sorted((name, value) for name, value in row.asDict().items() if name != "decide_run"))
        for row in home.read("deliveries")
        if row["batch"] > batch
    )
