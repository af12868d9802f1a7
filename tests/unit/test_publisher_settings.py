"""Settings: what they refuse, what they pass through, and that they keep secrets to themselves."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from publisher import PublisherSettings, RejectedPropertiesError, SettingsError, publish, redact
from publisher.clients import Background, make_admin, make_producer
from publisher.errors import ContractError, ContradictedPropertyError
from publisher.ready import as_records
from tests.unit.publisher_kit.rows import SLOT, plain, ready, send, settings_for, stops
from tests.unit.publisher_kit.tables import ERROR_KINDS

SECRET = "hunter2-s3cret"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transactional.id", "mine"),
        ("enable.idempotence", "false"),
        ("acks", "1"),
        ("acks", "0"),
        ("request.required.acks", "1"),
        ("partitioner", "consistent_random"),
        ("allow.auto.create.topics", "true"),
        ("delivery.report.only.error", "true"),
        ("transaction.timeout.ms", "900000"),
        ("message.timeout.ms", "300000"),
        ("delivery.timeout.ms", "300000"),
    ],
)
def test_a_property_against_a_guarantee_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ContradictedPropertyError, match=name.replace(".", r"\.")):
        PublisherSettings(kafka={name: value}, error_kinds={})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "all"),
        ("acks", "-1"),
        ("request.required.acks", "all"),
        ("enable.idempotence", "True"),
        ("partitioner", "murmur2_random"),
        ("delivery.report.only.error", "false"),
        ("transaction.timeout.ms", "60000"),
        ("delivery.timeout.ms", "20000"),
        ("linger.ms", "50"),
        ("compression.type", "lz4"),
        ("batch.size", "100000"),
    ],
)
def test_tuning_and_saying_the_same_are_welcome(name: str, value: str) -> None:
    settings = PublisherSettings(kafka={"bootstrap.servers": "127.0.0.1:1", name: value}, error_kinds={})

    make_producer(settings, settings.transactional_id(0), 1_000, Background())


@pytest.mark.parametrize(
    "change",
    [
        {"max_rows": 0},
        {"max_bytes": 0},
        {"transaction_timeout_ms": 2_999},
        {"metadata_timeout_ms": 0},
        {"metadata_max_age_ms": 0},
        {"max_splits": 0},
    ],
)
def test_a_bound_that_cannot_work_is_refused_by_name(change: dict[str, Any]) -> None:
    (name,) = change
    with pytest.raises(SettingsError, match=name):
        PublisherSettings(kafka={}, error_kinds={}, **change)


REJECTED = [
    {"no.such.property": SECRET, "sasl.password": SECRET},
    {"security.protocol": SECRET, "sasl.password": SECRET},
]


@pytest.mark.parametrize("kafka", REJECTED)
def test_properties_that_the_client_rejects_raise_and_keep_the_secret(kafka: dict[str, str]) -> None:
    with pytest.raises(RejectedPropertiesError) as raised:
        make_admin(settings_for("127.0.0.1:1", kafka=kafka), Background())

    error: BaseException | None = raised.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("kafka", REJECTED)
def test_properties_that_one_node_s_client_rejects_stop_its_task_only(kafka: dict[str, str]) -> None:
    (row,) = send([{"topic": "t"}], settings_for("127.0.0.1:1", kafka=kafka))

    assert stops([row]) == [(None, -143, "retriable")]
    assert row["error_message"].startswith("RejectedPropertiesError: the Kafka client does not take its properties: ")
    assert SECRET not in row["error_message"]


def test_settings_travel_pickled() -> None:
    settings = PublisherSettings(kafka={"bootstrap.servers": "b:9092"}, error_kinds=ERROR_KINDS, instance="eu")

    assert pickle.loads(pickle.dumps(settings)) == settings


def test_errors_travel_pickled() -> None:
    with pytest.raises(ContradictedPropertyError) as raised:
        PublisherSettings(kafka={"acks": "0"}, error_kinds={})

    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_the_transactional_id_names_prefix_instance_and_slot() -> None:
    settings = PublisherSettings(kafka={}, error_kinds={}, transactional_prefix="p", instance="i")

    assert settings.transactional_id(3) == "p.i.3"


def test_a_printed_setting_shows_no_secret() -> None:
    assert SECRET not in repr(PublisherSettings(kafka={"sasl.password": SECRET}, error_kinds={}))


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.jaas.config",
    ],
)
def test_a_secret_is_masked_wherever_it_turns_up(name: str) -> None:
    settings = PublisherSettings(kafka={name: SECRET, "bootstrap.servers": "b:9092"}, error_kinds={})

    told = settings.trouble(-169, f"login with {SECRET} at b:9092\n failed")

    assert told.message == "login with *** at b:9092 failed"


def test_a_secret_inside_another_is_masked_whole() -> None:
    assert redact("the key is abcdef", {"sasl.password": "abc", "ssl.key.password": "abcdef"}) == "the key is ***"


def test_a_long_reason_is_cut() -> None:
    assert len(redact("x" * 10_000, {})) == 500


def test_rows_of_another_shape_are_refused_before_anything_is_sent() -> None:
    records = ready([{"topic": "t"}])
    settings = settings_for("127.0.0.1:1")
    for wrong, complaint in [
        (records.drop_columns(["headers", "key"]), "lack the columns key, headers"),
        (records.set_column(records.schema.get_field_index("key"), "key", records["original_offset"]), "other types"),
    ]:
        with pytest.raises(ContractError, match=complaint):
            as_records(wrong)
        for results in (send([wrong], settings), [row for batch in publish([wrong], settings, SLOT) for row in plain(batch)]):
            assert stops(results) == [(None, -143, "retriable")]
            assert results[0]["error_message"].startswith("ContractError: rows of ready ")
