"""Command line of the simulation. Exits with 1 if a promise is broken; the same seed gives the same again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestration.demo.broker import Broker, BrokerSettings
from tests.simulation.run import simulate

parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--project", type=Path, default=Path(__file__).parents[2], help="the SQL that decides")
parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
parser.add_argument("--messages", type=int, default=1_000, help="of each seed")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--crashes", type=int, default=20, help="about how many")
options = parser.parse_args()
failed = 0
for number in range(options.seed, options.seed + options.seeds):
    with TemporaryDirectory(prefix="redrive-simulation-") as directory, Broker(BrokerSettings(Path(directory) / "broker")) as broker:
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        outcome = simulate(
            kafka, Path(directory), options.project, seed=number, messages=options.messages, steps=options.steps, crashes=options.crashes
        )
    print(f"seed {number}: {outcome.told}; crashes {dict(outcome.crashes)}")
    for text in outcome.broken[:20]:
        print(f"  {text}")
    print(f"  {len(outcome.broken)} breaches")
    failed += bool(outcome.broken)
sys.exit(1 if failed else 0)
