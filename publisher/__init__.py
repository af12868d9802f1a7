"""Sends what is due to Kafka, and returns the results: record batches of `ready` in, record batches of results out.

It depends on Kafka and Arrow, not on SQL, Spark or the rules of retrying. The flow of one call, with the module of each step:

1. `publishing`   takes batches and yields results. It remembers what has a result, and raises nothing: an error becomes a result
2. `originals`    reads the payloads that were not stored, from the messages' original records
3. `ready`        checks the columns, completes the `headers`, and cuts the rows into loads that fit into one transaction
4. `destinations` asks which topics exist, with how many partitions and which size limit
5. `fitting`      fails records that are certain to be refused, which would abort the transaction of the others; lightens dead letters
6. `session`      opens a producer, after which `generation` reads whether this loop is in charge
7. `sending`      hands rows over (`handover`), waits for reports, and commits: all rows or none. For brokers without transactions each row
                  has the outcome of its own report. After a refusal `publishing` tries rows again: by topic, then in halves

A row is `delivered` when its commit has returned; an abort delivers nothing. `unknown`: the commit was not answered. `failed`: the record
or its topic was refused, or the route counts every failed send. `stopped` belongs to no record: it says why rows have no result.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from publisher.clients import fatal_as_kafka_exception, kafka_error, make_client
    from publisher.contract import DELIVERED, FAILED, MISSING_TOPIC, READY, RESULTS, STOPPED, SUPERSEDED_CODE, UNKNOWN
    from publisher.errors import RejectedPropertiesError, SessionLostError, SettingsError, SupersededError, error_kinds_from_rows
    from publisher.generation import refuse_superseded, renew_charge, take_charge
    from publisher.publishing import epoch_ms, publish
    from publisher.redaction import MASK, SecretText, is_secret, masked, parts_of, redact, secrets_of
    from publisher.session import Session
    from publisher.settings import PublisherSettings

__all__ = [
    "DELIVERED", "FAILED", "MASK", "MISSING_TOPIC", "READY", "RESULTS", "STOPPED", "SUPERSEDED_CODE", "UNKNOWN", "PublisherSettings",
    "RejectedPropertiesError", "SecretText", "Session", "SessionLostError", "SettingsError", "SupersededError", "epoch_ms",
    "error_kinds_from_rows", "fatal_as_kafka_exception", "is_secret", "kafka_error", "make_client", "masked", "parts_of", "publish",
    "redact", "refuse_superseded", "renew_charge", "secrets_of", "take_charge",
]  # fmt: skip

_NAMES = {
    "clients": "fatal_as_kafka_exception kafka_error make_client",
    "contract": "DELIVERED FAILED MISSING_TOPIC READY RESULTS STOPPED SUPERSEDED_CODE UNKNOWN",
    "errors": "RejectedPropertiesError SessionLostError SettingsError SupersededError error_kinds_from_rows",
    "generation": "refuse_superseded renew_charge take_charge",
    "publishing": "epoch_ms publish",
    "redaction": "MASK SecretText is_secret masked parts_of redact secrets_of",
    "session": "Session",
    "settings": "PublisherSettings",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Imports a module when a name of it is used: a command that only needs redaction loads neither Arrow nor the Kafka client (0.5 s)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"publisher.{_MODULE_OF[name]}"), name)
