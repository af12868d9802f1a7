"""How a message's history is told: when each thing happened, and what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.answers import asking
from orchestration.cli.main import app
from orchestration.rules.explain import in_words

FAILED = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
DECIDED = FAILED + timedelta(seconds=3)


def decided(**changes: Any) -> dict[str, Any]:
    """A step of `message_history`: a failure, and the retry that was decided for it."""
    return {
        "what": "decided",
        "at": DECIDED,
        "life_cycle": 1,
        "attempt": 1,
        "max_attempts": 5,
        "failed_at": FAILED,
        "error_class": "java.net.SocketTimeoutException",
        "error_message": "Read timed out",
        "error_kind": "retriable",
        "rule": "error_rules: java.net.SocketTimeoutException",
        "matched": "java.net.SocketTimeoutException",
        "passed_over": [],
        "decision": "retry",
        "reason": "retriable",
        "topic": "orders-billing-retry",
        "delivery_id": "billing:orders/0/17#0123456789ab",
        "due_at": FAILED + timedelta(seconds=1),
        "delay_ms": None,
        "rules_have_changed": False,
        "command": None,
        **changes,
    }


def test_the_first_column_says_when_it_happened() -> None:
    assert [(at, what.split(":")[0]) for at, what in in_words([decided()])] == [
        ("2026-03-01 12:00:00.250", "failed, attempt 1 of 5"),
        ("", "retriable, by error_rules"),
        ("2026-03-01 12:00:03.250", "retry (retriable) to orders-billing-retry, due at 2026-03-01 12"),
    ]


def test_a_row_of_an_outbox_has_not_failed_yet() -> None:
    row = decided(
        decision="publish", reason="new_row", topic="orders", attempt=0, failed_at=None, error_class=None, error_message=None, rule=None
    )
    assert [*in_words([row])] == [("2026-03-01 12:00:03.250", "publish (new_row) to orders, due at 2026-03-01 12:00:01.250")]


def test_a_send_is_told_by_its_outcome() -> None:
    def told(outcome: str, **changes: Any) -> str:
        nothing = dict.fromkeys(("partition", "offset", "lateness_ms", "not_before", "error_class", "error_message", "error_kind"))
        row = {**decided(), **nothing, "what": "sent", "topic": "orders-retry", "outcome": outcome, **changes}
        ((_, what),) = in_words([row])
        return what

    assert told("delivered", partition=0, offset=7, lateness_ms=12) == "sent to orders-retry/0/7, 12 ms after it was due"
    held = told("held", error_message="circuit breaker billing:orders")
    assert held == "not sent to orders-retry: held by circuit breaker billing:orders"
    refused = {"error_class": "MSG_SIZE_TOO_LARGE", "error_message": "Message size too large", "error_kind": "poison"}
    assert told("failed", **refused) == "not sent to orders-retry: failed: MSG_SIZE_TOO_LARGE: Message size too large (poison)"
    unknown = told("unknown", not_before=FAILED)
    assert unknown == "sent to orders-retry, with an unknown outcome: sent again after 2026-03-01 12:00:00.250"


def test_what_is_sent_anew_has_not_failed_again() -> None:
    later = DECIDED + timedelta(minutes=1)
    lines = [at for at, _ in in_words([decided(), decided(at=later, reason="release")])]
    assert lines == ["2026-03-01 12:00:00.250", "", "2026-03-01 12:00:03.250", "2026-03-01 12:01:03.250"]


def test_a_failure_without_a_time_is_told_when_it_was_decided() -> None:
    assert next(in_words([decided(failed_at=None)]))[0] == "2026-03-01 12:00:03.250"


def test_a_history_fits_into_120_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rulebook:
        def history_of(self, _: str) -> list[dict[str, Any]]:
            return [decided(error_message="Read timed out " * 30, topic="orders." * 30)]

    monkeypatch.setattr(asking, "_has_engine", lambda: True)
    monkeypatch.setattr(asking, "subject_of", lambda *_: Rulebook())
    done = CliRunner().invoke(app, ["explain", "billing:orders/0/17"])
    assert done.exception is None
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 120
    # what is folded stays in its column
    assert {line[:23].strip() for line in lines} == {"2026-03-01 12:00:00.250", "2026-03-01 12:00:03.250", ""}
