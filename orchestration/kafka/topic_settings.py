"""What a broker says about topics beside their partitions: their configuration, and what this user may do with them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType


def configs(admin: AdminClient, names: Iterable[str], timeout: float) -> dict[str, dict[str, str | None]]:
    """The configuration of each topic; one that doesn't exist or may not be asked for is left out. timeout: in seconds."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
    found: dict[str, dict[str, str | None]] = {}
    # librdkafka doesn't take a request without topics
    for resource, future in (admin.describe_configs(resources, request_timeout=timeout) if resources else {}).items():
        with suppress(KafkaException):
            found[str(resource.name)] = {name: entry.value for name, entry in future.result().items()}
    return found


def not_readable(admin: AdminClient, names: Iterable[str], timeout: float) -> set[str]:
    """Those of the topics whose records this user may not read, as far as the broker tells. timeout: in seconds."""
    wanted = sorted(set(names))
    if not wanted:
        return set()
    found: set[str] = set()
    asked = admin.describe_topics(TopicCollection(wanted), include_authorized_operations=True, request_timeout=timeout)
    for name, future in asked.items():
        try:
            allowed = future.result().authorized_operations
        except KafkaException as error:
            # any other error, such as that of a broker that doesn't know the question, must not end the checks that follow
            allowed = [] if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED else None
        if allowed is not None and AclOperation.READ not in allowed:
            found.add(name)
    return found
