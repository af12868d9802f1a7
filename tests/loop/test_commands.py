"""Operators' commands on the real broker: dead letters are sent again at the pace that was asked for, and nothing twice.

Longer than other modules: its tests share a loop, whose start takes a minute.
"""

from __future__ import annotations

import itertools
import re
import shutil
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.answers.asking import Asking
from orchestration.cli.main import app
from orchestration.loop import commands
from orchestration.loop.health import DECIDE
from orchestration.loop.loop import Loop
from orchestration.operators.commands import CommandError, CommandRequest
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.lists import Target, kept, select_deliveries
from orchestration.operators.selections import Selection
from orchestration.operators.sending import records, send, write
from orchestration.rules.check import run_checks
from orchestration.tables.decide_statements import DecideError, DecideRunner
from tests.loop.harness import Record, Redrive
from tests.loop.test_spring import recovered

COMMANDS = "redrive.commands"


@pytest.fixture(scope="module")
def executing(redrive: Redrive) -> Redrive:
    """The loop, with a topic for commands."""
    if COMMANDS not in redrive.loop.cluster.topic_names():
        redrive.topics(COMMANDS)
    return redrive


def _die(redrive: Redrive, domain: str, count: int) -> list[Record]:
    """So many messages die; returns the original records."""
    failed = [redrive.fails(f"{domain}.orders", b"k", b"%d" % number, error="KeyError") for number in range(count)]
    redrive.dead(domain, count)
    redrive.settle()
    return failed


def _list(redrive: Redrive, what: str, domain: str) -> list[Target]:
    dead = DeadLetters(redrive.loop.settings)
    selection = Selection(state="all" if what in ("send_now", "cancel") else "open", topic=f"{domain}.orders")
    return select_deliveries(dead, what, selection, None)


def _call(redrive: Redrive, *arguments: str) -> str:
    """What a command line prints."""
    settings = redrive.loop.settings
    environment = {
        "REDRIVE_HOME": str(settings.home),
        "REDRIVE_SEEDS": str(settings.seeds),
        "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": redrive.kafka["bootstrap.servers"],
    }
    result = CliRunner().invoke(app, arguments, env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def _request(what: str, **how: Any) -> CommandRequest:
    return CommandRequest(what, "the bug is fixed", "ada", **how)


def _state(redrive: Redrive, command: str) -> Any:
    (*rows,) = redrive.sql(f"select * from redrives where command = '{command}'")
    return rows[0] if rows else None


def _taken_up(redrive: Redrive, command: str) -> None:
    """Turns the loop until it has read a command. Cheaper to ask than `redrives`, which is asked at the end."""
    redrive.until(lambda: redrive.sql(f"select 1 from events where kind = 'command' and command = '{command}'"), f"{command} is taken up")


def _resumed_before_a_restart(redrive: Redrive, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(commands.Commands, "_issue", lambda *_: 0)
        _taken_up(redrive, _call(redrive, "dlq", "resume", command, "--reason", "that one is another bug").split()[-1])
        redrive.restart()


def _until_done(redrive: Redrive, command: str, state: str = "done") -> Any:
    """Turns the loop until it has nothing more to issue of a command, which must then be in this state."""
    _taken_up(redrive, command)
    if state == "done":
        # a loop that has just started has not read which commands are open
        commands = redrive.loop.commands
        redrive.until(lambda: commands._read_upto is not None and command not in commands._open, f"all of {command} is issued")
    redrive.settle()
    row = _state(redrive, command)
    assert row["state"] == state
    return row


@pytest.mark.long
@pytest.mark.slow
def test_dead_letters_are_redriven_canaries_first_and_a_loop_that_dies_between_neither_loses_nor_doubles(
    executing: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a list of six is more than is held of it
    monkeypatch.setattr(commands, "_PAGE", 4)
    executing.domain("again")
    failed = _die(executing, "again", 6)
    listed = _list(executing, "redrive", "again")
    assert [one.original_topic for one in listed] == ["again.orders"] * 6
    # a dry run tells where they would go, keeps the list, and sends nothing
    said = _call(executing, "dlq", "redrive", "--topic", "again.orders", "--reason", "fixed in 4.2", "--dry-run")
    print(said)
    assert re.search(r"would go to +6 +again[.]orders-billing-retry", said)
    (name,) = re.findall("--list ([0-9a-f]{12}),", said)
    assert [one.delivery_id for one in kept(executing.loop.settings.home, name)] == [one.delivery_id for one in listed]
    executing.settle()
    assert executing.read("again.orders-billing-retry") == []
    # what dies later is not in the list
    later = executing.fails("again.orders", b"k", b"later", error="KeyError")
    executing.dead("again", 7)

    said = _call(executing, *f"dlq redrive --list {name} --canary 2 --rate 20/s --reason fixed".split())
    print(said)
    command = said.split()[-1]
    canaries = executing.retries("again", 2)
    assert [record.value for record in canaries] == [record.value for record in failed[:2]]
    assert {record.header("redrive-attempt") for record in canaries} == {"1"}
    assert [key for record in canaries for key, _ in record.headers if key.startswith("dlq-")] == []
    # one of them fails again: the rest is held up
    executing.report(canaries[0], error="KeyError")
    executing.dead("again", 8)
    executing.until(lambda: executing.loop.commands.waiting == 0, "the failed canary is seen")
    executing.settle()
    row = _state(executing, command)
    assert (row["state"], row["issued"], row["failed_again"]) == ("canary", 2, 1)
    assert len(executing.read("again.orders-billing-retry")) == 2
    # dead again, and open again, in its second life cycle
    (again,) = executing.sql(f"select * from dead_letters where original_topic = 'again.orders' and original_offset = {failed[0].offset}")
    assert (again["state"], again["life_cycle"], again["life_cycles"]) == ("open", 2, 2)

    # whoever sees it differently resumes it; a loop that ends before it has issued more goes on after its start all the same
    _resumed_before_a_restart(executing, command, monkeypatch)
    # then the loop is killed before it has written down what it issued, and appends no last row either
    for row_of in ("_append_tick", "_append_end"):
        monkeypatch.setattr(executing.loop, row_of, lambda: None)
    orders = f"select count(*) as orders from events where command = '{command}' and kind = 'redrive'"
    executing.until(lambda: executing.sql(orders)[0]["orders"] > 2, "more is issued")
    executing.restart()
    _until_done(executing, command)
    # the last ones have due times ahead, by the rate
    executing.retries("again", 6)
    executing.settle()
    row = _state(executing, command)
    assert (row["listed"], row["issued"], row["redriven"], row["on_their_way"], row["sent"]) == (6, 6, 6, 0, 6)
    assert sorted(record.value or b"" for record in executing.read("again.orders-billing-retry")) == [b"%d" % n for n in range(6)]
    (row,) = executing.sql(f"select * from dead_letters where original_topic = 'again.orders' and original_offset = {later.offset}")
    assert row["state"] == "open"
    print(_call(executing, "sql", "select what, state, listed, issued, sent, failed_again, who, reason from redrives"))
    print(_call(executing, "explain", listed[0].message_id))


@pytest.mark.slow
def test_what_is_on_its_way_is_not_sent_twice_and_what_died_again_begins_another_life_cycle(executing: Redrive) -> None:
    executing.domain("thrice")
    failed = _die(executing, "thrice", 3)
    listed = _list(executing, "redrive", "thrice")
    _until_done(executing, send(executing.loop.settings, _request("redrive"), listed))
    again = executing.retries("thrice", 3)[0]
    executing.report(again, error="KeyError")
    executing.dead("thrice", 4)
    # asked for once more as it was, everything is on its way already, or in another life cycle
    row = _until_done(executing, send(executing.loop.settings, _request("redrive"), listed))
    assert (row["issued"], row["redriven"], row["on_their_way"]) == (3, 0, 3)
    assert len(executing.read("thrice.orders-billing-retry")) == 3
    (message,) = {one.message_id for one in listed if one.message_id.endswith(f"/{failed[0].offset}")}
    row = _until_done(executing, send(executing.loop.settings, _request("redrive"), _list(executing, "redrive", "thrice")))
    assert (row["listed"], row["redriven"]) == (1, 1)
    cycles = executing.sql(f"select life_cycle from decisions where message_id = '{message}' and kind is not null order by life_cycle")
    assert [row["life_cycle"] for row in cycles] == [1, 2, 2, 3]


@pytest.mark.slow
def test_what_is_no_whole_list_does_nothing_and_the_audit_says_so(executing: Redrive) -> None:
    executing.domain("broken")
    _die(executing, "broken", 3)
    listed = _list(executing, "redrive", "broken")
    part, closing = records(_request("redrive"), listed)
    given = {
        "no closing record": [part],
        "another list": [part.replace(b"broken", b"beoken"), closing],
        "a part too few": [closing],
        "no JSON": [b"\xff\xfe", closing],
        "no reason": [part, closing.replace(b"the bug is fixed", b"  ")],
    }
    ids = {name: str(uuid.uuid4()) for name in given}
    for name, values in given.items():
        write(executing.loop.settings, ids[name], values)
    executing.write(COMMANDS, b"no id", closing)
    executing.write(COMMANDS, None, None)
    # what comes after them is executed
    row = _until_done(executing, send(executing.loop.settings, _request("discard", ticket="T-1"), listed[:1]))
    assert (row["listed"], row["done"], row["ticket"]) == (1, 1, "T-1")
    audit = {row["command"]: row for row in executing.sql("select * from operator_commands") if row["status"] != "complete"}
    assert {name: audit[ids[name]]["problem"] for name in given} == {
        "no closing record": "no record closes it",
        "another list": "the list does not match the digest in the closing record",
        "a part too few": "the list is incomplete, or a part came twice",
        "no JSON": "a part of the list cannot be read",
        "no reason": "it gives no reason",
    }
    assert audit[None]["problem"] == "its key is not the id of a command"
    assert executing.sql("select 1 from decisions where decision = 'redrive' and original_topic = 'broken.orders'") == []
    states = executing.sql("select state from dead_letters where original_topic = 'broken.orders' order by original_offset")
    assert [row["state"] for row in states] == ["discarded", "open", "open"]


@pytest.mark.long
@pytest.mark.slow
def test_what_is_redriven_at_a_rate_has_a_time_each_over_a_restart_too(executing: Redrive) -> None:
    executing.domain("paced")
    _die(executing, "paced", 8)
    command = send(executing.loop.settings, _request("redrive", rate=0.5), _list(executing, "redrive", "paced"))
    _taken_up(executing, command)
    executing.until(lambda: executing.loop.commands.issued.of(command) in range(1, 8), "a part is issued")
    executing.restart()
    _until_done(executing, command)
    records = executing.retries("paced", 8)
    assert len(records) == 8
    rows = executing.sql("select due_at from deliveries where original_topic = 'paced.orders' and decision = 'redrive' order by due_at")
    assert all(later["due_at"] - earlier["due_at"] >= timedelta(seconds=2) for earlier, later in itertools.pairwise(rows))
    assert len(rows) == 8
    executing.settle()
    late = executing.sql("select 1 from publish_results where original_topic = 'paced.orders' and sent_at < due_at")
    assert late == []


@pytest.mark.slow
def test_what_was_stopped_stays_so_also_over_a_restart(executing: Redrive) -> None:
    executing.domain("stopped")
    _die(executing, "stopped", 3)
    listed = _list(executing, "redrive", "stopped")
    _until_done(executing, send(executing.loop.settings, _request("discard"), listed[:1]))
    # a restore makes it open again; a stopped command leaves the rest as it is
    _until_done(executing, send(executing.loop.settings, _request("restore"), listed[:1]))
    command = send(executing.loop.settings, _request("redrive", rate=1 / 3600), listed)
    _taken_up(executing, command)
    for what, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopped")):
        told = send(executing.loop.settings, _request(what, of=command))
        _taken_up(executing, told)
        assert _until_done(executing, command, state)["state"] == state
    executing.restart()
    executing.settle()
    assert _state(executing, command)["state"] == "stopped"
    # the first message was issued ahead of its time, the next one is due an hour later
    assert _state(executing, command)["issued"] == 1


@pytest.mark.slow
def test_the_triage_discards_and_purges_what_its_route_keeps_no_longer(executing: Redrive) -> None:
    executing.domain("purgeafter")
    _die(executing, "purgeafter", 2)
    for what in ("discard", "purge"):
        assert re.search(rf"2 +{what}", _call(executing, "dlq", "triage", "--dry-run"))
        assert _until_done(executing, _call(executing, "dlq", "triage").split()[-1])["who"] == "redrive_rules"
    rows = executing.sql("select state, purged_at, value, reason from dead_letters where original_topic = 'purgeafter.orders'")
    assert [(row["state"], row["value"], row["purged_at"] is not None) for row in rows] == [("discarded", None, True)] * 2
    assert executing.sql("select * from dead_letters_to_purge") == []


@pytest.mark.slow
def test_the_triage_sends_again_what_the_rules_say_once_and_leaves_the_rest_to_people(executing: Redrive) -> None:
    executing.domain("triage")
    _die(executing, "triage", 2)
    said = _call(executing, "dlq", "triage", "--dry-run")
    print(said)
    reason = "KeyError for topic ^(triage|dagster)[.]orders$: it helped before"
    assert re.search(re.escape(reason) + r"\s+messages +2 +redrive", said)
    # two runs before the loop has heard of the first: all of it is sent once
    first, second = (_call(executing, "dlq", "triage").split()[-1] for _ in range(2))
    row = _until_done(executing, first)
    assert (row["redriven"], row["who"], row["reason"]) == (2, "redrive_rules", reason)
    assert _until_done(executing, second)["on_their_way"] == 2
    retries = executing.retries("triage", 2)
    assert len(retries) == 2
    # dead again, in their second life_cycle, which is all that the rule gives them
    for record in retries:
        executing.report(record, error="KeyError")
    executing.dead("triage", 4)
    executing.settle()
    states = executing.sql("select state, life_cycles from dead_letters where original_topic = 'triage.orders'")
    assert [tuple(row) for row in states] == [("open", 2)] * 2
    assert "the rules ask for nothing now" in _call(executing, "dlq", "triage")


@pytest.mark.slow
def test_a_dead_letter_of_others_is_adopted_where_it_lies_redriven_and_dies_again_as_ours(executing: Redrive) -> None:
    executing.domain("adopted")
    executing.topics("adopted.graves")
    original = Record("adopted.orders", *executing.write("adopted.orders", b"k", b"v"), 0, b"k", b"v", (("trace", b"\x01"),))
    headers = [*original.headers, *recovered(original, b"java.lang.NullPointerException")]
    _, offset = executing.write("adopted.graves", original.key, original.value, headers)
    # another doesn't say where it came from
    executing.write("adopted.graves", b"odd", b"v")
    executing.decided("adopted", 2)
    executing.settle()
    found = executing.sql("select * from dead_letters where topic = 'adopted.graves' order by offset")
    assert [(row["state"], row["offset"], row["reason"]) for row in found] == [("open", offset + n, "adopted") for n in range(2)]
    assert [row["error_kind"] for row in found] == ["fatal", "retriable"]
    # no copy, no retry
    assert [executing.read(f"adopted.{topic}") for topic in ("orders.dlq", "orders-billing-retry")] == [[], []]

    dead = DeadLetters(executing.loop.settings)
    listed = select_deliveries(dead, "redrive", Selection(state="open", topic="^adopted[.]"), None)
    row = _until_done(executing, send(executing.loop.settings, _request("redrive"), listed))
    assert (row["listed"], row["redriven"], row["refused"], row["sent"]) == (2, 1, 1, 1)
    (retry,) = executing.retries("adopted", 1)
    assert (retry.value, retry.own_headers, retry.header("redrive-attempt")) == (b"v", original.headers, "1")
    executing.report(retry, error="KeyError")
    executing.dead("adopted", 1)
    executing.settle()
    (again,) = executing.sql(f"select * from dead_letters where message_id = '{found[0]['message_id']}'")
    assert (again["state"], again["life_cycle"], again["life_cycles"], again["topic"]) == ("open", 2, 2, "adopted.orders.dlq")

    (odd,) = (one for one in listed if one.message_id == found[1]["message_id"])
    row = _until_done(executing, send(executing.loop.settings, _request("redrive", to="adopted.orders"), [odd]))
    assert (row["redriven"], row["refused"]) == (1, 0)
    assert [record.key for record in executing.read("adopted.orders")] == [b"k", b"odd"]


def test_check_finds_a_source_that_would_adopt_our_own_dead_letters(executing: Redrive, tmp_path: Path) -> None:
    executing.domain("ours")
    seeds = shutil.copytree(executing.loop.settings.seeds, tmp_path / "seeds")
    _add(seeds / "sources.csv", "taken,ours.orders.dlq,spring,billing,ours.orders,earliest,false,dead")
    findings = run_checks(Asking(executing.loop.settings.model_copy(update={"seeds": seeds})), create=False)
    found = [finding.found for finding in findings if finding.what == "topic ours.orders.dlq" and not finding.ok]
    assert [text for text in found if "is read by source taken" in text]
    assert {finding.found for finding in findings if finding.what == "source taken"} == {"ours.orders.dlq; their dead letters are adopted"}


@pytest.fixture
def slow(executing: Redrive) -> Iterator[Redrive]:
    """Failures of `slow.orders` wait for an hour."""
    seeds = executing.loop.settings.seeds
    before = {path: path.read_text(encoding="utf-8") for path in (seeds / "routes.csv", seeds / "retry_policies.csv")}
    _add(seeds / "routes.csv", "slow.orders,*,*,hourly,publish,{topic}-{group}-retry,{topic}.dlq")
    _add(seeds / "retry_policies.csv", "hourly,fixed(1h x 5)")
    yield executing
    for path, text in before.items():
        path.write_text(text, encoding="utf-8")
    executing.loop.tick()


def _add(path: Path, row: str) -> None:
    """Adds a row, its last columns left to their defaults."""
    text = path.read_text(encoding="utf-8")
    left_out = text.splitlines()[0].count(",") - row.count(",")
    path.write_text(f"{text}{row}{',' * left_out}\n", encoding="utf-8")


@pytest.mark.slow
def test_what_waits_is_sent_now_or_cancelled_and_what_was_sent_is_left_alone(slow: Redrive) -> None:
    slow.domain("slow")
    for number in range(2):
        slow.fails("slow.orders", b"k", b"%d" % number)
    slow.decided("slow", 2)
    slow.settle()
    first, second = _list(slow, "send_now", "slow")
    row = _until_done(slow, send(slow.loop.settings, _request("send_now"), [first]))
    assert (row["redriven"], row["on_their_way"]) == (1, 0)
    (sent,) = slow.retries("slow", 1)
    assert sent.header("redrive-attempt") == "2"
    # it has been sent: neither again, nor cancelled
    for what in ("send_now", "cancel"):
        row = _until_done(slow, send(slow.loop.settings, _request(what), [first]))
        assert (row["redriven"], row["done"], row["on_their_way"]) == (0, 0, 1)
    row = _until_done(slow, send(slow.loop.settings, _request("cancel"), [second]))
    assert row["done"] == 1
    states = slow.sql("select message_id, state from messages where original_topic = 'slow.orders'")
    assert {row["message_id"]: row["state"] for row in states} == {first.message_id: "sent", second.message_id: "cancelled"}
    assert len(slow.read("slow.orders-billing-retry")) == 1
    with pytest.raises(CommandError, match="redrive check --create"):
        send(slow.loop.settings.model_copy(update={"commands_topic": "not.there"}), _request("cancel"), [second])


def _decide_fails(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def failing(*_: Any) -> None:
        raise error

    monkeypatch.setattr(DecideRunner, "run", failing)


@pytest.mark.slow
def test_nothing_is_sent_between_an_order_and_its_decision_and_everything_else_is(
    executing: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    executing.domain("torn")
    topic = "torn.orders-billing-retry"
    with monkeypatch.context() as patch:
        # all three are due when the orders come
        patch.setattr(executing.loop, "_publish", lambda: None)
        for value in (b"cancelled", b"now", b"neither"):
            executing.fails("torn.orders", b"k", value)
        executing.decided("torn", 3)
        listed = _list(executing, "send_now", "torn")
        send(executing.loop.settings, _request("cancel"), [listed[0]])
        send(executing.loop.settings, _request("send_now"), [listed[1]])
        _decide_fails(patch, DecideError("no space left on device"))
        ordered = "select 1 from events where kind in ('cancel', 'send_now') and delivery_id like 'billing:torn%'"
        executing.until(lambda: len(executing.sql(ordered)) == 2, "both are ordered")
        assert DECIDE in executing.loop.health
    with monkeypatch.context() as patch:
        _decide_fails(patch, DecideError("no space left on device"))
        executing.retries("torn", 1)
        for _ in range(3):
            executing.loop.look_now()
            executing.loop.tick()
        assert [record.value for record in executing.read(topic)] == [b"neither"]
        # what comes in meanwhile waits, and so does what it is about; a restart changes nothing
        executing.restart()
        assert [record.value for record in executing.read(topic)] == [b"neither"]
    executing.retries("torn", 2)
    executing.settle()
    assert [record.value for record in executing.read(topic)] == [b"neither", b"now"]
    (row,) = executing.sql("select state from messages where original_topic = 'torn.orders' and original_offset = 0")
    assert row["state"] == "cancelled"


@pytest.mark.slow
def test_a_loop_whose_first_decide_run_ends_it_sends_what_is_due_before(executing: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    executing.domain("doomed")
    with monkeypatch.context() as patch:
        patch.setattr(executing.loop, "_publish", lambda: None)
        executing.fails("doomed.orders", b"k", b"due")
        executing.decided("doomed", 1)
        # taken in, and not decided, when the loop ends
        patch.setattr(executing.loop, "_decide", lambda: None)
        executing.fails("doomed.orders", b"k", b"undecided")
        reported = "select 1 from events where topic = 'doomed.reports'"
        executing.until(lambda: len(executing.sql(reported)) == 2, "the second report is taken in")
    executing.loop.close()
    with monkeypatch.context() as patch:
        _decide_fails(patch, SystemExit())
        doomed = Loop(executing.loop.settings)
        with pytest.raises(SystemExit):
            doomed.start()
    assert [record.value for record in executing.read("doomed.orders-billing-retry")] == [b"due"]
    # releases its lock on the home, as the end of its process would
    doomed._presence.end()
    executing.loop = Loop(doomed.settings)
    executing.loop.start()
    assert [record.value for record in executing.retries("doomed", 2)] == [b"due", b"undecided"]
    executing.settle()
