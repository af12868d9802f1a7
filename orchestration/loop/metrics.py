"""The loop's metrics for Prometheus: counts of what it decided and sent, what waits, and what doesn't work.

After each tick the loop builds the answer to scrapes, and never changes it afterwards: the thread that answers a scrape only reads it, so
neither waits for the other. Counts come from one statement over the batches written since the last one, so they agree with the tables. A
start begins them at 0. docs/metrics.md has all of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from pyspark.sql import Row, SparkSession

from orchestration.logs import event
from orchestration.loop.metric_names import (
    COMMANDS_ISSUED,
    COMMANDS_LISTED,
    DECISIONS,
    EVENTS,
    FAILURES,
    GENERATION,
    IN_LANE,
    LAG,
    LAST_TICK,
    LATENESS,
    LOOP_INFO,
    METRICS,
    OPEN,
    OTHER,
    OUTBOX_OLDEST,
    OUTBOX_PENDING,
    PAUSED,
    PUBLISH_FAILURES,
    SENDS,
    STEPS,
    TICKS,
    TROUBLE,
    UNDECIDED,
    WAITING,
    WRITTEN_BACK,
    Labels,
    Metric,
)
from orchestration.loop.metric_queries import open_dead_letters, open_deliveries, reach, rows_by_hour, written_since
from orchestration.loop.metric_values import Counts, Histogram, histogram_family
from orchestration.loop.metrics_server import MetricsServer
from orchestration.outbox.states import Lag
from orchestration.settings import Settings
from orchestration.tables.rows import collected
from orchestration.tables.spark import in_short

log = logging.getLogger(__name__)

# How long after the beginning of a query the next one comes, as a multiple of the time that the query took.
_SHARE = 20

# Reasons for which a message that failed before is sent anew, and decisions that report no failure: tests/unit/test_decision_reasons.py
# compares both with the table of reasons.
_SENT_ANEW = ("dead_letter_failed", "release", "probe", "send_now", "in_turn", "follows_a_dead_message")
_NO_FAILURE = (
    *("duplicate", "note", "publish", "redrive", "cancelled", "discarded", "restored", "noted", "purged", "adopted"),
    "follows",
)

# What was decided and sent may be counted again this many seconds after the last count began, however long that took; after an error,
# `metrics_waiting_seconds` later.
_ROWS_AT_LEAST_EVERY = 10


@dataclass(frozen=True)
class Turn:
    """The loop after a tick.

    low: no open delivery was due before, not even to a paused destination. paused_destinations, trouble: Kafka's name of the error, by
    topic, and by the part that doesn't work. lag: records by source, where known. outboxes: by name. written_back: rows of this tick, by
    outbox. commands: messages listed and issued, by what the command wants and its state.
    """

    generation: int
    watermark: int
    batch: int
    floor: datetime
    low: datetime
    undecided: int
    in_lane: int = 0
    events: int = 0
    step_ms: Mapping[str, int] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    outboxes: Mapping[str, Lag] = field(default_factory=dict)
    written_back: Mapping[str, int] = field(default_factory=dict)
    commands: Mapping[Labels, tuple[int, int]] = field(default_factory=dict)
    paused_destinations: Mapping[str, str] = field(default_factory=dict)
    trouble: Mapping[str, str] = field(default_factory=dict)


class Metrics(Collector):
    """The loop's metrics. The loop calls `measure` after each tick; the server calls `collect` in its own thread."""

    def __init__(self, settings: Settings, spark: SparkSession, ask: SparkSession, schema: str, *, watermark: int, batch: int) -> None:
        """spark: the loop's session. ask: a session beside it, for queries of marts. watermark, batch: decisions up to `watermark`, and
        results up to `batch`, are not counted.
        """
        self._spark = spark
        self._ask = ask
        self._schema = schema
        self._info = (_version(), settings.instance)
        self._limit = settings.metrics_max_series
        self._slots = settings.slots
        self._pause = settings.metrics_waiting_seconds
        self._decided = watermark
        self._written = batch
        self._counts = {metric: Counts(metric, self._limit) for metric in METRICS if metric.kind == "counter"}
        self._histograms = {metric: Histogram(metric) for metric in METRICS if metric.kind == "histogram"}
        self._waiting = Counts(WAITING, self._limit)
        self._open = Counts(OPEN, self._limit)
        self._rows_not_before = self._waiting_not_before = self._open_not_before = 0.0
        self._problem = ""
        self._families: tuple[Family, ...] = ()
        self._server: MetricsServer | None = None

    def serve(self, address: str, port: int) -> bool:
        """Starts to answer scrapes. Returns False, and logs it, if the port is not available."""
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server = MetricsServer(address, port, registry)
        except OSError as error:
            event(log, logging.WARNING, "metrics_port_refused", address=address, port=port, reason=error.strerror or error)
            return False
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        host = f"[{address}]" if ":" in address else address
        event(log, logging.INFO, "metrics_server_started", url=f"http://{host}:{port}/metrics")
        return True

    def close(self) -> None:
        """Leaves the port to the next loop."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def collect(self) -> Iterable[Family]:
        """The metrics as of the last tick."""
        return self._families

    # ---------- after each tick

    def measure(self, turn: Turn) -> None:
        """Counts what a tick did. Never raises: what can't be counted now is counted with a later tick."""
        try:
            self._counts[TICKS].add(())
            self._counts[EVENTS].add((), turn.events)
            for outbox, rows in turn.written_back.items():
                self._counts[WRITTEN_BACK].add((outbox,), rows)
            for step, milliseconds in turn.step_ms.items():
                self._histograms[STEPS].observe((step,), milliseconds / 1000)
            began = time.monotonic()
            asked = self._count_rows(turn, began) | self._count_waiting(turn, began) | self._count_open(began)
            if asked:
                self._histograms[STEPS].observe(("metrics",), time.monotonic() - began)
            self._families = tuple(self._families_of(turn))
        except Exception as error:
            self._say(error)

    def _count_rows(self, turn: Turn, now: float) -> bool:
        """Counts what was decided and sent since the last time; returns whether the tables were asked."""
        if now < self._rows_not_before or (turn.watermark <= self._decided and turn.batch <= self._written):
            return False
        try:
            query = written_since(self._schema, self._decided, turn.watermark, self._written, turn.batch, self._slots)
            rows = self._spark.sql(query).collect()
        except Exception as error:
            self._rows_not_before = now + self._pause
            self._say(error)
            return True
        self._decided, self._written = turn.watermark, turn.batch
        self._rows_not_before = now + min(_SHARE * (time.monotonic() - now), _ROWS_AT_LEAST_EVERY)
        self._problem = ""
        for row in rows:
            if row["what"] == "decided":
                self._count_decisions(row)
            else:
                self._count_sends(row)
        return True

    def _count_decisions(self, row: Row) -> None:
        self._counts[DECISIONS].add((row["decision"], row["reason"]), row["rows"])
        # a message that is sent anew, or has waited for a circuit breaker or for another message, has not failed again
        silent = row["decision"] in _NO_FAILURE or row["reason"] in _SENT_ANEW
        if not silent:
            will_retry = str(row["decision"] == "retry").lower()
            self._counts[FAILURES].add((row["topic"], row["error_class"], row["error_kind"], will_retry), row["rows"])

    def _count_sends(self, row: Row) -> None:
        self._counts[SENDS].add((row["topic"], row["kind"], row["outcome"]), row["rows"])
        if row["outcome"] == "delivered":
            self._histograms[LATENESS].add((row["kind"], row["lane"]), row["bucket"], row["rows"], row["lateness_ms"] / 1000)
        elif row["outcome"] != "held":
            self._counts[PUBLISH_FAILURES].add((row["error_name"],), row["rows"])

    def _count_waiting(self, turn: Turn, now: float) -> bool:
        """Counts open deliveries, if it is time; returns whether the tables were asked. After an error it has no values."""
        if now < self._waiting_not_before:
            return False
        counted = Counts(WAITING, self._limit)
        try:
            upto, beyond = reach(collected(self._spark.sql(rows_by_hour(self._schema, turn.low))), turn.floor)
            if upto is not None:
                for row in self._spark.sql(open_deliveries(self._schema, turn.low, upto)).collect():
                    counted.add((row["topic"], row["kind"]), row["rows"])
            if beyond:
                counted.add((OTHER, "retry"), beyond)
            self._problem = ""
        except Exception as error:
            counted = Counts(WAITING, self._limit)
            self._say(error)
        took = time.monotonic() - now
        self._waiting = counted
        self._waiting_not_before = now + max(self._pause, _SHARE * took)
        return True

    def _count_open(self, now: float) -> bool:
        """Counts open dead letters, if it is time; returns whether the tables were asked. After an error it has no values."""
        if now < self._open_not_before:
            return False
        began = time.monotonic()
        counted = Counts(OPEN, self._limit)
        try:
            for row in self._ask.sql(open_dead_letters(self._schema)).collect():
                counted.add((row["topic"], row["owner"]), row["rows"])
            self._problem = ""
        except Exception as error:
            counted = Counts(OPEN, self._limit)
            self._say(error)
        took = time.monotonic() - began
        self._open = counted
        self._open_not_before = now + max(self._pause, _SHARE * took)
        return True

    def _say(self, error: Exception) -> None:
        problem = in_short(error)
        if problem != self._problem:
            event(log, logging.WARNING, "metrics_query_failed", reason=problem)
        self._problem = problem

    # ---------- the answer to a scrape

    def _families_of(self, turn: Turn) -> Iterable[Family]:
        gauges: dict[Metric, Mapping[Labels, float]] = {
            LOOP_INFO: {self._info: 1},
            GENERATION: {(): turn.generation},
            # the wall clock, as Prometheus compares it with its own
            LAST_TICK: {(): time.time()},
            LAG: {(source,): rows for source, rows in turn.lag.items()},
            OUTBOX_PENDING: {(name,): lag.pending for name, lag in turn.outboxes.items()},
            OUTBOX_OLDEST: {(name,): lag.oldest_seconds for name, lag in turn.outboxes.items() if lag.oldest_seconds is not None},
            UNDECIDED: {(): turn.undecided},
            WAITING: self._waiting.values,
            IN_LANE: {(): turn.in_lane},
            OPEN: self._open.values,
            COMMANDS_LISTED: {labels: listed for labels, (listed, _) in turn.commands.items()},
            COMMANDS_ISSUED: {labels: issued for labels, (_, issued) in turn.commands.items()},
            PAUSED: self._few(PAUSED, turn.paused_destinations),
            TROUBLE: dict.fromkeys(turn.trouble.items(), 1),
        }
        for metric in METRICS:
            if metric.kind == "histogram":
                yield histogram_family(metric, self._histograms[metric].values)
            else:
                values = gauges[metric] if metric.kind == "gauge" else self._counts[metric].values
                make = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
                family = make(metric.name, metric.help, labels=metric.labels)
                for labels, value in values.items():
                    family.add_metric(labels, value)
                yield family

    def _few(self, metric: Metric, errors: Mapping[str, str]) -> Mapping[Labels, float]:
        """1 for each destination, within the limit."""
        counts = Counts(metric, self._limit)
        for topic, error in errors.items():
            counts.add((topic, error))
        return dict.fromkeys(counts.values, 1)


def _version() -> str:
    try:
        return version("redrive")
    except PackageNotFoundError:
        return "unknown"
