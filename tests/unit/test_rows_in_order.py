"""What stays in order: rows of outboxes, and followers. The bulk lane sends it while the timed lane sends the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orchestration.loop.due import Waiting
from orchestration.loop.outbox_positions import OutboxPosition
from orchestration.loop.steps import StepReport
from tests.unit.loop_kit.steps import OneRowLane, publish_step, state_at

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SINCE = NOW - timedelta(hours=1)


@pytest.mark.parametrize(
    ("has_outboxes", "positions", "is_sent"),
    [
        # those of an outbox that was read for the first time: a commit without an answer, or a kill, leaves the state without its position,
        # and the floor moves over what nobody sends
        (True, {}, True),
        (True, {"orders": OutboxPosition(1, 1)}, True),
        # the seed lists it no more, and some of its rows wait
        (False, {"orders": OutboxPosition(1, 1)}, True),
        (False, {}, False),
    ],
)
def test_rows_of_outboxes_are_sent_also_before_the_state_knows_their_outbox(
    has_outboxes: bool, positions: dict[str, OutboxPosition], is_sent: bool
) -> None:
    lane = OneRowLane()
    step = publish_step(lane, NOW, timedelta(seconds=30), has_outboxes=has_outboxes)
    report = StepReport(state_at(NOW, outboxes=positions))
    assert step.publish_rows(report, NOW)
    assert bool(lane.asked) == is_sent


class FollowerLane(OneRowLane):
    """A bulk lane for which one row is due, and some followers with it; the first of these has been open since SINCE."""

    def __init__(self, followers: int) -> None:
        super().__init__()
        self.followers = followers

    def waiting(self, *_: object, **__: object) -> Waiting:
        return Waiting(rows=1, size=1, largest=1, next_due=None, batches=(1,), ordered=self.followers)

    def open_since(self, *_: object) -> datetime | None:
        return SINCE


@pytest.mark.parametrize(("followers", "since"), [(1, SINCE), (0, None)])
def test_the_floor_stays_under_followers_that_are_left_when_no_route_asks_for_order_any_more(
    followers: int, since: datetime | None
) -> None:
    step = publish_step(FollowerLane(followers), NOW)
    report = StepReport(state_at(NOW))
    assert step.publish_due(report, NOW)
    assert report.state.window.unpublished_since == since
