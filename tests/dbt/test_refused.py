"""What was refused for want of a place to go: found like a dead letter, and decided anew when an operator redrives it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import Row
from typer.testing import CliRunner

from orchestration.cli.main import app
from orchestration.loop.commands import Commands, _Open
from orchestration.loop.issued import IssuedCommands
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.lists import Target, select_deliveries
from orchestration.operators.selections import Selection
from orchestration.settings import load_settings
from orchestration.tables.maintenance import maintain
from tests.dbt.harness import PROJECT, Home, Result, report
from tests.dbt.test_dead_letter_marts import ask, die, of
from tests.dbt.test_maintenance import LATER, settings_of

pytestmark = pytest.mark.long

REFUSED = {
    "no source of that name": report("refused", 1).but(source="nobody"),
    "not spoken for": report("refused", 2).but(source="narrow"),
    "a source reads it": report("into-a-source", 77, value=b"{}"),
    "another error class": report("into-a-source", 78, error="KeyError").but(source="nobody"),
}


@pytest.fixture(scope="module")
def refused(home: Home) -> dict[str, Row]:
    """Four messages that were refused, and one that waits."""
    input_ids = home.append_reports(*REFUSED.values(), report("refused", 9))
    home.decide()
    decisions = home.decisions()
    rows = dict(zip(REFUSED, (decisions[input_id] for input_id in input_ids), strict=False))
    assert {row["decision"] for row in rows.values()} == {"refused"}
    home.later(minutes=1)
    return rows


def redrive(home: Home, *refused: Row, to: str | None = None) -> list[Row]:
    """What the loop makes of a redrive of these; the decisions."""
    commands = Commands(home.spark, home.schema, home._ledgers, IssuedCommands(), most=1000)
    each = _Open("command", "redrive", len(refused), 1, 1, to, None, None, None, timedelta())
    each.page = [(row["delivery_id"], row["due_at"], place) for place, row in enumerate(refused)]
    commands._append(each, 0, len(refused), None, home.now)
    home.decide()
    decisions = home.decisions()
    return [decisions[f"loop/2/{home.batch}/{place}"] for place in range(len(refused))]


def listed(home: Home, state: str) -> list[Target]:
    dead = DeadLetters(load_settings(home=home.path, seeds=home.path / "seeds", project=PROJECT))
    return select_deliveries(dead, "redrive", Selection(state=state), None)  # type: ignore[arg-type]  # one of the states, as text


def test_it_is_found_and_shown_like_a_dead_letter(home: Home, refused: dict[str, Row]) -> None:
    assert {row["delivery_id"] for row in refused.values()} <= {one.delivery_id for one in listed(home, "refused")}
    row = refused["a source reads it"]
    (one,) = of(home, "stranded_messages", message_id=row["message_id"])
    assert (one["state"], one["topic"], one["offset"], one["reason"]) == ("refused", None, None, "destination_is_a_source")
    assert (bytes(one["key"]), bytes(one["value"]), one["payload_type"]) == (b"key", b"{}", "json")
    assert of(home, "dead_letters", message_id=row["message_id"]) == []
    shown = CliRunner().invoke(app, ["dlq", "show", row["message_id"], "--home", str(home.path)])
    assert shown.exception is None
    assert "refused, life cycle 1 of 1" in shown.stdout


@pytest.mark.slow
def test_what_is_said_about_it_changes_its_state(home: Home, refused: dict[str, Row]) -> None:
    row = refused["a source reads it"]

    def state() -> str:
        return str(of(home, "stranded_messages", message_id=row["message_id"])[0]["state"])

    for kind, then in (("note", "refused"), ("discard", "discarded"), ("restore", "refused")):
        ask(home, (kind, row))
        assert state() == then
    assert of(home, "messages", message_id=row["message_id"])[0]["state"] == "refused"


@pytest.mark.slow
def test_as_long_as_the_rules_are_the_same_it_is_refused_again_and_may_be_asked_for_again(home: Home, refused: dict[str, Row]) -> None:
    row = refused["a source reads it"]
    for _ in range(2):
        (again,) = redrive(home, row)
        assert (again["decision"], again["reason"], again["delivery_id"]) == ("refused", "destination_is_a_source", None)
    assert row["delivery_id"] in {one.delivery_id for one in listed(home, "refused")}
    (elsewhere,) = redrive(home, row, to="elsewhere")
    assert (elsewhere["decision"], elsewhere["reason"]) == ("refused", "wrong_kind_of_delivery")


@pytest.mark.slow
def test_under_rules_that_have_a_place_it_is_decided_like_the_first_time(home: Home, refused: dict[str, Row], seeds: Path) -> None:
    routes = (seeds / "routes.csv").read_text(encoding="utf-8")
    (seeds / "routes.csv").write_text(routes.replace("failures-topic", "{topic}-retry"), encoding="utf-8")
    sources = (seeds / "sources.csv").read_text(encoding="utf-8")
    declared = {"source": "nobody", "topic": "nobody-topic", "dialect": "redrive", "speaks_for": "^.*", "start": "earliest"}
    added = ",".join(declared.get(name, "") for name in sources.splitlines()[0].split(","))
    sources = f"{sources.replace('spoken-for', 'spoken-for refused')}{added}\n"
    (seeds / "sources.csv").write_text(sources, encoding="utf-8")
    home.load_rules()
    decided = dict(zip(refused, redrive(home, *refused.values()), strict=True))
    assert {name: (row["decision"], row["reason"], row["attempt"], row["life_cycle"]) for name, row in decided.items()} == {
        "no source of that name": ("retry", "retriable", 1, 1),
        "not spoken for": ("retry", "retriable", 1, 1),
        "a source reads it": ("retry", "retriable", 1, 1),
        "another error class": ("dead_letter", "fatal", 1, 1),
    }
    assert [row["message_id"] for row in decided.values()] == [
        *("billing:refused/0/1", "declared:refused/0/2", "billing:into-a-source/0/77", "billing:into-a-source/0/78"),
    ]
    row = decided["a source reads it"]
    assert (row["topic"], bytes(row["key"]), bytes(row["value"])) == ("into-a-source-retry", b"key", b"{}")
    assert [tuple(header) for header in row["headers"]] == [("trace", b"\x00\xff")]
    assert {row["failed_at"] for row in decided.values()} == {home.now}
    # it goes on, and asked once more it is on its way
    assert {row["delivery_id"] for row in refused.values()}.isdisjoint(one.delivery_id for one in listed(home, "refused"))
    assert {row["decision"] for row in redrive(home, *refused.values())} == {"duplicate"}
    # and so it is when it was sent, though its report doesn't say when that failed
    home.append_results(Result(row, offset=4))
    home.later(minutes=5)
    assert {row["decision"] for row in redrive(home, *refused.values())} == {"duplicate"}


def test_a_purge_also_reaches_the_report_that_was_refused_before_under_another_id(home: Home) -> None:
    topic = f"purged-after-refusal-{home.batch}"
    home.later(hours=1)
    secret = topic.encode()
    first = report("elsewhere", 5, error="KeyError", key=secret, value=secret, failed_at=home.now)
    (input_id,) = home.append_reports(first.but(source="nobody-knows"))
    home.decide()
    refusal = home.decisions()[input_id]
    # as the loop writes it, under rules that know the source
    (dead,) = die(home, first.but(about=refusal, detail=input_id))
    assert (refusal["decision"], dead["decision"]) == ("refused", "dead_letter")
    ask(home, ("discard", dead))
    ask(home, ("purge", dead))
    home.later(hours=2)
    home.append_tick(home.batch)
    maintain(settings_of(home), home.spark, LATER)
    assert [row for table in ("events", "deliveries") for row in home.read(table) if topic in str(row)] == []


def test_what_comes_after_a_purge_of_a_refused_report_is_not_purged_with_it(home: Home) -> None:
    topic = "again-after-a-purge"
    first = report(topic, 6, key=b"secret", value=b"secret")
    (input_id,) = home.append_reports(first.but(source="nobody-knows"))
    home.decide()
    refusal = home.decisions()[input_id]
    ask(home, ("discard", refusal))
    ask(home, ("purge", refusal))
    home.later(minutes=1)
    # the consumer reads the record once more, and reports through a source that is known
    input_ids = home.append_reports(report(topic, 6), first.but(source="nobody-knows"))
    home.decide()
    retry, repeated = (home.decisions()[one] for one in input_ids)
    assert (retry["decision"], retry["life_cycle"], repeated["decision"]) == ("retry", 1, "refused")
    shown = {row["input_id"]: row for row in of(home, "decisions", original_topic=topic)}
    assert bytes(shown[retry["input_id"]]["value"]) == b"value"
    home.later(hours=2)
    home.append_tick(home.batch)
    maintain(settings_of(home), home.spark, LATER)
    assert bytes(home.decisions()[retry["input_id"]]["value"]) == b"value"
    assert home.decisions()[input_id]["value"] is None


def test_a_report_without_a_place_is_decided_anew_once(home: Home, seeds: Path) -> None:
    sources = seeds / "sources.csv"
    before = sources.read_text(encoding="utf-8")
    (input_id,) = home.append_reports(report("placeless", 1).but(source="placeless-source"))
    home.decide()
    refusal = home.decisions()[input_id]
    assert (refusal["decision"], refusal["reason"]) == ("refused", "unknown_source")
    declared = {"source": "placeless-source", "topic": "placeless-topic", "dialect": "safi", "speaks_for": "^.*", "start": "earliest"}
    added = ",".join(declared.get(name, "") for name in before.splitlines()[0].split(","))
    sources.write_text(f"{before}{added}\n", encoding="utf-8")
    home.load_rules()
    (anew,) = redrive(home, refusal)
    assert anew["decision"] != "refused"
    (again,) = redrive(home, refusal)
    assert (again["decision"], again["reason"]) == ("duplicate", "answered_already")
    assert again["message_id"] == refusal["message_id"]
    sources.write_text(before, encoding="utf-8")
    home.load_rules()
