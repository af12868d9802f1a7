"""What the tables say of rows of outboxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from orchestration.loop.outbox_positions import OutboxPosition
from orchestration.outbox.states import RowState
from orchestration.tables.rows import collected


@dataclass(frozen=True)
class RowStates:
    """Asks the tables of a loop about the rows of an outbox, by its name."""

    spark: SparkSession
    schema: str

    def first_batch(self, name: str, after: int) -> int | None:
        """The first batch after another one in which rows were taken in or published; None: there is none."""
        (taken,) = self.spark.sql(
            f"""
            select min(batch) as first from (
                select batch from {self.schema}.events where kind = 'row' and source = :name
                union all
                select batch from {self.schema}.publish_results
                where kind = 'publish' and outcome = 'delivered' and startswith(message_id, :messages)
            )
            where batch > {after:d}
            """,
            {"name": name, "messages": f"outbox:{name}/"},
        ).collect()
        return None if taken["first"] is None else int(taken["first"])

    def ids(self, name: str, condition: str = "true") -> set[str]:
        """The ids of rows, by a condition for what `outbox_states` has of each."""
        found = self.spark.sql(
            f"select row_id from {self.schema}.outbox_states where outbox = :name group by row_id having {condition}", {"name": name}
        ).collect()
        return {row["row_id"] for row in found}

    def since(self, name: str, position: OutboxPosition, written: int, decided: int, marked: Sequence[int]) -> list[RowState]:
        """What became of rows since a position, by events and results up to the batch `written`, by decisions up to `decided`.

        marked: batches of results whose rows are marked already. They are left out, unless more has become of them since.

        Kafka may take a dead letter after its row was redriven: the row is dead only if nothing was decided about it since its dead letter.
        """
        others = f"having max(batch) not in ({', '.join(map(str, marked))})" if marked else ""
        found = self.spark.sql(
            f"""
            with last_ones as (
                select
                    row_id,
                    max_by(struct(status, next_retry_at), struct(batch, place)) filter (where not (place = 2 and status = 'dead')) as last,
                    bool_or(place = 2 and status = 'dead') as has_dead_letter,
                    max_by(attempts, struct(batch, place)) filter (where attempts is not null) as attempts,
                    max_by(last_error, struct(batch, place)) filter (where last_error is not null) as last_error
                from {self.schema}.outbox_states
                where outbox = :name and (
                    (place <> 1 and batch > {position.written:d} and batch <= {written:d})
                    or (place = 1 and batch > {position.decided:d} and batch <= {decided:d})
                )
                group by row_id
                {others}
            )
            select
                row_id,
                case
                    when has_dead_letter and (last is null or last.status = 'failed' and last.next_retry_at is null) then 'dead'
                    else last.status
                end as status,
                last.next_retry_at,
                attempts,
                last_error
            from last_ones
            """,
            {"name": name},
        )
        return [
            RowState(row["row_id"], row["status"], row["attempts"], row["next_retry_at"], row["last_error"]) for row in collected(found)
        ]
