"""The Kafka properties that the publisher's promises rest on. Settings may tune everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from publisher.errors import ContradictedPropertyError

# Without these a send may be lost, doubled, reordered, or land where a Java client would not have put it.
GUARANTEES: Final[Mapping[str, str]] = {
    "enable.idempotence": "true",
    "acks": "all",
    # Java's default for keyed records; librdkafka's own default puts the same key elsewhere.
    "partitioner": "murmur2_random",
    # A misspelt destination must not come into being because somebody asked for it.
    "allow.auto.create.topics": "false",
    # Offsets come from the reports of successful sends.
    "delivery.report.only.error": "false",
}

_ALIASES: Final[Mapping[str, str]] = {"request.required.acks": "acks", "delivery.timeout.ms": "message.timeout.ms"}
_SAME: Final[Mapping[str, str]] = {"-1": "all"}


def guarantees(transaction_timeout_ms: int) -> dict[str, str]:
    """All guarded properties, those included that follow from the transaction timeout."""
    return {
        **GUARANTEES,
        "transaction.timeout.ms": str(transaction_timeout_ms),
        # A row that got no report in a third of the time fails, so that a third is left for the commit.
        "message.timeout.ms": str(transaction_timeout_ms // 3),
    }


def refuse_contradictions(kafka: Mapping[str, str], transaction_timeout_ms: int) -> None:
    """Raises ContradictedPropertyError for a property that says otherwise than the guarantees; the same is harmless."""
    needed = guarantees(transaction_timeout_ms)
    for name, value in kafka.items():
        known = _ALIASES.get(name, name)
        if known == "transactional.id":
            raise ContradictedPropertyError(name, "an id of its own for each slot")
        said = value.strip().lower()
        if known in needed and _SAME.get(said, said) != needed[known]:
            raise ContradictedPropertyError(name, f"{known} = {needed[known]}")
