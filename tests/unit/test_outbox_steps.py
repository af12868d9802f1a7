"""What is counted of outboxes while none of their rows is taken; tests/loop/test_outbox.py takes them."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestration.loop.health import Health
from orchestration.loop.outbox_steps import OutboxIntake
from orchestration.outbox.states import OutboxError
from tests.unit.loop_kit.steps import state_at

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("answers", [True, False])
def test_what_waits_is_counted_while_it_is_unknown_what_was_sent(answers: bool) -> None:
    counted: list[str] = []

    def count(name: str) -> None:
        counted.append(name)
        if not answers:
            raise OutboxError("the database is away")

    outboxes = SimpleNamespace(names=["orders"], written_back={}, settings=SimpleNamespace(intake_max_rows=10), count=count)
    direct = SimpleNamespace(knows_what_was_sent=lambda: False)
    result = OutboxIntake(cast(Any, outboxes), Health(lambda: NOW), cast(Any, direct)).run(state_at(NOW), NOW)
    assert counted == ["orders"]
    assert result.failure is None
    assert [reason.text for _, reason in result.trouble if reason] == ([] if answers else ["its rows wait: the database is away"])


def test_an_outbox_that_gives_no_answer_is_asked_once_in_a_step() -> None:
    def count(_: str) -> None:
        raise OutboxError("the database is away")

    settings = SimpleNamespace(intake_max_rows=10)
    outboxes = SimpleNamespace(
        names=["orders"], written_back={}, settings=settings, count=count, position=lambda *_: pytest.fail("it is asked once more")
    )
    direct = SimpleNamespace(knows_what_was_sent=lambda: True, in_doubt=[])
    OutboxIntake(cast(Any, outboxes), Health(lambda: NOW), cast(Any, direct)).run(state_at(NOW), NOW)
