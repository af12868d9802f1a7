"""Kills loops over one state, seed by seed, and judges after each seed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestration.cli.ending import SUPERSEDED_EXIT
from orchestration.status import read_status
from orchestration.tables.rows import collected
from orchestration.tables.spark import schema, session_to_ask
from tests.kills.judge import breaches
from tests.kills.service import Service
from tests.kills.steps import Kill
from tests.loop.loop_process import send_to_family
from tests.loop.processes import RETRY_TOPIC, Processes, running_processes
from tests.promises import broken_promises
from tests.sessions import stop_session

_PARTITIONS = 3

# The longest that a loop may take until it dies, and until nothing waits any more, in seconds.
_DIES_WITHIN = 600.0
_IDLE_WITHIN = 900.0

# How long a loop has for an order before the next one is given, in seconds: the command line takes the processors that the loop needs.
_ORDERED_EVERY = 10.0

# How long nothing may have come before a loop ends: longer than the consumer takes to fail a retry, on a busy machine.
_IDLE_FOR = 15

_COUNTS = """
select
    (select coalesce(sum(redriven), 0) from redrives where what = 'redrive') as redriven,
    (select count(*) from messages where state <> 'dead') as not_dead,
    (select count(*) from ready) as waiting
"""


@dataclass
class Outcome:
    """What came of the kills of one seed. broken: breaches of promises, as text; messages, redriven: counts over all seeds so far."""

    kills: list[Kill]
    broken: list[str] = field(default_factory=list)
    messages: int = 0
    redriven: int = 0


@contextmanager
def installation(kafka: dict[str, str], directory: Path, project: Path, *, factor: int = 4) -> Iterator[Installation]:
    """An installation whose loops are killed; they are ended at the end.

    factor: of the delays, of which there are four. With 4, the last one is a minute, longer than an order takes on a slow machine, so that
    the timed lane has something to withdraw.
    """
    with running_processes(kafka, directory, project, "killed", _PARTITIONS) as processes:
        policies = directory / "seeds" / "retry_policies.csv"
        policies.write_text(
            policies.read_text(encoding="utf-8").replace("factor=2, max=60s, jitter=0, attempts", f"factor={factor}, jitter=0, attempts"),
            encoding="utf-8",
        )
        processes.topics.topics(processes.commands)
        yield Installation(processes, Service(kafka, processes.domain, _PARTITIONS))


@dataclass
class Installation:
    """Loops in processes of their own, one after another, and the service that fails."""

    processes: Processes
    service: Service
    _older: subprocess.Popen[str] | None = None
    _starts: int = 0

    def seed(self, chosen: Sequence[Kill]) -> Outcome:
        """Kills a loop at each step, then lets one run until nothing waits, and judges all that has ever come."""
        outcome = Outcome(list(chosen))
        with self.service.consuming():
            with self.service.failing():
                for kill in chosen:
                    began = time.monotonic()
                    found = self._killed(kill)
                    print(f"  {time.monotonic() - began:5.0f} s  {kill}", file=sys.stderr)
                    outcome.broken += [f"{kill}: {text}" for text in found]
            last = self._start()
            said = self.processes.ended(last, _IDLE_WITHIN)
            outcome.broken += self._of_older()
            if last.returncode != 0:
                outcome.broken.append(f"a manual step: the last loop ended with {last.returncode}: {said[-2000:]}")
        self._judge(outcome)
        return outcome

    def _judge(self, outcome: Outcome) -> None:
        topics, domain = self.processes.topics, self.processes.domain
        told = self._ask_tables(outcome)
        outcome.messages, outcome.redriven = len(self.service.keys), told["redriven"]
        retries, dead = topics.read(f"{domain}.{RETRY_TOPIC}"), topics.read(f"{domain}.orders.dlq")
        outcome.broken += breaches(self.service.keys, retries, dead, told["redriven"])
        outcome.broken += [f"{count} messages: {what}" for what, count in told.items() if what != "redriven" and count]

    def _ask_tables(self, outcome: Outcome) -> dict[str, int]:
        """Verifies the promises, and returns what _COUNTS counts: in this process, whose JVM is warm from the second seed on."""
        settings = self.processes.settings()
        outcome.broken += broken_promises(settings)
        spark = session_to_ask(settings)
        spark.sql(f"use {schema(settings.project)}")
        (counts,) = collected(spark.sql(_COUNTS))
        # the next seed's loops would find a session that knows older tables
        stop_session()
        return counts.asDict()

    # ---------- loops

    def _start(self, kill: Kill | None = None) -> subprocess.Popen[str]:
        self._starts += 1
        ahead = {"look_ahead_seconds": kill.look_ahead if kill else 30.0}
        return self.processes.start(_IDLE_FOR, settings=ahead, **(kill.told if kill else {}))

    def _killed(self, kill: Kill) -> list[str]:
        """Starts a loop that dies, and waits for its end. Returns what was wrong with it."""
        if kill.step.has_new_rules:
            self._change_rules()
        if kill.step.has_older:
            self._older = self._start()
            self._until_it_runs(self._older)
        process = self._start(kill)
        if kill.step.order:
            self._until_it_runs(process)
        deadline = time.monotonic() + _DIES_WITHIN
        while process.poll() is None and time.monotonic() < deadline:
            if kill.step.order:
                self.processes.called(*kill.step.order, "--reason", "it is killed")
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ORDERED_EVERY)
        said = self.processes.ended(process, 30) if process.poll() is not None else "it has not died"
        found = [] if kill.step.has_older else self._of_older()
        died = process.returncode == -signal.SIGKILL if kill.victims.startswith("all") else process.returncode not in (None, 0)
        if not died:
            send_to_family(process.pid, signal.SIGKILL)
            found.append(f"a manual step: it ended with {process.returncode}, not by a kill: {said[-2000:]}")
        return found

    def _until_it_runs(self, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + _DIES_WITHIN
        while process.poll() is None and time.monotonic() < deadline:
            status = read_status(self.processes.home / "state" / "status.json")
            if status is not None and (status.pid, status.state) == (process.pid, "running"):
                return
            time.sleep(0.2)

    def _of_older(self) -> list[str]:
        """What was wrong with a loop that ran when another one was killed while it took over: a later loop has taken over from it."""
        older, self._older = self._older, None
        if older is None:
            return []
        said = self.processes.ended(older, _DIES_WITHIN)
        if older.returncode != SUPERSEDED_EXIT or "Traceback" in said:
            return [f"wrong: the older loop ended with {older.returncode}: {said[-2000:]}"]
        return []

    def _change_rules(self) -> None:
        """Adds a route that nothing takes: the rules must be loaded again."""
        routes = self.processes.home / "seeds" / "routes.csv"
        with routes.open("a", encoding="utf-8") as file:
            file.write(f"unused{self._starts},*,*,default,publish,{{topic}}-{{group}}-retry,{{topic}}.dlq,,,\n")


def told(seed: int, outcome: Outcome, seconds: float) -> str:
    """The outcome of a seed, as text."""
    counts = {"kills": len(outcome.kills), "messages": outcome.messages, "redriven": outcome.redriven, "breaches": len(outcome.broken)}
    return "\n".join([f"seed {seed}: {json.dumps(counts)} {seconds:.0f} s", *(f"  {text}" for text in outcome.broken[:20])])
