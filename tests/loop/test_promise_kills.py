"""Loops in processes of their own: killed, frozen, beside a bare dbt, under a clock that is set: nothing is lost, early or sent twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.demo.broker import Broker
from tests.loop.harness import deliveries
from tests.loop.kill_points import POINTS
from tests.loop.loop_process import send_to_family
from tests.loop.processes import MAX_ATTEMPTS, Processes, assert_never_early, running_processes, until

pytestmark = pytest.mark.slow


@pytest.fixture
def processes(broker: Broker, tmp_path: Path, pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Iterator[Processes]:
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    domain = "".join(character for character in request.node.name if character.isalpha())[-20:]
    with running_processes(kafka, tmp_path, pytestconfig.rootpath, domain) as running:
        yield running


def test_killed_after_each_step_it_loses_nothing_and_sends_nothing_twice(processes: Processes) -> None:
    count = 10
    cases = [(point, "all") for point in POINTS] + [("in the middle of sending", "all but workers")]
    with processes.failing_consumer():
        for number, (point, victims) in enumerate(cases):
            if point == "before the results' append":
                # what it got would be reported before the next loop sends, which then knows that it was sent
                processes.consumer_rests.set()
            processes.fail_some(f"before {number}", count)
            process = processes.start(die=point, victims=victims)
            said = processes.ended(process)
            assert process.returncode == -signal.SIGKILL, f"{point}: {said[-3000:]}"
            if point == "before the ticks row":
                processes.consumer_rests.clear()
        last = processes.start()
        said = processes.ended(last)
        assert last.returncode == 0, said[-3000:]

    keys = {f"before {number}-{one}".encode() for number in range(len(cases)) for one in range(count)}
    retries, dead = processes.retries(), processes.dead()
    assert_never_early([*retries, *dead])

    # nothing is lost: each message went through all its attempts, and died
    tried = {(record.key, record.header("redrive-attempt")) for record in retries}
    assert tried == {(key, str(attempt)) for key in keys for attempt in range(2, MAX_ATTEMPTS + 1)}
    assert {record.key for record in dead} == keys
    assert {record.header("dlq-attempts") for record in dead} == {str(MAX_ATTEMPTS)}

    # nothing is sent twice, though a kill has left something without results
    assert int((processes.home / "state" / "unrecorded").read_text()) > 0
    assert set(deliveries([*retries, *dead]).values()) == {1}

    # and the tables tell the same
    (told,) = processes.sql(
        """
        select
            (select count(*) from events where kind = 'report') as reports,
            (select count(distinct topic_id, partition, offset) from events where kind = 'report') as distinct_reports,
            (select count(*) from events) - (select count(*) from decisions where input_id not like '%@%') as undecided,
            (select count(*) from messages where state = 'dead') as dead,
            (select count(*) from ready) as waiting,
            (select max(generation) from ticks) as generations
        """
    )
    assert told == {
        "reports": told["distinct_reports"],
        "distinct_reports": told["distinct_reports"],
        "undecided": 0,
        "dead": len(keys),
        "waiting": 0,
        "generations": len(cases) + 1,
    }


def test_killed_while_it_redrives_it_loses_none_and_issues_none_twice(processes: Processes) -> None:
    # a start issues what ten seconds allow at most, so that the last kill has something left to interrupt
    count = 60
    processes.topics.topics(processes.commands)
    processes.fail_some("message", count, error="KeyError")
    first = processes.start()
    said = processes.ended(first)
    assert first.returncode == 0, said[-3000:]
    assert (len(processes.dead()), processes.retries()) == (count, [])

    command = processes.redrive("dlq", "redrive", "--all", "--rate", "1/s", "--reason", "the bug is fixed").split()[-1]
    cases = [
        ("after the orders' append", "all"),
        # what was issued before is decided
        ("after the decide step", "all"),
        ("in the middle of sending", "all but workers"),
        ("before the results' append", "all"),
        ("after the orders' append", "all"),
    ]
    for point, victims in cases:
        process = processes.start(die=point, victims=victims)
        said = processes.ended(process)
        assert process.returncode == -signal.SIGKILL, f"{point}: {said[-3000:]}"
    last = processes.start()
    said = processes.ended(last)
    assert last.returncode == 0, said[-3000:]

    # none is lost, and none is sent twice, though a kill has left some without results
    retries = processes.retries()
    assert int((processes.home / "state" / "unrecorded").read_text()) > 0
    assert {record.key for record in retries} == {f"message-{number}".encode() for number in range(count)}
    assert len(retries) == count
    assert len(processes.dead()) == count

    # none is issued twice, and the tables tell the same
    (told,) = processes.sql(
        f"""
        select
            state, listed, issued, redriven, sent, on_their_way, refused,
            (select count(*) from events where command = '{command}' and delivery_id is not null) as orders,
            (select count(distinct index) from events where command = '{command}' and delivery_id is not null) as distinct_orders,
            (select count(*) from ready) as waiting
        from redrives where command = '{command}'
        """
    )
    numbers = dict.fromkeys(("listed", "issued", "redriven", "sent", "orders", "distinct_orders"), count)
    assert told == {"state": "done", "on_their_way": 0, "refused": 0, "waiting": 0, **numbers}


def test_taken_over_from_while_it_is_busy_a_loop_sends_nothing_twice(processes: Processes) -> None:
    # nobody reports the retries: a report would tell the newer loop what the older one has sent
    enough = threading.Event()

    def write() -> None:
        number = 0
        while not enough.wait(0.3):
            processes.fail_some(f"message {number}", 10)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        loop = processes.start()
        for number in range(1, 4):
            before = len(processes.retries())
            # mypy infers no lambda with a default
            until(lambda before=before: len(processes.retries()) > before + 20, f"loop {number} is busy", 900)  # type: ignore[misc]
            older, loop = loop, processes.start(last_rows=300)
            said = processes.ended(older)
            assert older.returncode == 3, said[-3000:]
            assert f"loop_superseded generation={number} superseded_by={number + 1}" in said
            assert "Traceback" not in said
    finally:
        enough.set()
        writer.join()
    said = processes.ended(loop)
    assert loop.returncode == 0, said[-3000:]
    assert "takeover_completed generation=4 " in said
    sent = deliveries(processes.retries())
    (told,) = processes.sql("select count(*) as reports from events where kind = 'report'")
    assert (len(sent), set(sent.values())) == (told["reports"], {1})


def test_a_loop_that_was_frozen_and_superseded_writes_nothing_when_it_goes_on(processes: Processes) -> None:
    with processes.failing_consumer():
        processes.fail_some("first", 5)
        older = processes.start()
        until(lambda: len(processes.retries()) >= 5, "the first loop sends")
        send_to_family(older.pid, signal.SIGSTOP)
        processes.fail_some("second", 5)
        newer = processes.start()
        until(lambda: {record.key for record in processes.retries()} >= {b"second-0", b"second-4"}, "the second loop sends")
        before = len(processes.retries())
        send_to_family(older.pid, signal.SIGCONT)
        processes.fail_some("third", 5)
        said = processes.ended(older)
        assert older.returncode == 3, said[-3000:]
        assert "loop_superseded generation=1 superseded_by=2" in said
        said = processes.ended(newer)
        assert newer.returncode == 0, said[-3000:]
    assert len(processes.retries()) > before

    sent = deliveries([*processes.retries(), *processes.dead()])
    assert set(sent.values()) == {1}
    assert len(processes.dead()) == 15
    (told,) = processes.sql(
        """
        select count(*) as written from (
            select batch, generation from events union all select batch, generation from publish_results
            union all select batch, generation from ticks
        ) as ledgers
        where generation = 1 and batch > (select max(batch) from ticks where generation = 2 and kind = 'start')
        """
    )
    assert told["written"] == 0


def dbt_beside(processes: Processes, *command: str) -> subprocess.CompletedProcess[str]:
    """A dbt command that a person runs on the state of the loops, as a process that has ended."""
    state = processes.home / "state"
    own = ["--target-path", str(state / "dbt-beside"), "--log-path", str(state / "logs-beside")]
    environment = {**os.environ, "REDRIVE_HOME": str(state), "REDRIVE_SEEDS": str(processes.home / "seeds")}
    called = [str(Path(sys.executable).with_name("dbt")), *command, *own]
    return subprocess.run(called, cwd=processes.project, env=environment, capture_output=True, text=True, check=False)


def assert_all_twenty_died_once(processes: Processes) -> None:
    assert len(processes.dead()) == 20
    sent = deliveries([*processes.retries(), *processes.dead()])
    assert set(sent.values()) == {1}
    assert len(sent) == 20 * MAX_ATTEMPTS
    assert_never_early([*processes.retries(), *processes.dead()])


def test_a_bare_dbt_beside_the_loop_loses_nothing_and_sends_nothing_twice(processes: Processes) -> None:
    with processes.failing_consumer():
        processes.fail_some("first", 5)
        # it does not end by itself: a `dbt build` may take minutes, in which nothing fails
        loop = processes.start(idle_for=3600)
        until(lambda: len(processes.retries()) >= 5, "the loop sends")
        succeeded = 0
        for round_, command in enumerate(("run", "build", "run")):
            processes.fail_some(f"beside {round_}", 5)
            ended = dbt_beside(processes, command)
            # where the loop came first with what both decide, it is refused, and nothing else
            refused = "Found conflicting files" in ended.stdout and "ERROR=1 " in ended.stdout
            assert ended.returncode == 0 or refused, ended.stdout[-3000:]
            succeeded += ended.returncode == 0
        assert succeeded, "each dbt was refused: none wrote anything beside the loop"
        until(lambda: len(processes.dead()) >= 20, "all are dead")
        loop.send_signal(signal.SIGTERM)
        said = processes.ended(loop)
        assert loop.returncode == 0, said[-3000:]
    assert_all_twenty_died_once(processes)


def test_a_dbt_that_leaves_the_decisions_to_a_busy_loop_is_never_refused(processes: Processes) -> None:
    with processes.failing_consumer():
        processes.fail_some("first", 5)
        loop = processes.start(idle_for=3600)
        until(lambda: len(processes.retries()) >= 5, "the loop sends")
        for round_ in range(3):
            processes.fail_some(f"beside {round_}", 5)
            ended = dbt_beside(processes, "run", "--exclude", "deliveries")
            assert ended.returncode == 0, ended.stdout[-3000:]
            ran = json.loads((processes.home / "state" / "dbt-beside" / "run_results.json").read_text(encoding="utf-8"))["results"]
            names = {result["unique_id"] for result in ran}
            assert "model.redrive.messages" in names
            assert "model.redrive.deliveries" not in names
        until(lambda: len(processes.dead()) >= 20, "all are dead")
        loop.send_signal(signal.SIGTERM)
        said = processes.ended(loop)
        assert loop.returncode == 0, said[-3000:]
    # nobody else has decided anything
    assert "decided already" not in said
    assert "Found conflicting files" not in said
    assert_all_twenty_died_once(processes)


def test_a_clock_that_is_set_back_and_forth_sends_nothing_early_and_burns_no_attempt(processes: Processes) -> None:
    with processes.failing_consumer():
        processes.fail_some("message", 5)
        # an hour back as soon as the loop has started, an hour ahead after 4 s, right again after 8
        loop = processes.start(wall=[(0, -3600), (4, 3600), (8, 0)])
        said = processes.ended(loop)
        assert loop.returncode == 0, said[-3000:]
    assert said.count("the wall clock is set") == 3
    assert len(processes.dead()) == 5
    sent = deliveries([*processes.retries(), *processes.dead()])
    assert set(sent.values()) == {1}
    (told,) = processes.sql(
        f"""
        select
            count(*) as attempts,
            count_if(sent_at < due_at) as early,
            count_if(due_at < failed_at + make_dt_interval(0, 0, 0, delay_ms / 1000)) as short
        from attempts
        where original_topic = '{processes.domain}.orders'
        """
    )
    assert told == {"attempts": 5 * MAX_ATTEMPTS, "early": 0, "short": 0}
