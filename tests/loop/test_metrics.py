"""What a scrape of the running loop says about messages that fail, are sent again, wait, and die."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType
from prometheus_client.parser import text_string_to_metric_families

from orchestration.loop.metric_names import METRICS
from tests.loop.harness import Redrive


class Scrape:
    """The loop's metrics, read from its port as Prometheus reads them."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/metrics"

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; 0 if none has them."""
        assert name in {f"{metric.name}{end}" for metric in METRICS for end in ("", "_count", "_sum", "_bucket")}, f"{name}: no such metric"
        with urllib.request.urlopen(self.address, timeout=30) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        assert samples or labels, f"{name}: no sample"
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


@pytest.fixture
def scrape(redrive: Redrive) -> Iterator[Scrape]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    redrive.settle()
    redrive.restart(metrics_port=port, metrics_address="127.0.0.1", metrics_waiting_seconds=1)
    yield Scrape(port)
    redrive.restart(metrics_port=0)
    redrive.settle()


@pytest.mark.slow
def test_a_message_that_fails_is_sent_again_and_dies_is_counted_at_each_step(redrive: Redrive, scrape: Scrape) -> None:
    redrive.domain("measured")
    first = redrive.fails("measured.orders", b"k", b"v")
    redrive.report(first)
    redrive.until(
        lambda: scrape("redrive_failures_total", topic="measured.orders", error_class="TimeoutError", will_retry="true"), "failed"
    )
    (retry,) = redrive.retries("measured", 1)
    redrive.report(retry, error="KeyError")
    redrive.dead("measured", 1)
    redrive.until(lambda: scrape("redrive_sends_total", topic="measured.orders.dlq"), "its dead letter is counted")
    redrive.until(lambda: not scrape("redrive_intake_lag_records"), "nothing is left to take in")

    topic = {"topic": "measured.orders"}
    assert scrape("redrive_failures_total", **topic, error_class="TimeoutError", error_kind="retriable", will_retry="true") == 1
    assert scrape("redrive_failures_total", **topic, error_class="KeyError", error_kind="fatal", will_retry="false") == 1
    assert scrape("redrive_failures_total", **topic) == 2
    assert scrape("redrive_decisions_total", decision="duplicate", reason="known_already") == 1
    assert scrape("redrive_decisions_total", decision="dead_letter", reason="fatal") == 1
    assert scrape("redrive_sends_total", topic="measured.orders-billing-retry", kind="retry", outcome="delivered") == 1
    assert scrape("redrive_sends_total", topic="measured.orders.dlq", kind="dead_letter", outcome="delivered") == 1
    assert scrape("redrive_send_lateness_seconds_count", kind="retry") == 1
    assert scrape("redrive_send_lateness_seconds_bucket", kind="dead_letter", le="+Inf") == 1
    assert scrape("redrive_events_total") == 3
    assert scrape("redrive_tick_step_seconds_count", step="decide") >= 2
    assert scrape("redrive_loop_generation") == redrive.loop.ledgers.generation
    assert scrape("redrive_undecided_inputs") == 0
    ticked = scrape("redrive_last_tick_timestamp_seconds")
    assert abs(ticked - time.time()) < 60
    redrive.loop.tick()
    assert scrape("redrive_last_tick_timestamp_seconds") > ticked, "an idle loop turns, too"


@pytest.mark.slow
def test_what_waits_for_a_destination_and_what_kafka_refuses_is_told(redrive: Redrive, scrape: Scrape) -> None:
    redrive.domain("unsent")
    redrive.topics("unsent.orders-locked-retry")
    rule = AclBinding(
        ResourceType.TOPIC, "unsent.orders-locked-retry", ResourcePatternType.LITERAL,
        "User:ANONYMOUS", "*", AclOperation.WRITE, AclPermissionType.DENY,
    )  # fmt: skip
    admin = AdminClient({**redrive.kafka})
    for made in admin.create_acls([rule]).values():
        made.result()
    redrive.fails("unsent.orders", b"ghost", b"v", group="ghost")
    redrive.fails("unsent.orders", b"locked", b"v", group="locked")
    aside = {"topic": "unsent.orders-ghost-retry", "error": "UNKNOWN_TOPIC_OR_PART"}
    redrive.until(lambda: scrape("redrive_destination_paused", **aside), "a destination that is missing is paused")
    redrive.until(lambda: scrape("redrive_waiting_messages", topic="unsent.orders", kind="retry") == 1, "its message waits")
    redrive.until(lambda: scrape("redrive_publish_failures_total", error="TOPIC_AUTHORIZATION_FAILED") == 1, "a refusal is counted")
    assert scrape("redrive_sends_total", topic="unsent.orders-locked-retry", outcome="failed") == 1
    redrive.topics("unsent.orders-ghost-retry")
    redrive.until(lambda: not scrape("redrive_destination_paused", **aside), "it takes messages again")
    redrive.until(lambda: scrape("redrive_waiting_messages", topic="unsent.orders") == 0, "nothing waits any more")
    redrive.dead("unsent", 1)


@pytest.mark.slow
def test_a_loop_that_ends_leaves_its_port(redrive: Redrive, scrape: Scrape) -> None:
    redrive.loop.tick()
    assert scrape("redrive_loop_info", redrive_instance="default") == 1
    redrive.restart()
    redrive.loop.tick()
    assert scrape("redrive_ticks_total") == 1
    redrive.restart(metrics_port=0)
    with pytest.raises(urllib.error.URLError, match="refused"):
        scrape("redrive_loop_info")
