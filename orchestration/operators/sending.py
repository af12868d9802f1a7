"""Sends an operator's command: a frozen list of deliveries, in parts, closed by a record that says what to do with them.

All records go to one partition of the commands topic in one transaction, so that the loop sees the whole list or nothing; without
transactions, count and digest show whether the list is complete. SQL reads the records: models/commands/command_records.sql.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Message

from orchestration.kafka import clients
from orchestration.kafka.cluster import Cluster
from orchestration.operators.commands import CommandError, CommandRequest
from orchestration.operators.lists import Target, digest_of_parts, part_digest, parts_of
from orchestration.settings import Settings, rejected
from publisher import RejectedPropertiesError, kafka_error, redact

# Seconds to wait for the brokers.
_PATIENCE = 30
_ABORT_PATIENCE = 5

Progress = Callable[[int, int], None]
"""Called with the number of records that are done, and of all."""


def send(settings: Settings, request: CommandRequest, targets: Sequence[Target] = (), progress: Progress = lambda done, of: None) -> str:
    """Writes a command; returns its id. progress: is called with how many of its records are written.

    Raises CommandError, ClusterError. Then nothing is executed, unless Kafka has all records and only its answer was lost.
    """
    command = str(uuid.uuid4())
    cluster = Cluster(settings.kafka_properties)
    if settings.commands_topic not in cluster.topic_names():
        raise CommandError(f"the topic {settings.commands_topic} is missing: `redrive check --create` makes it")
    write(settings, command, records(request, targets), progress)
    return command


def records(request: CommandRequest, targets: Sequence[Target] = ()) -> list[bytes]:
    """The values of a command's records, in their order."""
    parts = list(parts_of(targets))
    values: list[Mapping[str, object]] = [
        {"format": 1, "part": number, "deliveries": [[one.delivery_id, one.due_ms] for one in part]} for number, part in enumerate(parts)
    ]
    closing = {"format": 1, "closed": True, "count": len(targets), **request.fields()}
    if parts:
        closing["digest"] = digest_of_parts(map(part_digest, parts))
    return [json.dumps(value, ensure_ascii=False).encode() for value in (*values, closing)]


def write(settings: Settings, command: str, values: Sequence[bytes], progress: Progress = lambda done, of: None) -> None:
    """Writes the records of a command; with transactions, all or none. Raises CommandError."""
    problems: list[str] = []
    written = 0

    def report(error: KafkaError | None, _: Message) -> None:
        nonlocal written
        if error is not None:
            problems.append(error.str())
        written += 1
        progress(written, len(values))

    transactional_id = f"{settings.transactional_prefix}.{settings.instance}.command-{command}"
    try:
        own = {"transactional.id": transactional_id} if settings.transactions else {}
        producer = clients.producer(settings.kafka_properties, _PATIENCE, own)
        if settings.transactions:
            producer.init_transactions(_PATIENCE)
            producer.begin_transaction()
        for value in values:
            # in partition 0, so that the records of a command are read in their order
            producer.produce(settings.commands_topic, value, command, 0, on_delivery=report)
            producer.poll(0)
        left = producer.flush(_PATIENCE)
        if problems or left:
            if settings.transactions:
                # while it is open, nobody can read the commands that others give after it
                with suppress(KafkaException):
                    producer.abort_transaction(_ABORT_PATIENCE)
            why = redact(problems[0], settings.kafka_properties) if problems else f"no answer within {_PATIENCE} s"
            raise CommandError(f"{settings.commands_topic}: {why}")
        if settings.transactions:
            producer.commit_transaction(_PATIENCE)
    except RejectedPropertiesError as error:
        raise rejected(error) from None
    except KafkaException as error:
        # without the cause, whose text may contain a part of a secret
        raise CommandError(f"{settings.commands_topic}: {redact(kafka_error(error).str(), settings.kafka_properties)}") from None
