"""Reports that bring no payload: what is decided about them, and what the publisher gets.

All messages of this module have their failures in the same decide runs, as a run takes seconds whatever it decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from pyspark.sql import Row

from orchestration.operators.selections import named
from tests.dbt.harness import Home, Report, Result, decided, order, pairs, pointer, report

pytestmark = pytest.mark.long

SOURCE = "apart"


def apart(topic: str, offset: object = 0, error: str = "TimeoutError") -> Report:
    """A report of a source with `payload` = `reference`, which brings neither key nor value."""
    return report(topic, offset, error=error, key=None, value=None).but(source=SOURCE)


def shared(offset: int, **content: bytes | None) -> Report:
    """A dead letter of a share group."""
    said = {"topic": b"told.shared", "partition": b"0", "offset": b"%d" % offset, "group": b"billing"}
    return Report(tuple((f"__dlq.errors.{name}", value) for name, value in said.items()), source="in-share-group").but(**content)


@dataclass(frozen=True)
class Decided:
    """Decisions by name, in the order of decide runs; what was to be sent after each of them, by delivery.

    dead: the dead letters as an operator finds them before some are redriven, by message.
    """

    runs: tuple[dict[str, Row], ...]
    ready: tuple[dict[str, Row], ...]
    dead: dict[str, Row]

    def __getitem__(self, name: str) -> list[Row]:
        return [run[name] for run in self.runs if name in run]

    def to_send(self, row: Row) -> Row:
        """What the publisher gets of a decision."""
        return next(due[row["delivery_id"]] for due in self.ready if row["delivery_id"] in due)


@pytest.fixture(scope="module")
def said(home: Home) -> Decided:
    """Three decide runs: first failures, what followed them, and what followed that."""
    runs: list[dict[str, Row]] = []
    ready: list[dict[str, Row]] = []

    def run(inputs: Mapping[str, Report | Result]) -> dict[str, Row]:
        runs.append(dict(zip(inputs, decided(home, *inputs.values()), strict=True)))
        ready.append({row["delivery_id"]: row for row in home.read("ready")})
        return runs[-1]

    first = run(
        {
            "without": apart("apart-a"),
            # a payload that comes all the same is not kept either
            "with one": apart("apart-a", 1).but(key=b"key", value=b"value"),
            "no record": report("apart-orphan", None).but(source=SOURCE),
            "again": apart("apart-again"),
            "twice": apart("apart-twice"),
            "twice with": report("apart-twice"),
            "twice without": apart("apart-twice"),
            "third": report("apart-third"),
            "gone": apart("apart-gone"),
            "refused": apart("apart-refused", error="KeyError"),
            "hidden": apart("hidden-things", 70, "KeyError"),
            "dropped": apart("dropped-things", 70, "KeyError"),
            "shared, empty": shared(1, key=None, value=None),
            "shared, copied": shared(2),
            "shared, tombstone": shared(3, value=None),
        }
    )
    home.append_results(Result(first["again"], offset=3))
    failed = apart("apart-again").with_headers(*pointer(first["again"]))
    second = run(
        {
            "again": failed,
            "twice": report("apart-twice"),
            "third": apart("apart-third"),
            "gone": Result(first["gone"], "failed", error_name="PAYLOAD_GONE", error_kind="fatal"),
            "refused": Result(first["refused"], "failed", error_name="MSG_SIZE_TOO_LARGE", error_kind="poison"),
            "dropped": order("redrive", first["dropped"]),
        }
    )
    home.append_results(Result(second["gone"], offset=5), Result(second["refused"], offset=1))
    messages = " or ".join(named(second[name]["message_id"]) for name in ("gone", "refused"))
    shown = home.ask(f"select * from dead_letters where {messages}")
    run({"again": failed, "gone": order("redrive", second["gone"]), "refused": order("redrive", second["refused"])})
    return Decided(tuple(runs), tuple(ready), {row["message_id"]: row for row in shown})


def payload(row: Row) -> tuple[object, object, object]:
    return row["by_reference"], row["key"], row["value"]


def test_a_report_by_reference_keeps_only_what_the_report_added(said: Decided) -> None:
    for name in ("without", "with one"):
        (row,) = said[name]
        assert (row["decision"], row["content_hash"], pairs(row["headers"])) == ("retry", None, [("trace", b"\x00\xff")])
        assert payload(row) == payload(said.to_send(row)) == (True, None, None)
    due = said.to_send(said["without"][0])
    assert (due["original_topic"], due["original_partition"], due["original_offset"], due["denied_headers"]) == ("apart-a", 0, 0, None)


def test_what_names_no_record_keeps_its_payload(said: Decided) -> None:
    (row,) = said["no record"]
    assert (row["decision"], payload(row)) == ("orphan", (False, b"key", b"value"))


def test_a_report_that_brings_nothing_answers_the_retry_that_it_names(said: Decided) -> None:
    first, second, third = said["again"]
    assert (second["decision"], second["attempt"], second["prior_delivery"]) == ("retry", 2, first["delivery_id"])
    assert payload(second) == (True, None, None)
    assert (third["decision"], third["reason"]) == ("duplicate", "answered_already")


def test_the_same_record_is_one_message_with_its_payload_or_without(said: Decided) -> None:
    first, later = said["twice"]
    same = [first, *said["twice with"], *said["twice without"], later]
    assert [row["decision"] for row in same] == ["retry", "duplicate", "duplicate", "duplicate"]
    assert len({row["message_id"] for row in same}) == 1
    with_payload, without = said["third"]
    assert (without["decision"], without["message_id"]) == ("duplicate", with_payload["message_id"])


def test_a_payload_that_is_gone_makes_a_dead_letter_which_can_be_redriven(said: Decided) -> None:
    _, dead, redriven = said["gone"]
    assert (dead["decision"], dead["reason"], dead["error_class"], dead["attempt"]) == ("dead_letter", "send_failed", "PAYLOAD_GONE", 1)
    assert payload(dead) == payload(said.to_send(dead)) == (True, None, None)
    shown = said.dead[dead["message_id"]]
    assert (shown["by_reference"], shown["value"], shown["state"]) == (True, None, "open")
    assert (redriven["decision"], payload(redriven)) == ("redrive", (True, None, None))


def test_a_dead_letter_that_is_refused_is_still_by_reference(said: Decided) -> None:
    dead, again, redriven = said["refused"]
    assert (again["reason"], again["payload_delivery"]) == ("dead_letter_failed", dead["delivery_id"])
    assert payload(said.to_send(again)) == (True, None, None)
    assert said.dead[dead["message_id"]]["by_reference"] is True
    assert payload(redriven) == (True, None, None)


def test_privacy_holds_for_what_lies_elsewhere(said: Decided) -> None:
    (hidden,), (dropped, refused) = said["hidden"], said["dropped"]
    assert payload(said.to_send(hidden)) == (True, None, None)
    assert said.to_send(hidden)["denied_headers"] == ["authorization", "^x-secret-", "x-dlq-metadata"]
    assert payload(dropped) == (False, None, None)
    assert ("redrive-payload", b"omitted") in pairs(said.to_send(dropped)["dead_letter_headers"])
    assert (refused["decision"], refused["reason"]) == ("refused", "payload_was_dropped")


def test_what_share_groups_did_not_copy_is_read_from_the_original_record(said: Decided) -> None:
    names = ("shared, empty", "shared, copied", "shared, tombstone")
    assert [payload(said[name][0]) for name in names] == [(True, None, None), (False, b"key", b"value"), (False, b"key", None)]
