"""`redrive run` from the outside: it ends soon when it is told to, in good order, and says so; a time limit ends it without a broker."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.loop.harness import write_seeds

# nobody listens there
NO_BROKER = "127.0.0.1:1"


class Run:
    """`redrive run` in a process group of its own, without a broker."""

    def __init__(self, directory: Path, project: Path, *options: str) -> None:
        self.home = directory / "state"
        self.said = directory / f"said-{time.monotonic_ns()}"
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [Path(sys.executable).with_name("redrive"), "run", "--home", self.home, *options],
                cwd=project,
                env={
                    **os.environ,
                    "REDRIVE_CODEGEN": "true",
                    "REDRIVE_SEEDS": str(directory / "seeds"),
                    "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": NO_BROKER,
                },
                stderr=said,
                start_new_session=True,
            )

    def until(self, what: str) -> None:
        """Waits until it has said something."""
        deadline = time.monotonic() + 600
        while what not in self.said.read_text():
            assert self.process.poll() is None, self.said.read_text()
            assert time.monotonic() < deadline, self.said.read_text()
            time.sleep(0.1)

    def ended(self) -> str:
        """Waits for its end, and that of whatever it started; what it said."""
        self.process.wait(300)
        deadline = time.monotonic() + 60
        while left := _with_seeds(self.home.parent / "seeds"):
            assert time.monotonic() < deadline, f"{left} are left"
            time.sleep(0.1)
        return self.said.read_text()


def _with_seeds(seeds: Path) -> list[int]:
    """The processes whose environment names these seeds: a run, and all that it has started. A zombie has no environment."""
    mark, found = f"REDRIVE_SEEDS={seeds}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def run_of(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Callable[..., Run]]:
    """Starts `redrive run` with options. What still runs after the test is killed."""

    def start(*options: str) -> Run:
        return Run(tmp_path, pytestconfig.rootpath, *options)

    yield start
    for process in _with_seeds(tmp_path / "seeds"):
        os.kill(process, signal.SIGKILL)


@pytest.mark.slow
def test_a_run_ends_in_good_order_wherever_it_is_told_to(tmp_path: Path, pytestconfig: pytest.Config, run_of: Callable[..., Run]) -> None:
    write_seeds(tmp_path / "seeds", pytestconfig.rootpath)
    # turning, as a terminal or `kill -- -N` tells it: whatever it has started is told, too
    run = run_of()
    run.until("part_failed part=kafka ")
    os.killpg(run.process.pid, signal.SIGTERM)
    said = run.ended()
    assert run.process.returncode == 0, said
    assert "takeover_delayed generation=1 instance=default" in said
    assert "loop_ended generation=1 ticks=" in said
    assert not re.search("Traceback|Warning:", said), said

    # starting: Spark is under way
    spark_log = run.home / "logs" / "spark.log"
    before = spark_log.stat().st_size
    run = run_of()
    deadline = time.monotonic() + 300
    while spark_log.stat().st_size == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(run.process.pid, signal.SIGINT)
    said = run.ended()
    assert run.process.returncode == 0, said
    assert "stop_requested signal=SIGINT" in said
    assert "start_aborted" in said
    assert not re.search("Traceback|Warning:", said), said

    # told nothing
    run = run_of("--until-idle", "--at-most", "1")
    said = run.ended()
    assert run.process.returncode == 1, said
    assert 'time_limit_reached seconds=1 waits_for="' in said
    assert "kafka: Kafka did not list its topics" in said
    assert "loop_ended generation=2 ticks=" in said
