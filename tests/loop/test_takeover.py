"""A loop that another one has taken over from sends nothing more, and says so."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter

import pytest

from orchestration.loop.leadership import Leadership
from orchestration.loop.loop import Loop
from orchestration.loop.steps import StepReport
from tests.log_events import logged
from tests.loop.harness import Redrive, deliveries


def decided(loop: Loop) -> int:
    """A tick that ends before it publishes; how much it decided."""
    loop.state = loop.state.began()
    loop._take_in()
    loop._decide()
    return loop.state.counts.get("decisions", 0)


@pytest.mark.long
def test_an_older_loop_sends_nothing_once_a_newer_one_is_in_charge(
    redrive: Redrive, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive.domain("takeover")
    slots = redrive.loop.settings.slots
    redrive.restart(slots=2)
    redrive.fails("takeover.orders", b"first", b"v")
    redrive.retries("takeover", 1)

    # the older one has decided about these, in two decide runs for its two slots, and has not sent them yet
    for key in (b"second", b"third"):
        redrive.fails("takeover.orders", key, b"v")
        deadline = time.monotonic() + 120
        # no whole tick: it would send what is due
        while not decided(redrive.loop):
            assert time.monotonic() < deadline, "the failure is not decided"
    # the newer one has one slot: it fences those that it will not use, too
    older, newer = redrive.loop, Loop(redrive.loop.settings.model_copy(update={"slots": 1}))
    # the older one is as good as frozen: it does not turn while it is taken over from
    monkeypatch.setattr("orchestration.loop.takeover._LAST_ROWS", 0.5)
    # and the newer one has not sent anything yet when the older one goes on
    with monkeypatch.context() as patch, caplog.at_level(logging.INFO):
        patch.setattr(newer, "_publish", lambda: None)
        newer.start()
    assert newer.leadership.in_charge
    assert logged(caplog, "older_loop_timed_out") == [{"generation": older.ledgers.generation}]
    assert {"generation": newer.ledgers.generation, "instance": newer.settings.instance} in logged(caplog, "takeover_completed")

    with caplog.at_level(logging.ERROR):
        # what it is about to send
        older._publish()
        redrive.until(lambda: older.tick() and older.superseded_by, "the older loop sees that it is not in charge")
    assert older.superseded_by == newer.ledgers.generation == older.ledgers.generation + 1
    assert older.stopping.is_set()
    superseded = {"generation": older.ledgers.generation, "superseded_by": newer.ledgers.generation}
    assert superseded in logged(caplog, "loop_superseded")
    assert len(redrive.read("takeover.orders-billing-retry")) == 1
    older.close()

    redrive.loop = newer
    retries = redrive.retries("takeover", 3)
    assert Counter(retry.key for retry in retries) == Counter((b"first", b"second", b"third"))
    redrive.restart(slots=slots)


@pytest.mark.slow
def test_a_loop_that_is_taken_over_from_while_it_is_busy_sends_nothing_twice(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    # however slow the machine is
    monkeypatch.setattr("orchestration.loop.takeover._LAST_ROWS", 300.0)
    redrive.domain("busy")
    topic = "busy.orders-billing-retry"
    written: list[bytes] = []
    enough = threading.Event()

    def write() -> None:
        while not enough.wait(0.3):
            for _ in range(10):
                written.append(b"%d" % len(written))
                redrive.fails("busy.orders", written[-1], b"v")

    # nobody reports the retries: a report would tell the newer loop what the older one has sent
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            older, newer = redrive.loop, Loop(redrive.loop.settings)
            turning = threading.Thread(target=older.run)
            turning.start()
            sent = len(redrive.read(topic))
            while len(redrive.read(topic)) < sent + 30:
                assert turning.is_alive()
                time.sleep(0.2)
            redrive.loop = newer
            newer.start()
            turning.join()
            assert older.superseded_by == newer.ledgers.generation == older.ledgers.generation + 1
    finally:
        enough.set()
        writer.join()
    retries = redrive.retries("busy", len(written))
    redrive.settle()
    retries = redrive.read(topic)
    assert {retry.key for retry in retries} == {*written}
    assert set(deliveries(retries).values()) == {1}
    # each of the older ones had time to say its end
    ended = redrive.sql(f"select generation from ticks where kind = 'end' and generation >= {newer.ledgers.generation - 3}")
    assert len(ended) == 3


def test_an_installation_whose_name_is_taken_is_told_so(
    redrive: Redrive, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive.domain("named")
    if redrive.loop.ledgers.generation == 1:
        # it began before there was a topic with which Kafka could remember its generation
        redrive.restart()
    redrive.settle()
    # as if the tables had been deleted, and their generations with them: Kafka remembers a higher one
    stranger = Loop(redrive.loop.settings)
    for name in ("spark", "schema", "rules", "cluster", "clock", "state", "ledgers", "steps"):
        setattr(stranger, name, getattr(redrive.loop, name))
    charge = Leadership(stranger.settings, stranger.cluster, stranger.rules, stranger.health, stranger._superseded)
    charge.stored = redrive.loop.stored
    report = StepReport(stranger.state)
    monkeypatch.setattr(redrive.loop.ledgers, "generation", 0)
    monkeypatch.setattr(type(redrive.loop.ledgers), "newest_generation", lambda _: 0)
    with caplog.at_level(logging.ERROR):
        assert not charge.take(report)
        stranger._apply(report.result())
    assert stranger.stopping.is_set()
    said = logged(caplog, "unknown_generation_found")[-1]
    assert "another installation has the same name" in said["reason"]
    assert "REDRIVE_INSTANCE" in said["hint"]


@pytest.mark.slow
def test_a_start_moves_the_tables_of_version_0_1_0_and_goes_on(redrive: Redrive) -> None:
    redrive.domain("moved")
    first = redrive.fails("moved.orders", b"k", b"v")
    redrive.retries("moved", 1)
    redrive.loop.close()
    generation = redrive.loop.ledgers.generation
    with sqlite3.connect(redrive.loop.settings.catalog) as catalog:
        # as that version names them; the views are of this one, but find nothing under these names either
        catalog.execute("update iceberg_tables set catalog_name = 'redrive', table_namespace = '' where table_namespace = 'redrive'")
        catalog.execute("update iceberg_namespace_properties set catalog_name = 'redrive', namespace = '' where namespace = 'redrive'")
    redrive.restart()
    assert redrive.loop.ledgers.generation == generation + 1
    (row,) = redrive.sql(f"select state from messages where message_id = 'billing:moved.orders/{first.partition}/{first.offset}'")
    assert row["state"] == "sent"
    redrive.report(redrive.retries("moved", 1)[0])
    assert len(redrive.retries("moved", 2)) == 2
