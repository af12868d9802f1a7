"""The input and the output of the publisher: the two Arrow schemas between SQL and Kafka.

``READY`` is what the publisher reads of the dbt view `ready`, one row per delivery that is due; the view's other columns are for the loop.
``RESULTS`` is what the ledger `publish_results` keeps, one row per send, without the columns that the ledger itself adds (batch,
generation, recorded_at). Timestamps are UTC with whole milliseconds.
"""

from typing import Final

import pyarrow as pa

_TIME: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

READY: Final = pa.schema(
    [
        pa.field("delivery_id", pa.string(), nullable=False),
        pa.field("due_at", _TIME, nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in ("kind", "message_id")),
        # where it goes; if the partition is null or does not exist, the key decides
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32()),
        # what is sent: bytes and order as they came; null and empty are different values
        *(pa.field(name, pa.binary()) for name in ("key", "value")),
        pa.field("headers", _HEADERS),
        # whether key, value and further headers are read from the original record; which of its headers a dead letter leaves out
        pa.field("by_reference", pa.bool_()),
        pa.field("denied_headers", pa.list_(pa.string())),
        # what is added as headers: why the message died; the attempt that a retry starts, or the last one before a dead letter
        pa.field("dead_letter_headers", _HEADERS),
        pa.field("attempt", pa.int32()),
        # which failed sends count: `all`, or `record`: those that concern the record or its topic
        pa.field("publish_charge", pa.string()),
        # what it must stay in order with: rows of one sequence come in their order, and all to one call; null: order doesn't matter
        pa.field("sequence", pa.string()),
        # what its consumer knows its sequence by, and the last failure in it, for which other messages of the sequence may wait
        pa.field("sequence_id", pa.string()),
        pa.field("sequence_epoch", pa.string()),
        # where the message came from, carried through to the results
        pa.field("consumer_group", pa.string()),
        pa.field("original_topic", pa.string()),
        pa.field("original_partition", pa.int32()),
        pa.field("original_offset", pa.int64()),
        pa.field("original_timestamp", _TIME),
    ]
)

_NOT_SENT: Final = (
    *("by_reference", "denied_headers", "dead_letter_headers", "attempt", "original_timestamp"),
    *("sequence_id", "sequence_epoch"),
)
# Rows of `READY` with their payloads and complete headers (own, why it died, those that name the delivery), and how many of the first and
# second sort.
RECORDS: Final = pa.schema(
    [
        *(field for field in READY if field.name not in _NOT_SENT),
        pa.field("own_headers", pa.int32()),
        pa.field("reason_headers", pa.int32()),
        pa.field("omitted", pa.string()),
    ]
)

RESULTS: Final = pa.schema(
    [
        *(READY.field(name).with_nullable(True) for name in ("delivery_id", "due_at", "kind", "message_id", "consumer_group")),
        pa.field("outcome", pa.string(), nullable=False),
        # where the record that was sent lies, if it was delivered
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("sent_at", _TIME),
        # why it was not delivered, if it was not
        pa.field("error_code", pa.int32()),
        *(pa.field(name, pa.string()) for name in ("error_name", "error_kind", "error_message")),
        pa.field("not_before", _TIME),
        pa.field("slot", pa.int32()),
        *(READY.field(name) for name in ("original_topic", "original_partition", "original_offset")),
        # what a dead letter was sent without: null for nothing, else `unsendable_headers`, `headers`, both joined by `+`, or `payload`
        pa.field("omitted", pa.string()),
    ]
)

# The kind of delivery that publishes a row of an outbox.
PUBLICATION: Final = "publish"

# The kinds of errors of which a message dies at once: it holds up nothing that follows it in its sequence.
FINAL: Final = frozenset({"fatal", "poison"})

# The value of `publish_charge` by which every failed send counts.
CHARGE_ALL: Final = "all"

# Outcomes. `stopped` belongs to no message: it says why the task sends no more to a topic (null: to any). The ledger has none.
DELIVERED: Final = "delivered"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
STOPPED: Final = "stopped"

# The kind of delivery that is sent with less in it rather than not at all, and what may be left out: the message's own headers that the
# client cannot carry; the headers that say why it died; these and its payload (value, own headers) and, if still too large, its key.
DEAD_LETTER: Final = "dead_letter"
OMITTED_UNSENDABLE: Final = "unsendable_headers"
OMITTED_HEADERS: Final = "headers"
OMITTED_PAYLOAD: Final = "payload"

# The error of a `stopped` row (topic null, kind `fenced`) when a loop with a higher generation is in charge, and this one must end. The
# code is outside the ranges of Kafka (-1 and above) and of librdkafka (-200 to -100).
SUPERSEDED: Final = "SUPERSEDED"
SUPERSEDED_CODE: Final = -1_000

# The error of a row whose payload was not stored, and is not in its original record any more. Its code is outside those ranges, too.
GONE: Final = "PAYLOAD_GONE"
GONE_CODE: Final = -1_001

# The errors of a `stopped` row whose topic does not exist: UNKNOWN_TOPIC_OR_PART of Kafka, _UNKNOWN_TOPIC of librdkafka.
MISSING_TOPIC: Final = frozenset({3, -188})


def superseded_message(generation: int, by: int) -> str:
    """The error message of a takeover."""
    return f"generation {by} has taken over from generation {generation}"
