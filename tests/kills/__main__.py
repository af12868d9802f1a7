"""Command line of the matrix of kills. Exits with 1 if a promise is broken, or a loop needed help."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestration.demo.broker import Broker, BrokerSettings
from tests.kills.run import installation, told
from tests.kills.steps import kills

parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on: each kills a loop at each step")
parser.add_argument("--only", metavar="TEXT", action="append", help="only steps whose name contains this; may be repeated")
options = parser.parse_args()
failed = 0
with TemporaryDirectory(prefix="redrive-kills-") as directory, Broker(BrokerSettings(Path(directory) / "broker")) as broker:
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    with installation(kafka, Path(directory) / "home", Path(__file__).parents[2]) as installed:
        for seed in range(options.seed, options.seed + options.seeds):
            began = time.monotonic()
            outcome = installed.seed([kill for kill in kills(seed) if any(text in kill.step.name for text in options.only or [""])])
            print(told(seed, outcome, time.monotonic() - began), flush=True)
            failed += bool(outcome.broken)
sys.exit(1 if failed else 0)
