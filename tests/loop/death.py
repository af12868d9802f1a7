"""A loop in this process that ends as by kill -9, and the loop after it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestration.loop.loop import Loop
from tests.loop.harness import Redrive


class Died(BaseException):
    """The loop has ended here, as by kill -9."""


def die(*_: object) -> None:
    """Ends the loop: in place of the function that it would call next."""
    raise Died


def start_after_death(redrive: Redrive, **settings: Any) -> None:
    """Starts a loop after one that has ended without any of what an orderly end does."""
    older = redrive.loop
    older._presence.end()
    lane = older.steps.publish.hand_over.lane
    with lane._changed:
        lane._ended = True
        lane._changed.notify_all()
    if older._serving is not None:
        older._serving.close()
    redrive.loop = Loop(older.settings.model_copy(update=settings))
    redrive.loop.start()


def until_it_dies(redrive: Redrive) -> None:
    """Runs ticks until the loop has ended."""
    with pytest.raises(Died):
        redrive.until(lambda: False, "the loop ends")
