"""Dialects: what records of other systems say, byte for byte; counts that go on; and records that are hostile in all of them at once."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import Row

from orchestration.operators.selections import named
from orchestration.rules.vocabulary import ANY_DIALECT, DIALECTS
from tests.dbt.dialect_bytes import ADDED, COLUMNS, DUE, OWN, TOLD, TOPIC, Told, b4, b8, shortest, spring_retry
from tests.dbt.harness import Headers, Home, Report, Result, decided, order, pairs, pointer, report
from tests.dbt.macro_cases import millis

MILLIS = ("origin_timestamp", "stated_at", "due")


def reports_of(home: Home, *reports: Report) -> list[Row]:
    """What stg_reports says about reports, which are appended and decided."""
    input_ids = home.append_reports(*reports)
    home.decide()
    columns = [f"unix_millis({name}) as {name}" if name in MILLIS else name for name in COLUMNS]
    rows = home.spark.sql(f"select input_id, dialect, problems, {', '.join(columns)} from {home.schema}.stg_reports").collect()
    found = {row["input_id"]: row for row in rows}
    return [found[input_id] for input_id in input_ids]


def said(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in COLUMNS if row[name] is not None}


def says(told: Told) -> dict[str, Any]:
    return {name: value for name, value in told.says.items() if value is not None}


@pytest.fixture(scope="module")
def at_due(home: Home) -> Home:
    """The home, some ten minutes before the due time that records state, or later."""
    until = datetime.fromtimestamp(DUE / 1000, UTC) - timedelta(minutes=10)
    # whole seconds: other tests expect times without a fraction
    home.later(seconds=max((until - home.now) // timedelta(seconds=1), 0))
    return home


@pytest.fixture(scope="module")
def read(at_due: Home) -> dict[str, tuple[Row, Row]]:
    """What is said about each record, in its own dialect and in `auto`."""
    own = reports_of(at_due, *(told.report() for told in TOLD))
    seen = reports_of(at_due, *(told.report().but(source=f"in-{ANY_DIALECT}") for told in TOLD))
    return {told.name: rows for told, *rows in zip(TOLD, own, seen, strict=True)}  # type: ignore[misc]


def test_each_dialect_has_a_case() -> None:
    assert {told.dialect for told in TOLD} == {*DIALECTS, "ours"}


@pytest.mark.parametrize("told", TOLD, ids=lambda told: told.name)
def test_a_record_is_read_in_its_dialect(read: dict[str, tuple[Row, Row]], told: Told) -> None:
    row, _ = read[told.name]
    assert said(row) == says(told)
    assert row["problems"] == []


@pytest.mark.parametrize("told", TOLD, ids=lambda told: told.name)
def test_its_headers_show_its_dialect_or_it_is_said_that_they_do_not(read: dict[str, tuple[Row, Row]], told: Told) -> None:
    _, row = read[told.name]
    if told.is_recognised:
        assert (row["dialect"], said(row), row["problems"]) == (told.dialect, says(told), [])
    else:
        assert (row["dialect"], said(row), row["problems"]) == (None, {}, ["dialect"])


def test_a_retry_of_ours_that_failed_elsewhere_shows_the_dialect_of_the_failure(home: Home) -> None:
    spring = next(told for told in TOLD if told.dialect == "spring")
    carried: Headers = (("redrive-delivery", b"x#1"), ("redrive-due", b"1"), ("redrive-original-topic", b"a"), ("redrive-attempt", b"2"))
    (row,) = reports_of(home, spring.report().but(headers=(*carried, *spring.headers), source=f"in-{ANY_DIALECT}"))
    assert row["dialect"] == "spring"


def test_the_message_goes_on_as_it_was_before_its_report(home: Home) -> None:
    # each with a place of its own: the value is the name of the case
    rows = decided(home, *(told.report().but(value=told.name.encode()) for told in TOLD))
    for told, row in zip(TOLD, rows, strict=True):
        assert (row["decision"], row["attempt"]) == ("dead_letter" if row["error_kind"] == "fatal" else "retry", 1), told.name
        assert (row["key"], row["value"]) == (told.key, told.name.encode()), told.name
        assert pairs(row["headers"]) == [*OWN, *told.kept, *told.inside], told.name
        assert row["original_topic"] == TOPIC, told.name


@pytest.mark.long
def test_dead_letters_of_others_are_adopted_and_redriven_to_where_they_came_from(home: Home) -> None:
    for dialect in ("connect", "streams", "share-group", "smallrye"):
        told = next(told for told in TOLD if told.dialect == dialect)
        (dead,) = decided(home, told.report("dead").but(value=f"dead {dialect}".encode()))
        assert (dead["decision"], dead["original_topic"]) == ("adopted", TOPIC), dialect
        (redriven,) = decided(home, order("redrive", dead))
        assert (redriven["decision"], redriven["original_topic"], redriven["value"]) == ("redrive", TOPIC, f"dead {dialect}".encode())


def test_a_message_without_a_place_is_named_after_its_report_and_followed_by_its_pointer(home: Home) -> None:
    told = next(told for told in TOLD if told.dialect == "safi")
    first, other = decided(home, told.report(), told.report())
    assert first["message_id"] != other["message_id"]
    assert first["message_id"].startswith("billing:in-safi-topic/0/")
    assert (first["original_topic"], first["original_partition"], first["original_offset"]) == (TOPIC, None, None)
    # commands find it by its id, which has the place of its report
    found = home.ask(f"select message_id from messages where {named(str(first['message_id']))}")
    assert [row["message_id"] for row in found] == [first["message_id"]]
    home.append_results(Result(first, offset=3))
    home.later(seconds=30)
    # a consumer that reports in redrive's own dialect what the retry carried: it had no partition and offset
    again = report(TOPIC, key=b"key", value=b"value").with_headers(*pointer(first))
    again = again.but(
        headers=tuple(h for h in again.headers or () if h[0] not in ("redrive-original-partition", "redrive-original-offset"))
    )
    (second,) = decided(home, again)
    assert (second["message_id"], second["attempt"], second["decision"]) == (first["message_id"], 2, "retry")


# ---------- counts


def retried(attempts: bytes, due: int, place: int, kind: str = "trusted") -> Report:
    headers = tuple((name, b8(place) if name == "kafka_original-offset" else value) for name, value in spring_retry(attempts, due))
    return Report(headers, source=f"{kind}-spring-retry")


@pytest.mark.long
def test_a_count_goes_on_and_a_stated_due_time_holds_where_the_source_is_trusted(home: Home) -> None:
    due = millis(home.now + timedelta(minutes=5))
    trusted, other = decided(home, retried(b4(4), due, 1_001), retried(b4(4), due, 1_002, "in"))
    # three attempts were made, the fourth is the retry
    assert (trusted["attempt"], trusted["decision"], millis(trusted["due_at"])) == (3, "retry", due)
    assert (other["attempt"], other["decision"]) == (1, "retry")
    assert millis(other["due_at"]) < due
    home.append_results(Result(trusted, offset=1))
    home.later(minutes=6)
    (fourth,) = decided(home, report(trusted["topic"], 1, key=b"key").with_headers(*pointer(trusted)))
    assert (fourth["message_id"], fourth["attempt"], fourth["decision"]) == (trusted["message_id"], 4, "retry")
    home.append_results(Result(fourth, offset=2))
    home.later(minutes=6)
    (fifth,) = decided(home, report(fourth["topic"], 2, key=b"key").with_headers(*pointer(fourth)))
    assert (fifth["attempt"], fifth["decision"], fifth["reason"]) == (5, "dead_letter", "exhausted")


def test_more_attempts_than_the_policy_has_are_the_last(home: Home) -> None:
    (row,) = decided(home, retried(b4(9), millis(home.now), 1_003))
    assert (row["attempt"], row["decision"], row["reason"]) == (8, "dead_letter", "exhausted")


# attempts, hours until the stated due time, the attempt that is counted, and what is a problem
BOUNDED: list[tuple[bytes, float, int, list[str]]] = [
    (b4(2**31 - 1), 0.1, 1, ["attempts"]),
    (b4(-1), 0.1, 1, ["attempts"]),
    (b"\x00\x00\x02", 0.1, 1, ["attempts"]),
    (b4(0), 0.1, 1, []),
    (b4(3), 25, 2, ["due"]),
    (b4(3), 24 * 365 * 50, 2, ["due"]),
    # overdue: at once
    (b4(3), -24, 2, []),
]


def test_what_a_trusted_source_states_is_bounded(home: Home) -> None:
    # all in one decide run, which takes seconds whatever it decides
    stated = [
        retried(attempts, millis(home.now + timedelta(hours=hours)), 2_000 + home.batch + place)
        for place, (attempts, hours, _, _) in enumerate(BOUNDED)
    ]
    for row, (_, _, counted, problems) in zip(decided(home, *stated), BOUNDED, strict=True):
        assert (row["attempt"], row["decision"], sorted(set(row["problems"]))) == (counted, "retry", problems)
        assert home.now <= row["due_at"] <= home.now + timedelta(hours=24)


# ---------- hostile records


def _values(random: random.Random) -> list[bytes | None]:
    """Values that no dialect expects; some that one does."""
    return [
        None,
        b"",
        b"\xff\xfe",
        b"0",
        b"-1",
        b"9" * 40,
        b"1e9",
        b"\x00",
        random.randbytes(4),
        random.randbytes(8),
        b4(-1),
        b8(-1),
        shortest(2**62),
        random.randbytes(random.randrange(64)),
        b"x" * 60_000,
        b"told.orders",
        b"../..",
        b"told.orders'; drop table events; --",
        b'{"original_topic": ' + b"[" * 20_000,
        b'{"original_topic": {"a": [1, 2' + b', {"b": 1}' * 3_000 + b"]}}",
        b'{"original_topic": "told.orders", "original_topic": 7, "class": null, "tries": 1e400}',
        b"," * 1_000,
    ]


def test_hostile_records_stop_no_tick_and_charge_nobody_wrongly_in_any_dialect(at_due: Home) -> None:
    home = at_due
    chance = random.Random(20_260_301)
    names = sorted({name for told in TOLD for name, _ in told.headers} | {str(row["header"]) for row in ADDED if row["field"] != "owns"})
    values = _values(chance)
    reports: list[Report] = []
    sources = [f"in-{dialect}" for dialect in (*DIALECTS, "ours", ANY_DIALECT)]
    for number in range(600):
        told = chance.choice(TOLD)
        # a good record, of which some headers are replaced, repeated, or foreign
        headers = [(name, chance.choice(values) if chance.random() < 0.4 else value) for name, value in told.headers]
        headers += [(chance.choice(names), chance.choice(values)) for _ in range(chance.randrange(6))]
        chance.shuffle(headers)
        source = f"in-{told.dialect}" if chance.random() < 0.5 else chance.choice(sources)
        reports.append(Report(tuple(headers), chance.choice([told.key, None, b"", b"\xff"]), b"hostile %d" % number, source=source))
    reports.append(Report(tuple((chance.choice(names), chance.choice(values[:10])) for _ in range(10_000)), source=f"in-{ANY_DIALECT}"))

    rows = decided(home, *reports)
    assert len(rows) == len(reports)
    assert {row["attempt"] for row in rows} <= {None, 0, 1}
    assert {row["decision"] for row in rows} <= {"retry", "dead_letter", "orphan", "refused", "duplicate"}
    # what says nothing that can be read is kept whole
    for sent, row in zip(reports, rows, strict=True):
        if row["decision"] == "orphan":
            assert (row["key"], row["value"]) == (sent.key, sent.value)
