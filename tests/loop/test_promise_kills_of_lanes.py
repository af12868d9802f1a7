"""Loops with a timed lane, killed or superseded: nothing is lost, early or sent twice."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestration.demo.broker import Broker
from orchestration.status import read_status
from tests.loop.harness import deliveries
from tests.loop.loop_process import send_to_family
from tests.loop.processes import MAX_ATTEMPTS, Processes, assert_never_early, running_processes, until

pytestmark = pytest.mark.slow

COUNT = 4
AHEAD = {"look_ahead_seconds": 30.0}
FAR_AHEAD = {"look_ahead_seconds": 150.0}


@pytest.fixture
def processes(broker: Broker, tmp_path: Path, pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Iterator[Processes]:
    # retries of topics `lanes...` have a delay of 40 s, those of `lanesfar...` one of 120 s, within which a loop starts and decides, and
    # those of `laneslater...` one of 290 s, within which a test ends, on a busy machine too
    prefix, name = request.param, "".join(character for character in request.node.originalname if character.isalpha())
    with running_processes(
        {"bootstrap.servers": broker.bootstrap_servers}, tmp_path, pytestconfig.rootpath, prefix + name[-12:]
    ) as running:
        yield running


@dataclass(frozen=True)
class Kill:
    """Where a loop is killed, which of its processes, and how much its lane may hold."""

    point: str
    victims: str = "all"
    lane_rows: int | None = None


KILLS = (
    Kill("after a hand-over"),
    Kill("in the middle of sending"),
    Kill("in the middle of sending", "Spark"),
    Kill("before the results' append"),
    Kill("before the results' append", "Spark"),
    Kill("while both lanes send", lane_rows=COUNT),
    Kill("while both lanes send", "Spark", lane_rows=COUNT),
    Kill("while both lanes send", "workers", lane_rows=COUNT),
    Kill("after the decide step"),
    Kill("before the ticks row"),
)


@pytest.mark.parametrize("processes", ["lanes"], indirect=True)
def test_killed_in_whole_or_in_part_it_loses_nothing_and_sends_nothing_twice(processes: Processes) -> None:
    keys: set[bytes] = set()

    def fail(kind: str, number: int, **how: int) -> None:
        processes.fail_some(f"{kind} {number}", COUNT, **how)
        keys.update(f"{kind} {number}-{one}".encode() for one in range(COUNT))

    with processes.failing_consumer():
        for number, kill in enumerate(KILLS):
            process = processes.start(idle_for=20, settings=AHEAD, die=kill.point, victims=kill.victims, lane_rows=kill.lane_rows)
            # what the loop before has left over may kill it before its first tick
            begun = lambda process=process, generation=number + 1: process.poll() is not None or turns(processes, generation)  # noqa: E731
            until(begun, f"loop {number} turns")
            fail("on time", number)
            if kill.lane_rows:
                # more than the lane takes, and due at once: the bulk lane sends it while the lane waits for what is on time
                time.sleep(8)
                long_ago = int((time.time() - 60) * 1000)
                fail("late", number, failed_at=long_ago)
                fail("later", number, failed_at=long_ago)
            said = processes.ended(process)
            assert_ended_by(kill, process.returncode, said)
        # the consumer needs some time to report what has failed, more on a busy machine
        last = processes.start(idle_for=20, settings=AHEAD)
        said = processes.ended(last)
        assert last.returncode == 0, said[-3000:]

    retries, dead = processes.retries(), processes.dead()
    assert_never_early([*retries, *dead])
    tried = {(record.key, record.header("redrive-attempt")) for record in retries}
    assert tried == {(key, str(attempt)) for key in keys for attempt in range(2, MAX_ATTEMPTS + 2)}
    assert {record.key for record in dead} == keys
    assert set(deliveries([*retries, *dead]).values()) == {1}
    (told,) = processes.sql(
        """
        select
            (select count(*) from messages where state = 'dead') as dead,
            (select count(*) from ready) as waiting
        """
    )
    assert told == {"dead": len(keys), "waiting": 0}


def turns(processes: Processes, generation: int) -> bool:
    """Whether the loop of this generation has begun its ticks."""
    status = read_status(processes.home / "state" / "status.json")
    return status is not None and status.generation == generation and status.state == "running"


def assert_ended_by(kill: Kill, code: int, said: str) -> None:
    """A loop that was killed, or whose Spark was, has ended by that; one that lost workers goes on until nothing waits."""
    match kill.victims:
        case "all":
            assert code == -signal.SIGKILL, f"{kill}: {said[-3000:]}"
        case "Spark":
            assert code not in (0, -signal.SIGKILL), f"{kill}: {said[-3000:]}"
        case _:
            assert code == 0, f"{kill}: {said[-3000:]}"


@pytest.mark.parametrize("processes", ["laneslater"], indirect=True)
def test_killed_after_a_withdrawal_it_sends_nothing_of_what_was_cancelled(processes: Processes) -> None:
    processes.topics.topics(processes.commands)
    ahead = {"look_ahead_seconds": 300.0}
    first = processes.start(settings=ahead, die="after a withdrawal")
    until(lambda: turns(processes, 1), "the first loop turns")
    processes.fail_some("message", COUNT)
    until(lambda: len(processes.sql("select 1 from ready")) == COUNT, "they wait")
    processes.redrive("waiting", "cancel", "--all", "--reason", "the bug is elsewhere")
    said = processes.ended(first)
    assert first.returncode == -signal.SIGKILL, said[-3000:]
    last = processes.start(idle_for=20, settings=ahead)
    said = processes.ended(last)
    assert last.returncode == 0, said[-3000:]
    assert processes.retries() == []
    assert [row["state"] for row in processes.sql("select state from messages")] == ["cancelled"] * COUNT


@pytest.mark.parametrize("processes", ["lanesfar"], indirect=True)
def test_frozen_and_superseded_its_lane_sends_nothing_when_it_goes_on(processes: Processes) -> None:
    older = processes.start(settings=FAR_AHEAD)
    until(lambda: turns(processes, 1), "the first loop turns")
    processes.fail_some("first", COUNT)

    def in_lane() -> bool:
        status = read_status(processes.home / "state" / "status.json")
        return status is not None and status.in_lane == COUNT

    until(in_lane, "they are in the lane")
    send_to_family(older.pid, signal.SIGSTOP)
    newer = processes.start(idle_for=30, settings=FAR_AHEAD)
    until(lambda: len(processes.retries()) >= COUNT, "the second loop sends")
    # its time has long passed when it goes on
    send_to_family(older.pid, signal.SIGCONT)
    said = processes.ended(older)
    assert older.returncode == 3, said[-3000:]
    assert "loop_superseded generation=1 superseded_by=2" in said
    said = processes.ended(newer)
    assert newer.returncode == 0, said[-3000:]
    assert set(deliveries(processes.retries()).values()) == {1}
    assert len(processes.retries()) == COUNT


@pytest.mark.parametrize("processes", ["lanes"], indirect=True)
def test_taken_over_from_while_its_lane_is_busy_nothing_is_sent_twice(processes: Processes) -> None:
    # nobody reports the retries: a report would tell the newer loop what the older one has sent
    enough = threading.Event()

    def write() -> None:
        number = 0
        while not enough.wait(0.3):
            processes.fail_some(f"message {number}", 5)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        loop = processes.start(settings=AHEAD)
        for number in range(1, 4):
            before = len(processes.retries())
            until(lambda before=before: len(processes.retries()) > before + 20, f"loop {number} is busy", 900)  # type: ignore[misc]
            older, loop = loop, processes.start(settings=AHEAD, last_rows=300)
            said = processes.ended(older)
            assert older.returncode == 3, said[-3000:]
            assert "Traceback" not in said
    finally:
        enough.set()
        writer.join()
    said = processes.ended(loop)
    assert loop.returncode == 0, said[-3000:]
    sent = deliveries(processes.retries())
    (told,) = processes.sql("select count(*) as reports from events where kind = 'report'")
    assert (len(sent), set(sent.values())) == (told["reports"], {1})
