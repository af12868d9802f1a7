"""Kafka properties as Java's clients, those of Spark, spell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.settings import SettingsError, load_settings, to_java
from tests.unit.environment import set_all

pytestmark = pytest.mark.usefixtures("project")


@pytest.mark.parametrize(
    ("librdkafka", "java"),
    [
        (
            {"bootstrap.servers": "a:1", "client.id": "c", "security.protocol": "ssl"},
            {"bootstrap.servers": "a:1", "client.id": "c", "security.protocol": "SSL"},
        ),
        (
            {"sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": 'a"b\\c'},
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="a\\"b\\\\c";',
            },
        ),
        (
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"},
            {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";',
            },
        ),
        (
            {"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "me@R", "sasl.kerberos.service.name": "kafka"},
            {
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required "
                'useKeyTab="true" storeKey="true" keyTab="/k" principal="me@R";',
            },
        ),
        (
            {"ssl.ca.location": "/ca.pem", "ssl.endpoint.identification.algorithm": "none"},
            {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "/ca.pem",
                "ssl.endpoint.identification.algorithm": "",
            },
        ),
        ({"ssl.ca.location": "probe"}, {}),
        (
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "p"},
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "p", "ssl.keystore.type": "PKCS12"},
        ),
        (
            {"ssl.certificate.pem": "CERT", "ssl.key.pem": "-----BEGIN PRIVATE KEY-----", "ssl.key.password": "p"},
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": "CERT",
                "ssl.keystore.key": "-----BEGIN PRIVATE KEY-----",
                "ssl.key.password": "p",
            },
        ),
        # what means something else in Java, or what Spark refuses
        (
            {
                "group.id": "g",
                "partition.assignment.strategy": "range",
                "enable.auto.commit": "false",
                "transactional.id": "t",
            },
            {},
        ),
    ],
)
def test_librdkafkas_spelling_becomes_javas(librdkafka: dict[str, str], java: dict[str, str]) -> None:
    assert to_java(librdkafka) == java


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("ssl.key.location", "-----BEGIN RSA PRIVATE KEY-----", "is not PKCS#8"),
        ("ssl.key.location", None, "can't be read"),
        ("ssl.ca.location", "directory", "is the directory"),
    ],
)
def test_certificates_that_java_cannot_read_are_refused(project: Path, name: str, content: str | None, said: str) -> None:
    path = project / "pem"
    if content == "directory":
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match=said):
        to_java({"ssl.certificate.pem": "CERT", name: str(path)})


def test_own_java_properties_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(
        monkeypatch,
        {"REDRIVE_KAFKA__SECURITY_PROTOCOL": "ssl", "REDRIVE_KAFKA_JAVA__SECURITY_PROTOCOL": "SASL_SSL"},
    )
    assert load_settings().kafka_java_properties == {"security.protocol": "SASL_SSL"}


def test_a_trust_store_of_javas_own_makes_up_for_a_directory_of_certificates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_all(
        monkeypatch,
        {"REDRIVE_KAFKA__SSL_CA_LOCATION": str(tmp_path), "REDRIVE_KAFKA_JAVA__SSL_TRUSTSTORE_LOCATION": "/etc/java.jks"},
    )
    assert load_settings().kafka_java_properties == {"ssl.truststore.location": "/etc/java.jks"}
