"""Reports of failures, of new ones and of retries, and sends that fail or are held."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from pyspark.sql import Row

from tests.dbt.decide_cases.case import (
    ANSWERED_ALREADY,
    DEAD,
    KNOWN_ALREADY,
    ORPHAN,
    RETRY,
    Case,
    Round,
    asks,
    attempts,
    comes,
    delivered_at,
    fails_again,
    fails_pointing,
    held,
    refused,
    same_message,
    stated,
)
from tests.dbt.dialect_bytes import decimal_place
from tests.dbt.harness import Report, Result, failed_again, order, pointer, report

EXHAUSTED = ("dead_letter", "exhausted")


def no_room_again(offset: int) -> Round:
    """The consumer has no room for the retry, either."""
    return lambda decisions: [stated("backpressure", failed_again(decisions[-1], offset))]


def from_connect(offset: int) -> Report:
    """A dead letter of Kafka Connect's: its record has the time of the record that failed, and nothing else tells when that was."""
    headers = (*decimal_place("__connect.errors", ".", offset=offset), ("__connect.errors.exception.class.name", b"KeyError"))
    return Report(headers, source="in-connect", at=datetime(2026, 1, 1, tzinfo=UTC))


def first_topic_ends(end: str) -> Callable[[list[Row]], bool]:
    return lambda decisions: bool(decisions[0]["topic"].endswith(end))


def quota(topic: str, offset: int) -> Report:
    return stated("quota", report(topic, offset))


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
    Case(
        "what fails again after its death begins a new life cycle, also if its record has the time of the record that failed",
        (comes(from_connect(21)), delivered_at(5_221), comes(from_connect(21))),
        (DEAD, DEAD),
        lambda rows: [row["life_cycle"] for row in rows] == [1, 2] and same_message(rows),
    ),
    Case(
        "a reporter whose clock is decades ahead keeps later failures from nothing",
        (
            comes(report("decades-ahead", error="KeyError", failed_at=datetime(2099, 1, 1, tzinfo=UTC))),
            delivered_at(5_222),
            comes(report("decades-ahead", error="KeyError")),
        ),
        (DEAD, DEAD),
        lambda rows: [row["life_cycle"] for row in rows] == [1, 2] and rows[0]["problems"] == ["failed_at"],
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
        "a pointer in a report of a source that is not declared any more answers nothing",
        (comes(report("undeclared")), comes(), fails_pointing(508, source="gone")),
        (RETRY, ("refused", "unknown_source")),
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
]
