"""The steps at which a loop is killed, and how a seed chooses the moment within a step, and what is killed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

_FILES = ("manifest", "manifest list", "metadata")


@dataclass(frozen=True)
class Step:
    """A step. points: where a loop dies, for seeds to choose from; within_ms: dies at most so long after the point's beginning.

    look_ahead: of the timed lane, in seconds, for seeds to choose from. order: what an operator asks for meanwhile, until the loop dies.
    has_older: another loop runs already. has_new_rules: the seeds were changed.
    """

    name: str
    points: tuple[str, ...]
    within_ms: int = 0
    look_ahead: tuple[float, ...] = (0.0, 30.0)
    order: tuple[str, ...] = ()
    has_older: bool = False
    has_new_rules: bool = False


STEPS = (
    Step("after reports were taken in", ("after intake", "after the offsets' commit")),
    Step("inside a commit of reports", tuple(f"inside a commit to events, {file}" for file in _FILES)),
    Step("inside a commit of decisions", tuple(f"inside a commit to deliveries, {file}" for file in _FILES)),
    Step("inside a decide run", ("during a decide run",), within_ms=3_000),
    Step("inside a transaction", ("in the middle of sending",)),
    Step("between the commit of a send and the row of its tick", ("before the results' append", "before the ticks row")),
    Step("at a hand-over to the timed lane", ("after a hand-over",), look_ahead=(30.0,)),
    # a minute: what is listed must still be in the lane when its order has come, which takes half of that on a busy machine
    Step("at a withdrawal from it", ("after a withdrawal",), look_ahead=(60.0,), order=("waiting", "send-now", "--all")),
    Step("during maintenance", ("during maintenance",), within_ms=8_000),
    Step("in a redrive", ("after the orders' append",), order=("dlq", "redrive", "--all", "--max", "10")),
    Step("while rules are loaded", ("during the load of seeds",), within_ms=6_000, has_new_rules=True),
    Step("in a takeover", ("during a takeover",), within_ms=4_000, has_older=True),
)

# Which processes of a loop are killed: all of them half of the time. Workers alone are killed in test_promise_kills_of_lanes only.
_VICTIMS = ("all", "all", "all but workers", "Spark")


@dataclass(frozen=True)
class Kill:
    """A kill, as a seed has chosen it."""

    step: Step
    point: str
    victims: str
    after_ms: int
    look_ahead: float

    def __str__(self) -> str:
        moment = f" after {self.after_ms} ms" if self.step.within_ms else ""
        return f"{self.step.name}: {self.point}{moment}, {self.victims}, look-ahead {self.look_ahead:g} s"

    @property
    def told(self) -> dict[str, Any]:
        """What the process of the loop is told."""
        return {"die": self.point, "victims": self.victims, "after_ms": self.after_ms}


def kills(seed: int) -> list[Kill]:
    """A kill at each step, in the order and at the moments of a seed."""
    chance = random.Random(seed)
    steps = chance.sample(STEPS, len(STEPS))
    return [
        Kill(
            step,
            chance.choice(step.points),
            chance.choice(_VICTIMS),
            chance.randint(0, step.within_ms),
            chance.choice(step.look_ahead),
        )
        for step in steps
    ]
