"""What maintenance may rewrite, by what the loop has behind it; and what it does when another commit comes first."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from orchestration.tables.maintenance import Settled, _unless_overtaken, rewrites
from orchestration.tables.procedures import Rewrite

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_before_the_first_loop_nothing_is_rewritten() -> None:
    assert rewrites(None) == {}


@pytest.mark.parametrize(
    ("watermark", "events_below"),
    [(0, 0), (998, 0), (999, 1000), (1000, 1000), (1998, 1000), (1999, 2000)],
)
def test_events_are_rewritten_a_complete_thousand_of_batches_at_a_time(watermark: int, events_below: int) -> None:
    assert rewrites(Settled(watermark, NOON, {}))["events"] == (Rewrite(f"batch < {events_below}"),)


def test_only_hours_that_are_past_and_batches_that_are_decided_are_rewritten() -> None:
    found = rewrites(Settled(17, NOON, {}))
    past = "due_at < timestamp '2026-03-01 12:00:00'"
    assert found["ticks"] == (Rewrite("batch <= 17"),)
    order = "kind, original_topic, original_partition, original_offset"
    assert found["publish_results"] == (Rewrite(f"{past} and batch <= 17", order),)
    # what lies ahead too, but not the hour that the loop works on
    ahead = "due_at >= timestamp '2026-03-01 13:00:00' and batch <= 17"
    assert found["deliveries"] == (Rewrite(past, order), Rewrite(ahead, "due_at", 50))


def thrown(name: str, cause: Any = None) -> Any:
    """An exception of the JVM, with what is read of it."""
    return SimpleNamespace(
        getClass=lambda: SimpleNamespace(getName=lambda: name), getStackTrace=list, getCause=lambda: cause, getCondition=lambda: None
    )


class Step:
    """Fails a number of times, then returns how often it was tried."""

    def __init__(self, failures: int, text: str, java_exception: Any) -> None:
        self.failures, self.tries = failures, 0
        self.error = PySparkException(text)
        self.error._origin = java_exception  # type: ignore[attr-defined]

    def __call__(self) -> int:
        self.tries += 1
        if self.tries <= self.failures:
            raise self.error
        return self.tries


COMMIT_FAILED = "org.apache.iceberg.exceptions.CommitFailedException"


@pytest.mark.parametrize("name", [COMMIT_FAILED, "org.apache.iceberg.exceptions.ValidationException"])
@pytest.mark.parametrize(("failures", "tries", "left"), [(0, 1, []), (2, 3, []), (3, None, ["files: other commits came first 3 times"])])
def test_a_commit_that_is_refused_is_tried_again_and_left_in_the_end(failures: int, tries: int | None, left: list[str], name: str) -> None:
    found: list[str] = []
    # Iceberg's procedures wrap the error
    step = Step(failures, "Cannot commit rewrite", thrown("java.lang.RuntimeException", cause=thrown(name)))
    assert _unless_overtaken(step, "files", found) == tries
    assert found == left


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("No space left on device", "java.io.IOException"),
        # whether it is committed is not known: the class counts, not the text
        (f"Cannot tell: {COMMIT_FAILED} was thrown", "org.apache.iceberg.exceptions.CommitStateUnknownException"),
    ],
)
def test_any_other_error_stops_the_run(text: str, name: str) -> None:
    step = Step(1, text, thrown(name))
    with pytest.raises(PySparkException):
        _unless_overtaken(step, "files", [])
    assert step.tries == 1
