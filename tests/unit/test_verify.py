"""What `redrive verify` prints, and its exit code."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from orchestration.cli import verify as command
from orchestration.cli.main import app
from orchestration.clock import wall_clock
from orchestration.kafka.cluster import Partition
from orchestration.operators import verification
from orchestration.operators.promises import PROMISES
from orchestration.operators.verification import Finding, Verification

SINCE: list[datetime | None] = []


@pytest.fixture
def proved(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What is proved: `param` breaches of sent_once, no others."""
    broken = request.param

    def verify(_: object, since: datetime | None) -> Verification:
        SINCE.append(since)
        findings = [
            Finding(promise, broken, (("[a]", "2 records"),)) if promise.name == "sent_once" and broken else Finding(promise, 0)
            for promise in PROMISES
        ]
        return Verification(since, 10, 12, 2, ("gone",), tuple(findings))

    monkeypatch.setattr(command, "settings_of", lambda **_: None)
    monkeypatch.setattr(verification, "verify", verify)


@pytest.mark.parametrize(("proved", "code"), [(0, 0), (3, 1)], indirect=["proved"])
def test_it_exits_with_1_if_a_promise_is_broken(proved: None, code: int) -> None:
    assert CliRunner().invoke(app, ["verify"]).exit_code == code


@pytest.mark.parametrize("proved", [3], indirect=True)
def test_breaches_are_named(proved: None) -> None:
    said = " ".join(CliRunner().invoke(app, ["verify"]).output.split())
    assert "sent_once 3 No delivery lies in the topics twice." in said
    assert "sent_once: 3, of which [a]: 2 records" in said
    assert "10 results and 12 records in 2 topics" in said
    assert "were not read: gone" in said


@pytest.mark.parametrize("proved", [3], indirect=True)
def test_programs_get_json_and_metrics(proved: None) -> None:
    told = json.loads(CliRunner().invoke(app, ["verify", "--format", "json"]).output)
    assert (told["results"], told["records"], told["topics"], told["topics_gone"], told["since"]) == (10, 12, 2, ["gone"], None)
    assert {one["promise"]: one["broken"] for one in told["promises"]} == {promise.name: 0 for promise in PROMISES} | {"sent_once": 3}
    metrics = CliRunner().invoke(app, ["verify", "--format", "prometheus"]).output.splitlines()
    assert 'redrive_broken_promises{promise="sent_once"} 3' in metrics
    assert 'redrive_broken_promises{promise="never_early"} 0' in metrics


@pytest.mark.parametrize("proved", [0], indirect=True)
def test_since_is_a_duration_or_a_time(proved: None) -> None:
    SINCE.clear()
    for text in ("2h", "2026-03-01T12:00+01:00"):
        assert CliRunner().invoke(app, ["verify", "--since", text]).exit_code == 0
    assert SINCE[1] == datetime(2026, 3, 1, 11, tzinfo=UTC)
    assert SINCE[0] is not None
    assert timedelta(hours=2) <= wall_clock() - SINCE[0] < timedelta(hours=2, minutes=1)
    refused = CliRunner().invoke(app, ["verify", "--since", "yesterday"])
    assert refused.exit_code == 2
    assert "neither a duration" in refused.output


TERMINAL = "\x1b[2J\x07\r\n\u202eforged[b]"


def test_what_others_wrote_is_told_in_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = tuple(Finding(promise, 1, ((TERMINAL, TERMINAL),)) for promise in PROMISES)
    monkeypatch.setattr(command, "settings_of", lambda **_: None)
    monkeypatch.setattr(verification, "verify", lambda *_: Verification(None, 10, 12, 2, (TERMINAL,), findings))
    for form in ("table", "json", "prometheus"):
        said = CliRunner().invoke(app, ["verify", "--format", form]).output
        assert [letter for letter in said if not (letter.isprintable() or letter == "\n")] == []
        assert ("forged" in said) == (form != "prometheus")


def test_records_must_still_lie_only_where_no_compaction_can_have_removed_them() -> None:
    policies = {"kept": "delete", "compacted": "compact,delete", "unreadable": None}
    partitions = [Partition(topic, "id", 0) for topic in policies]
    cluster = SimpleNamespace(
        configs=lambda topics: {topic: {"cleanup.policy": policies[topic]} if policies[topic] else {} for topic in topics},
        starts=lambda _: {Partition("kept", "id", 0): 7},
    )
    ranges = dict.fromkeys(partitions, (5, 9))
    assert verification._kept_ranges(cast(Any, cluster), ranges) == [("kept", 0, 7, 9)]
