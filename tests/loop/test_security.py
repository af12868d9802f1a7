"""TLS, SCRAM and ACLs on a real broker: what the loop, an operator and a reporter may do at least, as docs/security.md has it."""

from __future__ import annotations

import signal
import subprocess
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

from orchestration.demo.broker import Broker, BrokerSettings
from orchestration.demo.kafka_process import HOST, find_java, free_port
from orchestration.status import read_status
from tests.loop.harness import Topics, deliveries
from tests.loop.processes import Processes, running_processes, until

pytestmark = pytest.mark.long

DOMAIN = "guarded"
COMMANDS = f"{DOMAIN}.commands"
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
def processes(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Processes]:
    with running_processes(guarded.open, tmp_path_factory.mktemp("processes"), pytestconfig.rootpath, DOMAIN) as running:
        running.topics.topics(COMMANDS)
        yield running


def report(processes: Processes, guarded: Guarded, prefix: str, count: int, **how: Any) -> None:
    """Messages fail, and their consumer, which may only report, says so."""
    reporter = Topics(guarded.as_user("reporter"))
    for number in range(count):
        key = f"{prefix}-{number}".encode()
        partition, offset = processes.topics.write(f"{DOMAIN}.orders", key, b"value")
        written = next(
            record for record in processes.topics.read(f"{DOMAIN}.orders") if (record.partition, record.offset) == (partition, offset)
        )
        reporter.report(written, **how)
    reporter.close()


def run(processes: Processes, guarded: Guarded, **told: Any) -> subprocess.Popen[str]:
    """A loop with the rights of its user."""
    return processes.start(settings={"kafka": guarded.as_user("loop"), "commands_topic": COMMANDS}, **told)


def turns(processes: Processes) -> bool:
    """Whether the second loop has begun its ticks."""
    status = read_status(processes.home / "state" / "status.json")
    return status is not None and status.generation == 2 and status.state == "running"


def test_with_the_least_rights_all_is_done_and_what_was_sent_is_read_back(
    guarded: Guarded, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(processes, guarded, "retried", 2)
    report(processes, guarded, "dead", 1, error="KeyError")
    loop = run(processes, guarded, die="before the results' append")
    said = processes.ended(loop)
    assert loop.returncode == -signal.SIGKILL, said[-3000:]
    # it answers what the operator asks
    loop = run(processes, guarded, idle_for=600)
    until(lambda: len(processes.retries()) >= 2 and processes.dead(), "all are sent")
    until(lambda: turns(processes), "it answers")
    until(lambda: processes.sql("select 1 as there from dead_letters where state = 'open'"), "the dead letter is recorded")
    with monkeypatch.context() as patch:
        for name, value in guarded.as_user("operator").items():
            patch.setenv(f"REDRIVE_KAFKA__{name.replace('.', '_').upper()}", value)
        patch.setitem(processes.kafka, "bootstrap.servers", guarded.secure["bootstrap.servers"])
        patch.setenv("REDRIVE_COMMANDS_TOPIC", COMMANDS)
        patch.setenv("REDRIVE_INSTANCE", DOMAIN)
        processes.redrive("dlq", "redrive", "--all", "--reason", "the bug is fixed")
    until(lambda: len(processes.retries()) >= 3, "the dead letter is sent again")
    loop.send_signal(signal.SIGTERM)
    said += processes.ended(loop)
    assert loop.returncode == 0, said[-3000:]
    assert "sends_read_back" in said
    assert "read_back_denied" not in said
    assert "part_failed" not in said, said
    assert PASSWORD not in said
    assert list(deliveries([*processes.retries(), *processes.dead()]).values()) == [1] * 4


@pytest.mark.slow
def test_without_the_right_to_read_its_destinations_it_says_so_and_goes_on(guarded: Guarded, processes: Processes) -> None:
    retry_topic = f"{DOMAIN}.orders-billing-retry"
    admin = AdminClient({**guarded.open})
    read = AclBindingFilter(
        ResourceType.TOPIC, retry_topic, ResourcePatternType.LITERAL, "User:loop", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    before = len(processes.retries())
    for deleted in admin.delete_acls([read]).values():
        assert len(deleted.result(10)) == 1
    try:
        report(processes, guarded, "unread", 1)
        loop = run(processes, guarded, die="before the results' append")
        said = processes.ended(loop)
        assert loop.returncode == -signal.SIGKILL, said[-3000:]
        loop = run(processes, guarded)
        said = processes.ended(loop)
        assert loop.returncode == 0, said[-3000:]
        assert f"read_back_denied topics={retry_topic}" in said
        # at least once: what was sent there without a result is sent again
        assert len(processes.retries()) == before + 2
    finally:
        for created in admin.create_acls(bindings("loop", retry_topic)).values():
            created.result(10)
