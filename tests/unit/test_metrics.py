"""What Prometheus is told: few series whatever reporters make up, names as it wants them, and a server that holds nothing up."""

from __future__ import annotations

import dataclasses
import logging
import re
import socket
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import Row

from orchestration.loop.metric_names import FAILURES, METRICS, OTHER, SENDS, Metric
from orchestration.loop.metric_queries import reach
from orchestration.loop.metric_values import Counts
from orchestration.loop.metrics import Metrics, Turn
from orchestration.settings import load_settings
from tests.log_events import logged

PROJECT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
TURN = Turn(generation=3, watermark=0, batch=0, floor=NOW, low=NOW, undecided=0)


class Tables:
    """What the tables say, one answer for each kind of statement; or an error instead."""

    def __init__(self, **answers: list[Row] | Exception) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def sql(self, statement: str) -> Tables:
        kinds = {"publish_results": "rows", "record_count": "hours", "dead_letters": "dead_letters"}
        self.asked.append(next((kind for name, kind in kinds.items() if name in statement), "open"))
        return self

    def collect(self) -> list[Row]:
        answer = self.answers.get(self.asked[-1], [])
        if isinstance(answer, Exception):
            raise answer
        return answer


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as there:
        return int(there.getsockname()[1])


def metrics_over(tables: Tables, **settings: Any) -> Metrics:
    # tables are all that is asked of Spark and of the loop
    return Metrics(load_settings(**settings), tables, tables, "redrive", watermark=0, batch=0)  # type: ignore[arg-type]


def told(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {(s.name, frozenset(s.labels.items())): s.value for family in metrics.collect() for s in family.samples}


def sent(topic: str, outcome: str, rows: int, **more: Any) -> Row:
    empty = dict.fromkeys(("error_class", "error_kind", "decision", "reason", "error_name", "bucket", "lateness_ms"))
    return Row(**{**empty, "what": "sent", "topic": topic, "kind": "retry", "lane": "timed", "outcome": outcome, "rows": rows, **more})


# ---------- names


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_named_as_prometheus_asks(metric: Metric) -> None:
    assert re.fullmatch(r"redrive_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))
    if metric.kind == "histogram" or "timestamp" in metric.name:
        assert metric.name.endswith("_seconds")
    assert re.fullmatch(r"[A-Z0-9].+[.]", metric.help, re.DOTALL)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", label) and label not in ("le", "quantile", "job", "instance") for label in metric.labels)


def test_each_metric_is_in_the_documentation_with_its_type_and_labels_and_no_other_is() -> None:
    page = (PROJECT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(redrive_\w+)` \| (\w+) \| ([^|]*) \|", page, re.MULTILINE)
    assert rows == [(metric.name, metric.kind, ", ".join(f"`{label}`" for label in metric.labels)) for metric in METRICS]


# ---------- how many series


def test_classes_that_reporters_make_up_are_given_up_before_topics_and_nothing_is_lost() -> None:
    counts = Counts(FAILURES, limit=10)
    for number in range(1000):
        counts.add((f"topic-{number % 3}", f"Class{number}", "fatal", "false"))
    assert sum(counts.values.values()) == 1000
    assert {labels[0] for labels in counts.values} == {"topic-0", "topic-1", "topic-2"}
    assert sum(labels[1] == OTHER for labels in counts.values) == 3
    for number in range(1000):
        counts.add((f"topic-{number}", f"Class{number}", "fatal", str(number % 2 == 0).lower()))
    assert sum(counts.values.values()) == 2000
    assert len(counts.values) == 10 + 10 + 2
    assert counts.values[OTHER, OTHER, "fatal", "true"] > 400


def test_a_series_that_is_there_goes_on_when_there_is_no_room_for_others() -> None:
    counts = Counts(SENDS, limit=1)
    for topic in ("first", "second", "first"):
        counts.add((topic, "retry", "delivered"))
    assert counts.values == {("first", "retry", "delivered"): 2, (OTHER, "retry", "delivered"): 1}


def test_a_label_is_short_and_holds_nothing_that_breaks_a_line() -> None:
    metrics = metrics_over(Tables(rows=[sent('a\nb\x00"\\' + "x" * 1000, "failed", 1, error_name=None)]))
    metrics.measure(TURN_WITH_ROWS)
    (topic,) = [dict(labels)["topic"] for name, labels in told(metrics) if name == "redrive_sends_total"]
    assert topic == 'a\ufffdb\ufffd"\\' + "x" * 194
    assert told(metrics)["redrive_publish_failures_total", frozenset({("error", "none")})] == 1


# ---------- what is counted


TURN_WITH_ROWS = Turn(generation=3, watermark=5, batch=7, floor=NOW, low=NOW, undecided=0, events=4, step_ms={"decide": 700})


def test_results_become_counts_and_lateness() -> None:
    metrics = metrics_over(
        Tables(
            rows=[
                sent("r", "delivered", 5, bucket=1, lateness_ms=1000),
                sent("r", "delivered", 2, bucket=12, lateness_ms=16_000_000),
                sent("r", "delivered", 4, bucket=1, lateness_ms=4_000, lane="bulk"),
                sent("r", "failed", 3, error_name="MSG_SIZE_TOO_LARGE", bucket=12),
            ]
        )
    )
    metrics.measure(TURN_WITH_ROWS)
    samples = told(metrics)
    kind = {("kind", "retry"), ("lane", "timed")}
    assert samples["redrive_send_lateness_seconds_bucket", frozenset({*kind, ("le", "0.1")})] == 0
    assert samples["redrive_send_lateness_seconds_bucket", frozenset({*kind, ("le", "7200")})] == 5
    assert samples["redrive_send_lateness_seconds_bucket", frozenset({*kind, ("le", "+Inf")})] == 7
    assert samples["redrive_send_lateness_seconds_sum", frozenset(kind)] == 16_001
    assert samples["redrive_send_lateness_seconds_count", frozenset({("kind", "retry"), ("lane", "bulk")})] == 4
    assert samples["redrive_publish_failures_total", frozenset({("error", "MSG_SIZE_TOO_LARGE")})] == 3
    assert samples["redrive_tick_step_seconds_bucket", frozenset({("step", "decide"), ("le", "0.5")})] == 0
    assert samples["redrive_tick_step_seconds_bucket", frozenset({("step", "decide"), ("le", "1")})] == 1
    assert samples["redrive_events_total", frozenset()] == 4


def test_commands_that_are_at_work_say_how_far_they_are_and_are_gone_when_they_have_ended() -> None:
    metrics = metrics_over(Tables())
    metrics.measure(dataclasses.replace(TURN, commands={("redrive", "running"): (1_000_000, 250_000)}))
    labels = frozenset({("what", "redrive"), ("state", "running")})
    assert told(metrics)["redrive_commands_listed_messages", labels] == 1_000_000
    assert told(metrics)["redrive_commands_issued_messages", labels] == 250_000
    metrics.measure(TURN)
    assert ("redrive_commands_listed_messages", labels) not in told(metrics)


def test_tables_that_cannot_be_read_stop_nothing_and_what_was_missed_is_counted_later(caplog: pytest.LogCaptureFixture) -> None:
    tables = Tables(rows=ValueError("the catalog is locked"), hours=ValueError("the catalog is locked"))
    metrics = metrics_over(tables)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            metrics.measure(TURN_WITH_ROWS)
    assert [said["reason"] for said in logged(caplog, "metrics_query_failed")].count("the catalog is locked") == 1
    assert tables.asked == ["rows", "hours", "dead_letters"], "it is not asked again at once"
    assert ("redrive_waiting_messages", frozenset()) not in told(metrics)
    tables.answers = {"rows": [sent("r", "delivered", 5, bucket=0, lateness_ms=1)]}
    metrics._rows_not_before = 0
    metrics.measure(TURN_WITH_ROWS)
    assert sum(value for (name, _), value in told(metrics).items() if name == "redrive_sends_total") == 5


def test_only_so_many_rows_are_looked_at_and_the_rest_is_known_by_its_hours() -> None:
    def hours(*rows: int) -> list[Row]:
        return [Row(due_hour=NOW.replace(minute=0) + timedelta(hours=place - 1), rows=count) for place, count in enumerate(rows)]

    assert reach(hours(), NOW) == (None, 0)
    assert reach(hours(10, 20), NOW) == (NOW.replace(minute=0) + timedelta(hours=1), 0)
    # the hour before the floor is over: what lies there is closed, but for what waits for a destination that was paused
    assert reach(hours(300_000, 20, 30), NOW) == (None, 50)
    assert reach(hours(10, 150_000, 100_000, 7), NOW) == (NOW.replace(minute=0) + timedelta(hours=1), 100_007)


# ---------- who asks


def test_a_scrape_is_what_prometheus_reads() -> None:
    port = free_port()
    metrics = metrics_over(Tables(), metrics_port=port)
    assert metrics.serve("127.0.0.1", port)
    try:
        metrics.measure(
            Turn(3, 0, 0, NOW, NOW, 0, lag={"failures": 12}, paused_destinations={"t": "_TRANSPORT"}, trouble={"decide": "none"})
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
        assert {name if family.type != "counter" else f"{name}_total" for name, family in families.items()} == {m.name for m in METRICS}
        assert {family.documentation for family in families.values()} == {metric.help for metric in METRICS}
        assert families["redrive_loop_info"].samples[0].labels["redrive_instance"] == "default"
        assert abs(families["redrive_last_tick_timestamp_seconds"].samples[0].value - time.time()) < 60
        assert families["redrive_intake_lag_records"].samples[0].value == 12
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)
    finally:
        metrics.close()


def test_a_port_that_is_taken_is_told_and_no_reason_to_stop(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, caplog.at_level(logging.WARNING):
        port = taken.getsockname()[1]
        metrics = metrics_over(Tables(), metrics_port=port)
        assert not metrics.serve("127.0.0.1", port)
        assert not metrics.serve("no.such.address.invalid", port)
    refused = logged(caplog, "metrics_port_refused")[0]
    assert (refused["address"], refused["port"]) == ("127.0.0.1", port)
    metrics.close()


def test_a_client_that_says_nothing_is_hung_up_on_and_the_next_is_answered() -> None:
    port = free_port()
    metrics = metrics_over(Tables(), metrics_port=port)
    assert metrics.serve("127.0.0.1", port)
    try:
        metrics.measure(TURN)
        with socket.create_connection(("127.0.0.1", port)) as silent:
            silent.sendall(b"GET /met")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                assert b"redrive_ticks_total 1.0" in answer.read()
    finally:
        metrics.close()


def test_open_dead_letters_are_told_by_topic_and_owner_while_they_can_be_counted() -> None:
    tables = Tables(dead_letters=[Row(topic="orders", owner="team-orders", rows=3), Row(topic="bills", owner=None, rows=1)])
    metrics = metrics_over(tables)
    metrics.measure(TURN)
    samples = told(metrics)
    assert samples["redrive_open_dead_letters", frozenset({("topic", "orders"), ("owner", "team-orders")})] == 3
    assert samples["redrive_open_dead_letters", frozenset({("topic", "bills"), ("owner", "none")})] == 1
    tables.answers["dead_letters"] = RuntimeError("the catalog is away")
    metrics._open_not_before = 0
    metrics.measure(TURN)
    assert not [name for name, _ in told(metrics) if name == "redrive_open_dead_letters"]
