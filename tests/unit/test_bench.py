"""What is made of a benchmark's figures: the comparison with those of an earlier run, and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.__main__ import compared
from bench.pictures import draw


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


def _svg(bench: str, figures: list[dict[str, Any]], file: Path) -> str:
    draw(bench, figures, file)
    return file.read_text(encoding="utf-8")


def test_a_picture_shows_every_case_and_is_the_same_each_time(tmp_path: Path) -> None:
    late = [{"delay": f"{delay} s", "percentiles_s": [delay * place / 10 for place in range(1, 100)]} for delay in (1, 2)]
    waits = [
        {"pending": pending, "seconds": 4.0, "intake_ms": 500, "decide_ms": 2_000, "publish_ms": 900} for pending in ("10,000", "uneven")
    ]
    for bench, figures in (("lateness", late), ("growth", waits)):
        drawn = _svg(bench, figures, tmp_path / "one.svg")
        assert drawn == _svg(bench, figures, tmp_path / "two.svg")
        assert drawn != _svg(bench, figures[:1], tmp_path / "fewer.svg"), "a case is missing from the picture"
