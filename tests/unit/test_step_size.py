"""How many records an intake step takes. How their size is measured: tests/dbt/test_intake.py."""

from __future__ import annotations

from orchestration.loop.step_size import StepSize

MB = 1024 * 1024


def after(*steps: tuple[int, int], source: str = "reports") -> StepSize:
    """After steps with so many records of so many bytes each."""
    size = StepSize(most_rows=50_000, most_bytes=64 * MB)
    for rows, each in steps:
        size.begin()
        size.measured(source, rows, rows * each)
    return size


def test_the_first_step_takes_few() -> None:
    assert after().rows(["reports"]) == 4_096


def test_after_a_calm_time_a_burst_of_heavy_records_is_taken_in_bounded_steps() -> None:
    calm = after(*[(100, 800)] * 20)
    burst = calm.rows(["reports"])
    assert burst * 20_000 <= 200 * MB
    calm.begin()
    calm.measured("reports", burst, burst * 20_000)
    assert calm.rows(["reports"]) * 20_000 <= 64 * MB


def test_a_burst_of_light_records_reaches_the_bound_in_two_more_steps() -> None:
    size, taken = after((100, 800)), list[int]()
    for _ in range(3):
        rows = size.rows(["reports"])
        taken.append(rows)
        size.begin()
        size.measured("reports", rows, rows * 800)
    assert taken == [10_000, 40_000, 50_000]


def test_a_few_small_records_dont_make_large_ones_forgotten() -> None:
    assert after((3_000, 20_000), (10, 500)).rows(["reports"]) * 18_000 <= 64 * MB
    assert after((3_000, 20_000), *[(10, 500)] * 50).rows(["reports"]) == 10_000


def test_the_heaviest_source_counts_and_a_source_that_is_not_read_does_not() -> None:
    size = after((1_000, 100_000), source="heavy")
    size.measured("light", 1_000, 800_000)
    assert size.rows(["light", "heavy"]) == 671
    assert size.rows(["light"]) == 10_000


def test_a_record_larger_than_a_step_is_taken() -> None:
    assert after((1, 100 * MB)).rows(["reports"]) == 1
