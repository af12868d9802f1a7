"""The comparison of a benchmark's figures with those of an earlier run."""

from __future__ import annotations

from bench.__main__ import compared


def test_figures_are_compared_case_by_case() -> None:
    before = [{"case": "idle", "rows": 0, "seconds": 0.4}, {"case": "due", "rows": 5000, "seconds": 4.0, "publish_ms": 0}]
    after = [{"case": "due", "rows": 5000, "seconds": 3.0, "publish_ms": 200}, {"case": "new", "rows": 5000, "seconds": 9.0}]
    assert compared(before, after) == [
        {"of": "due", "figure": "seconds", "before": 4.0, "after": 3.0, "after / before": "0.75"},
        {"of": "due", "figure": "publish_ms", "before": 0, "after": 200, "after / before": "-"},
    ]


def test_cases_may_be_sizes() -> None:
    (row,) = compared([{"rows": 1000, "per_second": 300.0}, {"rows": 10_000, "per_second": 900.0}], [{"rows": 10_000, "per_second": 990.0}])
    assert row == {"of": "10,000", "figure": "per_second", "before": 900.0, "after": 990.0, "after / before": "1.10"}


def test_what_has_nothing_in_common_says_so() -> None:
    assert list(compared([], [{"case": "due", "seconds": 1.0}])[0]) == ["nothing to compare"]
