"""What operators want: that messages are redriven, discarded, sent at once, cancelled."""

from __future__ import annotations

from datetime import timedelta

from tests.dbt.decide_cases.case import (
    ANSWERED_ALREADY,
    DEAD,
    INTERNAL,
    NO_ORIGINAL_TOPIC,
    ORPHAN,
    RETRY,
    Case,
    asks,
    attempts,
    comes,
    delivered_at,
    fails_again,
    held,
    refused,
    same_message,
    stated,
)
from tests.dbt.harness import Report, failed_again, order, pointer, report

CASES = [
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
        "the due time that a rate gives is in whole milliseconds, and not earlier",
        (
            comes(report("redriven-at-a-rate", error="KeyError")),
            lambda rows: [order("redrive", rows[0]).but(at=rows[0]["recorded_at"] + timedelta(days=3, microseconds=333_333))],
        ),
        (DEAD, ("redrive", "redrive")),
        lambda rows: rows[1]["due_at"] == rows[0]["recorded_at"] + timedelta(days=3, milliseconds=334),
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
        "a dead letter whose record has failed again meanwhile is not redriven beside what became of it",
        (
            comes(report("failed-meanwhile", error="KeyError")),
            delivered_at(603),
            comes(report("failed-meanwhile")),
            lambda rows: [order("redrive", rows[0])],
        ),
        (DEAD, RETRY, ANSWERED_ALREADY),
        lambda rows: [row["life_cycle"] for row in rows[:2]] == [1, 2] and same_message(rows),
    ),
    Case(
        "other content at the same coordinates is another message, which a redrive of the first is not about",
        (
            comes(report("failed-otherwise", error="KeyError")),
            delivered_at(604),
            comes(report("failed-otherwise", value=b"other")),
            lambda rows: [order("redrive", rows[0])],
        ),
        (DEAD, RETRY, ("redrive", "redrive")),
    ),
    Case(
        "what is sent at once keeps the policy for its kind of error",
        (comes(stated("quota", report("routed-eu-1", 605))), asks("send_now")),
        (("retry", "quota"), ("retry", "send_now")),
        lambda rows: [(row["error_kind"], row["policy"]) for row in rows] == [("quota", "bounded")] * 2,
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
    Case(
        "a purge of a refusal reaches the message's earlier dead letter, which is not redriven then",
        (
            comes(report("into-a-source", 90, error="KeyError")),
            delivered_at(9_000),
            comes(report("into-a-source", 90)),
            asks("discard"),
            asks("purge", place=1),
            lambda rows: [order("redrive", rows[0], "elsewhere")],
        ),
        (
            *(DEAD, ("refused", "destination_is_a_source"), ("discarded", "discard"), ("purged", "purge")),
            ("refused", "payload_was_dropped"),
        ),
        lambda rows: [row["life_cycle"] for row in rows[:4]] == [1, 2, 2, 2],
    ),
    Case(
        "a refusal is not purged once the message has gone on, as that would reach what is alive",
        (
            comes(report("into-a-source", 91)),
            asks("discard"),
            comes(report("into-a-source", 91, error="KeyError")),
            asks("purge", place=0),
            asks("redrive", place=2),
        ),
        (
            ("refused", "destination_is_a_source"),
            ("discarded", "discard"),
            DEAD,
            ("refused", "not_discarded"),
            ("refused", "destination_is_a_source"),
        ),
        lambda rows: [row["life_cycle"] for row in rows[:3]] == [1, 1, 1],
    ),
    Case(
        "a redrive beside a new failure of the message in one decide run begins nothing",
        (
            comes(report("beside-a-failure", error="KeyError")),
            delivered_at(9_100),
            lambda rows: [report("beside-a-failure"), order("redrive", rows[0])],
        ),
        (DEAD, RETRY, ANSWERED_ALREADY),
        lambda rows: same_message(rows) and [row["life_cycle"] for row in rows[:2]] == [1, 2],
    ),
    Case("a command is noted", (comes(Report(None, None, b"{}", kind="command", source="@commands")),), (("note", "command"),)),
]
