"""Dead letters that others wrote."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.dbt.decide_cases.case import (
    ADOPTED,
    ANSWERED_ALREADY,
    DEAD,
    KNOWN_ALREADY,
    NO_ORIGINAL_TOPIC,
    REDRIVEN,
    RETRY,
    Case,
    Round,
    asks,
    attempts,
    comes,
    dead_already,
    delivered_at,
    fails_pointing,
    same_message,
)
from tests.dbt.harness import failed_again, order, pointer, report, spring_report

LONG_DEAD_ONCE = report("adopted-again-later", failed_at=datetime(2026, 1, 1, tzinfo=UTC))
LONG_DEAD_AGAIN = report("adopted-again-later", failed_at=datetime(2026, 2, 5, tzinfo=UTC))
LONG_DEAD = report("adopted-twice", failed_at=datetime(2026, 1, 1, tzinfo=UTC))


def redrives_both_to(to: str | None) -> Round:
    """An operator wants the first two sent there."""
    return lambda decisions: [order("redrive", row, to) for row in decisions[:2]]


CASES = [
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
        "a dead letter of a later failure of the record is the message's next life cycle, though the first was taken in long after both",
        (comes(dead_already(LONG_DEAD_ONCE)), comes(dead_already(LONG_DEAD_AGAIN))),
        (ADOPTED, ADOPTED),
        lambda rows: same_message(rows) and [row["life_cycle"] for row in rows] == [1, 2],
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
]
