"""Measures the cost of many rules: 5,000 failures with stack traces of 3 kB, with 200 error rules and 50 policies, and one of each;
and with the project's fifteen dialects, and fifteen more, among which the dialect of each record is found by its headers.

Each failure has a message of its own and three causes; some rules name a class, some a class and its descendants, some are patterns, some
require a message or a header, some are for one topic only. The sets of rules alternate in one loop.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.reports import report_failures
from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings

_STACK_BYTES = 3_000
# rules, policies, dialects that are added to the project's, and the dialect that the source states
_BASE = "one rule, one dialect"
_SETS = {
    _BASE: (1, 1, 0, "redrive"),
    "many rules": (200, 50, 0, "redrive"),
    "the project's dialects": (1, 1, 0, "auto"),
    "fifteen dialects more": (1, 1, 15, "auto"),
}


def bench_policy(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per set of rules: rules, policies, more dialects, dialect (the source's), decide_ms (median), ratio to the first set."""
    rows, runs = (1_000, 1) if quick else (5_000, 5)
    topics = ("redrive.failures", "redrive.failures.dlq", "orders-billing-retry", "orders.dlq")
    Cluster(kafka).create(NewTopic(name, 6, 1) for name in topics)
    seeds = home / "seeds"
    _write_seeds(seeds, *_SETS[_BASE])
    loop = Loop(load_settings(home=home / "state", seeds=seeds, kafka={**kafka, "log_level": "0"}))
    loop.start()
    offset = 0
    times: dict[str, list[int]] = {name: [] for name in _SETS}
    # the first round warms up
    for turn in range(-1, runs):
        for name, numbers in _SETS.items():
            _write_seeds(seeds, *numbers)
            offset = report_failures(kafka, "orders", rows, offset, error=_error)
            decided = 0
            took = 0
            while decided < rows:
                tick = loop.tick()
                decided += tick.counts.get("decisions", 0)
                took += tick.step_ms.get("decide", 0)
            if turn >= 0:
                times[name].append(took)
    loop.close()
    medians = {name: statistics.median(took) for name, took in times.items()}
    return [
        {
            "case": name,
            "rules": _SETS[name][0],
            "policies": _SETS[name][1],
            "more dialects": _SETS[name][2],
            "dialect": _SETS[name][3],
            "rows": rows,
            "decide_ms": round(median),
            "ratio": round(median / medians[_BASE], 2),
        }
        for name, median in medians.items()
    ]


def _error(number: int) -> dict[str, bytes]:
    frames = "".join(f"\tat com.acme.orders.Service{line}.handle(Service{line}.java:{line})\n" for line in range(12))
    classes = [f"com.acme.Wrapper{number % 7}", f"com.acme.Error{number % 40}", "java.net.SocketTimeoutException"]
    stack = "Caused by: ".join(f"{name}: order {number} of customer {number * 31} failed\n{frames}" for name in classes)
    return {
        "redrive-error-class": classes[0].encode(),
        "redrive-error-message": f"order {number} of customer {number * 31} failed".encode(),
        "redrive-error-stack": stack.ljust(_STACK_BYTES, ".").encode()[:_STACK_BYTES],
    }


def _write_seeds(directory: Path, rules: int, policies: int, dialects: int, stated: str) -> None:
    directory.mkdir(exist_ok=True)
    for path in load_settings().seeds.glob("*.csv"):
        if path.stem not in ("error_rules", "retry_policies", "routes", "dialects"):
            (directory / path.name).write_bytes(path.read_bytes())
    sources = directory / "sources.csv"
    sources.write_text(sources.read_text(encoding="utf-8").replace(",redrive,,", f",{stated},,"), encoding="utf-8")
    _write(directory / "dialects.csv", "dialect,field,header", (row for number in range(dialects) for row in _dialect(f"system{number}")))
    _write(directory / "error_rules.csv", "error_class,message,code,header,kind,source,topic,consumer_group,why", map(_rule, range(rules)))
    names = [f"policy{number}" for number in range(policies)]
    waits = ["exponential(initial=1h, max=2h, attempts=5)", "fixed(1h x 3, 2h x 10)", "linear(initial=1h, increment=10m, attempts=20)"]
    _write(directory / "retry_policies.csv", "policy,definition", ((name, waits[place % 3]) for place, name in enumerate(names)))
    templates = ("{topic}-{group}-retry", "{topic}.dlq")
    _write(
        directory / "routes.csv",
        "topic,consumer_group,error_kind,retry_policy,publish_policy,retry_topic,dead_letter_topic",
        [("*", "*", "*", names[0], names[0], *templates)] + [(f"orders-{name}", "*", "*", name, name, *templates) for name in names[1:]],
    )


def _dialect(name: str) -> list[tuple[str, ...]]:
    fields = [f"{hop}_{what}" for hop in ("named", "origin") for what in ("topic", "partition", "offset")]
    fields += ["origin_timestamp", "consumer_group", "failed_at", "attempts", "error_class", "error_message", "error_stack"]
    return [
        (name, "owns", f"{name}-*"),
        (name, "recognised_by", f"{name}-topic {name}-error_class"),
        *((name, field, f"{name}-{field.removeprefix('named_').removeprefix('origin_')}") for field in fields),
    ]


def _rule(number: int) -> tuple[str, ...]:
    conditions = [
        (f"com.acme.Timeout{number}" if number else "java.net.SocketTimeoutException", "", "", ""),
        (f"com.acme.Other{number}", "", "", ""),
        (f"^com[.]acme[.]Error{number}[0-9]*X$", "", "", ""),
        (f"com.acme.Error{number % 40}", f"customer {number} is unknown", "", ""),
        ("java.io.IOException+" if number == 4 else f"com.acme.Base{number}+", "", "", ""),
        ("", "", "", f"status-{number % 3}={number}"),
        ("", f"^order {number} can not", "", ""),
    ][number % 7 if number else 0]
    topic = f"orders-{number}" if number % 11 == 10 else "*"
    return (*conditions, "retriable", "*", topic, "*", "")


def _write(path: Path, header: str, rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header.split(","))
        # without duplicates, which the check of the seeds refuses
        writer.writerows(dict.fromkeys(tuple(row) for row in rows))
