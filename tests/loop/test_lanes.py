"""The timed lane on the real broker: what it was handed is sent at its time, once, and not after something else was decided about it."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestration.loop.lane import TimedLane
from orchestration.operators.commands import CommandRequest
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.lists import Target, select_deliveries
from orchestration.operators.selections import Selection
from orchestration.operators.sending import send
from orchestration.tables.ledgers import AppendError
from tests.loop.harness import Record, Redrive, deliveries

pytestmark = pytest.mark.long

COMMANDS = "redrive.commands"
BLOCKING = "acme.BlockingError"


@pytest.fixture(scope="module")
def ahead(redrive: Redrive) -> Iterator[Redrive]:
    """A loop that looks 60 seconds ahead. Topics `lanes...` have retries after 40 seconds, `lanesordered...` after 45."""
    if COMMANDS not in redrive.loop.cluster.topic_names():
        redrive.topics(COMMANDS)
    redrive.restart(look_ahead_seconds=60.0)
    yield redrive
    redrive.settle()
    redrive.restart(look_ahead_seconds=0.0)


def lane_of(redrive: Redrive) -> TimedLane:
    """The lane of the loop that runs now."""
    return redrive.loop.steps.publish.hand_over.lane


def handed(redrive: Redrive, domain: str, count: int) -> list[str]:
    """Runs ticks until so many retries of a domain are in the lane; returns their delivery ids."""

    def found() -> list[str]:
        return sorted(name for name in lane_of(redrive).ids() if f":{domain}.orders/" in name)

    return redrive.until(lambda: len(found()) == count and found(), f"{count} retries of {domain} in the lane") or []


def sent_without_ticks(redrive: Redrive, domain: str, count: int) -> list[Record]:
    """Waits, while the loop does nothing, until so many retries are in the topic."""
    found: list[Record] = _wait(lambda: (records := redrive.read(f"{domain}.orders-billing-retry")) and len(records) >= count and records)
    return found


def _wait(condition: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


def due_passes(redrive: Redrive, delivery: str) -> None:
    """Waits until a delivery would have been due for a second, while ticks go on."""
    (row,) = redrive.sql(f"select unix_millis(due_at) as due_ms from deliveries where delivery_id = '{delivery}'")
    redrive.until(lambda: time.time() * 1000 > row["due_ms"] + 1_000, "its time passes")


def test_a_retry_is_sent_at_its_time_while_the_loop_does_something_else(ahead: Redrive) -> None:
    ahead.domain("lanesa")
    failed = [ahead.fails("lanesa.orders", b"k", b"%d" % number) for number in range(3)]
    handed(ahead, "lanesa", 3)
    records = sent_without_ticks(ahead, "lanesa", 3)
    assert [record.value for record in records] == [record.value for record in failed]
    # recorded, while the loop does something else
    _wait(lambda: not lane_of(ahead).ids())
    rows = ahead.sql("select sent_at >= due_at as in_time, outcome, slot from publish_results where original_topic = 'lanesa.orders'")
    assert [(row["in_time"], row["outcome"], row["slot"]) for row in rows] == [(True, "delivered", ahead.loop.settings.slots)] * 3
    tick = ahead.loop.tick()
    assert tick.counts["delivered"] == 3
    assert set(deliveries(ahead.read("lanesa.orders-billing-retry")).values()) == {1}


@pytest.mark.slow
def test_what_operators_say_between_hand_over_and_sending_is_done(ahead: Redrive) -> None:
    # these have more time until they are due: the commands are to come first, also on a busy machine
    domains = {"cancel": "lanesorderedb", "send_now": "lanesorderedc"}
    waits: dict[str, str] = {}
    for domain in domains.values():
        ahead.domain(domain)
        ahead.fails(f"{domain}.orders", b"k", b"v")
    for what, domain in domains.items():
        (waits[what],) = handed(ahead, domain, 1)
        listed = select_deliveries(DeadLetters(ahead.loop.settings), what, Selection(state="all", topic=f"{domain}.orders"), None)
        assert [one.delivery_id for one in listed] == [waits[what]]
        send(ahead.loop.settings, CommandRequest(what, "why", "ada"), listed)
    ahead.until(lambda: not {*waits.values()} & lane_of(ahead).ids(), "they are withdrawn")
    due_passes(ahead, waits["send_now"])
    ahead.settle()
    for what, count, state in (("cancel", 0, "cancelled"), ("send_now", 1, "sent")):
        records = ahead.read(f"{domains[what]}.orders-billing-retry")
        assert waits[what] not in deliveries(records)
        assert len(records) == count
        (message,) = ahead.sql(f"select state from messages where original_topic = '{domains[what]}.orders'")
        assert message["state"] == state


@pytest.mark.slow
def test_a_loop_that_ends_leaves_what_it_was_handed_to_the_next(ahead: Redrive) -> None:
    ahead.domain("lanesd")
    for number in range(3):
        ahead.fails("lanesd.orders", b"k", b"%d" % number)
    handed(ahead, "lanesd", 3)
    ahead.restart()
    records = ahead.retries("lanesd", 3)
    ahead.settle()
    assert set(deliveries(records).values()) == {1}
    assert len(ahead.read("lanesd.orders-billing-retry")) == 3


@pytest.mark.slow
def test_what_was_issued_at_a_rate_keeps_its_distances_when_a_loop_comes_late(ahead: Redrive) -> None:
    ahead.domain("lanespaced")
    for number in range(4):
        ahead.fails("lanespaced.orders", b"k", b"%d" % number, error="KeyError")
    ahead.dead("lanespaced", 4)
    ahead.settle()
    listed = select_deliveries(DeadLetters(ahead.loop.settings), "redrive", Selection(topic="lanespaced.orders"), None)
    send(ahead.loop.settings, CommandRequest("redrive", "why", "ada", rate=1.0), listed)
    waits = handed(ahead, "lanespaced", 4)
    ahead.loop.close()
    paced = "select unix_micros(due_at) as due from deliveries where original_topic = 'lanespaced.orders' and decision = 'redrive'"
    last = max(row["due"] for row in ahead.sql(paced))
    _wait(lambda: time.time() * 1_000_000 > last)
    ahead.restart()
    assert set(waits) <= set(deliveries(sent_without_ticks(ahead, "lanespaced", 4)))
    ahead.settle()
    rows = ahead.sql("select delivery_id, unix_micros(sent_at) as sent from publish_results where outcome = 'delivered'")
    sent = sorted(row["sent"] for row in rows if row["delivery_id"] in waits)
    assert len(sent) == 4
    # a second each, of which the lane may make up for a quarter when it is late, and for a quarter more when a send takes long
    assert all(later - earlier >= 500_000 for earlier, later in itertools.pairwise(sent))


@pytest.mark.slow
def test_more_than_the_lane_takes_goes_both_ways_and_once(ahead: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead.domain("lanese")
    monkeypatch.setattr(lane_of(ahead), "most_rows", 5)
    for number in range(3):
        ahead.fails("lanese.orders", b"k", b"first %d" % number)
    handed(ahead, "lanese", 3)
    for number in range(20):
        ahead.fails("lanese.orders", b"k", b"%d" % number)
    records = ahead.retries("lanese", 23)
    ahead.settle()
    assert set(deliveries(records).values()) == {1}
    assert len(ahead.read("lanese.orders-billing-retry")) == 23
    rows = ahead.sql("select slot from publish_results where original_topic = 'lanese.orders'")
    assert {row["slot"] == ahead.loop.settings.slots for row in rows} == {True, False}, "one lane sent everything"


@pytest.mark.slow
def test_a_destination_that_is_missing_is_paused_and_the_others_are_not(ahead: Redrive) -> None:
    ahead.topics("lanesf.orders", "lanesf.reports", "lanesf.orders-billing-retry")
    ahead.fails("lanesf.orders", b"ghost", b"v", group="ghost")
    ahead.fails("lanesf.orders", b"k", b"v")
    missing = "lanesf.orders-ghost-retry"
    ahead.until(lambda: missing in ahead.loop.state.window.paused, "its destination is missing")
    ahead.retries("lanesf", 1)
    ahead.topics(missing)
    ahead.until(lambda: ahead.read(missing), "it is sent")
    ahead.until(lambda: missing not in ahead.loop.state.window.paused, "it takes messages again")
    ahead.settle()
    assert [set(deliveries(ahead.read(topic)).values()) for topic in (missing, "lanesf.orders-billing-retry")] == [{1}, {1}]


@pytest.mark.slow
def test_what_waits_under_a_circuit_breaker_that_opens_is_held(ahead: Redrive) -> None:
    ahead.domain("lanesorderedg")
    for number in range(2):
        ahead.fails("lanesorderedg.orders", b"k", b"%d" % number)
    first = handed(ahead, "lanesorderedg", 2)
    ahead.fails("lanesorderedg.orders", b"k", b"blocks", error=BLOCKING)
    ahead.until(lambda: "billing:lanesorderedg.orders" in ahead.loop.state.breakers, "the circuit breaker opens")
    assert not {*first} & lane_of(ahead).ids()
    # one of them is the probe; the others are held at their time
    ahead.retries("lanesorderedg", 1)
    ahead.until(lambda: len(ahead.sql("select 1 from held_deliveries where original_topic = 'lanesorderedg.orders'")) == 2, "two are held")
    assert len(ahead.read("lanesorderedg.orders-billing-retry")) == 1


@pytest.mark.slow
def test_what_a_report_names_is_not_in_the_lane_while_that_is_decided(ahead: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead.domain("lanesh")
    record = ahead.fails("lanesh.orders", b"k", b"v")
    (delivery,) = handed(ahead, "lanesh", 1)
    runner = ahead.loop.steps.decide.runner
    run, in_lane = runner.run, list[bool]()

    def decide(*what: Any) -> None:
        in_lane.append(delivery in lane_of(ahead).ids())
        run(*what)

    monkeypatch.setattr(runner, "run", decide)
    # it names a delivery that nobody can have yet, which is not believed
    (row,) = ahead.sql(f"select unix_millis(due_at) as due_ms from deliveries where delivery_id = '{delivery}'")
    names = (("redrive-delivery", delivery.encode()), ("redrive-due", str(row["due_ms"]).encode()))
    ahead.report(Record("lanesh.orders", 0, 99, record.timestamp, record.key, record.value, names))
    ahead.until(lambda: in_lane, "the report is decided")
    assert in_lane[0] is False
    ahead.until(lambda: delivery in deliveries(ahead.read("lanesh.orders-billing-retry")), "it is sent")
    ahead.settle()
    assert deliveries(ahead.read("lanesh.orders-billing-retry"))[delivery] == 1


@pytest.mark.slow
def test_results_that_could_not_be_recorded_are_recorded_later_and_nothing_is_sent_twice(
    ahead: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead.domain("lanesi")
    ahead.fails("lanesi.orders", b"k", b"v")
    handed(ahead, "lanesi", 1)
    ledgers = ahead.loop.ledgers
    append = ledgers.append
    refused: list[str] = []

    def fails_once(ledger: str, *rest: Any) -> int:
        if ledger == "publish_results" and not refused:
            refused.append(ledger)
            raise AppendError("the catalog is locked")
        return append(ledger, *rest)

    monkeypatch.setattr(ledgers, "append", fails_once)
    sent_without_ticks(ahead, "lanesi", 1)
    _wait(lambda: refused)
    ahead.until(lambda: ahead.sql("select 1 from publish_results where original_topic = 'lanesi.orders'"), "it is recorded")
    ahead.settle()
    assert len(ahead.read("lanesi.orders-billing-retry")) == 1
    assert len(ahead.sql("select 1 from publish_results where original_topic = 'lanesi.orders'")) == 1


@pytest.mark.slow
def test_a_report_that_comes_before_the_result_of_its_retry_is_recorded_is_its_answer(
    ahead: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer may fail within milliseconds, and its framework may drop headers that it doesn't know."""
    originals: dict[str, Record] = {}
    for domain in ("lanesj", "lanesk"):
        ahead.domain(domain)
        originals[domain] = ahead.fails(f"{domain}.orders", b"k", b"v")
    for domain in originals:
        handed(ahead, domain, 1)
    lane = lane_of(ahead)
    record = lane.record

    reported = threading.Event()

    def slowly(*what: Any) -> None:
        reported.wait(120)
        record(*what)

    monkeypatch.setattr(lane, "record", slowly)
    retries = {domain: sent_without_ticks(ahead, domain, 1)[0] for domain in originals}
    # it names the retry, or the original record
    for failed in (retries["lanesj"], originals["lanesk"]):
        ahead.report(Record(failed.topic, failed.partition, failed.offset, failed.timestamp, b"k", b"v", ()))
    assert ahead.sql("select 1 from publish_results where original_topic in ('lanesj.orders', 'lanesk.orders')") == [], "recorded too soon"
    # while the loop takes the reports in
    threading.Timer(3, reported.set).start()
    for domain in originals:
        (_, answer) = ahead.decided(domain, 2)
        assert (answer["decision"], answer["attempt"]) == ("retry", 2)
    for domain in originals:
        ahead.retries(domain, 2)
    ahead.settle()


@pytest.mark.slow
def test_what_is_on_time_is_not_delayed_by_a_backlog_that_is_larger_than_the_lane(ahead: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead.domain("lanesl")
    ahead.domain("lanesm")
    monkeypatch.setattr("orchestration.loop.hand_over.MOST_ROWS", 5)
    monkeypatch.setattr(lane_of(ahead), "most_rows", 5)
    # the bulk lane is not asked: what it has stays due
    monkeypatch.setattr(ahead.loop.steps.publish, "publish_due", lambda *_: True)
    late = int((time.time() - 60) * 1000)
    for number in range(20):
        ahead.fails("lanesl.orders", b"k", b"%d" % number, failed_at=late)
    ahead.decided("lanesl", 20)
    ahead.fails("lanesm.orders", b"k", b"on time")
    handed(ahead, "lanesm", 1)
    (record,) = sent_without_ticks(ahead, "lanesm", 1)
    assert record.value == b"on time"
    assert ahead.read("lanesl.orders-billing-retry") == []
    monkeypatch.undo()
    ahead.retries("lanesl", 20)
    ahead.settle()
    assert set(deliveries(ahead.read("lanesl.orders-billing-retry")).values()) == {1}


@pytest.mark.slow
def test_ten_minutes_of_random_orders_are_followed_whatever_the_lane_is_doing(ahead: Redrive) -> None:
    ahead.domain("lanesrandom")
    chance, failed, seen = random.Random(20260301), 0, set[int]()
    waiting = "select message_id, delivery_id, unix_millis(due_at) as due_ms from ready where original_topic = 'lanesrandom.orders'"
    ends = time.monotonic() + 600
    while time.monotonic() < ends:
        for _ in range(chance.randint(0, 4)):
            ahead.fails("lanesrandom.orders", b"k", b"%d" % failed)
            failed += 1
        for record in ahead.read("lanesrandom.orders-billing-retry"):
            if record.offset not in seen and chance.random() < 0.3:
                ahead.report(record)
            seen.add(record.offset)
        rows = ahead.sql(waiting)
        for what in ("cancel", "send_now"):
            if rows and chance.random() < 0.5:
                chosen = [Target(**row.asDict()) for row in chance.sample(rows, min(len(rows), chance.randint(1, 3)))]
                send(ahead.loop.settings, CommandRequest(what, "why", "ada"), chosen)
        ahead.loop.tick()
    ahead.until(lambda: not ahead.sql(waiting), "nothing waits", 600)
    ahead.settle()

    records = ahead.read("lanesrandom.orders-billing-retry")
    assert set(deliveries(records).values()) == {1}
    assert [record for record in records if record.timestamp < int(record.header("redrive-due") or 0)] == []
    followed = """
        select decisions.decision, count(*) as orders, count(results.delivery_id) as sent
        from decisions
        left join publish_results as results
            on decisions.prior_delivery = results.delivery_id and results.outcome in ('delivered', 'unknown')
        where decisions.original_topic = 'lanesrandom.orders' and reason in ('cancel', 'send_now') and decision in ('cancelled', 'retry')
        group by all
        """
    done = {row["decision"]: (row["orders"] > 20, row["sent"]) for row in ahead.sql(followed)}
    assert done == {"cancelled": (True, 0), "retry": (True, 0)}, "what was cancelled or replaced is not sent"
    states = Counter(row["state"] for row in ahead.sql("select state from messages where original_topic = 'lanesrandom.orders'"))
    assert states.keys() <= {"sent", "recovered", "cancelled", "dead"}
    assert states.total() == failed
    slots = {row["slot"] for row in ahead.sql("select distinct slot from publish_results where original_topic = 'lanesrandom.orders'")}
    assert ahead.loop.settings.slots in slots, "the lane has sent nothing"
