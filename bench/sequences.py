"""Measures sequences: what they cost a decide step, how soon a chain of followers is sent, and what held sequences cost a loop.

- 5,000 new failures: without a sequence; each of another sequence; and 4,500 with 500 followers of some of them. They alternate.
- One message has failed, and 1,000 wait for it. Its group commits the offset after its retry: the ticks are counted from the one that finds
  this out, until all are sent.
- Ticks without anything to do, and ticks with 500 new failures without a sequence, before and while 100,000 sequences are held.
- A consumer of 100,000 records of 1,000 keys that only counts them: without sequences, and with them, while those 100,000 are held.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from bench.reports import report_failures
from bench.rules import seeds_with_policies
from bench.wheel import settle
from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import Settings, load_settings
from publisher import make_client
from reporter import ReportingConsumer, Topics

_TOPICS = ("plain", "ordered", "held", "chain", "consumed")
_FOLLOWS = {"redrive-error-class": b"PreviousMessageWasRecovered", "redrive-error-kind": b"follows"}
_CASES: dict[str, tuple[str, float]] = {
    "without a sequence": ("plain", 0.0),
    "each of another sequence": ("ordered", 0.0),
    "10 % follow": ("ordered", 0.1),
}
_IDLE_TICKS = 20


def bench_sequences(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per case: case, decide_ms and tick_ms (medians), the ratio of tick_ms to the first case, and ticks, for the chain.

    For consumers, tick_ms is the time from the first record to the last.
    """
    size, runs, chain, held = (500, 2, 100, 2_000) if quick else (5_000, 5, 1_000, 100_000)
    names = [f"{topic}{suffix}" for topic in _TOPICS for suffix in ("", "-billing-retry", ".dlq")]
    cluster = Cluster(kafka)
    cluster.create(NewTopic(name, 1, 1) for name in (*names, "redrive.failures", "redrive.failures.dlq"))
    cluster.create([NewTopic("redrive.sequences", 1, 1, config={"cleanup.policy": "compact"})])
    with closing(Loop(_settings(kafka, home))) as loop:
        loop.start()
        fold = _fold(loop, kafka, size, runs)
        print(fold, file=sys.stderr)
        drained = _chain(loop, kafka, chain)
        print(drained, file=sys.stderr)
        before = _ticks(loop, kafka)
        _hold(loop, kafka, held)
        after = _ticks(loop, kafka)
        consumed = _consumed(kafka, held)
    figures = [{"case": name, "decide_ms": decide, "tick_ms": tick, "ticks": 0} for name, (decide, tick) in fold.items()]
    figures.append({"case": f"{chain:,} followers are sent", "decide_ms": 0, "tick_ms": drained[1], "ticks": drained[0]})
    for name, there in (("nothing is held", before), (f"{held:,} are held", after)):
        figures += [{"case": f"{what}, {name}", "decide_ms": 0, "tick_ms": tick, "ticks": 0} for what, tick in there.items()]
    figures += [{"case": f"{held:,} records, {name}", "decide_ms": 0, "tick_ms": took, "ticks": 0} for name, took in consumed.items()]
    base = {"idle": before["idle"], "500 others": before["500 others"], f"{held:,} records": consumed["no sequences"]}
    return [{**row, "ratio": _ratio(row, fold, base)} for row in figures]


def _ratio(row: dict[str, Any], fold: dict[str, tuple[int, int]], base: dict[str, int]) -> float:
    if row["case"] in fold:
        return float(row["tick_ms"]) / fold["without a sequence"][1]
    what = row["case"].rpartition(", ")[0]
    return float(row["tick_ms"]) / base[what] if what in base else 0.0


def _settings(kafka: dict[str, str], home: Path) -> Settings:
    """Three topics with sequences; their retries are due in an hour, but for those of the chain."""
    seeds = seeds_with_policies(home, default="fixed(1h x 5)", publish="exponential(initial=1s)", quick="fixed(1s x 5)")
    route = "{},*,*,{},publish,{{topic}}-{{group}}-retry,{{topic}}.dlq,{}"
    rows = [
        route.format("*", "default", ""),
        *(route.format(topic, "default", "key") for topic in ("ordered", "held")),
        route.format("chain", "quick", "key"),
    ]
    columns = "topic,consumer_group,error_kind,retry_policy,publish_policy,retry_topic,dead_letter_topic,sequence"
    (seeds / "routes.csv").write_text("\n".join((columns, *rows, "")))
    sources = (seeds / "sources.csv").read_text(encoding="utf-8")
    (seeds / "sources.csv").write_text(sources.replace(",orders,", f",{' '.join(_TOPICS)},"))
    return load_settings(home=home / "state", seeds=seeds, kafka={**kafka, "log_level": "0"}, look_ahead_seconds=0)


def _decided(loop: Loop, count: int) -> tuple[int, int]:
    """Milliseconds of the decide step and of whole ticks, until so many reports are decided."""
    decided = decide = whole = 0
    while decided < count:
        began = time.perf_counter()
        tick = loop.tick()
        whole += round((time.perf_counter() - began) * 1000)
        decided += tick.counts.get("decisions", 0)
        decide += tick.step_ms.get("decide", 0)
    return decide, whole


def _fold(loop: Loop, kafka: dict[str, str], size: int, runs: int) -> dict[str, tuple[int, int]]:
    took: dict[str, list[tuple[int, int]]] = defaultdict(list)
    offsets: dict[str, int] = defaultdict(int)
    # the first two runs warm up
    for run in range(runs + 2):
        for case, (topic, part) in _CASES.items():
            failures = round(size * (1 - part))
            offsets[topic] = report_failures(
                kafka,
                topic,
                size,
                offsets[topic],
                error=_kind_of(failures),
                key=_key_of(f"{case}-{run}", failures),
            )
            took[case].append(_decided(loop, size))
    return {case: _medians(times[2:]) for case, times in took.items()}


def _kind_of(failures: int) -> Callable[[int], dict[str, bytes]]:
    return lambda number: {} if number < failures else _FOLLOWS


def _key_of(name: str, failures: int) -> Callable[[int], str]:
    return lambda number: f"{name}-{number % failures}"


def _medians(times: list[tuple[int, int]]) -> tuple[int, int]:
    decide, whole = zip(*times, strict=True)
    return round(statistics.median(decide)), round(statistics.median(whole))


def _chain(loop: Loop, kafka: dict[str, str], count: int) -> tuple[int, int]:
    """How many ticks it takes, and how many milliseconds."""
    report_failures(kafka, "chain", count + 1, 0, error=_kind_of(1), key=lambda _: "one")
    _decided(loop, count + 1)
    # the tick that decides may send it as well
    cluster = Cluster(kafka)
    (partition,) = cluster.describe(["chain-billing-retry"])["chain-billing-retry"].all_partitions
    while not cluster.ends([partition]).get(partition):
        loop.tick()
    consumer = make_client(Consumer, {**kafka, "group.id": "billing"}, kafka)
    consumer.commit(offsets=[TopicPartition("chain-billing-retry", 0, 1)], asynchronous=False)
    consumer.close()
    sent = ticks = 0
    began: float | None = None
    while sent < count:
        tick = loop.tick()
        began = time.perf_counter() if began is None and tick.counts.get("settled") else began
        ticks += began is not None
        sent += tick.counts.get("delivered", 0)
    assert began is not None
    return ticks, round((time.perf_counter() - began) * 1000)


def _hold(loop: Loop, kafka: dict[str, str], count: int) -> None:
    report_failures(kafka, "held", count, 0, stack=None, value=lambda: b"v", key=lambda number: f"held-{number}")
    _decided(loop, count)
    settle(loop)


def _ticks(loop: Loop, kafka: dict[str, str]) -> dict[str, int]:
    """Milliseconds of a tick (medians) without anything to do, and of one with 500 failures without a sequence."""
    settle(loop)
    idle: list[int] = []
    for _ in range(_IDLE_TICKS):
        began = time.perf_counter()
        loop.tick()
        idle.append(round((time.perf_counter() - began) * 1000))
    others = []
    for run in range(6):
        report_failures(kafka, "plain", 500, 10_000_000 + round(time.time()) * 1000 + run * 500)
        others.append(_decided(loop, 500)[1])
    return {"idle": round(statistics.median(idle)), "500 others": round(statistics.median(others[1:]))}


def _consumed(kafka: dict[str, str], count: int) -> dict[str, int]:
    """Milliseconds in which a consumer gets so many records; medians of three, in turn."""
    producer = make_client(Producer, {**kafka, "linger.ms": 5}, kafka)
    for number in range(count):
        producer.produce("consumed", b"v" * 500, f"key-{number % 1000}")
        producer.poll(0)
    producer.flush()
    took: dict[str, list[float]] = defaultdict(list)
    for run in range(3):
        for name, sequences in (("no sequences", None), ("with sequences", "redrive.sequences")):
            topics = Topics({"consumed": "consumed-billing-retry"}, sequences=sequences)
            took[name].append(_seconds(ReportingConsumer(kafka, f"{name}-{run}".replace(" ", "-"), topics), count))
    return {name: round(statistics.median(seconds) * 1000) for name, seconds in took.items()}


def _seconds(consumer: ReportingConsumer, count: int) -> float:
    stop = threading.Event()
    times: list[float] = []

    def note(_: Message) -> None:
        times.append(time.perf_counter())
        if len(times) == count:
            stop.set()

    consumer.run(note, stop)
    return times[-1] - times[0]
