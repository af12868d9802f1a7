"""The metrics, as Prometheus knows them: one entry each. docs/metrics.md has all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Labels = tuple[str, ...]

OTHER = "other"
"""The value of a label where there would be too many series otherwise."""
NONE = "none"
"""The value of a label where the tables have null."""


@dataclass(frozen=True)
class Metric:
    """One metric as Prometheus knows it. A counter's name ends in `_total`; buckets are upper bounds, in the metric's unit."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()


LOOP_INFO = Metric("redrive_loop_info", "gauge", "Always 1. The version and the instance of the loop.", ("version", "redrive_instance"))
GENERATION = Metric("redrive_loop_generation", "gauge", "Generation of the loop: each start takes the next.")
LAST_TICK = Metric("redrive_last_tick_timestamp_seconds", "gauge", "When the last tick ended, idle ones included.")
TICKS = Metric("redrive_ticks_total", "counter", "Ticks, idle ones included.")
STEPS = Metric(
    "redrive_tick_step_seconds", "histogram", "How long a step of a tick took, where it had something to do.", ("step",),
    (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)  # fmt: skip
EVENTS = Metric("redrive_events_total", "counter", "Events taken in: reports, rows of outboxes, gaps, and records of commands.")
LAG = Metric("redrive_intake_lag_records", "gauge", "Records of a source that are not taken in yet: an upper bound.", ("source",))
OUTBOX_PENDING = Metric("redrive_outbox_pending_rows", "gauge", "Rows of an outbox that are pending.", ("outbox",))
OUTBOX_OLDEST = Metric("redrive_outbox_oldest_seconds", "gauge", "For how long the oldest of them has been pending.", ("outbox",))
WRITTEN_BACK = Metric("redrive_outbox_written_back_total", "counter", "Rows of an outbox whose state was written back.", ("outbox",))
UNDECIDED = Metric(
    "redrive_undecided_inputs",
    "gauge",
    "Inputs that came before the last tick and have no decision after it. Stays above 0 if the decide step fails.",
)
DECISIONS = Metric("redrive_decisions_total", "counter", "Decisions, by what was decided and why.", ("decision", "reason"))
FAILURES = Metric(
    "redrive_failures_total", "counter",
    "Decisions about failures, by original topic, error, and whether the message is retried (will_retry true) or has ended (false).",
    ("topic", "error_class", "error_kind", "will_retry"),
)  # fmt: skip
SENDS = Metric(
    "redrive_sends_total",
    "counter",
    "Results by destination: sends that were delivered, failed, are of unknown outcome or absent, and deliveries that were held instead.",
    ("topic", "kind", "outcome"),
)
LATENESS = Metric(
    "redrive_send_lateness_seconds", "histogram", "Time of the send minus due time, of delivered messages.", ("kind", "lane"),
    (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200),
)  # fmt: skip
PUBLISH_FAILURES = Metric("redrive_publish_failures_total", "counter", "Sends that failed, or whose outcome is unknown.", ("error",))
WAITING = Metric("redrive_waiting_messages", "gauge", "Deliveries that are open, due or not, by original topic.", ("topic", "kind"))
IN_LANE = Metric(
    "redrive_lane_messages", "gauge", "Messages that wait in the timed lane for their time, without those that are being sent."
)
OPEN = Metric(
    "redrive_open_dead_letters", "gauge", "Dead letters not redriven or discarded, by original topic and owner.", ("topic", "owner")
)  # fmt: skip
COMMANDS_LISTED = Metric(
    "redrive_commands_listed_messages", "gauge", "Messages that unfinished commands list.", ("what", "state")
)  # fmt: skip
COMMANDS_ISSUED = Metric("redrive_commands_issued_messages", "gauge", "Messages of unfinished commands that are issued.", ("what", "state"))
PAUSED = Metric("redrive_destination_paused", "gauge", "1 while a destination takes no sends, with the error.", ("topic", "error"))
TROUBLE = Metric("redrive_trouble", "gauge", "1 while a part of the loop doesn't work, with the error.", ("what", "error"))

METRICS = (
    *(LOOP_INFO, GENERATION, LAST_TICK, TICKS, STEPS, EVENTS, LAG, OUTBOX_PENDING, OUTBOX_OLDEST, WRITTEN_BACK),
    *(UNDECIDED, DECISIONS, FAILURES),
    *(SENDS, LATENESS, PUBLISH_FAILURES, WAITING, IN_LANE, OPEN, COMMANDS_LISTED, COMMANDS_ISSUED, PAUSED, TROUBLE),
)
