"""A disk that is full, a catalog that can't be written, files that are damaged: it is said what is wrong, and nothing wrong is sent."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.demo.broker import Broker
from tests.loop.harness import deliveries
from tests.loop.processes import Processes, assert_never_early, running_processes, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_MEGABYTES = 80


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which is soon full."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_MEGABYTES}m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def on_small_disk(broker: Broker, small_disk: Path, pytestconfig: pytest.Config) -> Iterator[Processes]:
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    with running_processes(kafka, small_disk, pytestconfig.rootpath, "fulldisk") as running:
        yield running


def fill(filler: Path) -> None:
    """Writes until there is no room left. Raises OSError."""
    with filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 1_000)


def test_a_full_disk_stops_what_writes_and_loses_nothing(on_small_disk: Processes) -> None:
    processes = on_small_disk
    filler = processes.home / "filler"
    loop = processes.start(idle_for=3600)
    processes.fail_some("before", 5)
    until(lambda: len(processes.retries()) == 5, "it sends")
    with pytest.raises(OSError, match="No space left"):
        fill(filler)
    processes.fail_some("while full", 5)
    # it can't even say so in the status file; its log does
    time.sleep(20)
    assert loop.poll() is None
    assert len(processes.retries()) == 5
    filler.unlink()
    until(lambda: len(processes.retries()) == 10, "it goes on when there is room again")
    loop.send_signal(signal.SIGTERM)
    said = processes.ended(loop)
    assert loop.returncode == 0, said[-3000:]
    assert "part_failed part=ledgers" in said
    assert "part_failed part=status" in said
    assert "No space left on device" in said
    assert set(deliveries(processes.retries()).values()) == {1}
    assert_never_early(processes.retries())
