"""What a privacy lets be kept of a message, written to a dead letter, and shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import Row

from orchestration.tables.dbt import DbtError
from tests.dbt.dead_letter_bytes import failed
from tests.dbt.harness import Home, Report, Result, decided, order, pairs
from tests.dbt.outbox_rows import append_rows
from tests.dbt.test_dead_letters import ready

SECRETS = ("s3cret-message", "s3cret-stack", "s3cret-key", "s3cret-value", "s3cret-header", "s3cret-name")


VIEWS = ("decisions", "decision_feed", "announcements", "attempts", "dead_letters", "stranded_messages", "message_history", "messages")


def personal(topic: str, offset: int, error: str) -> Report:
    """A failure that tells a secret wherever it can."""
    reported = failed(
        topic,
        offset,
        own=(("trace", b"1"), ("Authorization", b"s3cret-header"), ("x-secret-s3cret-name", b"1")),
        stack="s3cret-stack",
        message="s3cret-message",
        key=b"s3cret-key",
        value=b"s3cret-value",
    )
    return reported.but(headers=tuple((name, error.encode() if value == b"KeyError" else value) for name, value in reported.headers or ()))


def told(rows: Sequence[Row]) -> set[str]:
    """The secrets that can be read in rows."""
    text = repr([row.asDict(recursive=True) for row in rows])
    return {secret for secret in SECRETS if secret in text}


@pytest.fixture(scope="module")
def kept(home: Home) -> dict[str, tuple[Row, Row]]:
    """The retry and the dead letter of a message under each privacy, both delivered; as they lay in `ready` before."""
    found: dict[str, tuple[Row, Row]] = {}
    rows = {}
    for privacy in ("hidden", "dropped", "everything"):
        retry, dead = decided(home, personal(f"{privacy}-things", 1, "Odd"), personal(f"{privacy}-things", 2, "KeyError"))
        sent = ready(home)
        found[privacy] = (sent[retry["delivery_id"]], sent[dead["delivery_id"]])
        rows[privacy] = (retry, dead)
    home.append_results(*(Result(row, offset=3_000 + place) for place, row in enumerate(row for pair in rows.values() for row in pair)))
    return found


def test_a_retry_is_sent_as_it_came_whatever_is_private(kept: dict[str, tuple[Row, Row]]) -> None:
    for retry, _ in kept.values():
        assert (retry["key"], retry["value"]) == (b"s3cret-key", b"s3cret-value")
        assert [name for name, _ in pairs(retry["headers"])] == ["trace", "Authorization", "x-secret-s3cret-name"]


def test_a_dead_letter_carries_what_its_privacy_lets_it(kept: dict[str, tuple[Row, Row]]) -> None:
    carried = {privacy: told([dead]) for privacy, (_, dead) in kept.items()}
    assert carried == {"hidden": {"s3cret-key", "s3cret-value"}, "dropped": set(), "everything": set(SECRETS)}
    marks = {privacy: ("redrive-payload", b"omitted") in pairs(dead["dead_letter_headers"]) for privacy, (_, dead) in kept.items()}
    assert marks == {"hidden": False, "dropped": True, "everything": False}
    assert {dead["payload_bytes"] > 0 for _, dead in kept.values()} == {True}


@pytest.fixture(scope="module")
def shown(home: Home, kept: dict[str, tuple[Row, Row]]) -> dict[str, list[Row]]:
    """What people may read about messages under any privacy."""
    assert kept
    return {view: home.read(view) for view in VIEWS}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("privacy", ["hidden", "dropped"])
def test_what_is_private_is_shown_nowhere(kept: dict[str, tuple[Row, Row]], shown: dict[str, list[Row]], privacy: str, view: str) -> None:
    messages = {row["message_id"] for row in kept[privacy]}
    rows = [row for row in shown[view] if row["message_id"] in messages]
    assert rows
    assert told(rows) == set()


def test_what_is_not_private_is_shown(kept: dict[str, tuple[Row, Row]], shown: dict[str, list[Row]]) -> None:
    messages = {row["message_id"] for row in kept["everything"]}
    assert {view: told([row for row in rows if row["message_id"] in messages]) for view, rows in shown.items()} == {
        "decisions": set(SECRETS),
        "decision_feed": {"s3cret-message"},
        "announcements": {"s3cret-message"},
        "attempts": {"s3cret-message"},
        "dead_letters": set(SECRETS),
        "stranded_messages": set(SECRETS),
        "message_history": {"s3cret-message"},
        "messages": set(),
    }


def test_what_is_private_is_in_no_group(home: Home, kept: dict[str, tuple[Row, Row]]) -> None:
    assert kept
    of_private = [row for row in home.read("dead_letter_groups") if {"hidden-things", "dropped-things"} & {*row["topics"]}]
    assert of_private
    assert told(of_private) == set()


@pytest.mark.parametrize("view", ["dead_letters", "stranded_messages"])
def test_headers_by_name_are_those_that_are_shown(kept: dict[str, tuple[Row, Row]], shown: dict[str, list[Row]], view: str) -> None:
    named = {row["message_id"]: row["headers_by_name"] for row in shown[view]}
    assert {privacy: named[dead["message_id"]] for privacy, (_, dead) in kept.items()} == {
        "hidden": {"trace": "1"},
        "dropped": {"trace": "1"},
        "everything": {"trace": "1", "Authorization": "s3cret-header", "x-secret-s3cret-name": "1"},
    }


def test_what_the_wheel_keeps_of_what_is_private(home: Home, kept: dict[str, tuple[Row, Row]]) -> None:
    wheel = {row["delivery_id"]: told([row]) for row in home.read("deliveries") if row["delivery_id"]}
    payload = {"s3cret-key", "s3cret-value"}
    sent_exactly = {*payload, "s3cret-header", "s3cret-name"}
    assert {privacy: tuple(wheel[row["delivery_id"]] for row in pair) for privacy, pair in kept.items()} == {
        "hidden": (sent_exactly, payload),
        "dropped": (sent_exactly, set()),
        "everything": ({*sent_exactly, "s3cret-message"}, set(SECRETS)),
    }


def test_what_is_only_hidden_can_be_redriven_and_what_was_dropped_can_not(home: Home, kept: dict[str, tuple[Row, Row]]) -> None:
    orders = [order("redrive", dead) for privacy, (_, dead) in kept.items() if privacy != "everything"]
    hidden, dropped = decided(home, *orders)
    assert (hidden["decision"], dropped["decision"], dropped["reason"]) == ("redrive", "refused", "payload_was_dropped")
    sent = ready(home)[hidden["delivery_id"]]
    assert (sent["key"], sent["value"]) == (b"s3cret-key", b"s3cret-value")


def test_rows_of_outboxes_are_shown_as_the_privacy_of_their_topic_says(home: Home) -> None:
    headers = [{"key": "trace", "value": b"1"}, {"key": "Authorization", "value": b"s3cret-header"}]
    row = {"key": b"s3cret-key", "value": b"s3cret-value", "headers": headers}
    input_ids = append_rows(
        home, *({"row_id": topic, "topic": topic, **row} for topic in ("hidden-things", "dropped-things", "everything-things"))
    )
    home.decide()
    shown = {row["input_id"]: told([row]) for row in home.read("decisions")}
    everything = {"s3cret-key", "s3cret-value", "s3cret-header"}
    assert [shown[input_id] for input_id in input_ids] == [set(), set(), everything]
    sent = ready(home)
    assert [told([sent[home.decisions()[input_id]["delivery_id"]]]) for input_id in input_ids] == [everything] * 3


@pytest.mark.slow
def test_a_privacy_that_nobody_knows_stops_the_rules_not_the_privacy(home: Home, seeds: Path) -> None:
    text = (seeds / "routes.csv").read_text(encoding="utf-8")
    (seeds / "routes.csv").write_text(text.replace("safi+stack,hidden", "safi+stack,hiden"), encoding="utf-8")
    with pytest.raises(DbtError, match="the privacy hiden of a route is not in the seed privacy"):
        home.load_rules()
