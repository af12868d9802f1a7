"""Queries of the marts about dead letters, refused and waiting messages, for `redrive dlq` and `redrive waiting`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from orchestration.clock import literal
from orchestration.operators.selections import DlqError, Selection, check_condition, check_pattern, matches, named
from orchestration.rules.rulebook import history
from orchestration.settings import Settings
from orchestration.tables.analysed_views import views_to_ask
from orchestration.tables.catalog import missing_tables, without_tables
from orchestration.tables.migration import unreadable_tables
from orchestration.tables.query import Rows, query
from orchestration.tables.rows import as_dicts, collected
from orchestration.tables.spark import schema, session_to_ask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTED_COLUMNS = (
    *("message_id", "state", "dead_at", "original_topic", "consumer_group", "error_class", "error_kind", "error_message"),
    *("reason", "attempts", "life_cycles", "topic", "partition", "offset", "owner", "note", "ticket", "purged_at"),
)
"""The columns that `redrive dlq list` shows, and an export begins with."""


class DeadLetters:
    """Queries about the dead letters of an installation. Starts Spark if it isn't running."""

    def __init__(self, settings: Settings) -> None:
        if missing := without_tables(settings):
            raise DlqError(missing)
        self._spark: SparkSession = session_to_ask(settings)
        tables = schema(settings.project)
        if not self._spark.catalog.tableExists(f"{tables}.deliveries"):
            raise DlqError(missing_tables(settings))
        if objection := unreadable_tables(settings, self._spark, tables):
            raise DlqError(objection)
        self._views = views_to_ask(settings)

    def checked(self, where: str | None) -> str | None:
        """Returns the condition unchanged if it only filters. Raises DlqError for anything else, and for what can't be parsed."""
        return None if where is None else check_condition(self._spark, where)

    def checked_pattern(self, option: str, wanted: str | None) -> str | None:
        """Returns a name, or a regular expression that begins with ^, unchanged. Raises DlqError for one that can't be parsed."""
        return check_pattern(self._spark, option, wanted)

    def find(self, selection: Selection, limit: int) -> Rows:
        """Dead letters, the latest first."""
        return self._query(
            f"select {', '.join(LISTED_COLUMNS)} from stranded_messages", selection, "order by dead_at desc, message_id", limit
        )

    def groups(self, selection: Selection, limit: int) -> Rows:
        """The selected dead letters, grouped by cause; the groups with the most open ones first."""
        return self._query(
            """
            select
                fingerprint, count_if(state = 'open') as open,
                count_if((state = 'open' or (state = 'discarded' and life_cycle = life_cycles)) and decision <> 'refused') as dead,
                count_if(decision <> 'refused') as died, count_if(state = 'refused') as refused,
                min(dead_at) as first_seen, max(dead_at) as last_seen,
                error_class, error_pattern, sort_array(collect_set(original_topic)) as topics,
                sort_array(collect_set(consumer_group)) as consumer_groups,
                max_by(message_id, struct(dead_at, message_id)) as sample_message_id
            from stranded_messages
            """,
            selection,
            "group by fingerprint, error_class, error_pattern order by open + refused desc, died desc, last_seen desc, fingerprint",
            limit,
        )

    def stats(self, now: datetime, topic: str | None, limit: int) -> Rows:
        """By topic: how many died in this hour, in the last 24 hours and in the last 7 days, and how many are usual; the unusual first."""
        hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        past, this = (literal(moment) for moment in (hour - timedelta(days=7), hour))
        return query(
            self._views,
            f"""
            select
                original_topic,
                coalesce(max(case when hour = {this} then died end), 0) as this_hour,
                coalesce(sum(case when hour > {this} - interval 24 hour then died end), 0) as last_24_hours,
                sum(died) as last_7_days,
                max_by(usual, hour) as usual,
                max(hour) as last_hour,
                coalesce(max(case when hour >= {this} - interval 1 hour then is_unusual end), false) as is_unusual,
                transform(
                    sequence(23, 0, -1),
                    h -> coalesce(map_from_entries(collect_list(struct(hour, died)))[{this} - make_interval(0, 0, 0, 0, h)], 0)
                ) as by_hour
            from dead_letter_rate
            where hour > {past} and {matches("original_topic", self.checked_pattern("--topic", topic)) or "true"}
            group by original_topic
            order by is_unusual desc, this_hour desc, last_24_hours desc, original_topic
            """,
            limit,
        )

    def related(self, message_id: str, limit: int) -> Rows:
        """Messages that may be related to a dead letter, with all relations; the closest first. Raises DlqError as `get` does."""
        found = query(
            self._views,
            f"""
            select
                related_id as message_id, sort_array(collect_set(relation)) as relations, any_value(later_ms) as later_ms,
                any_value(related_state) as state, any_value(related_topic) as original_topic, any_value(related_error_class) as error_class
            from related_messages
            where {named(message_id)}
            group by related_id
            order by size(relations) desc, abs(later_ms), message_id
            """,
            limit,
        )
        if not found.rows:
            # nothing is related to it, or it is no dead letter: then this raises
            self.get(message_id)
        return found

    def waiting(self, selection: Selection, limit: int) -> Rows:
        """Messages whose retry or dead letter is still to be sent, the next one due first."""
        columns = "message_id, state, next_due, attempts, max_attempts, original_topic, consumer_group, error_class, error_kind, reason"
        where = f"state in ('waiting', 'held', 'dead_letter_pending') and {selection.condition(since_column='last_failed_at')}"
        return query(self._views, f"select {columns} from messages where {where} order by next_due nulls last, message_id", limit)

    def get(self, message_id: str) -> dict[str, Any]:
        """A dead or refused message, with all columns. If it is neither, raises DlqError with its state."""
        rows = self._rows("stranded_messages", message_id)
        if rows:
            return rows[0]
        messages = self._rows("messages", message_id)
        if messages:
            raise DlqError(f"{message_id!r} is not a dead letter: its state is {messages[0]['state']}. `redrive explain` shows its history")
        raise DlqError(f"no message is called {message_id!r}: `redrive dlq list` shows what is dead")

    def history_of(self, message_id: str) -> list[dict[str, Any]]:
        """A message's history in order, as `message_history` has it."""
        return history(self._views, message_id)

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """All rows of a statement, with the tables under their own names. Read with Arrow, as a list may have a million."""
        return self._views.ask(statement, as_dicts)

    def frame(self, statement: str) -> DataFrame:
        """The rows of a statement, which names tables without the schema. It is not checked: never one that a user wrote."""
        return self._views.frame(statement)

    def _rows(self, mart: str, message_id: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in self._views.ask(f"select * from {mart} where {named(message_id)} limit 1", collected)]

    def _query(self, select: str, selection: Selection, rest: str, limit: int) -> Rows:
        return query(self._views, f"{select} where {selection.condition()} {rest}", limit)
