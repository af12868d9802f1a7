"""Measures how long it takes to redrive a million dead letters: to select them, to group them, to write the command, and to send them all.

The dead letters are put into the tables directly, as a loop would have left them over a day: 500-byte values, stacks of 2 kB, ten
classes of errors. They are sent without a rate, through the loop. The comparison is a bare produce loop, which repeats a thousand of the
messages from memory and records nothing. Memory is measured as in bench/backlog.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.memory import peak_memory_mb
from bench.publish import bare_loop
from bench.wheel import acknowledge, fill_wheel, settle
from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.operators.commands import CommandRequest
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.lists import select_deliveries
from orchestration.operators.selections import Selection
from orchestration.operators.sending import send
from orchestration.settings import load_settings

_TOPIC = "orders"
_DAY = timedelta(days=1)
_FRAMES = "repeat(concat('\\n    at com.acme.billing.Step', id % 10, '.run(Step.java:17)'), 40)"

# The columns of a dead letter that differ from those of a retry, as expressions over `id`.
DIED = {
    "decision": "'dead_letter'",
    "reason": "'fatal'",
    "kind": "'dead_letter'",
    "topic": f"'{_TOPIC}.dlq'",
    "error_class": "concat('com.acme.billing.Step', id % 10, 'Exception')",
    "error_message": "concat('no price for article ', id)",
    "error_stack": f"concat('com.acme.billing.Step', id % 10, 'Exception: no price for article ', id, {_FRAMES})",
    "error_kind": "'fatal'",
    "first_failed_at": "failed_at",
}


def bench_redrive(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object: dead letters, seconds to select, group, list and redrive them, rows a second, and how the sends compare."""
    rows = 20_000 if quick else 1_000_000
    settings = load_settings(home=home / "state", kafka={**kafka, "log_level": "0"}, look_ahead_seconds=0)
    cluster = Cluster(kafka)
    cluster.create([NewTopic(settings.commands_topic, 1, 1)])
    topics = ("redrive.failures", "redrive.failures.dlq", f"{_TOPIC}-billing-retry", f"{_TOPIC}.dlq")
    cluster.create(NewTopic(name, 6, 1, config={"max.message.bytes": "4000000"}) for name in topics)
    loop = Loop(settings)
    loop.start()
    _let_die(loop, rows)
    settle(loop)

    dead = DeadLetters(settings)
    selection = Selection(state="open", where="error_class like 'com.acme.billing.%' and attempts < 10")
    began = time.perf_counter()
    listed = select_deliveries(dead, "redrive", selection, None)
    select_s = time.perf_counter() - began
    assert len(listed) == rows
    began = time.perf_counter()
    groups = dead.groups(selection, 50)
    groups_s = time.perf_counter() - began
    assert len(groups.rows) == 10
    began = time.perf_counter()
    send(settings, CommandRequest("redrive", "measured", "bench"), listed)
    list_s = time.perf_counter() - began
    del listed

    sent, ticks, steps = 0, 0, dict.fromkeys(("intake", "decide", "publish"), 0)
    began = time.perf_counter()
    while sent < rows:
        tick = loop.tick()
        sent += tick.counts.get("delivered", 0)
        ticks += 1
        for step in steps:
            steps[step] += tick.step_ms.get(step, 0)
        print(f"{sent:,} of {rows:,} after {time.perf_counter() - began:.0f} s: {tick.counts} {tick.step_ms}", file=sys.stderr)
    redrive_s = time.perf_counter() - began
    memory = peak_memory_mb(loop)
    plain_s = bare_loop(loop, kafka, _TOPIC, rows)
    loop.close()
    return [
        {
            "rows": rows,
            "select_s": select_s,
            "groups_s": groups_s,
            "list_s": list_s,
            "redrive_s": redrive_s,
            "ticks": ticks,
            **{f"{step}_s": milliseconds / 1000 for step, milliseconds in steps.items()},
            "rows_s": round(rows / redrive_s),
            "sent_rows_s": round(rows * 1000 / steps["publish"]),
            "plain_rows_s": round(rows / plain_s),
            "ratio": plain_s * 1000 / steps["publish"],
            "memory_mb": memory,
        }
    ]


def _let_die(loop: Loop, rows: int) -> None:
    """Dead letters that were decided, and acknowledged, the day before yesterday."""
    since = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - 2 * _DAY
    fill_wheel(loop.spark, loop.schema, _TOPIC, rows, since, _DAY // timedelta(milliseconds=1), loop.ledgers.batch, DIED)
    acknowledge(loop, _TOPIC)
