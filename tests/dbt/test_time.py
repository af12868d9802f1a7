"""Times: the same on a host in any time zone, and whatever a report says about them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import Row

from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.due import Due
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.export import export
from orchestration.operators.rendering import facts
from orchestration.operators.selections import Selection
from orchestration.rules.explain import in_words
from orchestration.settings import load_settings
from orchestration.tables.query import Tables, print_rows
from orchestration.tables.rows import as_dicts, collected, iterated
from tests.dbt.harness import PROJECT, Home, Result, failed_again, pointer, report
from tests.dbt.test_dead_letter_marts import die
from tests.dbt.test_publish_step import step
from tests.zones import local_zone

# the hour that New York has twice, and the half hour that Lord Howe has
REPEATED = {
    "America/New_York": [datetime(2026, 11, 1, hour, minute, tzinfo=UTC) for hour, minute in ((5, 10), (5, 50), (6, 10), (6, 50))],
    "Australia/Lord_Howe": [datetime(2026, 4, 4, hour, minute, tzinfo=UTC) for hour, minute in ((14, 35), (14, 55), (15, 5), (15, 25))],
    "Asia/Kathmandu": [datetime(2026, 4, 4, hour, tzinfo=UTC) for hour in (0, 12)],
}


@pytest.fixture(params=["Asia/Kathmandu", pytest.param("America/St_Johns", marks=pytest.mark.slow)])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    with local_zone(request.param):
        yield request.param


def test_what_answers_a_delivery_is_recognised_on_a_host_in_any_zone(home: Home, zone: str) -> None:
    topic = f"zoned-{zone.replace('/', '-')}"
    home.later(hours=24)
    input_ids = home.append_reports(*(report(topic, offset) for offset in range(3)))
    home.decide()
    lies, points, refused = (home.decisions()[input_id] for input_id in input_ids)
    home.append_results(Result(lies, offset=70), Result(points, offset=71))
    home.later(minutes=2)
    again = home.append_reports(failed_again(lies, 70), failed_again(points, 71).with_headers(*pointer(points)))
    again += home.append_results(Result(refused, "failed", error_name="MSG_SIZE_TOO_LARGE", error_kind="poison"))
    home.decide()
    decided = [home.decisions()[input_id] for input_id in again]
    assert [(row["decision"], row["attempt"]) for row in decided] == [("retry", 2), ("retry", 2), ("dead_letter", 1)]
    assert [row["message_id"] for row in decided] == [f"billing:{topic}/0/{offset}" for offset in range(3)]


@pytest.mark.parametrize(("minutes", "attempt"), [(-9, 2), pytest.param(-11, 1, marks=pytest.mark.slow)])
def test_an_answer_is_recognised_though_the_clock_that_sent_its_delivery_was_ahead(home: Home, minutes: int, attempt: int) -> None:
    topic = f"ahead{minutes}"
    (input_id,) = home.append_reports(report(topic))
    home.decide()
    sent = home.decisions()[input_id]
    # the loop that sent it was killed, and the next begins with an earlier time; that it was sent is not recorded yet
    now, home.now = home.now, sent["due_at"] + timedelta(minutes=minutes)
    (again,) = home.append_reports(failed_again(sent, 70).with_headers(*pointer(sent)))
    home.decide()
    home.now = now
    assert home.decisions()[again]["attempt"] == attempt


@pytest.mark.parametrize("name", REPEATED)
def test_times_come_from_spark_as_they_are(home: Home, name: str) -> None:
    moments = REPEATED[name]
    frame = home.spark.createDataFrame([(moment,) for moment in moments], "at timestamp").orderBy("at")
    with local_zone(name):
        assert [row["at"] for row in collected(frame)] == [row["at"] for row in iterated(frame)] == moments
        assert [row["at"] for row in as_dicts(frame)] == moments
        assert [row["at"].utcoffset() for row in collected(frame, 1)] == [timedelta()]
        assert collected(home.spark.createDataFrame(collected(frame), "at timestamp").orderBy("at")) == collected(frame)


def test_times_are_found_as_deep_as_they_are(home: Home) -> None:
    at = "timestamp '2026-11-01 06:10:00'"
    (row,) = collected(
        home.spark.sql(
            f"""
            select
                1 as twice, {at} as twice, cast(null as timestamp) as nothing, array({at}, null) as some,
                map('a', struct({at} as at, 7 as n)) as by_name, map({at}, 'b') as by_time,
                cast(null as struct<at: timestamp>) as no_struct, timestamp_ntz '2026-11-01 06:10:00' as naive,
                date '2026-11-01' as day, struct(struct(array({at}) as inner) as middle) as outer, x'00ff' as bytes
            """
        )
    )
    expected = datetime(2026, 11, 1, 6, 10, tzinfo=UTC)
    assert tuple(row[:9]) == (
        *(1, expected, None, [expected, None], {"a": Row(at=expected, n=7)}, {expected: "b"}, None),
        *(expected.replace(tzinfo=None), date(2026, 11, 1)),
    )
    assert row["by_name"]["a"]["at"] == expected
    assert row.asDict(recursive=True)["outer"] == {"middle": {"inner": [expected]}}
    assert row["bytes"] == b"\x00\xff"


def test_times_that_python_cannot_hold_are_the_nearest_that_it_can(home: Home) -> None:
    micros = (-(2**63), -62_135_596_800_000_000, 253_402_300_799_999_999, 2**63 - 1)
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    asked = ", ".join(f"timestamp_micros({number}) as c{place}" for place, number in enumerate(micros))
    days = "date '-0001-01-01' as early, date '+12026-01-01' as late"
    for zone in ("America/St_Johns", "UTC", "Asia/Tokyo"):
        with local_zone(zone):
            (row,) = collected(home.spark.sql(f"select {asked}, {days}".replace(str(-(2**63)), "-9223372036854775807 - 1")))
            assert tuple(row) == (first, first, last, last, date.min, date.max)


@pytest.mark.slow
def test_tables_with_times_that_python_cannot_hold_can_be_read(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.later(hours=24)
    said = (("redrive-failed-at", b"0001-01-01T00:00:00Z"), ("redrive-error-kind", b"blocking"))
    failed = [report("long-ago", offset) for offset in range(2)]
    before = home.batch
    input_ids = home.append_reports(*(one.but(headers=(*(one.headers or ()), *said)) for one in failed))
    home.decide()
    decided = [home.decisions()[input_id] for input_id in input_ids]
    assert [(row["reason"], row["failed_at"], row["problems"]) for row in decided] == [("blocking", home.now, ["failed_at"])] * 2
    (death,) = die(home, report("long-ago", 2, error="java.lang.NullPointerException"))
    # as versions before have written it
    home.spark.sql(
        f"""
        update {home.schema}.deliveries set first_failed_at = timestamp '0001-01-01 00:00:00', failed_at = timestamp '-0001-01-01 00:00:00'
        where original_topic = 'long-ago'
        """
    )
    first = datetime.min.replace(tzinfo=UTC)

    later = max(row["due_at"] for row in decided)
    breakers = CircuitBreakers(home.spark, home.schema, home._ledgers, timedelta(seconds=1), 100)
    breakers.decided(before, home.batch, later, home.now)
    publish = step(home)
    # one is let out, as a probe: the one that failed first
    due = Due(home.now, later, later)
    assert breakers.hold(publish, due, publish.waiting(due, breakers=breakers.open)) == (1, 0)

    settings = load_settings(home=home.path, seeds=home.path / "seeds", project=PROJECT)
    dead = DeadLetters(settings)
    selection = Selection(topic="long-ago")
    assert len(dead.find(selection, 10).rows) == 1
    letter = dead.get(death["message_id"])
    assert (letter["first_failed_at"], letter["failed_at"]) == (first, first)
    assert dict(facts(letter))["died"].endswith("the first at 1-01-01 00:00:00")
    for name in ("letters.jsonl", "letters.parquet"):
        assert export(dead, selection, tmp_path / name) == 1
    found = Tables(settings).select("select failed_at, first_failed_at from deliveries where original_topic = 'long-ago'", 10)
    print_rows(found, "json")
    assert capsys.readouterr().out.count("0001-01-01T00:00:00.000+00:00") == 6
    failed_at, decided_at = [at for at, _ in in_words(dead.history_of(death["message_id"])) if at][:2]
    assert (failed_at, decided_at) == ("0001-01-01 00:00:00.000", f"{home.now:%Y-%m-%d %H:%M:%S}.000")
