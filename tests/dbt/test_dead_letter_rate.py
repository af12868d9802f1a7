"""The mart `dead_letter_rate`: which hours are unusual, of many that are written down as if they had been."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.dbt.harness import Home

SATURDAY = datetime(2026, 2, 7, 3, tzinfo=UTC)


def hours(**counts: int) -> list[tuple[datetime, int]]:
    """How many die in which hours after Saturday, 3 o'clock: h0=5 are five at three."""
    return [(SATURDAY + timedelta(hours=int(name[1:])), count) for name, count in counts.items()]


RATES: dict[str, tuple[list[tuple[datetime, int]], bool]] = {
    "rate-nine-out-of-nothing": (hours(h168=9), False),
    "rate-ten-out-of-nothing": (hours(h168=10), True),
    "rate-nightly": (hours(**{f"h{24 * day}": 11 for day in range(8)}), False),
    "rate-nightly-and-more": (hours(**{f"h{24 * day}": 11 for day in range(7)}, h168=34), True),
    "rate-three-nights-only": (hours(h96=11, h120=11, h144=11, h168=11), True),
    "rate-level": (hours(**{f"h{hour}": 4 for hour in range(150, 168)}, h168=12), False),
    "rate-over-the-level": (hours(**{f"h{hour}": 4 for hour in range(150, 168)}, h168=13), True),
    "rate-only-now-and-then": (hours(**{f"h{hour}": 4 for hour in range(144, 168, 3)}, h168=12), True),
    "rate-forgotten": (hours(**{f"h{hour}": 50 for hour in range(-8, 0)}, h168=12), True),
}


def remember(home: Home, *rows: dict[str, Any]) -> None:
    """Decisions of other days, in a batch of their own: as they lie there, without what they were made from."""
    home.append_tick(home.batch)
    schema = home.spark.table(f"{home.schema}.deliveries").schema
    values = []
    for place, row in enumerate(rows):
        said = {"input_id": f"remembered/{home.batch}/{place}", "batch": home.batch, "decide_run": 1, "recorded_at": home.now, **row}
        said["due_hour"] = said["due_at"].replace(minute=0, second=0, microsecond=0)
        values.append(tuple(said.get(name) for name in schema.names))
    home.spark.createDataFrame(values, schema).writeTo(f"{home.schema}.deliveries").append()


def test_a_change_is_unusual_and_a_level_is_not(home: Home) -> None:
    remember(
        home,
        *(
            {
                "decision": "dead_letter",
                "kind": "dead_letter",
                "reason": "fatal",
                "life_cycle": 1,
                "message_id": f"rate:{topic}/{hour}/{n}",
                "original_topic": topic,
                "due_at": hour,
                "error_class": f"E{n % 2}",
                "error_kind": "fatal",
            }
            for topic, (counts, _) in RATES.items()
            for hour, count in counts
            for n in range(count)
        ),
    )
    last = {row["original_topic"]: row for row in home.read("dead_letter_rate") if row["hour"] == SATURDAY + timedelta(hours=168)}
    assert {topic: last[topic]["is_unusual"] for topic in RATES} == {topic: unusual for topic, (_, unusual) in RATES.items()}
    nightly = last["rate-nightly"]
    medians = nightly["median_of_last_24_hours"], nightly["median_at_this_hour_of_last_7_days"]
    assert (nightly["died"], *medians, nightly["usual"]) == (11, 0, 11, 11)
