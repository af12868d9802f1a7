"""What docs/operations.md says to do when the catalog is gone, or can't be written, is done, and works."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from orchestration.demo.broker import Broker
from tests.loop.harness import deliveries
from tests.loop.loop_process import send_to_family
from tests.loop.processes import Processes, assert_never_early, running_processes, until

pytestmark = pytest.mark.slow


@pytest.fixture
def processes(broker: Broker, tmp_path: Path, pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Iterator[Processes]:
    with running_processes({"bootstrap.servers": broker.bootstrap_servers}, tmp_path, pytestconfig.rootpath, request.param) as running:
        yield running


def back_up(state: Path, backup: Path) -> None:
    """The catalog first, then the warehouse, while the loop runs."""
    backup.mkdir()
    with closing(sqlite3.connect(state / "catalog.db")) as catalog, closing(sqlite3.connect(backup / "catalog.db")) as copy:
        catalog.backup(copy)
    shutil.copytree(state / "warehouse", backup / "warehouse")


@pytest.mark.parametrize("processes", ["restored"], indirect=True)
def test_restored_from_a_backup_it_goes_on_and_loses_nothing(processes: Processes, tmp_path: Path) -> None:
    state, backup = processes.home / "state", tmp_path / "backup"
    loop = processes.start(idle_for=3600)
    processes.fail_some("before", 5)
    until(lambda: len(processes.retries()) == 5, "it sends")
    back_up(state, backup)
    # what comes now is not in the backup
    processes.fail_some("after", 5)
    until(lambda: len(processes.retries()) == 10, "it sends what came after the backup")
    send_to_family(loop.pid, signal.SIGKILL)
    loop.communicate()
    shutil.rmtree(state / "warehouse")
    for file in state.glob("catalog.db*"):
        file.unlink()

    shutil.copytree(backup / "warehouse", state / "warehouse")
    shutil.copy2(backup / "catalog.db", state / "catalog.db")
    processes.fail_some("later", 5)
    with processes.failing_consumer():
        last = processes.start(idle_for=20, settings={"instance": "restored2"})
        said = processes.ended(last, 900)
    assert last.returncode == 0, said[-3000:]
    # each message has come to the end of its policy
    dead = {record.key for record in processes.dead()}
    assert dead == {f"{prefix}-{number}".encode() for prefix in ("before", "after", "later") for number in range(5)}
    assert_never_early(processes.retries())
    # twice only what was sent after the backup
    twice = {delivery for delivery, count in deliveries(processes.retries()).items() if count > 1}
    keys = {record.key for record in processes.retries() if record.header("redrive-delivery") in twice}
    assert keys <= {f"after-{number}".encode() for number in range(5)} | {f"before-{number}".encode() for number in range(5)}


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """A file, or a directory, that nobody can write to, root neither."""
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
@pytest.mark.parametrize("processes", ["readonly"], indirect=True)
def test_on_a_catalog_that_cannot_be_written_it_says_so_and_asking_works(processes: Processes) -> None:
    state = processes.home / "state"
    first = processes.start(idle_for=5)
    processes.fail_some("before", 3)
    processes.ended(first)
    with read_only(state / "catalog.db"):
        refused = processes.start(idle_for=5)
        said = processes.ended(refused)
        assert refused.returncode == 1, said[-3000:]
        assert "readonly" in said.lower().replace("-", "").replace(" ", "")
        assert processes.sql("select count(*) as n from messages")[0]["n"] == 3
    assert set(deliveries(processes.retries()).values()) == {1}
    again = processes.start(idle_for=5)
    said = processes.ended(again)
    assert again.returncode == 0, said[-3000:]
    assert set(deliveries(processes.retries()).values()) == {1}
