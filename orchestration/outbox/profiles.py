"""How outbox tables are made: which column has what, and which values their status has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from orchestration.clock import parse_duration

FIELDS: Final = (
    *("id", "topic", "key", "value", "headers", "aggregate", "created_at"),
    *("status", "attempts", "next_retry_at", "claimed_at", "processed_at", "last_error"),
)
"""What a column may have. A table needs `id` and `value`, and `topic` unless the seed names one; it may lack the others."""

STATUSES: Final = ("pending", "processing", "done", "failed", "dead")

IN_TOPIC = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class Profile:
    """columns: by field. statuses: the value of the column `status` by its meaning. headers: columns that become headers, by their name.

    key_of_aggregate: whether the aggregate is the key of a row without one. topic: a template, for tables without a column for it.
    content_type: of the value, where a header says it.
    """

    columns: Mapping[str, str]
    statuses: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    key_of_aggregate: bool = False
    topic: str = ""
    content_type: str = ""


PROFILES: Final[Mapping[str, Profile]] = {
    # https://github.com/SametGoktepe/eventferry: packages/postgres/sql/outbox.sql has the table, packages/core/src/publishable.ts the
    # headers; its page on dead letters calls the message's id x-message-id
    "eventferry": Profile(
        columns={
            **{name: name for name in ("id", "topic", "key", "headers", "created_at")},
            **{name: name for name in ("status", "attempts", "next_retry_at", "claimed_at", "processed_at")},
            "value": "payload",
            "aggregate": "aggregate_id",
        },
        statuses=dict(zip(STATUSES, (0, 1, 2, 3, 4), strict=True)),
        headers={
            "message-id": "message_id",
            "x-message-id": "message_id",
            "aggregate-type": "aggregate_type",
            "aggregate-id": "aggregate_id",
            "trace-id": "trace_id",
        },
        key_of_aggregate=True,
        content_type="application/json",
    ),
    # https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html: columns, topic, key and headers by
    # default. The table has no status: a row is pending as long as it is there
    "debezium": Profile(
        columns={"id": "id", "value": "payload", "aggregate": "aggregateid"},
        headers={"id": "id", "x-message-id": "id"},
        key_of_aggregate=True,
        topic="outbox.event.{aggregatetype}",
    ),
    "plain": Profile(
        columns={name: name for name in FIELDS},
        statuses={name: name for name in STATUSES},
        headers={"x-message-id": "id"},
    ),
}
"""By name: the tables of two relays, and one whose columns have the names of FIELDS."""


@dataclass(frozen=True)
class Outbox:
    """A row of the seed `outboxes`. Without a connection of that name in the settings, `address` is None."""

    name: str
    connection: str
    address: str | None
    table: str
    profile: Profile
    topic: str
    write_back: str
    purge_after: timedelta | None = None

    @classmethod
    def of(cls, row: Mapping[str, str], connections: Mapping[str, str]) -> Outbox:
        """From a row of the seed, which was checked."""
        made = PROFILES[row["profile"]]
        given = dict(part.split("=", 1) for part in row["columns"].split())
        columns = {**made.columns, **{name: column for name, column in given.items() if name in FIELDS}}
        prefix = "status."
        statuses = {**made.statuses, **{name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}}
        columns = {name: column for name, column in columns.items() if column}
        # a header that has a field has the column that the table has for it
        renamed = {column: columns[name] for name, column in made.columns.items() if name in columns}
        profile = Profile(
            columns,
            statuses,
            {header: renamed.get(column, column) for header, column in made.headers.items()},
            made.key_of_aggregate,
            made.topic,
            made.content_type,
        )
        return cls(
            name=row["outbox"],
            connection=row["connection"],
            address=connections.get(row["connection"]),
            table=row["table"],
            profile=profile,
            topic=row["topic"],
            write_back=row["write_back"],
            purge_after=parse_duration(row["purge_after"]) if row.get("purge_after") else None,
        )

    @property
    def topic_template(self) -> str:
        """The topic of all rows, in which {column} stands for a value of the row; empty: a column has it."""
        return self.topic or self.profile.topic

    @property
    def columns_of_topic(self) -> list[str]:
        """The columns whose values are in the topic."""
        return IN_TOPIC.findall(self.topic_template)


def objection_to_columns(text: str) -> str | None:
    """What is wrong with the cell `columns` of the seed; None if nothing is."""
    allowed = (*FIELDS, *(f"status.{name}" for name in STATUSES))
    for part in text.split():
        name, separator, _ = part.partition("=")
        if not separator or name not in allowed:
            return f"{part!r} must be field=column, where field is one of {', '.join(allowed)}"
    return None
