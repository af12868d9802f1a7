"""A disk that is full, and files of a table that are damaged: it is said what is wrong, and nothing wrong is sent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.demo.broker import Broker
from tests.loop.harness import deliveries
from tests.loop.processes import Processes, assert_never_early, running_processes, until

pytestmark = pytest.mark.slow

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


@pytest.fixture
def slowly(broker: Broker, tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Processes]:
    """Retries wait for two minutes: longer than a first start takes."""
    with running_processes({"bootstrap.servers": broker.bootstrap_servers}, tmp_path, pytestconfig.rootpath, "lanesfardamaged") as running:
        yield running


def table_file(processes: Processes, what: str) -> Path:
    """A file of the table `deliveries`: its largest data file, which has the messages; its last manifest or metadata file."""
    table = processes.home / "state" / "warehouse" / "redrive" / "deliveries"
    if what == "data":
        return max(table.glob("data/**/*.parquet"), key=lambda file: file.stat().st_size)
    pattern = {"manifest": "metadata/*-m0.avro", "metadata": "metadata/*.metadata.json"}[what]
    return max(table.glob(pattern), key=lambda file: file.stat().st_mtime_ns)


def test_a_damaged_file_is_named_and_when_it_is_put_back_all_is_sent_once(slowly: Processes, tmp_path: Path) -> None:
    processes = slowly
    state = processes.home / "state"
    first = processes.start(idle_for=3600)
    processes.fail_some("waiting", 3)
    until(lambda: decided(processes) >= 3, "all are decided")
    first.send_signal(signal.SIGTERM)
    processes.ended(first)
    backup = shutil.copytree(state / "warehouse", tmp_path / "backup")

    for what in ("metadata", "manifest"):
        path = table_file(processes, what)
        damage(path)
        tick = processes.called("tick")
        assert tick.returncode == 1
        said = "".join(tick.stderr.split())
        assert path.name in said
        assert "Afileisdamaged" in said
        assert "Traceback" not in said
        shutil.copy2(backup / path.relative_to(state / "warehouse"), path)

    path = table_file(processes, "data")
    damage(path)
    loop = processes.start(idle_for=3600)
    until(lambda: path.name in str(trouble(processes)), "the status names the file")
    time.sleep(20)
    assert processes.retries() == []
    shutil.copy2(backup / path.relative_to(state / "warehouse"), path)
    until(lambda: len(processes.retries()) == 3, "it goes on")
    loop.send_signal(signal.SIGTERM)
    said = processes.ended(loop)
    assert loop.returncode == 0, said[-3000:]
    assert set(deliveries(processes.retries()).values()) == {1}
    assert_never_early(processes.retries())


def damage(path: Path) -> None:
    """Overwrites the second half of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"\x00" * (len(content) - len(content) // 2))


def trouble(processes: Processes) -> object:
    """What the status file says that doesn't work."""
    return json.loads((processes.home / "state" / "status.json").read_text(encoding="utf-8"))["trouble"]


def decided(processes: Processes) -> int:
    """How many retries are decided. By the tables: the status has the counts of one tick, and the reports may come in several."""
    if not (processes.home / "state" / "status.json").exists():
        # the first start is making the tables
        return 0
    (row,) = processes.sql("select count(*) as retries from decisions where decision = 'retry'")
    return int(row["retries"])
