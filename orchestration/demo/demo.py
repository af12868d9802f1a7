"""`redrive demo`: a real broker, a consumer that fails now and then, the loop, for a minute; then what the tables say."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table

from orchestration.demo.broker import Broker, BrokerSettings
from orchestration.demo.summary import sum_up
from orchestration.demo.topics import audit, make_topics
from orchestration.log_lines import LogLines
from orchestration.loop.loop import Loop, Tick
from orchestration.output import console, errors
from orchestration.settings import Settings, load_settings

if TYPE_CHECKING:
    from orchestration.demo.outbox import OutboxDemo

_ORDERS = 240
# No orders are written in the last seconds of the run, so that most retries are sent before it ends.
_SECONDS_WITHOUT_ORDERS = 30

# The setting settle_seconds for the demo: short, as the demo's consumer reports failures at once.
_RECOVERED_AFTER_SECONDS = 3
# The longest time, in seconds, that the demo waits for processed messages to count as recovered.
_RECOVERY_SECONDS = 60

_say = errors()


@dataclass
class Progress:
    """What the live table shows."""

    began: float
    seconds: int
    written: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    last: Tick = field(default_factory=Tick)
    lateness_ms: tuple[int, int] | None = None
    """The median and the 99th percentile of what was sent last."""
    ticks: int = 0
    tick_ms: list[int] = field(default_factory=list)
    processed: set[str] = field(default_factory=set)

    def table(self) -> Table:
        """The progress, as a table."""
        table = Table(box=None, pad_edge=False, show_header=False)
        left = max(0, round(self.began + self.seconds - time.monotonic()))
        table.add_row("orders written", str(self.written), f"{left} s to go")
        table.add_row("consumer", f"{self.outcomes['processed']} processed", f"{self.outcomes['failed']} failed and reported")
        table.add_row("loop", f"{self.counts['events']} reports in", f"{self.counts['delivered']} sent (retries and dead letters)")
        table.add_row("waiting", str(self.waiting), f"{self.counts['dead_letters']} dead")
        steps = " ".join(f"{step} {ms} ms" for step, ms in self.last.step_ms.items())
        table.add_row("last tick", f"no. {self.ticks}", steps or "idle")
        if self.lateness_ms:
            table.add_row("late", f"p50 {self.lateness_ms[0]} ms", f"p99 {self.lateness_ms[1]} ms")
        return table

    @property
    def late(self) -> str:
        """How late the last sends were, for a line of text; empty before the first."""
        if not self.lateness_ms:
            return ""
        p50, p99 = (ms / 1000 for ms in self.lateness_ms)
        return f", sent p50 {p50:.1f} s, p99 {p99:.1f} s after the due time"

    @property
    def waiting(self) -> int:
        """Failures for which nothing has been sent so far. Each gets a retry or a dead letter."""
        return max(0, self.outcomes["failed"] - self.counts["delivered"])


def run_demo(settings: Settings, *, port: int | None, seconds: int, outbox: bool = False) -> int:
    """Runs the demo; returns the exit code: 1 if anything was lost, sent early or sent twice.

    outbox: the orders are rows of an outbox table, which redrive publishes. Raises PostgresError if no PostgreSQL is installed.
    """
    examples = settings.dbt_directory
    if str(examples) not in sys.path:
        sys.path.insert(0, str(examples))
    _quiet(settings.make_home())
    _say.print(f"state goes to {settings.home}")
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(BrokerSettings(settings.broker_directory, port=port)))
        _say.print(f"a Kafka broker is up at {broker.bootstrap_servers}")
        # without this, the client library would print its own log between the lines of the demo
        kafka = {"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"}
        begins = make_topics(kafka, settings.commands_topic)
        shop = stack.enter_context(_outbox(kafka, settings.home)) if outbox else None
        own = {} if shop is None else shop.settings(settings.seeds)
        settle = min(settings.settle_seconds, _RECOVERED_AFTER_SECONDS)
        loop = Loop(load_settings(home=settings.home, kafka=kafka, settle_seconds=settle, **own))
        _say.print("Spark starts, and dbt makes tables and views (the first time it downloads jars) ...")
        loop.start()
        progress = Progress(time.monotonic(), seconds)
        orders = _turn(loop, kafka, progress, shop)
        _settle(loop, progress.processed)
        findings = audit(loop, kafka, begins, orders)
        if shop is not None:
            lost, twice = shop.audit(begins)
            findings = replace(findings, lost=[*findings.lost, *lost], twice=findings.twice + twice)
        loop.close()
        clean = sum_up(loop, findings, progress.tick_ms)
        if shop is not None:
            console(160).print("\n[bold]What became of the rows of the outbox?[/bold]", shop.table())
    return 0 if clean else 1


def _outbox(kafka: dict[str, str], home: Path) -> OutboxDemo:
    from orchestration.demo.outbox import OutboxDemo

    _say.print("a PostgreSQL server is started for the outbox")
    return OutboxDemo(kafka, home)


def _turn(loop: Loop, kafka: dict[str, str], progress: Progress, shop: OutboxDemo | None = None) -> list[dict[str, Any]]:
    """Runs writer and consumer in threads, and the loop in this one. Returns the orders that were written."""
    from examples.flaky_consumer import Done, Outcome
    from examples.flaky_consumer import run as consume
    from examples.produce_orders import produce_orders

    stop = threading.Event()
    orders: list[dict[str, Any]] = []
    problems: list[BaseException] = []

    def on_outcome(outcome: Outcome) -> None:
        progress.outcomes[outcome.outcome] += 1
        if outcome.outcome == "processed":
            progress.processed.add(outcome.message_id)

    def write() -> None:
        rounds = 12
        for _ in range(rounds):
            count = _ORDERS // rounds
            orders.extend(produce_orders(kafka, count) if shop is None else shop.write(count))
            progress.written = len(orders)
            if stop.wait(max(0.0, progress.seconds - _SECONDS_WITHOUT_ORDERS) / rounds):
                return

    def guarded(what: Any, *arguments: Any) -> None:
        try:
            what(*arguments)
        except BaseException as error:
            problems.append(error)
            loop.stopping.set()

    threads = [
        threading.Thread(target=guarded, args=(consume, stop, kafka, Done(on_outcome=on_outcome)), name="consumer"),
        threading.Thread(target=guarded, args=(write,), name="writer"),
    ]
    for thread in threads:
        thread.start()
    deadline = threading.Timer(progress.seconds, loop.stopping.set)
    deadline.daemon = True
    deadline.start()
    try:
        _show(loop, progress)
    except KeyboardInterrupt:
        _say.print("stopped")
    finally:
        loop.stopping.set()
        deadline.cancel()
        stop.set()
        for thread in threads:
            thread.join()
    if problems:
        raise problems[0]
    return orders


def _show(loop: Loop, progress: Progress) -> None:
    """Runs the loop, with a live table in a terminal, otherwise with a line every ten seconds."""
    screen = console(None)

    def on_tick(tick: Tick) -> None:
        progress.ticks += 1
        progress.counts.update(tick.counts)
        progress.last = tick if tick.did_something else progress.last
        progress.lateness_ms = tick.lateness_ms or progress.lateness_ms
        if tick.step_ms:
            progress.tick_ms.append(sum(tick.step_ms.values()))

    loop.on_tick = on_tick
    if screen.is_terminal:
        with Live(get_renderable=progress.table, console=screen, refresh_per_second=4):
            loop.run()
        return
    last = 0.0

    def say(tick: Tick) -> None:
        nonlocal last
        on_tick(tick)
        if time.monotonic() - last >= 10:
            last = time.monotonic()
            _say.print(
                f"{progress.written} orders, {progress.outcomes['processed']} processed, {progress.outcomes['failed']} failures reported, "
                f"{progress.counts['delivered']} sent, {progress.waiting} waiting{progress.late}"
            )

    loop.on_tick = say
    loop.run()


def _settle(loop: Loop, processed: set[str]) -> None:
    """Decides the last reports, and waits until what the consumer has processed counts as recovered. What is due later stays waiting."""
    loop.stopping.clear()
    deadline = time.monotonic() + _RECOVERY_SECONDS
    while time.monotonic() < deadline:
        busy = loop.tick().did_something
        if not busy and not (processed & _sent(loop)):
            break
        if not busy:
            time.sleep(loop.settings.poll_seconds)


def _sent(loop: Loop) -> set[str]:
    """The messages whose last retry was sent, and is not yet known to be processed."""
    rows = loop.spark.sql(f"select message_id from {loop.schema}.messages where state = 'sent'").collect()
    return {row["message_id"] for row in rows}


def _quiet(home: Path) -> None:
    """Sends the loop's log to a file, as the terminal shows the table."""
    root = logging.getLogger()
    root.handlers = [logging.FileHandler(home / "demo.log")]
    root.handlers[0].setFormatter(LogLines())
