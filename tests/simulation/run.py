"""Runs a simulation, and judges it: by the model, from what came, and by the promises of `redrive verify`, from tables and topics."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.promises import broken_promises
from tests.simulation.effects import Effects, Time, injected
from tests.simulation.model import broken
from tests.simulation.world import World


@dataclass(frozen=True)
class Outcome:
    """What a simulation found. broken: what breaks a promise, by the model and by the tables; crashes: where loops have crashed."""

    broken: list[str]
    crashes: Counter[str]
    told: str


def simulate(
    kafka: dict[str, str], home: Path, project: Path, *, seed: int, messages: int = 1_000, steps: int = 30, crashes: int = 20
) -> Outcome:
    """Runs one simulation. The topics on the brokers are made, so each needs brokers of its own. crashes: about how many."""
    # a step has some 18 effects, a start twelve
    effects = Effects(seed, Time(), max(1, (18 * steps + 12 * crashes) // max(crashes, 1)))
    began = time.monotonic()
    with injected(effects, messages):
        world = World(kafka, home, project, effects, seed, messages, steps)
        world.start()
        for step in range(steps):
            world.step()
            print(f"{time.monotonic() - began:.0f} s, step {step + 1}: {told(world)}", file=sys.stderr)
        world.drain()
        print(f"{time.monotonic() - began:.0f} s, all is sent", file=sys.stderr)
        states = tables_say(world)
        found = broken(world.fates, world.history)
        world.close()
        found += broken_promises(world.settings)
    if sum(states.values()) != len(world.fates):
        found.append(f"{len(world.fates)} messages, but the tables say {states}")
    left = {state: count for state, count in states.items() if state not in ("recovered", "dead", "cancelled")}
    found += [f"{count} messages are {state} in the end" for state, count in left.items()]
    return Outcome(found, Counter(effects.crashes), f"{told(world)} {states}")


def told(world: World) -> str:
    """What a simulation has done, as text."""
    return json.dumps(
        {
            "messages": len(world.fates),
            "loops": world.loops,
            "crashes": len(world.effects.crashes),
            "unanswered": world.effects.unanswered,
            **world.seen,
        }
    )


def tables_say(world: World) -> dict[str, int]:
    """How many messages are in each state, by the tables.

    A delivery that was read back was sent when its record says, by the real clock: after all that is committed in simulated time.
    """
    rows = world.loop.spark.sql(
        f"""
        select if(results.found_by is not null and state = 'sent', 'recovered', state) as state, count(*) as messages
        from {world.loop.schema}.messages as messages
        left join (select * from {world.loop.schema}.publish_results where outcome = 'delivered') as results
            on messages.delivery_id = results.delivery_id and messages.due_at = results.due_at
        group by 1
        """
    ).collect()
    return {row["state"]: int(row["messages"]) for row in rows}
