"""A wrong value of a secret property is told of by its name, and by nothing of its value: in no error, no log, no command's output."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from typer.testing import CliRunner

from orchestration.cli.main import app
from orchestration.kafka.cluster import Cluster, ClusterError
from orchestration.kafka.json_topics import JsonTopic, JsonTopicError
from orchestration.operators.commands import CommandError
from orchestration.operators.sending import write
from orchestration.settings import SettingsError, load_settings, where_set
from publisher import PublisherSettings, RejectedPropertiesError, is_secret, make_client, masked, secrets_of
from publisher.clients import Background, make_admin, make_keeper, make_producer, make_reader

SECRET = 'hunter2 s3cret;"quoted" tail-of-it'
PLAIN = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "me"}

# By the secret property: what else must be set for its value to matter.
WRONG = {
    "sasl.password": PLAIN,
    "sasl.jaas.config": {},
    "sasl.oauthbearer.config": {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
    },
    "sasl.oauthbearer.client.secret": {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
    },
    "ssl.key.pem": {"security.protocol": "ssl"},
    "ssl.key.password": {
        "security.protocol": "ssl",
        "ssl.key.pem": "-----BEGIN ENCRYPTED PRIVATE KEY-----\nhunter2 s3cret\n-----END ENCRYPTED PRIVATE KEY-----",
    },
    "ssl.keystore.password": {"security.protocol": "ssl", "ssl.keystore.location": __file__},
    "ssl.keystore.key": {},
    "security.protocol": {},
    "sasl.pasword": {},
    "statistics.interval.ms": {},
}


def kafka(name: str, bootstrap: str = "127.0.0.1:1") -> dict[str, str]:
    return {"bootstrap.servers": bootstrap, **WRONG[name], name: SECRET}


def environment(properties: Mapping[str, str], setting: str = "KAFKA") -> dict[str, str]:
    """The properties as variables."""
    return {f"REDRIVE_{setting}__{name.upper().replace('.', '_')}": value for name, value in properties.items()}


# By the secret property of kafka_java, which Spark's reader alone sees: what makes its value wrong.
WRONG_IN_JAVA = {
    "ssl.truststore.password": {"security.protocol": "SSL", "ssl.truststore.location": __file__, "ssl.truststore.password": SECRET},
    "sasl.jaas.config": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'no.such.Login required password="{}";'.format(SECRET.replace('"', '\\"')),
    },
}


def leaks(text: str) -> bool:
    """Whether eight letters of the secret stand somewhere in a text."""
    return any(SECRET[start : start + 8] in text for start in range(len(SECRET) - 7))


def said_by(call: Callable[[], object]) -> str:
    """What an error says, with all that caused it; nothing where there is none."""
    try:
        call()
    except (SettingsError, ClusterError, JsonTopicError, CommandError, RejectedPropertiesError) as error:
        return "".join(traceback.format_exception(error)).replace(traceback.format_tb(error.__traceback__)[0], "")
    return ""


@pytest.mark.parametrize("name", WRONG)
def test_no_client_tells_a_secret(
    name: str, pytestconfig: pytest.Config, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = load_settings(home=tmp_path, project=pytestconfig.rootpath, kafka=kafka(name), commands_topic="commands")
    publisher = PublisherSettings(kafka=settings.kafka_properties, error_kinds={})
    said = [
        said_by(lambda: Cluster(settings.kafka_properties, timeout_seconds=0.3).topic_names()),
        said_by(lambda: Cluster(settings.kafka_properties, timeout_seconds=0.3).committed("group", [("orders", 0)])),
        said_by(lambda: write(settings, "command", [b"{}"]) if name in _REJECTED else None),
        said_by(lambda: make_admin(publisher, Background())),
        said_by(lambda: make_keeper(publisher, "group", Background())),
        said_by(lambda: make_reader(publisher, Background())),
        said_by(lambda: make_producer(publisher, None, 1000, Background())),
        said_by(lambda: make_client(Consumer, {**settings.kafka_properties, "group.id": "g"}, settings.kafka_properties)),
        f"{settings!r} {settings} {settings.kafka_java_properties}" if is_secret(name, SECRET) and name != "sasl.jaas.config" else "",
    ]
    captured = capfd.readouterr()
    everything = "\n".join([*said, caplog.text, captured.out, captured.err])
    assert said[0], "a wrong value is noticed"
    assert not leaks(everything), everything


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.usefixtures("no_spark")
def test_check_tells_no_secret(name: str, pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in environment(kafka(name)).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("REDRIVE_PROJECT", str(pytestconfig.rootpath))
    monkeypatch.setattr("orchestration.rules.check.Cluster", partial(Cluster, timeout_seconds=0.3))
    checked = CliRunner().invoke(app, ["check", "--home", str(tmp_path)])
    assert checked.exit_code == 1
    assert re.search(r"(?m)^bad +brokers +127\.0\.0\.1:1: \S", checked.output)
    assert not leaks(f"{checked.output}{checked.exception}")


_REJECTED = {"sasl.jaas.config", "ssl.key.pem", "ssl.keystore.key", "security.protocol", "sasl.pasword", "statistics.interval.ms"}


@pytest.mark.parametrize("name", sorted(_REJECTED))
def test_a_property_that_the_client_does_not_take_is_named_with_its_place(
    name: str, pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (variable,) = environment({name: SECRET})
    for other, value in environment(kafka(name)).items():
        monkeypatch.setenv(other, value)
    monkeypatch.setenv("REDRIVE_PROJECT", str(pytestconfig.rootpath))
    with pytest.raises(SettingsError, match=f"{variable} \\({name}\\)"):
        Cluster(load_settings(home=tmp_path).kafka_properties)
    given = CliRunner().invoke(app, ["dlq", "pause", "0" * 36, "--reason", "why", "--home", str(tmp_path)])
    assert isinstance(given.exception, SettingsError)
    assert not leaks(f"{given.output}{given.exception}")


def test_a_property_of_the_file_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redrive.toml").write_text('slots = 1\n\n[kafka]\n"bootstrap.servers" = "a:1"\nsasl.pasword = "x"\n')
    assert where_set("sasl.pasword") == 'redrive.toml:5, [kafka] "sasl.pasword"'
    assert where_set("bootstrap.servers") == 'redrive.toml:4, [kafka] "bootstrap.servers"'
    assert where_set("acks") == "Kafka property acks"


def test_a_file_that_the_settings_file_names_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "word").write_text("secret\n", encoding="utf-8")
    (tmp_path / "etc" / "redrive.toml").write_text('[kafka]\n"sasl.password" = "file:word"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_CONFIG", "etc/redrive.toml")
    assert load_settings().kafka["sasl.password"] == "secret"


def test_two_wrong_properties_are_both_named() -> None:
    with pytest.raises(RejectedPropertiesError) as raised:
        make_client(Producer, {"acks": "x1", "no.such": "y2"}, {"acks": "x1", "no.such": "y2"})
    assert raised.value.names == ("acks", "no.such")


@pytest.mark.parametrize("protocol", ["sasl_plaintext"])
def test_a_login_that_java_could_not_read_is_refused_without_a_word_of_it(
    protocol: str, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    settings = load_settings(home=tmp_path, project=pytestconfig.rootpath, kafka_java={"sasl.jaas.config": SECRET})
    assert not leaks(said_by(lambda: settings.kafka_java_properties) or SECRET)
    login = 'com.example.Login required user="me" password="a\\"b c" n=1;'
    good = load_settings(home=tmp_path, project=pytestconfig.rootpath, kafka_java={"sasl.jaas.config": login})
    assert good.kafka_java_properties["sasl.jaas.config"] == login


def test_parts_of_a_secret_are_masked_and_what_every_error_has_is_not() -> None:
    login = {
        "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="hunter2-s3cret";'
    }
    said = "org.apache.kafka.common.KafkaException: required: hunter2-s3cret, or beginning at unter2-s3cret"
    assert masked(said, secrets_of(login)) == "org.apache.kafka.common.KafkaException: required: ***, or beginning at ***"


def test_a_json_topic_tells_no_secret(tmp_path: Path) -> None:
    for name in sorted(_REJECTED):
        cluster = Cluster({"bootstrap.servers": "127.0.0.1:1"}, timeout_seconds=0.3)
        cluster.topic_names = lambda: ["told"]  # type: ignore[method-assign]  # a stub
        # mypy infers no lambda with a default
        said = said_by(lambda name=name, cluster=cluster: JsonTopic(cluster, kafka(name), "told").write([("k", "v")]))  # type: ignore[misc]
        assert said
        assert not leaks(said)
