"""TLS, SCRAM and ACLs on a real broker: what the loop, an operator and a reporter may do at least, as docs/security.md has it."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from typer.testing import CliRunner

from orchestration.cli.main import app
from orchestration.demo.broker import Broker, BrokerSettings
from orchestration.demo.kafka_process import HOST, find_java, free_port
from orchestration.loop.loop import Loop
from orchestration.loop.sending import BulkLane
from orchestration.settings import load_settings
from tests.loop.death import die, start_after_death, until_it_dies
from tests.loop.harness import Record, Redrive, Topics, deliveries, write_seeds
from tests.sessions import stop_session

pytestmark = pytest.mark.long

DOMAIN = "guarded"
COMMANDS = f"{DOMAIN}.commands"
RETRIES = f"{DOMAIN}.orders-billing-retry"
PASSWORD = "a-s3cret, with ;signs"
USERS = ("loop", "operator", "reporter")

# By user: resource, pattern, name, operations. READ and WRITE include DESCRIBE.
RIGHTS = {
    "loop": (
        (ResourceType.TRANSACTIONAL_ID, "prefixed", f"redrive.{DOMAIN}.", ("WRITE",)),
        (ResourceType.GROUP, "literal", f"redrive.{DOMAIN}", ("READ",)),
        (ResourceType.GROUP, "literal", "redrive", ("READ",)),
        (ResourceType.TOPIC, "literal", f"{DOMAIN}.reports", ("READ",)),
        (ResourceType.TOPIC, "literal", COMMANDS, ("READ",)),
        (ResourceType.TOPIC, "literal", f"{DOMAIN}.orders-billing-retry", ("READ", "WRITE", "DESCRIBE_CONFIGS")),
        (ResourceType.TOPIC, "literal", f"{DOMAIN}.orders.dlq", ("READ", "WRITE", "DESCRIBE_CONFIGS")),
        (ResourceType.GROUP, "literal", "billing", ("DESCRIBE",)),
    ),
    "operator": (
        (ResourceType.TOPIC, "literal", COMMANDS, ("WRITE",)),
        (ResourceType.TRANSACTIONAL_ID, "prefixed", f"redrive.{DOMAIN}.command-", ("WRITE",)),
    ),
    "reporter": ((ResourceType.TOPIC, "literal", f"{DOMAIN}.reports", ("WRITE",)),),
}


@dataclass(frozen=True)
class Guarded:
    """A broker with two listeners: without a login, for who may do everything, and with one."""

    open: dict[str, str]
    secure: dict[str, str]

    def as_user(self, user: str) -> dict[str, str]:
        """Properties of a client with a login."""
        return {**self.secure, "sasl.username": user}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    store, certificate = directory / "broker.p12", directory / "ca.pem"
    keytool = str(Path(find_java()).with_name("keytool"))
    common = ["-alias", "broker", "-keystore", str(store), "-storetype", "PKCS12", "-storepass", "storepass"]
    made = ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=redrive", "-ext", f"san=ip:{HOST}", "-validity", "2"]
    subprocess.run([keytool, *made, *common], check=True, capture_output=True)
    subprocess.run([keytool, "-exportcert", "-rfc", "-file", str(certificate), *common], check=True, capture_output=True)
    address = f"{HOST}:{free_port()}"
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "ssl.keystore.location": str(store),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": "storepass",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
    }
    with Broker(BrokerSettings(directory / "broker", properties=properties, listeners=[f"SECURE://{address}"])) as broker:
        secure = {
            "bootstrap.servers": address,
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(certificate),
        }
        known = Guarded({"bootstrap.servers": broker.bootstrap_servers}, secure)
        admin = AdminClient({**known.open})
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        users: list[UserScramCredentialAlteration] = [UserScramCredentialUpsertion(user, scram, PASSWORD.encode()) for user in USERS]
        for changed in admin.alter_user_scram_credentials(users).values():
            changed.result(10)
        for created in admin.create_acls([binding for user in USERS for binding in bindings(user)]).values():
            created.result(10)
        yield known


def bindings(user: str, name: str | None = None) -> list[AclBinding]:
    """The rights of a user; name: only those of one resource."""
    return [
        AclBinding(
            resource, of, ResourcePatternType[pattern.upper()], f"User:{user}", "*", AclOperation[operation], AclPermissionType.ALLOW
        )
        for resource, pattern, of, operations in RIGHTS[user]
        for operation in operations
        if name in (None, of)
    ]


@pytest.fixture(scope="module")
def guarded_loop(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Redrive]:
    """A loop with the rights of its user, in a home of its own; its topics are written and read by who may do everything."""
    stop_session()
    directory, project = tmp_path_factory.mktemp("guarded-loop"), pytestconfig.rootpath
    seeds = write_seeds(directory / "seeds", project, DOMAIN)
    kafka, home = guarded.as_user("loop"), directory / "state"
    settings = load_settings(
        home=home, seeds=seeds, project=project, kafka=kafka, instance=DOMAIN, commands_topic=COMMANDS, look_ahead_seconds=0
    )
    running = Redrive(guarded.open, Loop(settings))
    running.domain(DOMAIN)
    running.topics(COMMANDS)
    running.loop.start()
    yield running
    running.close()
    stop_session()


@pytest.fixture
def reporter(guarded: Guarded) -> Iterator[Topics]:
    """Who may only report."""
    topics = Topics(guarded.as_user("reporter"))
    yield topics
    topics.close()


def fails(loop: Redrive, reporter: Topics, key: bytes, **how: Any) -> None:
    """A message fails, and its consumer, which may only report, says so."""
    partition, offset = loop.write(f"{DOMAIN}.orders", key, b"value")
    reporter.report(Record(f"{DOMAIN}.orders", partition, offset, int(time.time() * 1000), key, b"value", ()), **how)


def sent(loop: Redrive) -> list[Record]:
    """All that the loop has sent."""
    return [*loop.read(RETRIES), *loop.read(f"{DOMAIN}.orders.dlq")]


def dies_before_its_results_are_recorded(loop: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the loop until it has sent something, and dies; another one starts."""
    with monkeypatch.context() as patch:
        patch.setattr(BulkLane, "record", die)
        until_it_dies(loop)
    start_after_death(loop)


def test_with_the_least_rights_all_is_done_and_what_was_sent_is_read_back(
    guarded: Guarded, guarded_loop: Redrive, reporter: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    loop = guarded_loop
    fails(loop, reporter, b"retried-0")
    fails(loop, reporter, b"retried-1")
    fails(loop, reporter, b"dead", error="KeyError")
    dies_before_its_results_are_recorded(loop, monkeypatch)
    loop.retries(DOMAIN, 2)
    loop.dead(DOMAIN, 1)
    loop.settle()
    with monkeypatch.context() as patch:
        settings = loop.loop.settings
        operator = {f"KAFKA__{name.replace('.', '_').upper()}": value for name, value in guarded.as_user("operator").items()}
        operator |= {"HOME": str(settings.home), "SEEDS": str(settings.seeds), "COMMANDS_TOPIC": COMMANDS, "INSTANCE": DOMAIN}
        for name, value in operator.items():
            patch.setenv(f"REDRIVE_{name}", value)
        done = CliRunner().invoke(app, ["dlq", "redrive", "--all", "--reason", "the bug is fixed"])
    assert done.exit_code == 0, done.output
    loop.retries(DOMAIN, 3)
    loop.settle()
    assert "sends_read_back" in caplog.text
    assert "read_back_denied" not in caplog.text
    assert "part_failed" not in caplog.text
    assert PASSWORD not in caplog.text + done.output
    assert list(deliveries(sent(loop)).values()) == [1] * 4


def test_without_the_right_to_read_its_destinations_it_says_so_and_goes_on(
    guarded: Guarded, guarded_loop: Redrive, reporter: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = guarded_loop
    admin = AdminClient({**guarded.open})
    read = AclBindingFilter(
        ResourceType.TOPIC, RETRIES, ResourcePatternType.LITERAL, "User:loop", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    before = len(loop.read(RETRIES))
    for deleted in admin.delete_acls([read]).values():
        assert len(deleted.result(10)) == 1
    try:
        fails(loop, reporter, b"unread")
        dies_before_its_results_are_recorded(loop, monkeypatch)
        assert f"read_back_denied topics={RETRIES}" in caplog.text
        # at least once: what was sent there without a result is sent again
        loop.retries(DOMAIN, before + 2)
        loop.settle()
        assert len(loop.read(RETRIES)) == before + 2
    finally:
        for created in admin.create_acls(bindings("loop", RETRIES)).values():
            created.result(10)
