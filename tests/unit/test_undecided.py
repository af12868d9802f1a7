"""While inputs are undecided a step leaves out what they name, and no floor moves over what was left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orchestration.loop.health import Reason
from orchestration.loop.publish import Publish
from orchestration.loop.steps import StepReport
from orchestration.loop.window import PausedDestination
from tests.unit.loop_kit.steps import OneRowLane, publish_step, state_at

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FLOOR = NOW - timedelta(seconds=40)
RECORDED = NOW - timedelta(seconds=10)
TOPIC = "orders-billing-retry"


@pytest.fixture
def publisher() -> OneRowLane:
    return OneRowLane()


@pytest.fixture
def step(publisher: OneRowLane) -> Publish:
    return publish_step(publisher, NOW)


def decided_upto_7(paused: dict[str, PausedDestination] | None = None) -> StepReport:
    """The state of a loop that has decided everything up to batch 7."""
    return StepReport(state_at(FLOOR, paused, watermark=7))


def await_decision(report: StepReport, inputs: int) -> None:
    report.change(window=report.state.window.awaiting(inputs, RECORDED))


@pytest.mark.parametrize(("undecided", "after", "floor"), [(0, None, NOW), (3, 7, FLOOR)], ids=["all is decided", "something is not"])
def test_the_floor_stays_where_something_was_left_out(
    step: Publish, publisher: OneRowLane, undecided: int, after: int | None, floor: datetime
) -> None:
    report = decided_upto_7()
    if undecided:
        await_decision(report, undecided)
    step.publish_due(report, NOW)
    assert [what.undecided_after for what in publisher.asked] == [after]
    assert report.state.window.floor == floor


def test_what_was_left_out_of_a_destination_that_was_paused_is_looked_for_again(step: Publish, publisher: OneRowLane) -> None:
    earlier = FLOOR - timedelta(minutes=3)
    report = decided_upto_7({TOPIC: PausedDestination(Reason("gone"), NOW, floor=earlier)})
    await_decision(report, 1)
    for _ in range(3):
        step.publish_paused(report, NOW)
    # from its own floor each time, a longer way
    assert [(what.floor, what.undecided_after) for what in publisher.asked] == [(earlier, 7)] * 3
    left = report.state.window.paused[TOPIC]
    assert (left.floor, left.until > NOW) == (earlier, True)
    report.change(window=report.state.window.all_decided())
    step.publish_paused(report, left.until)
    assert (publisher.asked[-1].floor, publisher.asked[-1].undecided_after) == (earlier, None)
    assert not report.state.window.paused
