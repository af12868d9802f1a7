"""The order of what circuit breakers hold."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import Row

from orchestration.loop.held import age


def test_what_has_not_failed_since_its_redrive_is_the_oldest_as_in_sql() -> None:
    failed = Row(first_failed_at=datetime(2026, 3, 1, tzinfo=UTC), original_partition=0, original_offset=9)
    redriven = Row(first_failed_at=None, original_partition=3, original_offset=9)
    of_an_outbox = Row(first_failed_at=None, original_partition=None, original_offset=None)
    assert sorted([failed, redriven, of_an_outbox], key=age) == [of_an_outbox, redriven, failed]
