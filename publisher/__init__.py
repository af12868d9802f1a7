"""Sends what is due to Kafka, and says what became of it: record batches of `ready` in, record batches of results out.

It knows Kafka and Arrow, nothing of SQL, Spark or the rules of retrying. The flow of one call:

1. `publishing`   takes batches, gives results, and never raises: what stops it is told in a row
2. `ready`        checks the columns and cuts the rows into loads that fit into one transaction
3. `task`         keeps what is settled: destinations that are stopped, topics that refuse, rows still to be tried
4. `destinations` asks which topics exist, with how many partitions and which size limit
5. `fitting`      charges records that are certain to be refused, before they cost the others their transaction;
                  of dead letters that are too large, less is sent (`lightening`)
6. `transaction`  hands rows over (`handover`), waits for reports (`reports`), commits: for all rows or none
   or, for brokers without transactions, `untransacted`: each row by its own report
7. `splitting`    after a refusal: by topic first, then in halves, until the refused record stands alone
8. `results`      builds the result columns

Before a task sends, `session` reads which loop is in charge (`fence`); a loop puts itself there by `take_charge`
(`generation`).

A row is `delivered` once its transaction's commit has returned; after an abort nothing is. `unknown` is a commit
without an answer. `failed` charges a record that was refused for what it is. A `stopped` row is nobody's result: it
says why the rows that have none were left alone. `guarantees` lists the Kafka properties that all this rests on.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from publisher.contract import READY, RESULTS, superseded_by
    from publisher.error_kinds import ErrorKind, Scope, classify, error_kinds_from_rows
    from publisher.errors import (
        ContractError,
        ContradictedPropertyError,
        PublisherError,
        RejectedPropertiesError,
        SessionLostError,
        SettingsError,
        SupersededError,
    )
    from publisher.fence import refuse_superseded
    from publisher.generation import take_charge
    from publisher.publishing import publish
    from publisher.settings import PublisherSettings

__all__ = [
    "READY",
    "RESULTS",
    "ContractError",
    "ContradictedPropertyError",
    "ErrorKind",
    "PublisherError",
    "PublisherSettings",
    "RejectedPropertiesError",
    "Scope",
    "SessionLostError",
    "SettingsError",
    "SupersededError",
    "classify",
    "error_kinds_from_rows",
    "publish",
    "refuse_superseded",
    "superseded_by",
    "take_charge",
]

_PLACES = {
    "publisher.contract": (
        "READY",
        "RESULTS",
        "superseded_by",
    ),
    "publisher.error_kinds": (
        "ErrorKind",
        "Scope",
        "classify",
        "error_kinds_from_rows",
    ),
    "publisher.errors": (
        "ContractError",
        "ContradictedPropertyError",
        "PublisherError",
        "RejectedPropertiesError",
        "SessionLostError",
        "SettingsError",
        "SupersededError",
    ),
    "publisher.fence": ("refuse_superseded",),
    "publisher.generation": ("take_charge",),
    "publisher.publishing": ("publish",),
    "publisher.settings": ("PublisherSettings",),
}
_PLACE = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> object:
    """Loads a part when it is asked for: who only wants to know what is secret does without Arrow and the Kafka client (0.7 s)."""
    if name not in _PLACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACE[name]), name)
