"""Dead letters over whole tables: from reports to the marts, with what operators asked for, and hostile bytes."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from orchestration.loop.metric_queries import open_dead_letters
from orchestration.operators.commands import CommandRequest
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.lists import Target, select_deliveries
from orchestration.operators.selections import Selection
from orchestration.operators.sending import records
from tests.dbt.harness import Home, Report, Result, order, report

pytestmark = pytest.mark.long

NULL_POINTER = "java.lang.NullPointerException"


def die(home: Home, *reports: Report, offset: int = 1) -> list[Row]:
    """Lets messages die of their reports, in one decide run, their dead letters acknowledged; the decisions."""
    input_ids = home.append_reports(*reports)
    home.decide()
    decisions = home.decisions()
    deaths = [decisions[input_id] for input_id in input_ids]
    assert {death["kind"] for death in deaths} == {"dead_letter"}
    home.append_results(*(Result(death, offset=offset + place) for place, death in enumerate(deaths)))
    return deaths


def ask(home: Home, *orders: tuple[str, Row]) -> None:
    """What operators want of dead letters, decided."""
    home.append_reports(*(order(kind, death) for kind, death in orders))
    home.decide()


def of(home: Home, mart: str, **where: Any) -> list[Row]:
    """Rows of a mart with these values."""
    conditions = [f"{name} = {value!r}" for name, value in where.items()]
    return home.ask(f"select * from {mart} where {' and '.join(['true', *conditions])}")


def one(home: Home, death: Row) -> Row:
    (row,) = of(home, "dead_letters", message_id=death["message_id"])
    return row


@pytest.mark.long
def test_what_was_done_about_a_dead_letter_is_its_state(home: Home) -> None:
    untouched, sent, discarded, noted = die(home, *(report("states", number, error=NULL_POINTER) for number in range(4)))

    def found() -> list[tuple[str, int]]:
        rows = sorted(of(home, "dead_letters", original_topic="states"), key=lambda row: row["original_offset"])
        return [(row["state"], row["life_cycles"]) for row in rows]

    home.later(minutes=1)
    ask(home, ("redrive", sent), ("discard", discarded), ("note", noted))
    assert found() == [("open", 1), ("redriven", 2), ("discarded", 1), ("open", 1)]
    ask(home, ("restore", discarded), ("discard", sent))
    assert found() == [("open", 1), ("discarded", 2), ("open", 1), ("open", 1)]
    ask(home, ("restore", sent), ("redrive", discarded))
    assert found() == [("open", 1), ("redriven", 2), ("redriven", 2), ("open", 1)]
    # what an operator thinks of a dead letter doesn't move the message
    states = {row["message_id"]: row["state"] for row in of(home, "messages", original_topic="states")}
    assert [states[death["message_id"]] for death in (untouched, noted, sent)] == ["dead", "dead", "waiting"]
    assert [row["attempt"] for row in of(home, "attempts", message_id=sent["message_id"])] == [1]


@pytest.mark.slow
def test_a_message_that_failed_anew_by_itself_is_not_open(home: Home) -> None:
    (death,) = die(home, report("revived", error=NULL_POINTER, failed_at=home.now))
    home.later(hours=1)
    home.append_reports(report("revived", error="a.B", failed_at=home.now))
    home.decide()
    row = one(home, death)
    assert (row["state"], row["life_cycle"], row["life_cycles"], row["offset"]) == ("redriven", 1, 2, 1)
    (retry,) = (row for row in home.decisions().values() if row["original_topic"] == "revived" and row["kind"] == "retry")
    home.append_results(Result(retry, offset=7))
    home.later(hours=1)
    again = report("revived", error=NULL_POINTER, failed_at=home.now)
    (death,) = die(home, again, offset=2)
    row = one(home, death)
    assert (row["state"], row["life_cycle"], row["life_cycles"], row["offset"]) == ("open", 2, 2, 2)


@pytest.mark.slow
def test_a_dead_letter_that_was_not_acknowledged_is_not_here(home: Home) -> None:
    (input_id,) = home.append_reports(report("pending", error=NULL_POINTER))
    home.decide()
    home.append_results(Result(home.decisions()[input_id], "failed", error_name="X", error_kind="retriable"))
    home.decide()
    assert of(home, "dead_letters", original_topic="pending") == []
    # which is counted as it was decided, and once
    assert [row["died"] for row in of(home, "dead_letters_by_hour", original_topic="pending")] == [1]


def purged(home: Home, topic: str) -> tuple[Row, Row]:
    """Two dead letters that were discarded, and the first purged."""
    stack = ("redrive-error-stack", b"java.lang.NullPointerException: boo\n    at s3cret.Frame.of(Frame.java:1)")
    secret, kept = (report(topic, number, error=NULL_POINTER, key=b"s3cret", value=b"s3cret") for number in range(2))
    gone, other = die(home, secret.but(headers=(*(secret.headers or ()), stack)), kept)
    assert "s3cret" in str(one(home, gone)["error_stack"])
    ask(home, ("discard", gone), ("discard", other))
    ask(home, ("purge", gone))
    return gone, other


@pytest.mark.long
def test_what_is_purged_is_shown_nowhere(home: Home) -> None:
    death, other = purged(home, "purged-mart")
    rows = {row["message_id"]: row for row in of(home, "dead_letters", original_topic="purged-mart")}
    row, untouched = rows[death["message_id"]], rows[other["message_id"]]
    gone = ("key", "value", "headers", "headers_by_name", "excerpt", "error_message", "error_stack", "value_bytes", "request_id")
    assert [row[name] for name in gone] == [None] * len(gone)
    assert (row["state"], row["purged_at"].astimezone(UTC), row["error_class"]) == ("discarded", home.now, NULL_POINTER)
    assert (row["delivery_id"], row["topic"], row["offset"]) == (death["delivery_id"], "purged-mart.dlq", 1)
    assert (untouched["state"], bytes_(untouched["value"]), untouched["purged_at"]) == ("discarded", b"s3cret", None)
    for view in ("decisions", "attempts", "message_history"):
        shown = [row.asDict() for row in of(home, view, message_id=death["message_id"])]
        assert shown
        assert "s3cret" not in str(shown)
        assert {row["error_message"] for row in shown} == {None}


@pytest.mark.slow
def test_what_is_purged_stays_a_dead_letter(home: Home) -> None:
    death, other = purged(home, "purged-again")
    # open again, without its payload; and what was not purged is as it was
    ask(home, ("restore", death), ("redrive", death))
    restored, untouched = sorted(of(home, "dead_letters", original_topic="purged-again"), key=lambda row: row["original_offset"])
    assert (restored["state"], restored["value"], restored["life_cycles"]) == ("open", None, 1)
    assert (untouched["message_id"], untouched["state"], untouched["purged_at"]) == (other["message_id"], "discarded", None)
    assert bytes_(untouched["value"]) == b"s3cret"
    # it fails anew by itself: another life_cycle, which was not purged
    home.later(hours=1)
    (again,) = die(home, report("purged-again", 0, error=NULL_POINTER, key=b"s3cret", value=b"s3cret", failed_at=home.now), offset=3)
    row = one(home, again)
    assert (row["life_cycle"], bytes_(row["value"]), row["purged_at"], row["error_message"]) == (2, b"s3cret", None, "boo")


def words(home: Home, death: Row) -> tuple[str | None, str | None]:
    row = one(home, death)
    return row["note"], row["ticket"]


def said(home: Home, what: str, reason: str, ticket: str | None, death: Row) -> None:
    """A whole command about a dead letter, as the loop writes it down and issues it."""
    command = str(uuid.uuid4())
    one = Target(death["message_id"], death["delivery_id"], round(death["due_at"].timestamp() * 1000))
    for value in records(CommandRequest(what, reason, "ada", ticket), [one]):
        home.append_reports(Report(None, None, value, source="@commands", kind="command", command=command))
    home.append_reports(order(what, death).but(command=command))
    home.decide()


@pytest.mark.slow
def test_what_was_said_last_about_a_dead_letter_stands_beside_it(home: Home) -> None:
    death, silent = die(home, *(report("said-of", number, error=NULL_POINTER) for number in range(2)))
    assert words(home, death) == (None, None)
    said(home, "note", "who knows", "OPS-17", death)
    assert words(home, death) == ("who knows", "OPS-17")
    said(home, "redrive", "fixed in 4.2", "OPS-18", death)
    assert words(home, death) == ("fixed in 4.2", "OPS-18")
    said(home, "discard", "nobody wants it", None, death)
    assert words(home, death) == ("nobody wants it", "OPS-18")
    assert words(home, silent) == (None, None)


@pytest.mark.slow
def test_an_adopted_letter_is_a_dead_letter_like_ours_and_lies_where_it_was_read(home: Home) -> None:
    dead_at = home.now - timedelta(hours=3)
    (ours,) = die(home, report("adopted-mart", 1, error=NULL_POINTER, failed_at=home.now))
    (input_id,) = home.append_reports(report("adopted-mart", 2, error=NULL_POINTER, failed_at=dead_at).but(source="graves"))
    home.decide()
    adopted = home.decisions()[input_id]
    row = one(home, adopted)
    assert (row["state"], row["life_cycle"], row["life_cycles"], row["reason"], row["error_kind"]) == ("open", 1, 1, "adopted", "fatal")
    assert (row["topic"], row["partition"], row["offset"]) == ("graves-topic", 0, adopted["report_offset"])
    assert row["dead_at"].astimezone(UTC) == dead_at
    assert (bytes_(row["key"]), bytes_(row["value"])) == (b"key", b"value")
    assert row["fingerprint"] == one(home, ours)["fingerprint"]
    related = of(home, "related_messages", message_id=ours["message_id"], related_id=adopted["message_id"])
    assert {other["relation"] for other in related} == {"key", "error"}
    hours = {row["hour"].astimezone(UTC): row["died"] for row in of(home, "dead_letters_by_hour", original_topic="adopted-mart")}
    assert hours == {moment.replace(minute=0, second=0, microsecond=0): 1 for moment in (ours["due_at"], dead_at)}
    (message,) = of(home, "messages", message_id=adopted["message_id"])
    assert (message["state"], message["next_due"]) == ("dead", None)
    assert adopted["delivery_id"] not in {row["delivery_id"] for row in of(home, "ready")}
    # a command finds it as it finds ours
    listed = select_deliveries(DeadLetters(home._settings), "redrive", Selection(topic="adopted-mart"), None)
    assert {one.delivery_id for one in listed} == {ours["delivery_id"], adopted["delivery_id"]}
    for kind, state, life_cycles in (("discard", "discarded", 1), ("restore", "open", 1), ("redrive", "redriven", 2)):
        ask(home, (kind, adopted))
        row = one(home, adopted)
        assert (row["state"], row["life_cycles"], row["topic"]) == (state, life_cycles, "graves-topic")


HOSTILE: list[tuple[bytes | None, bytes | None]] = [
    (None, None),
    (b"", b""),
    (b"\xff\x00'\"\\", b"\xff\xfe\x1b[31m"),
    (b"k", b"{" * 100_000),
    (b"k", b"\x00\x00\x00\x00\x01"),
    (b"k", "\u202e😀\x00".encode()),
]


def test_hostile_bytes_break_no_mart(home: Home) -> None:
    reports = [report("hostile", number, error=NULL_POINTER, key=key, value=value) for number, (key, value) in enumerate(HOSTILE)]
    die(home, *(hostile.with_headers(("traceparent", b"\xff"), ("", None), ("", b"")) for hostile in reports))
    rows = {row["original_offset"]: row for row in of(home, "dead_letters", original_topic="hostile")}
    assert [(bytes_(rows[number]["key"]), bytes_(rows[number]["value"])) for number in range(len(HOSTILE))] == HOSTILE
    assert [rows[number]["payload_type"] for number in range(len(HOSTILE))] == ["null", "empty", "binary", "text", "binary", "binary"]
    assert all((row["excerpt"] or "").isprintable() for row in rows.values())
    message = rows[3]["message_id"]
    related = of(home, "related_messages", message_id=message)
    assert len({(other["relation"], other["related_id"]) for other in related}) == len(related)
    assert message not in {other["related_id"] for other in related}
    assert ("key", rows[4]["message_id"]) in {(other["relation"], other["related_id"]) for other in related}
    assert all(home.read(mart) for mart in ("messages", "attempts", "stranded_messages", "message_history", "dead_letter_groups"))


def bytes_(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def add_to_routes(seeds: Path, columns: str, *first: str) -> None:
    """Adds columns to the seed `routes`, with values for its first rows."""
    path = seeds / "routes.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    added = [columns, *first]
    added += ["," * columns.count(",")] * (len(lines) - len(added))
    path.write_text("\n".join(f"{line},{more}" for line, more in zip(lines, added, strict=True)) + "\n", encoding="utf-8")


@pytest.mark.slow
def test_what_routes_say_changes_with_the_seeds_and_decides_nothing(home: Home, seeds: Path) -> None:
    traced = report("described", error=NULL_POINTER, value=b'{"meta": {"process": "p-1"}}')
    (death,) = die(home, traced.with_headers(("x-request", b"r/1")))
    (before,) = home.read("rules")
    row = one(home, death)
    assert (row["owner"], row["logs_url"], row["process_id"]) == (None, None, None)
    described = "it's us,https://logs/{group}?r={request_id}&p={process_id},x-request,$.meta.process"
    add_to_routes(seeds, "owner,logs_url,request_id,process_id", described)
    home.load_rules()
    row = one(home, death)
    assert (row["owner"], row["request_id"], row["process_id"]) == ("it's us", "r/1", "p-1")
    assert row["logs_url"] == "https://logs/billing?r=r%2F1&p=p-1"
    (after,) = home.read("rules")
    assert after["rules_hash"] == before["rules_hash"]


@pytest.mark.slow
def test_the_metric_of_open_dead_letters_counts_what_the_mart_has(home: Home, seeds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owned = [report("twice-at-most", number, error=NULL_POINTER) for number in range(4)]
    deaths = die(home, *owned, report("ownerless", error=NULL_POINTER))
    ask(home, ("discard", deaths[0]), ("redrive", deaths[1]))
    # of the routes, the first is that of any topic, and the second that of `twice-at-most`
    add_to_routes(seeds, "owner", "", "it's us")
    home.load_rules()

    def metric() -> dict[tuple[str, str | None], int]:
        rows = home.spark.sql(open_dead_letters(home.schema)).collect()
        return {(row["topic"], row["owner"]): row["rows"] for row in rows}

    mart = Counter((row["original_topic"], row["owner"]) for row in of(home, "dead_letters", state="open"))
    assert (mart["twice-at-most", "it's us"], mart["ownerless", None]) == (2, 1)
    assert metric() == mart
    monkeypatch.setattr("orchestration.loop.metric_queries._GROUPS", 0)
    assert metric() == {("other", "it's us"): 2, ("other", None): mart.total() - 2}


def test_groups_gather_what_died_of_the_same(home: Home) -> None:
    def failed(number: int, message: str) -> Report:
        told = report("grouped", number, error=NULL_POINTER)
        return told.but(headers=(*(told.headers or ()), ("redrive-error-message", message.encode())))

    messages = ["no order 17", "no order 18", "no customer 'x'"]
    deaths = die(home, *(failed(number, message) for number, message in enumerate(messages)))
    rows = [row for row in home.read("dead_letter_groups") if row["topics"] == ["grouped"]]
    assert sorted((row["error_pattern"], row["dead"], row["open"]) for row in rows) == [
        ("no customer <text>", 1, 1),
        ("no order <number>", 2, 2),
    ]
    assert {row["sample_message_id"] for row in rows} <= {death["message_id"] for death in deaths}


def test_payloads_are_not_read_unless_they_are_asked_for(home: Home) -> None:
    def plan(mart: str, columns: str) -> str:
        frame = home.spark.sql(f"select {columns} from {home.schema}.{mart} where message_id = 'x'")
        scans = frame._jdf.queryExecution().optimizedPlan().toString().splitlines()
        return " ".join(line for line in scans if "RelationV2" in line and "deliveries" in line)

    assert "value#" in plan("dead_letters", "value")
    narrow = plan("dead_letters", "message_id, state, life_cycles, dead_at, error_class, error_message, attempts, owner, runbook")
    assert "message_id#" in narrow
    assert not any(f"{column}#" in narrow for column in ("value", "key", "headers", "error_stack"))
