"""Dagster over a real broker: everything materialised, a tick, a shift, the report; and checks that fail when their promise is broken.

The tests build on one another: each leaves a state that the next goes on from.
"""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from orchestration.clock import wall_clock
from orchestration.dagster import checks
from orchestration.status import Entry, Status, read_status, text, write_status
from tests.dagster.conftest import PROJECT, Deployment
from tests.loop.harness import SEEDS
from tests.unit.test_secrets import WRONG_IN_JAVA, environment, leaks
from tests.unit.test_secrets import kafka as wrong_kafka

# they share one state, and materialising everything takes minutes
pytestmark = pytest.mark.long


def test_everything_can_be_materialised(deployment: Deployment) -> None:
    deployment.kafka.domain("dagster")
    deployment.kafka.fails("dagster.orders", b"k", b"v", error="KeyError")
    run = deployment.run("all")
    assert run.success
    made = {event.asset_key.to_user_string() for event in run.get_asset_materialization_events() if event.asset_key}
    external = {"report_topics", "retry_topics", "dlq_topics"}
    assert made == {key.to_user_string() for key in deployment.definitions.resolve_all_asset_keys()} - external
    assert deployment.materialized(run, "routes") == [{"dagster/row_count": len(SEEDS["routes"].splitlines()) - 1}]
    assert deployment.materialized(run, "rules") == [{"dagster/row_count": 1}]
    assert deployment.materialized(run, "messages") == [{}]
    assert len(deployment.kafka.read("dagster.orders.dlq")) == 1

    (report,) = deployment.materialized(run, "dead_letter_report")
    assert (report["open"], report["dead"], report["died"]) == (1, 1, 1)
    assert "KeyError" in report["report"]
    assert re.search(r"data:image/png;base64,[A-Za-z0-9+/=]{1000,}", report["report"])

    checked = {check.check_name: check for check in run.get_asset_check_evaluations()}
    # that one is open is a warning, as it should be
    assert {name for name, check in checked.items() if not check.passed} == {"no_dead_letter_is_open"}
    assert checked["no_dead_letter_is_open"].severity == dg.AssetCheckSeverity.WARN
    assert checked["no_dead_letter_is_open"].metadata["open"].value == 1
    tests = [path.stem for path in (PROJECT / "dbt_project" / "data_tests").glob("*.sql")]
    assert set(tests) < checked.keys()
    assert len(checked) > len(checks.CHECKS) + len(tests) + 50
    # the report, and the start by which the loop took over
    assert checked["nothing_is_lost"].metadata["decisions"].value == 2


def test_a_tick_takes_in_decides_and_sends(deployment: Deployment) -> None:
    deployment.kafka.fails("dagster.orders", b"k", b"v", error="KeyError")
    run = deployment.run("tick")
    (events,) = deployment.materialized(run, "events")
    (deliveries,) = deployment.materialized(run, "deliveries")
    (results,) = deployment.materialized(run, "publish_results")
    (ticks,) = deployment.materialized(run, "ticks")
    assert (events["rows"], deliveries["rows"], results["rows"], results["dead_letters"], ticks["rows"]) == (1, 1, 1, 1, 1)
    assert events["ms"] > 0
    assert results["late_p99_ms"] >= results["late_p50_ms"] >= 0
    assert len(deployment.kafka.read("dagster.orders.dlq")) == 2


def test_a_shift_records_its_ticks(deployment: Deployment) -> None:
    deployment.kafka.fails("dagster.orders", b"k", b"v")
    # no topic for its dead letter: the destination is paused, which fails no run
    deployment.kafka.topics("nocopy.orders", "nocopy.reports")
    deployment.kafka.fails("nocopy.orders", b"k", b"v", error="KeyError")
    run = deployment.run("shift", {"ops": {"turn": {"config": {"minutes": 1}}}})
    assert sum(tick["rows"] for tick in deployment.materialized(run, "events")) == 2
    assert sum(tick["rows"] for tick in deployment.materialized(run, "deliveries")) == 2
    assert [tick["delivered"] for tick in deployment.materialized(run, "publish_results")] == [1]
    # it turns twice a second, and what had nothing to do is not recorded
    assert len(deployment.materialized(run, "ticks")) in (1, 2)
    said = [entry.user_message for entry in deployment.instance.all_logs(run.run_id) if not entry.is_dagster_event]
    assert any(line.startswith("takeover_completed ") for line in said)
    assert any(line.startswith("destination_paused topic=nocopy.orders.dlq ") for line in said)
    # its materializations say the same
    assert not any(line.startswith("tick_completed ") for line in said)


def test_dead_letters_are_redriven_by_hand_in_two_steps(deployment: Deployment) -> None:
    deployment.kafka.topics("redrive.commands")

    def redriven(config: dict[str, Any], *, raises: bool = True) -> dict[str, Any]:
        config = {"reason": "fixed in 4.2", "who": "ada", **config}
        run = deployment.run("redrive_by_hand", {"ops": {"redrive_dead_letters": {"config": config}}}, raises=raises)
        return _observed(deployment, run)

    shown = redriven({"where": "error_class = 'KeyError'", "topic": "dagster.orders"})
    assert shown["messages"] == 2
    counted = {(record.data["by"], record.data["which"]): record.data["messages"] for record in shown["which"].records}
    assert counted["would go to", "dagster.orders-billing-retry"] == 2
    # nothing is sent but such a list
    assert redriven({"dry_run": False, "where": "true"}, raises=False) == {}
    assert deployment.kafka.read("redrive.commands") == []
    sent = redriven({"dry_run": False, "list_name": shown["list"], "canary": 1, "rate": "1/s"})
    closing = json.loads(deployment.kafka.read("redrive.commands")[-1].value or b"")
    assert (closing["count"], closing["who"], closing["canary"], closing["rate"]) == (2, "ada", 1, "1")
    assert [record.key for record in deployment.kafka.read("redrive.commands")] == [sent["command"].encode()] * 2


def test_the_triage_does_what_the_rules_say(deployment: Deployment) -> None:
    before = len(deployment.kafka.read("redrive.commands"))
    said = _observed(deployment, deployment.run("triage", {"ops": {"triage_dead_letters": {"config": {"dry_run": True}}}}))
    assert (said["messages"], said["reason"]) == (2, "KeyError for topic ^(triage|dagster)[.]orders$: it helped before")
    assert len(deployment.kafka.read("redrive.commands")) == before
    assert _observed(deployment, deployment.run("triage"))["messages"] == 2
    assert len(deployment.kafka.read("redrive.commands")) == before + 2


def test_a_dead_message_without_its_copy_is_told(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _outcome(deployment, checks.no_dead_message_is_without_its_copy)[:2] == (True, "WARN")
    monkeypatch.setattr(checks, "PENDING_WARNS", timedelta())
    passed, severity, found = _outcome(deployment, checks.no_dead_message_is_without_its_copy)
    assert (passed, severity, found["pending"], found["which waits longest"]) == (False, "WARN", 1, "billing:nocopy.orders/0/0")
    monkeypatch.setattr(checks, "PENDING_FAILS", timedelta())
    assert _outcome(deployment, checks.no_dead_message_is_without_its_copy)[:2] == (False, "ERROR")


def test_one_mart_can_be_made_anew(deployment: Deployment) -> None:
    job = deployment.definitions.resolve_implicit_global_asset_job_def()
    run = job.execute_in_process(instance=deployment.instance, asset_selection=[dg.AssetKey("attempts")])
    assert deployment.materialized(run, "attempts") == [{}]
    assert deployment.materialized(run, "messages") == []


@pytest.mark.parametrize("job", ["tick", "shift"])
def test_a_loop_that_runs_is_not_taken_over_unasked(deployment: Deployment, job: str) -> None:
    running = Status("running", 7, "default", os.getppid(), 3, text(wall_clock()) or "", 1, 1, text(wall_clock()) or "", None)
    before = deployment.resource.settings.status_file.read_bytes()
    write_status(deployment.resource.settings.status_file, running)
    try:
        run = deployment.run(job, raises=False)
    finally:
        deployment.resource.settings.status_file.write_bytes(before)
    assert not run.success
    (failure,) = [event.step_failure_data for event in run.all_events if event.is_step_failure]
    assert failure.user_failure_data
    assert f"generation 7, process {os.getppid()}" in str(failure.user_failure_data.description)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "name"),
    [
        # tests/unit/test_secrets.py has these, too, without Dagster
        *(("kafka", name) for name in ("sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.pem")),
        *(("kafka_java", name) for name in WRONG_IN_JAVA),
    ],
)
def test_a_run_with_a_wrong_secret_tells_nothing_of_it(
    deployment: Deployment,
    setting: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    # so that Spark's reader, which alone has the properties of kafka_java, is asked
    deployment.kafka.fails("dagster.orders", b"k", b"v")
    wrong = WRONG_IN_JAVA[name] if setting == "kafka_java" else wrong_kafka(name, os.environ["REDRIVE_KAFKA__BOOTSTRAP_SERVERS"])
    for variable, value in environment(wrong, setting.upper()).items():
        monkeypatch.setenv(variable, value)
    status = deployment.resource.settings.status_file
    before = status.read_bytes()
    run = deployment.run("tick", raises=False)
    told = status.read_text(encoding="utf-8")
    # what this run says of sources that can't be read is not for the tests after it
    status.write_bytes(before)
    # what Spark can't read is read by librdkafka, whose properties are right
    assert run.success == (setting == "kafka_java")

    home = deployment.resource.settings.home
    captured = capfd.readouterr()
    said = {
        "output": captured.out + captured.err,
        "log": caplog.text,
        # Dagster has not typed this one
        "Dagster's events": "\n".join(
            entry.to_json()  # type: ignore[no-untyped-call]
            for entry in deployment.instance.all_logs(run.run_id)
        ),
        "status": told,
        **{str(path): path.read_text(errors="replace") for path in home.glob("logs/*")},
        **{
            table: "\n".join(row["row"] for row in deployment.resource.sql(f"select to_json(struct(*)) as row from {table}"))
            for table in ("ticks", "events", "deliveries", "publish_results")
        },
    }
    assert "xecution of run for" in said["Dagster's events"]
    assert ("fallback_reader_used" in said["log"]) == (setting == "kafka_java")
    assert [place for place, text in said.items() if leaks(text)] == []


@pytest.mark.slow
def test_an_unusual_rate_of_dead_letters_is_told(deployment: Deployment) -> None:
    # in the hour of the first start nothing is unusual
    long_ago = datetime(2026, 3, 1, 12, tzinfo=UTC)
    _append(deployment, "deliveries", input_id="start", decision="note", reason="start", due_at=long_ago, due_hour=long_ago, batch=1)
    for number in range(10):
        deployment.kafka.fails("dagster.orders", b"rate", b"%d" % number, error="KeyError")
    deployment.run("tick")
    passed, severity, found = _outcome(deployment, checks.dead_letters_come_at_their_usual_rate)
    deployment.resource.spark.sql("delete from redrive.deliveries where input_id = 'start'")
    assert (passed, severity) == (False, "WARN")
    assert "dagster.orders: " in found["which"]


def test_checks_fail_when_their_promises_are_broken(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    _append(deployment, "events", kind="report", batch=1)
    passed, severity, found = _outcome(deployment, checks.nothing_is_lost)
    assert (passed, severity) == (False, "ERROR")
    assert "decided" in found["batches that differ"]

    due_at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    _append(
        deployment, "publish_results", delivery_id="x", outcome="delivered", due_at=due_at, sent_at=due_at - timedelta(seconds=1), batch=1
    )
    passed, severity, found = _outcome(deployment, checks.nothing_is_early)
    assert (passed, severity, found["early"], found["by at most, ms"], found["the earliest"]) == (False, "ERROR", 1, 1000, "x")

    # its time is that of the broker, whose clock is behind
    found_again = {"outcome": "delivered", "found_by": "start", "due_at": due_at, "sent_at": due_at - timedelta(seconds=2)}
    _append(deployment, "publish_results", delivery_id="y", batch=1, **found_again)
    assert _outcome(deployment, checks.nothing_is_early)[2]["early"] == 1

    gap = {"kind": "gap", "topic": "t", "detail": "t/0 3-7", "batch": 1_000_000}
    _append(deployment, "events", **gap, recorded_at=wall_clock() - checks.GAPS_FAIL_FOR)
    passed, _, found = _outcome(deployment, checks.no_report_was_missed)
    assert (passed, found["gaps"], found["gaps ever"], found["the last"]) == (True, 0, 1, "t/0 3-7")
    _append(deployment, "events", **gap, recorded_at=wall_clock())
    passed, severity, found = _outcome(deployment, checks.no_report_was_missed)
    assert (passed, severity, found["gaps"], found["rows missing, at most"]) == (False, "ERROR", 1, 5)

    # the gaps are undecided, which is no news as long as the loop gives signs; that it took over waits for whatever comes next
    _append(deployment, "events", kind="start", batch=1_000_000, recorded_at=wall_clock())
    passed, _, found = _outcome(deployment, checks.the_loop_is_not_stalled)
    assert (passed, found["undecided"]) == (True, 2)
    status = read_status(deployment.resource.settings.status_file)
    assert status is not None
    assert _outcome(deployment, checks.every_source_is_read)[0]
    why = "offsets 3 to 9 of reports/0 can't be read: CRC"
    said = (Entry("source", "reports", why), Entry("circuit_breakers", "", "not told"))
    write_status(deployment.resource.settings.status_file, replace(status, health=said))
    passed, severity, found = _outcome(deployment, checks.every_source_is_read)
    assert (passed, severity, found) == (False, "ERROR", {"unread": 1, "source reports": why})
    write_status(deployment.resource.settings.status_file, status)
    monkeypatch.setattr(checks, "STALLED_AFTER", timedelta())
    assert _outcome(deployment, checks.the_loop_is_not_stalled)[:2] == (False, "ERROR")
    monkeypatch.setattr(checks, "FRESH_FOR", timedelta())
    assert _outcome(deployment, checks.ticks_are_fresh)[:2] == (False, "WARN")


def _append(deployment: Deployment, table: str, **values: Any) -> None:
    """A row that no loop would write: what isn't given is null."""
    spark = deployment.resource.spark
    schema = spark.table(f"redrive.{table}").schema
    spark.createDataFrame([tuple(values.get(name) for name in schema.names)], schema).writeTo(f"redrive.{table}").append()


def _observed(deployment: Deployment, run: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The metadata of what a run observed, if anything."""
    entries = deployment.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION)
    found = [entry.asset_observation for entry in entries]
    return {name: value.value for one in found if one for name, value in one.metadata.items()}


def _outcome(deployment: Deployment, check: Any) -> tuple[bool, str, dict[str, Any]]:
    result = check(deployment.resource)
    return result.passed, result.severity.value, {name: value.value for name, value in result.metadata.items()}
