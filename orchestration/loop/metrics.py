"""What Prometheus may ask the loop: counts of what it decided and sent, what waits, and how it is.

What is told is put together after each tick, by the loop, and is not changed any more: the thread that answers a scrape reads what is
there, and neither waits for the loop nor lets it wait. Counts come from one statement over the batches that were written since the last
one, so that they are what the tables say. A start begins them at 0. docs/metrics.md has all of them.
"""

from __future__ import annotations

import logging
import re
import socket
import socketserver
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import Any, Literal, cast

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from pyspark.sql import Row, SparkSession

from orchestration.cli.output import printable
from orchestration.clock import literal
from orchestration.settings import Settings
from orchestration.tables.rows import collected
from orchestration.tables.spark import in_short

log = logging.getLogger(__name__)

Labels = tuple[str, ...]

OTHER = "other"
"""What a label says where there would be too many series otherwise."""
NONE = "none"
"""What a label says where the tables have null."""

# Labels whose values reporters make up, in the order in which they are given up when there are too many.
_MADE_UP = ("error_class", "topic")

# How long a label may be.
_LETTERS = 200

# How many groups one statement may bring to the driver of what was decided, and of what was sent; the rest is counted as `other`.
_GROUPS = 1000

# How many rows of the wheel are looked at to count what waits; the rest is taken from Iceberg's own counts.
_WAITING_ROWS = 200_000

# What is counted takes a small part of the loop's time: after one second of it, twenty pass.
_SHARE = 20

# Decisions that tell of no failure.
_NO_FAILURE = ("duplicate", "note", "redrive", "cancelled", "discarded", "restored", "noted", "purged", "adopted")

# Seconds until what was decided and sent is counted again, at most: longer than that nobody wants to wait.
_ROWS_AT_LEAST_EVERY = 10

_ERROR_NAME = re.compile(r"\((_?[A-Z][A-Z_]+)\)$")

# Seconds that a client may take to say what it wants, and to take the answer.
_PATIENCE = 5

_HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Metric:
    """One metric as Prometheus knows it. A counter's name ends in `_total`; buckets are upper bounds, in the metric's unit."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()


LOOP_INFO = Metric("redrive_loop_info", "gauge", "1. What is running.", ("version", "redrive_instance"))
GENERATION = Metric("redrive_loop_generation", "gauge", "Generation of the loop: each start takes the next.")
LAST_TICK = Metric("redrive_last_tick_timestamp_seconds", "gauge", "When the last tick ended, idle ones included.")
TICKS = Metric("redrive_ticks_total", "counter", "Ticks, idle ones included.")
STEPS = Metric(
    "redrive_tick_step_seconds", "histogram", "How long a step of a tick took, where it had something to do.", ("step",),
    (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)  # fmt: skip
EVENTS = Metric("redrive_events_total", "counter", "Events taken in: reports, and gaps.")
LAG = Metric("redrive_intake_lag_records", "gauge", "Records of a source that are not taken in yet, at most.", ("source",))
UNDECIDED = Metric("redrive_undecided_inputs", "gauge", "Inputs without a decision. Not 0 after a tick only while the fold fails.")
DECISIONS = Metric("redrive_decisions_total", "counter", "Decisions, by what was decided and why.", ("decision", "reason"))
FAILURES = Metric(
    "redrive_failures_total", "counter",
    "Decisions that a message is sent again, or (will_retry false) ended, by original topic and error.",
    ("topic", "error_class", "error_kind", "will_retry"),
)  # fmt: skip
SENDS = Metric("redrive_sends_total", "counter", "Sends that have a result, by destination.", ("topic", "kind", "outcome"))
LATENESS = Metric(
    "redrive_send_lateness_seconds", "histogram", "Sent minus due, of what was delivered.", ("kind",),
    (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200),
)  # fmt: skip
PUBLISH_FAILURES = Metric("redrive_publish_failures_total", "counter", "Sends that failed, or whose outcome is unknown.", ("error",))
WAITING = Metric("redrive_waiting_messages", "gauge", "Deliveries that are open, due or not, by original topic.", ("topic", "kind"))
OPEN = Metric(
    "redrive_open_dead_letters", "gauge", "Dead letters that nothing was done about, by original topic and owner.", ("topic", "owner")
)  # fmt: skip
COMMANDS_LISTED = Metric(
    "redrive_commands_listed_messages", "gauge", "Messages of the commands of which not all are issued.", ("what", "state")
)  # fmt: skip
COMMANDS_ISSUED = Metric("redrive_commands_issued_messages", "gauge", "Those of them that are issued already.", ("what", "state"))
SET_ASIDE = Metric("redrive_destination_set_aside", "gauge", "1 while a destination takes no sends, and why.", ("topic", "error"))
TROUBLE = Metric("redrive_trouble", "gauge", "1 while a part of the loop doesn't work, and why.", ("what", "error"))

METRICS = (
    *(LOOP_INFO, GENERATION, LAST_TICK, TICKS, STEPS, EVENTS, LAG, UNDECIDED, DECISIONS, FAILURES),
    *(SENDS, LATENESS, PUBLISH_FAILURES, WAITING, OPEN, COMMANDS_LISTED, COMMANDS_ISSUED, SET_ASIDE, TROUBLE),
)


@dataclass(frozen=True)
class Turn:
    """The loop after a tick.

    low: nothing that is due before is open, floors of destinations that are set aside included. set_aside, trouble: the error's name by
    topic, and by what doesn't work. lag: rows by source, where it is known. commands: messages listed and issued, by what and state.
    """

    generation: int
    watermark: int
    batch: int
    floor: datetime
    low: datetime
    undecided: int
    events: int = 0
    step_ms: Mapping[str, int] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    commands: Mapping[Labels, tuple[int, int]] = field(default_factory=dict)
    set_aside: Mapping[str, str] = field(default_factory=dict)
    trouble: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Counts:
    """Numbers by labels, and never more than so many of each fineness: all labels, the class given up, the topic given up as well."""

    metric: Metric
    limit: int
    values: dict[Labels, float] = field(default_factory=dict)
    _finest: list[int] = field(default_factory=lambda: [0] * len(_MADE_UP))

    def add(self, labels: Iterable[str | None], amount: float = 1) -> None:
        """Counts under these labels; under `other` where there are too many of them."""
        key = self._within_limit(tuple(map(_label, labels)))
        self.values[key] = self.values.get(key, 0) + amount

    def _within_limit(self, key: Labels) -> Labels:
        for coarseness, name in enumerate(_MADE_UP):
            if name not in self.metric.labels:
                continue
            if key in self.values:
                return key
            if self._finest[coarseness] < self.limit:
                self._finest[coarseness] += 1
                return key
            place = self.metric.labels.index(name)
            key = (*key[:place], OTHER, *key[place + 1 :])
        return key


@dataclass
class _Histogram:
    """Observations by labels: how many in each bucket (the last one has no bound), and their sum."""

    metric: Metric
    values: dict[Labels, tuple[list[int], float]] = field(default_factory=dict)

    def add(self, labels: Labels, bucket: int, count: int, total: float) -> None:
        """Adds observations that fall into one bucket, counted from 0, and their sum."""
        counts, before = self.values.get(labels, ([0] * (len(self.metric.buckets) + 1), 0.0))
        counts[bucket] += count
        self.values[labels] = counts, before + total

    def observe(self, labels: Labels, value: float) -> None:
        """Adds one observation."""
        self.add(labels, bisect_left(self.metric.buckets, value), 1, value)


class Metrics(Collector):
    """The loop's metrics. `measure` is the loop's, after each tick; `collect` is the server's, in its thread."""

    def __init__(self, settings: Settings, spark: SparkSession, ask: SparkSession, schema: str, *, watermark: int, batch: int) -> None:
        """spark: the loop's session. ask: the one beside it that marts are asked in. watermark, batch: what was decided, and written, up
        to there is not counted.
        """
        self._spark = spark
        self._ask = ask
        self._schema = schema
        self._info = (_version(), settings.instance)
        self._limit = settings.metrics_max_series
        self._pause = settings.metrics_waiting_seconds
        self._decided = watermark
        self._written = batch
        self._counts = {metric: _Counts(metric, self._limit) for metric in METRICS if metric.kind == "counter"}
        self._histograms = {metric: _Histogram(metric) for metric in METRICS if metric.kind == "histogram"}
        self._waiting = _Counts(WAITING, self._limit)
        self._open = _Counts(OPEN, self._limit)
        self._rows_not_before = self._waiting_not_before = self._open_not_before = 0.0
        self._problem = ""
        self._families: tuple[Family, ...] = ()
        self._server: _Server | None = None

    def serve(self, address: str, port: int) -> bool:
        """Answers scrapes from now on. False where the port can't be had: that is said, and is no reason to stop."""
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server = _Server(address, port, registry)
        except OSError as error:
            log.warning("metrics: no port %d at %s, the loop goes on without metrics: %s", port, address, error.strerror or error)
            return False
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        log.info("metrics: http://%s:%d/metrics", f"[{address}]" if ":" in address else address, port)
        return True

    def close(self) -> None:
        """Leaves the port to the next loop."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def collect(self) -> Iterable[Family]:
        """What was there after the last tick."""
        return self._families

    # ---------- after each tick

    def measure(self, turn: Turn) -> None:
        """Counts what a tick did. Never raises: what can't be counted now is counted with a later tick."""
        try:
            self._counts[TICKS].add(())
            self._counts[EVENTS].add((), turn.events)
            for step, milliseconds in turn.step_ms.items():
                self._histograms[STEPS].observe((step,), milliseconds / 1000)
            began = time.monotonic()
            asked = self._count_rows(turn, began) | self._count_waiting(turn, began) | self._count_open(began)
            if asked:
                self._histograms[STEPS].observe(("metrics",), time.monotonic() - began)
            self._families = tuple(self._told(turn))
        except Exception as error:
            self._say(error)

    def _count_rows(self, turn: Turn, now: float) -> bool:
        """Counts what was decided and sent since the last time; returns whether the tables were asked."""
        if now < self._rows_not_before or (turn.watermark <= self._decided and turn.batch <= self._written):
            return False
        try:
            rows = self._spark.sql(_written_since(self._schema, self._decided, turn.watermark, self._written, turn.batch)).collect()
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
        # what is sent anew, or after a gate has opened, says nothing new about its message, and nor does what is only noted
        silent = row["decision"] in _NO_FAILURE or row["reason"] in ("dead_letter_failed", "release", "probe", "send_now")
        if not silent:
            will_retry = str(row["decision"] == "retry").lower()
            self._counts[FAILURES].add((row["topic"], row["error_class"], row["error_kind"], will_retry), row["rows"])

    def _count_sends(self, row: Row) -> None:
        self._counts[SENDS].add((row["topic"], row["kind"], row["outcome"]), row["rows"])
        if row["outcome"] == "delivered":
            self._histograms[LATENESS].add((row["kind"],), row["bucket"], row["rows"], row["lateness_ms"] / 1000)
        elif row["outcome"] != "held":
            self._counts[PUBLISH_FAILURES].add((row["error_name"],), row["rows"])

    def _count_waiting(self, turn: Turn, now: float) -> bool:
        """Counts what is open, now and then; returns whether the tables were asked. What isn't known any more isn't told."""
        if now < self._waiting_not_before:
            return False
        counted = _Counts(WAITING, self._limit)
        try:
            upto, beyond = _reach(collected(self._spark.sql(_rows_by_hour(self._schema, turn.low))), turn.floor)
            if upto is not None:
                for row in self._spark.sql(_open(self._schema, turn.low, upto)).collect():
                    counted.add((row["topic"], row["kind"]), row["rows"])
            if beyond:
                counted.add((OTHER, "retry"), beyond)
            self._problem = ""
        except Exception as error:
            counted = _Counts(WAITING, self._limit)
            self._say(error)
        took = time.monotonic() - now
        self._waiting = counted
        self._waiting_not_before = now + max(self._pause, _SHARE * took)
        return True

    def _count_open(self, now: float) -> bool:
        """Counts open dead letters, now and then; returns whether the tables were asked. What isn't known any more isn't told."""
        if now < self._open_not_before:
            return False
        began = time.monotonic()
        counted = _Counts(OPEN, self._limit)
        try:
            for row in self._ask.sql(_open_dead_letters(self._schema)).collect():
                counted.add((row["topic"], row["owner"]), row["rows"])
            self._problem = ""
        except Exception as error:
            counted = _Counts(OPEN, self._limit)
            self._say(error)
        took = time.monotonic() - began
        self._open = counted
        self._open_not_before = now + max(self._pause, _SHARE * took)
        return True

    def _say(self, error: Exception) -> None:
        said = in_short(error)
        if said != self._problem:
            log.warning("metrics: the tables could not be counted, and will be: %s", said)
        self._problem = said

    # ---------- what is told

    def _told(self, turn: Turn) -> Iterable[Family]:
        gauges: dict[Metric, Mapping[Labels, float]] = {
            LOOP_INFO: {self._info: 1},
            GENERATION: {(): turn.generation},
            # the wall clock, as Prometheus compares it with its own
            LAST_TICK: {(): time.time()},
            LAG: {(source,): rows for source, rows in turn.lag.items()},
            UNDECIDED: {(): turn.undecided},
            WAITING: self._waiting.values,
            OPEN: self._open.values,
            COMMANDS_LISTED: {labels: listed for labels, (listed, _) in turn.commands.items()},
            COMMANDS_ISSUED: {labels: issued for labels, (_, issued) in turn.commands.items()},
            SET_ASIDE: self._few(SET_ASIDE, turn.set_aside),
            TROUBLE: dict.fromkeys(turn.trouble.items(), 1),
        }
        for metric in METRICS:
            if metric.kind == "histogram":
                yield _histogram(metric, self._histograms[metric].values)
            else:
                values = gauges[metric] if metric.kind == "gauge" else self._counts[metric].values
                make = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
                family = make(metric.name, metric.help, labels=metric.labels)
                for labels, value in values.items():
                    family.add_metric(labels, value)
                yield family

    def _few(self, metric: Metric, errors: Mapping[str, str]) -> Mapping[Labels, float]:
        """1 for each destination, within the limit."""
        counts = _Counts(metric, self._limit)
        for topic, error in errors.items():
            counts.add((topic, error))
        return dict.fromkeys(counts.values, 1)


def error_name(why: str) -> str:
    """Kafka's name of an error, where a reason ends in it: `... (TOPIC_AUTHORIZATION_FAILED)`."""
    found = _ERROR_NAME.search(why)
    return found[1] if found else NONE


def _label(value: str | None) -> str:
    """Text that somebody else wrote, as a label: short, and without what would break a line or is no text."""
    if value is None:
        return NONE
    return printable(value[:_LETTERS]).replace("\n", "\ufffd")


def _histogram(metric: Metric, values: Mapping[Labels, tuple[Sequence[int], float]]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*(f"{bound:g}" for bound in metric.buckets), "+Inf"]
    for labels, (counts, total) in values.items():
        family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
    return family


def _version() -> str:
    try:
        return version("redrive")
    except PackageNotFoundError:
        return "unknown"


# ---------- what the tables are asked


def _written_since(schema: str, decided: int, watermark: int, written: int, batch: int) -> str:
    """What was decided, and sent, in the batches since. Of too many groups the small ones are one: a tick may bring 50,000 classes."""
    bucket = " ".join(f"when lateness_ms <= {round(bound * 1000)} then {place}" for place, bound in enumerate(LATENESS.buckets))
    kept = f"place <= {_GROUPS}"
    return f"""
        with

        decided as (
            select
                'decided' as what, original_topic as topic, error_class, error_kind, decision, reason,
                cast(null as string) as kind, cast(null as string) as outcome, cast(null as string) as error_name,
                cast(null as int) as bucket, count(*) as rows, cast(null as bigint) as lateness_ms
            from {schema}.decisions
            where batch > {decided} and batch <= {watermark}
            group by original_topic, error_class, error_kind, decision, reason
        ),

        results as (
            select
                topic, kind, outcome, error_name,
                case when outcome = 'delivered' then greatest(unix_millis(sent_at) - unix_millis(due_at), 0) end as lateness_ms
            from {schema}.publish_results
            where batch > {written} and batch <= {batch} and outcome <> 'start'
        ),

        sent as (
            select
                'sent' as what, topic, null as error_class, null as error_kind, null as decision, null as reason,
                kind, outcome, error_name, case {bucket} else {len(LATENESS.buckets)} end as bucket,
                count(*) as rows, sum(lateness_ms) as lateness_ms
            from results
            group by topic, kind, outcome, error_name, bucket
        ),

        ranked as (
            select *, row_number() over (partition by what order by rows desc) as place
            from (select * from decided union all select * from sent) as counted
        )

        select
            what, case when {kept} then topic else '{OTHER}' end as topic,
            case when {kept} then error_class else '{OTHER}' end as error_class,
            error_kind, decision, reason, kind, outcome, error_name, bucket, sum(rows) as rows, sum(lateness_ms) as lateness_ms
        from ranked
        group by all
    """


def _rows_by_hour(schema: str, low: datetime) -> str:
    """Rows of the wheel from a moment on, by the hour in which they are due: what Iceberg knows of its files, without a look at rows."""
    return f"""
        select timestamp_seconds(partition.due_at_hour * 3600) as due_hour, sum(record_count) as rows
        from {schema}.deliveries.files
        where readable_metrics.due_at.upper_bound >= {literal(low)}
        group by due_hour
        order by due_hour
    """


def _reach(hours: Sequence[Row], floor: datetime) -> tuple[datetime | None, int]:
    """Up to where rows of the wheel are looked at, None if nowhere, and how many are due later."""
    seen = 0
    upto: datetime | None = None
    for place, hour in enumerate(hours):
        seen += hour["rows"]
        if seen > _WAITING_ROWS:
            # of hours that the floor has passed, most of the rows are closed
            later = [other["rows"] for other in hours[place:] if other["due_hour"] + _HOUR > floor]
            return upto, sum(later)
        upto = hour["due_hour"] + _HOUR
    return upto, 0


def _open(schema: str, low: datetime, upto: datetime) -> str:
    """What is open between two moments, by original topic."""
    return f"""
        with

        counted as (
            select original_topic as topic, kind, count(*) as rows
            from {schema}.ready
            where due_at >= {literal(low)} and due_at < {literal(upto)}
                and due_hour >= date_trunc('hour', {literal(low)}) and due_hour < {literal(upto)}
            group by original_topic, kind
        ),

        ranked as (
            select *, row_number() over (order by rows desc) as place from counted
        )

        select case when place <= {_GROUPS} then topic else '{OTHER}' end as topic, kind, sum(rows) as rows
        from ranked
        group by all
    """


def _open_dead_letters(schema: str) -> str:
    """Open dead letters by original topic and owner."""
    return f"""
        with

        counted as (
            select original_topic as topic, owner, count(*) as rows
            from {schema}.dead_letters
            where state = 'open'
            group by original_topic, owner
        ),

        ranked as (
            select *, row_number() over (order by rows desc) as place from counted
        )

        select case when place <= {_GROUPS} then topic else '{OTHER}' end as topic, owner, sum(rows) as rows
        from ranked
        group by all
    """


# ---------- who asks


class _Server(socketserver.TCPServer):
    """Answers one scrape after the other: however many ask, and however slowly, it is one thread."""

    allow_reuse_address = True

    def __init__(self, address: str, port: int, registry: CollectorRegistry) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.registry = registry
        super().__init__((address, port), _Scrape)

    def handle_error(self, *_: object) -> None:
        """A client that hangs up, or says nothing, is nothing to report."""
        log.debug("metrics: a scrape was not answered", exc_info=True)


class _Scrape(BaseHTTPRequestHandler):
    def handle(self) -> None:
        """Hangs up on a client that takes too long, also if it says a letter now and then."""
        patience = threading.Timer(_PATIENCE, self._hang_up)
        patience.daemon = True
        patience.start()
        try:
            super().handle()
        finally:
            patience.cancel()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Tells what there is."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "metrics are at /metrics")
            return
        said = generate_latest(cast(_Server, self.server).registry)
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        """A scrape is no news."""
