"""Dead letters: what each header profile writes, byte for byte, what is parked, what is written again, and where they go by class."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from orchestration.loop.due import Due
from publisher import READY
from tests.dbt.dead_letter_bytes import CUT, OWN, PROFILES, failed, hardly_said, topic_of, wanted
from tests.dbt.harness import PROJECT, Headers, Home, Report, Result, decided, order, pairs, report
from tests.dbt.test_publish_step import step


def ready(home: Home) -> dict[str, Row]:
    """What may be sent, by its delivery."""
    return {row["delivery_id"]: row for row in home.read("ready")}


# ---------- header profiles


@pytest.fixture(scope="module")
def letters(home: Home) -> dict[tuple[str, bool, int], Row]:
    """A dead letter of each profile, without and with a stack, of much and of little that was told; as it may be sent."""
    told = [(profile, stack, place) for profile in PROFILES for stack in (False, True) for place in (0, 1)]
    rows = decided(home, *((failed if place == 0 else hardly_said)(topic_of(profile, stack)) for profile, stack, place in told))
    sent = ready(home)
    return {which: sent[row["delivery_id"]] for which, row in zip(told, rows, strict=True)}


@pytest.mark.parametrize("place", [0, 1], ids=["much is known", "little is known"])
@pytest.mark.parametrize("stack", [False, True], ids=["no stack", "stack"])
@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_s_bytes(home: Home, letters: dict[tuple[str, bool, int], Row], profile: str, stack: bool, place: int) -> None:
    letter = letters[profile, stack, place]
    now = f"{letter['due_at']:%Y-%m-%dT%H:%M:%S}.000Z"
    assert pairs(letter["dead_letter_headers"]) == wanted(profile, stack, place, now)
    assert pairs(letter["headers"]) == list(OWN if place == 0 else ())


def test_the_whole_stack_fits_where_it_is_short(home: Home) -> None:
    (row,) = decided(home, failed("letter-dlq-stack", 8, stack="at line 1\n"))
    assert dict(pairs(ready(home)[row["delivery_id"]]["dead_letter_headers"]))["dlq-stack"] == b"at line 1\n"


def test_a_stack_of_blanks_is_none(home: Home) -> None:
    stacks = ("", " \t\r\n")
    rows = decided(
        home, *(failed(f"letter-{profile}-stack", 9 + len(stack), stack=stack) for stack in stacks for profile in ("dlq", "safi"))
    )
    letters = ready(home)
    for row, in_json in (rows[:2], rows[2:]):
        assert (row["error_stack"], in_json["error_stack"]) == (None, None)
        assert "dlq-stack" not in dict(pairs(letters[row["delivery_id"]]["dead_letter_headers"]))
        written = pairs(letters[in_json["delivery_id"]]["dead_letter_headers"])
        ((_, metadata),) = (header for header in written if header[0] == "x-dlq-metadata")
        assert json.loads(metadata or b"")["error_info"] == "KeyError: bös"


def test_a_stack_that_just_fits_is_whole(home: Home) -> None:
    whole, cut = decided(home, failed("letter-dlq-stack", 20, stack="x" * 8192), failed("letter-dlq-stack", 21, stack="x" * 8193))
    assert whole["error_stack"] == "x" * 8192
    assert cut["error_stack"] == "x" * (8192 - len(CUT)) + CUT.decode()


@pytest.mark.long
def test_a_message_without_a_dead_letter_topic_is_parked_found_and_redriven(home: Home) -> None:
    (parked,) = decided(home, report("parked-orders", error="KeyError"))
    assert (parked["decision"], parked["reason"], parked["kind"], parked["topic"]) == ("parked", "fatal", None, None)
    assert (parked["key"], parked["value"], pairs(parked["headers"])) == (b"key", b"value", [("trace", b"\x00\xff")])
    assert parked["delivery_id"] not in ready(home)

    def mart(name: str) -> Row:
        (row,) = (row for row in home.read(name) if row["message_id"] == parked["message_id"])
        return row

    assert (mart("messages")["state"], mart("messages")["next_due"]) == ("dead", None)
    dead = mart("dead_letters")
    assert (dead["state"], dead["decision"], dead["topic"], dead["offset"], dead["dead_at"]) == ("open", "parked", None, None, home.now)
    assert dead["value"] == b"value"
    assert sum(row["died"] for row in home.read("dead_letters_by_hour") if row["original_topic"] == "parked-orders") == 1
    data_test = PROJECT / "dbt_project" / "data_tests" / "assert_no_message_is_dead_without_a_dead_letter.sql"
    without = home.spark.sql(home.compiled(data_test.read_text(encoding="utf-8"))).collect()
    assert parked["message_id"] not in {row["message_id"] for row in without}

    # told once more, it is what it was; redriven, it is sent as it came
    home.later(seconds=5)
    (again,) = decided(home, report("parked-orders", error="KeyError", failed_at=home.now - timedelta(hours=1)))
    assert (again["decision"], again["reason"]) == ("duplicate", "known_already")
    (redriven,) = decided(home, order("redrive", parked))
    assert (redriven["decision"], redriven["topic"], redriven["value"]) == ("redrive", "parked-orders-retry", b"value")
    assert mart("dead_letters")["state"] == "redriven"

    # and parked again, where it fails again
    home.append_results(Result(redriven, offset=3))
    home.later(seconds=5)
    (second,) = decided(home, report("parked-orders-retry", 3, error="KeyError"))
    assert (second["decision"], second["life_cycle"], second["message_id"]) == ("parked", 2, parked["message_id"])
    assert (mart("dead_letters")["state"], mart("dead_letters")["life_cycle"], mart("messages")["state"]) == ("open", 2, "dead")


@pytest.mark.slow
def test_a_retry_that_kafka_refuses_is_parked_too_with_what_it_was_to_carry(home: Home) -> None:
    (retry,) = decided(home, report("parked-retries", value=b"too much"))
    (input_id,) = home.append_results(Result(retry, "failed", error_name="MSG_SIZE_TOO_LARGE", error_kind="poison"))
    home.decide()
    parked = home.decisions()[input_id]
    assert (parked["decision"], parked["reason"], parked["error_class"]) == ("parked", "send_failed", "MSG_SIZE_TOO_LARGE")
    assert (parked["key"], parked["value"], pairs(parked["headers"])) == (b"key", b"too much", [("trace", b"\x00\xff")])


def test_a_class_may_be_parked_where_others_have_a_dead_letter_topic(home: Home) -> None:
    parked, sent = decided(home, report("by-class-none", error="park.FatalException"), report("by-class-none", 1, error="KeyError"))
    assert (parked["decision"], sent["decision"], sent["topic"]) == ("parked", "dead_letter", "by-class-none.dlq")


def test_what_stands_for_no_topic_is_none_of_ours(home: Home) -> None:
    (rules,) = home.read("rules")
    assert "none" not in rules["topic_templates"]


def test_profiles_do_not_pile_up_and_what_is_not_ours_is_not_touched(home: Home, letters: dict[tuple[str, bool, int], Row]) -> None:
    """A dead letter that somebody copied back to its topic dies again under another profile."""
    foreign: Headers = (("__connect.errors.topic", b"theirs"), ("x-dlq-metadata", b"theirs"), ("kafka_dlt-exception-message", b"theirs"))
    again: list[Report] = []
    for place, profile in enumerate(PROFILES):
        letter = letters[profile, True, 0]
        came = (*OWN, *pairs(letter["dead_letter_headers"]), ("redrive-delivery", letter["delivery_id"].encode()))
        again.append(failed(topic_of(PROFILES[place - 1], False), 50 + place, own=came, key=b"again"))
    odd = tuple((name, b"Odd" if name == "redrive-error-class" else value) for name, value in again[1].headers or ())
    unmarked_own: Headers = (("dlq-reason", b"replaced"), *foreign)
    *rows, retried, unmarked = decided(home, *again, again[1].but(headers=odd, key=b"r"), failed("letter-dlq", 60, own=unmarked_own))
    sent = ready(home)
    for place, row in enumerate(rows):
        assert pairs(row["headers"]) == list(OWN)
        names = [name for name, _ in pairs(sent[row["delivery_id"]]["dead_letter_headers"])]
        assert names == [name for name, _ in wanted(PROFILES[place - 1], False, 0, "")]
    assert (retried["kind"], pairs(retried["headers"])) == ("retry", list(OWN))
    assert pairs(unmarked["headers"]) == list(foreign)


@pytest.mark.slow
def test_a_dead_letter_that_is_written_again_is_the_same_though_the_route_has_changed(home: Home, seeds: Path) -> None:
    (row,) = decided(home, failed("dropped-things", 70))
    text = (seeds / "routes.csv").read_text(encoding="utf-8")
    changed = text.replace("safi+stack,dropped", "connect,everything")
    assert changed != text
    (seeds / "routes.csv").write_text(changed, encoding="utf-8")
    home.load_rules()
    (again, fresh) = (
        *decided(home, Result(row, "failed", error_name="MSG_SIZE_TOO_LARGE", error_kind="poison")),
        *decided(home, failed("dropped-things", 71)),
    )
    assert (again["reason"], again["header_profile"], again["privacy"]["name"]) == ("dead_letter_failed", "safi+stack", "dropped")
    assert (again["key"], again["value"], again["topic"]) == (None, None, row["topic"])
    assert (fresh["header_profile"], fresh["privacy"]["name"]) == ("connect", "everything")


def refused_again(home: Home, letter: Row, times: int) -> list[Row]:
    """The dead letters that follow one when Kafka refuses each."""
    letters: list[Row] = []
    for _ in range(times):
        home.later(hours=3)
        failure = Result(letters[-1] if letters else letter, "failed", error_name="POLICY_VIOLATION", error_kind="poison")
        letters += decided(home, failure)
    return letters


def to_send(home: Home, *letters: Row) -> dict[str, dict[str, Any]]:
    """What a step gives to the publisher when these are due, by delivery."""
    publish = step(home)
    first, last = min(letter["due_at"] for letter in letters), max(letter["due_at"] for letter in letters)
    what = Due(first, last, last)
    due = publish.due(what, publish.waiting(what)).select(*READY.names).toArrow()
    ids = {letter["delivery_id"] for letter in letters}
    return {row["delivery_id"]: row for row in due.to_pylist() if row["delivery_id"] in ids}


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "stack"), [("dlq", True), ("safi", False)])
def test_a_dead_letter_that_is_refused_again_and_again_keeps_one_payload_and_goes_with_it(home: Home, profile: str, stack: bool) -> None:
    topic = topic_of(profile, stack)
    (first,) = decided(home, failed(topic, 80, key=b"k80"))
    sent = to_send(home, first)[first["delivery_id"]]
    again = refused_again(home, first, 3)
    assert {(row["reason"], row["payload_delivery"], row["payload_due"]) for row in again} == {
        ("dead_letter_failed", first["delivery_id"], first["due_at"])
    }
    assert {row[name] for row in again for name in ("key", "value", "headers", "error_stack")} == {None}
    assert {row["payload_bytes"] for row in again} == {again[0]["payload_bytes"]}
    last = again[-1]
    row = to_send(home, last)[last["delivery_id"]]
    for name in ("key", "value", "headers", "topic", "partition", "message_id", "attempt"):
        assert row[name] == sent[name], name
    told = [[header for header in one["dead_letter_headers"] if header["key"] != "redrive-due"] for one in (row, sent)]
    assert told[0] == told[1]
    assert 0 < again[0]["payload_bytes"] <= first["payload_bytes"]


@pytest.mark.slow
def test_only_the_hours_are_read_in_which_payloads_of_what_is_written_again_lie(home: Home) -> None:
    (first,) = decided(home, failed("letter-dlq", 84, key=b"k84"))
    (last,) = refused_again(home, first, 1)
    publish = step(home)
    what = Due(last["due_at"], last["due_at"], last["due_at"])
    waiting = publish.waiting(what)
    hour = first["due_at"].replace(minute=0, second=0, microsecond=0)
    assert waiting.payload_hours == (round(hour.timestamp()),)
    due = publish.due(what, waiting)
    plan = due._jdf.queryExecution().executedPlan().toString()
    scans = [line for line in plan.splitlines() if "BatchScan" in line and ".deliveries" in line and "prior_due" not in line]
    # every look at the wheel is bounded by the dues of what is sent, or by those of the payloads
    assert len(scans) > 2
    assert [scan for scan in scans if "due_at >=" not in scan and "due_hour" not in scan] == []
    # and where nothing is written again, nothing is read for it
    (other,) = decided(home, failed("letter-dlq", 85))
    what = Due(other["due_at"], other["due_at"], other["due_at"])
    waiting = publish.waiting(what)
    assert waiting.payload_hours == ()
    plan = publish.due(what, waiting)._jdf.queryExecution().executedPlan().toString()
    assert len([line for line in plan.splitlines() if "BatchScan" in line and ".deliveries" in line and "prior_due" not in line]) == 2


@pytest.mark.slow
def test_a_dead_letter_that_was_written_at_last_is_shown_and_redriven_with_its_payload(home: Home) -> None:
    (first,) = decided(home, failed("letter-dlq", 82, key=b"k82"))
    last = refused_again(home, first, 2)[-1]
    home.append_results(Result(last, offset=82))
    (shown,) = home.ask(f"select * from dead_letters where message_id = '{first['message_id']}'")
    assert (shown["delivery_id"], bytes(shown["key"]), pairs(shown["headers"])) == (last["delivery_id"], b"k82", list(OWN))
    assert (shown["value"], shown["error_stack"]) == (first["value"], first["error_stack"])
    assert shown["error_stack"]
    home.later(hours=3)
    (input_id,) = home.append_reports(order("redrive", last))
    home.decide()
    (retry,) = (row for row in home.read("deliveries") if row["input_id"] == input_id)
    assert (retry["decision"], retry["payload_delivery"], retry["payload_due"]) == ("redrive", None, None)
    assert (retry["key"], retry["value"], pairs(retry["headers"])) == (first["key"], first["value"], list(OWN))
    assert to_send(home, retry)[retry["delivery_id"]]["value"] == bytes(first["value"])


# ---------- topics


TOPICS: list[tuple[str, dict[str, Any], str | None]] = [
    ("template-group", {}, "template-group-billing-dlt"),
    ("template-group", {"group": None}, "template-group.dlq"),
    ("template-shared", {}, "dead.letters"),
    ("template-kind", {}, "template-kind.fatal.dlq"),
    ("no-template-of-its-own", {}, "no-template-of-its-own.dlq"),
    ("by-class", {"error": "java.io.IOException"}, "by-class.io"),
    ("by-class", {"error": "java.io.EOFException"}, "by-class.io"),
    ("by-class", {"error": "java.net.NoRouteToHostException"}, "by-class.socket"),
    ("by-class", {"error": "java.net.BindException"}, "by-class.pattern"),
    ("by-class", {"error": "java.net.ConnectException", "group": "other"}, "by.exact"),
    ("by-class", {"error": "java.net.ConnectException"}, "by-class.billing"),
    ("by-class", {"error": "Odd"}, "by-class.dlq"),
    ("by-class", {"error": None}, "by-class.dlq"),
    ("by-class-2", {"error": "java.io.IOException"}, "by-class-2.io"),
    ("not-by-class", {"error": "java.io.IOException"}, "not-by-class.dlq"),
    ("by-class", {"error": "into.Source", "group": "failures"}, None),
]


@pytest.fixture(scope="module")
def addressed(home: Home) -> list[Row]:
    reports = [report(topic, 900 + place, **{"error": "KeyError", **how}) for place, (topic, how, _) in enumerate(TOPICS)]
    # dead at once, whatever the class
    return decided(home, *(one.but(headers=(*(one.headers or ()), ("redrive-error-kind", b"fatal"))) for one in reports))


@pytest.mark.parametrize("place", range(len(TOPICS)), ids=[str(topic) for _, _, topic in TOPICS])
def test_where_a_dead_letter_goes(place: int, addressed: list[Row]) -> None:
    row = addressed[place]
    if TOPICS[place][2] is None:
        assert (row["decision"], row["reason"], row["topic"]) == ("refused", "destination_is_a_source", None)
    else:
        assert (row["decision"], row["topic"]) == ("dead_letter", TOPICS[place][2])


def test_what_kafka_refuses_has_a_class_too(home: Home) -> None:
    (retry,) = decided(home, report("by-class", 950))
    (dead,) = decided(home, Result(retry, "failed", error_name="MSG_SIZE_TOO_LARGE", error_kind="poison"))
    assert (dead["reason"], dead["topic"]) == ("send_failed", "oversized")


def test_the_topic_of_a_class_is_ours(home: Home) -> None:
    """A failure there, of which no delivery is known, is an orphan; never a first failure."""
    rows = decided(home, *(report(topic, 960) for topic in ("by-class.socket", "oversized", "dead.letters", "by-class.thing")))
    assert [row["decision"] for row in rows] == ["orphan", "orphan", "orphan", "retry"]
