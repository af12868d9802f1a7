"""`redrive demo`: a real broker, a consumer that fails now and then, the loop, for about two minutes; then what the tables say."""

from __future__ import annotations

import logging
import statistics
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from orchestration.cli.log_lines import LogLines
from orchestration.cli.output import console, errors, printable
from orchestration.clock import wall_clock
from orchestration.demo.broker import Broker, BrokerSettings
from orchestration.kafka.cluster import Cluster, Partition
from orchestration.kafka.topics import HEADER_ROOM_BYTES
from orchestration.loop.loop import Loop, Tick
from orchestration.operators.commands import Wish, keep, select_deliveries, shown
from orchestration.operators.dead_letters import DeadLetters, Selection
from orchestration.settings import Settings, load_settings
from orchestration.tables.query import print_rows, query
from publisher import make_client

_TOPICS = ("orders", "orders-billing-retry", "orders.dlq", "redrive.failures", "redrive.failures.dlq")
# One partition, as a command's records are read in the order in which they were written.
_PARTITIONS_OF_COMMANDS = 1
_PARTITIONS = 3
_LARGEST = 2 * 1024 * 1024
_ORDERS = 240
_SETTLE_SECONDS = 60
# A message has recovered when its consumer has committed its retry, and has reported nothing for so long: the one here reports at once.
_RECOVERED_AFTER_SECONDS = 3
# How long the demo waits for that, at most.
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
    ticks: int = 0
    tick_ms: list[int] = field(default_factory=list)
    processed: set[str] = field(default_factory=set)

    def table(self) -> Table:
        """The state of things, as a table."""
        table = Table(box=None, pad_edge=False, show_header=False)
        left = max(0, round(self.began + self.seconds - time.monotonic()))
        table.add_row("orders written", str(self.written), f"{left} s to go")
        table.add_row("consumer", f"{self.outcomes['processed']} processed", f"{self.outcomes['failed']} failed and reported")
        table.add_row("loop", f"{self.counts['events']} reports in", f"{self.counts['delivered']} sent (retries and dead letters)")
        table.add_row("waiting", str(self.waiting), f"{self.counts['dead_letters']} dead")
        steps = " ".join(f"{step} {ms} ms" for step, ms in self.last.step_ms.items())
        table.add_row("last tick", f"no. {self.ticks}", steps or "idle")
        if self.last.lateness_ms:
            table.add_row("late", f"p50 {self.last.lateness_ms[0]} ms", f"p99 {self.last.lateness_ms[1]} ms")
        return table

    @property
    def waiting(self) -> int:
        """Failures that are not answered yet: each is, by a retry or a dead letter."""
        return max(0, self.outcomes["failed"] - self.counts["delivered"])


def run_demo(settings: Settings, *, port: int | None, seconds: int) -> int:
    """Runs the demo; returns the exit code: 1 if anything was lost, early, or twice."""
    examples = settings.project
    if str(examples) not in sys.path:
        sys.path.insert(0, str(examples))
    _quiet(settings.make_home())
    _say.print(f"state goes to {settings.home}")
    with Broker(BrokerSettings(settings.broker_directory, port=port)) as broker:
        _say.print(f"a Kafka broker is up at {broker.bootstrap_servers}")
        # what the client library would print is no news between the lines here
        kafka = {"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"}
        begins = _make_topics(kafka, settings.commands_topic)
        loop = Loop(load_settings(home=settings.home, kafka=kafka, settle_seconds=min(settings.settle_seconds, _RECOVERED_AFTER_SECONDS)))
        _say.print("Spark starts, and dbt makes tables and views (the first time it downloads jars) ...")
        loop.start()
        progress = Progress(time.monotonic(), seconds)
        orders = _turn(loop, kafka, progress)
        _settle(loop, progress.processed)
        findings = _audit(loop, kafka, begins, orders)
        loop.close()
        clean = _tell(loop, findings, progress)
    return 0 if clean else 1


def _turn(loop: Loop, kafka: dict[str, str], progress: Progress) -> list[dict[str, Any]]:
    """The demo proper: writer and consumer in threads, the loop here. Returns the orders that were written."""
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
            orders.extend(produce_orders(kafka, _ORDERS // rounds))
            progress.written = len(orders)
            if stop.wait(max(0.0, progress.seconds - _SETTLE_SECONDS) / rounds):
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
    """Turns the loop, with a live table where there is a terminal and a line now and then where there is none."""
    screen = console(None)

    def on_tick(tick: Tick) -> None:
        progress.ticks += 1
        progress.counts.update(tick.counts)
        progress.last = tick if tick.did_something else progress.last
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
                f"{progress.counts['delivered']} sent, {progress.waiting} waiting"
            )

    loop.on_tick = say
    loop.run()


def _settle(loop: Loop, processed: set[str]) -> None:
    """Decides what the consumer has reported last, and waits until what it has processed counts as recovered; what is due later waits."""
    loop.stopping.clear()
    deadline = time.monotonic() + _RECOVERY_SECONDS
    while time.monotonic() < deadline:
        busy = loop.tick().did_something
        if not busy and not (processed & _sent(loop)):
            break
        if not busy:
            time.sleep(loop.settings.poll_seconds)


def _sent(loop: Loop) -> set[str]:
    """The messages whose last retry was sent, and of which it is not known yet that it was processed."""
    rows = loop.spark.sql(f"select message_id from {loop.schema}.messages where state = 'sent'").collect()
    return {row["message_id"] for row in rows}


@dataclass(frozen=True)
class Findings:
    """What the topics themselves say. `lost`: ids of messages with a report that nothing answers, and for which nothing waits."""

    orders: int
    lost: list[str]
    early: int
    twice: int
    retries: int
    dead: int


def _audit(loop: Loop, kafka: dict[str, str], begins: dict[TopicPartition, int], orders: list[dict[str, Any]]) -> Findings:
    """Counts in Kafka: each report must have its answer there, a retry or a dead letter, or a delivery that waits in the tables."""
    sent = list(_read(kafka, begins, ("orders-billing-retry", "orders.dlq")))
    answers = Counter(headers["redrive-message-id"] for _, headers, _, _ in sent)
    reports = Counter(_reported_message(headers) for _, headers, _, _ in _read(kafka, begins, ("redrive.failures",)))
    open_states = "('waiting', 'dead_letter_pending')"
    waiting = {
        row["message_id"] for row in loop.spark.sql(f"select message_id from {loop.schema}.messages where state in {open_states}").collect()
    }
    deliveries = Counter(headers["redrive-delivery"] for _, headers, _, _ in sent)
    return Findings(
        orders=len(orders),
        lost=sorted(message for message, count in reports.items() if answers[message] + (message in waiting) < count),
        early=sum(timestamp < int(headers["redrive-due"]) for _, headers, timestamp, _ in sent),
        twice=sum(count - 1 for count in deliveries.values()),
        retries=sum(topic == "orders-billing-retry" for topic, _, _, _ in sent),
        dead=sum(topic == "orders.dlq" for topic, _, _, _ in sent),
    )


def _reported_message(headers: dict[str, str]) -> str:
    where = "{redrive-original-topic}/{redrive-original-partition}/{redrive-original-offset}".format_map(headers)
    return headers.get("redrive-message-id") or f"{headers['redrive-consumer-group']}:{where}"


def _tell(loop: Loop, findings: Findings, progress: Progress) -> bool:
    """Prints the three questions and their answers, and what to do next; returns whether nothing went wrong."""
    screen = console(160)
    settings = loop.settings
    clean = not findings.lost and not findings.early and not findings.twice
    for question, analysis in (
        ("What was retried, and how often?", "what_was_retried"),
        ("What is dead, and why?", "what_is_dead"),
        ("Was anything lost, early or sent twice?", "what_went_wrong"),
    ):
        text = (settings.project / "dbt_project" / "analyses" / f"{analysis}.sql").read_text(encoding="utf-8")
        rows = query(loop.spark, loop.schema, loop.dbt.compiled(text), 100)
        screen.print(f"\n[bold]{question}[/bold]  (dbt_project/analyses/{analysis}.sql)")
        print_rows(rows, "table", screen)
        if analysis == "what_went_wrong":
            clean = clean and all(int(count) == 0 for what, count in rows.rows if what != "dead without a dead letter")
    screen.print(_lateness(loop, progress))
    screen.print(
        f"\nIn the topics themselves: {findings.orders} orders, {findings.retries} retries, {findings.dead} dead letters; "
        f"lost {len(findings.lost)}, early {findings.early}, twice {findings.twice}."
    )
    kept_as = _dry_run(loop, screen)
    elsewhere = settings.home != Path.cwd() / ".redrive"
    home = f" --home {settings.home}" if elsewhere else ""
    environment = f"REDRIVE_HOME={settings.home} " if elsewhere else ""
    screen.print(
        f"""
[bold]Next[/bold], on the state that is left:
  uv run redrive sql{home} "select state, count(*) from messages group by state"
  uv run redrive explain{home} billing:orders/0/0    why it was sent again, or died
  uv run redrive dlq groups{home}    what died of the same
  uv run redrive dlq show{home} ID    one of them: its payload, its stack, and whom to ask (`dlq list` has the ids)
  uv run redrive broker{home}        starts this broker again; then, beside it:
  uv run redrive run{home}           goes on where the demo stopped (REDRIVE_KAFKA__BOOTSTRAP_SERVERS as it says)
  uv run redrive dlq redrive{home} --list {kept_as} --reason "fixed"    sends what the dry run showed, by the loop that runs
  {environment}uv run dbt build            tests and views, on the same tables"""
    )
    if not clean:
        _say.print(f"[red]something was lost, early or sent twice[/red] {' '.join(findings.lost[:20])}")
    return clean


def _lateness(loop: Loop, progress: Progress) -> str:
    """How late retries were sent, and why."""
    (row,) = loop.spark.sql(
        f"select percentile_approx(lateness_ms, array(0.5, 0.99)) as late from {loop.schema}.attempts where lateness_ms is not null"
    ).collect()
    if not row["late"] or not progress.tick_ms:
        return "\nNothing was sent that could have been late."
    median, most = (f"{ms / 1000:.1f} s" for ms in row["late"])
    tick = f"{statistics.median(progress.tick_ms) / 1000:.1f} s"
    return (
        f"\nSent p50 {median}, p99 {most} after it was due, never before. A tick takes reports in, decides, and sends what is due, in "
        "this order: what falls due meanwhile is sent with the next. Here, with broker, consumer and loop on one machine, half of the "
        f"ticks that had something to do took more than {tick}; the first decisions of a process take seconds longer."
    )


def _dry_run(loop: Loop, screen: Console) -> str:
    """Shows what it would be to send the dead letters of a bug again once it is mended; returns the name that the list is kept by."""
    dead = DeadLetters(loop.settings)
    listed = select_deliveries(dead, "redrive", Selection(state="open", error_class="KeyError"), None)
    wish = Wish("redrive", "the demo", "demo")
    screen.print("\n[bold]What would be sent again, if the bug behind KeyError were mended?[/bold]  (a dry run: nothing is sent)")
    table = Table(show_header=False, box=None, pad_edge=False)
    for what, counts in shown(loop.settings, loop.seeds, wish, listed, wall_clock()):
        for place, (name, count) in enumerate(counts):
            table.add_row("" if place else what, str(count), escape(printable(name)))
    screen.print(table)
    return keep(loop.settings.home, listed)


def _make_topics(kafka: dict[str, str], commands: str) -> dict[TopicPartition, int]:
    """Makes the topics that are missing; returns where each partition ends now: what the demo writes comes after that.

    commands: the topic of operators' commands, if any, so that they can be given on the state that the demo leaves.
    """
    cluster = Cluster(kafka)
    names = set(cluster.topic_names())
    if commands and commands not in names:
        cluster.create([NewTopic(commands, num_partitions=_PARTITIONS_OF_COMMANDS, replication_factor=1)])
    there = cluster.describe(set(_TOPICS) & names)
    ends = cluster.ends(Partition(topic.name, topic.id, number) for topic in there.values() for number in range(topic.partitions))
    missing = sorted(set(_TOPICS) - there.keys())
    cluster.create(
        NewTopic(
            name,
            num_partitions=_PARTITIONS,
            replication_factor=1,
            # as `redrive check` wants it: room for our headers on the largest record of the original
            config={"max.message.bytes": str(_LARGEST + (0 if name in ("orders", "redrive.failures") else HEADER_ROOM_BYTES))},
        )
        for name in missing
    )
    return {
        **{TopicPartition(partition.topic, partition.number): end for partition, end in ends.items()},
        **{TopicPartition(name, number): 0 for name in missing for number in range(_PARTITIONS)},
    }


def _read(kafka: dict[str, str], begins: dict[TopicPartition, int], topics: tuple[str, ...]) -> Any:
    """The committed records of topics since the demo began: topic, headers, timestamp in ms, value."""
    own = {"group.id": "redrive.demo", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = make_client(Consumer, {**kafka, **own}, kafka)
    partitions = [TopicPartition(where.topic, where.partition, offset) for where, offset in begins.items() if where.topic in topics]
    consumer.assign(partitions)
    open_partitions = len(partitions)
    try:
        while open_partitions:
            record = consumer.poll(10)
            if record is None:
                raise KafkaException("the topics could not be read back within 10 s")
            if record.error():
                open_partitions -= 1
                continue
            pairs: Any = record.headers() or []
            headers = {name: value.decode() for name, value in pairs if name.startswith("redrive-") and value is not None}
            yield record.topic(), headers, record.timestamp()[1], record.value()
    finally:
        consumer.close()


def _quiet(home: Path) -> None:
    """The loop's own lines go to a file: the terminal belongs to the table."""
    root = logging.getLogger()
    root.handlers = [logging.FileHandler(home / "demo.log")]
    root.handlers[0].setFormatter(LogLines())
