"""Whether a loop of this home has ended: by a lock, which dies with its process, and only with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.presence import Presence
from orchestration.status import Entry, Status, is_alive, read_status

SCRIPT = """
import signal, sys
from pathlib import Path
from orchestration.presence import Presence
presence = Presence(Path(sys.argv[1]))
presence.show(7)
print("shown", flush=True)
signal.pause()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that shows the presence of generation 7."""
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "shown\n"
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.communicate()


def test_a_process_that_is_killed_has_ended_and_one_that_is_frozen_has_not(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    presence = Presence(tmp_path)
    # the process id is that of another program, which lives on
    status = Status("running", 7, "default", os.getpid(), 1, "", 0, 0, "", None)
    assert not presence.has_ended(7)
    other.send_signal(signal.SIGSTOP)
    assert not presence.has_ended(7)
    assert is_alive(status, tmp_path)
    other.kill()
    other.wait()
    assert presence.has_ended(7)
    assert not is_alive(status, tmp_path)


def test_of_a_loop_that_ran_elsewhere_nothing_is_known(tmp_path: Path) -> None:
    assert not Presence(tmp_path).has_ended(3)
    assert not Presence(tmp_path / "nowhere").has_ended(3)
    # then its process id decides
    status = Status("running", 3, "default", os.getppid(), 1, "", 0, 0, "", None)
    assert is_alive(status, tmp_path)
    assert not is_alive(replace(status, pid=2**22 + 1), tmp_path)
    # as this process isn't that loop, it was another one of this number, in another container
    assert not is_alive(replace(status, pid=os.getpid()), tmp_path)
    assert not is_alive(replace(status, state="stopped"), tmp_path)


def test_the_status_of_another_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    assert read_status(path) is None
    content = {"state": "running", "pid": 12, "at": "2026-03-01T12:00:00.000+00:00", "of_tomorrow": {"a": 1}}
    path.write_text(json.dumps({**content, "health": [{"kind": "kafka", "name": "", "why": "no answer", "of_tomorrow": 1}]}))
    status = read_status(path)
    assert status is not None
    assert (status.state, status.pid, status.generation, status.at) == ("running", 12, 0, "2026-03-01T12:00:00.000+00:00")
    assert status.health == (Entry("kafka", "", "no answer"),)


def test_a_loop_ends_in_this_process_too_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    older, newer = Presence(tmp_path), Presence(tmp_path)
    older.show(1)
    newer.show(2)
    assert not newer.has_ended(1)
    assert {path.name for path in (tmp_path / "loops").iterdir()} == {"1.lock", "2.lock"}
    older.end()
    older.end()
    assert newer.has_ended(1)
    # the file of one that lives stays
    third = Presence(tmp_path)
    third.show(3)
    assert {path.name for path in (tmp_path / "loops").iterdir()} == {"2.lock", "3.lock"}
    assert not third.has_ended(2)


def test_what_starts_from_a_loop_does_not_hold_its_lock(tmp_path: Path) -> None:
    presence = Presence(tmp_path)
    presence.show(1)
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True, close_fds=False)  # what is marked as inheritable goes over
    try:
        presence.end()
        assert Presence(tmp_path).has_ended(1)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()


def test_where_nothing_can_be_locked_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "loops").write_text("no directory")
    presence = Presence(tmp_path)
    presence.show(1)
    assert not presence.has_ended(1)
    presence.end()
