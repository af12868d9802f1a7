"""The report on dead letters: its page and its plots, whatever names come in."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta

import pytest
from matplotlib.figure import Figure

from orchestration.dagster.report import DeadLetters, Group, Unusual, _bars, _step, page, plots

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def dead(*names: str) -> DeadLetters:
    """One dead letter of each error class."""
    groups = tuple(Group((name, "orders"), name, name, 1, NOW, "billing:orders/0/17") for name in names)
    return DeadLetters(
        at=NOW,
        dead=len(groups),
        pending=0,
        oldest=NOW if groups else None,
        groups=groups,
        unusual=(Unusual(names[0], NOW, 40, 1.5),) if names else (),
        by_class=tuple((name, 1) for name in names),
        by_topic=(("orders.dlq", len(groups)),),
        by_age=(("under 10 minutes", len(groups)),),
        over_time=((NOW, len(groups)),),
        step="minute",
    )


def test_the_page_has_a_row_for_each_group_and_the_plots_inside() -> None:
    text = page(dead("ValueError", "KeyError"))
    assert text.startswith("### 2 messages are dead")
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 1 + 2
    (image,) = re.findall(r"\(data:image/png;base64,([A-Za-z0-9+/=]+)\)", text)
    assert base64.b64decode(image).startswith(b"\x89PNG")
    # it is kept with every materialization
    assert len(image) < 150_000


def test_no_dead_letters_no_plots() -> None:
    text = page(dead())
    assert text.startswith("### Nothing is dead")
    assert "base64" not in text


@pytest.mark.parametrize(
    "name",
    ["a|b", "`x`", "<img src=x onerror=alert(1)>", "[a](javascript:b)", "*a*_b_", "a\nb", "a\\|b", "&lt;", "x\u202ey", "ä😀", "", " "],
)
def test_a_name_is_text_whatever_is_in_it(name: str) -> None:
    text = page(dead(name))
    (row,) = [line for line in text.splitlines() if line.startswith("| ")][1:]
    (unusual,) = [line for line in text.splitlines() if line.startswith("**Unusual:** ")]
    assert row.count("|") == 7
    assert not re.search(r"[<>`\[\]\\]", row + unusual)
    assert plots(dead(name)).startswith(b"\x89PNG")


@pytest.mark.parametrize("bars", [1, 2, 6, 12])
def test_a_single_bar_does_not_fill_its_plot(bars: int) -> None:
    axes = Figure().subplots()
    _bars(axes, "by error class", [(f"class {number}", 1) for number in range(bars)])
    bottom, top = axes.get_ylim()
    assert (bottom - top, top) == (max(bars, 6), -0.5)


@pytest.mark.parametrize("name", ["com.example.Outer$Inner$1", "$\\frac{", "$$", "日本語", "\ud800", "\x00"])
def test_a_name_is_no_formula(name: str) -> None:
    assert plots(dead(name)).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("span", "step"),
    [
        (timedelta(), "second"),
        (timedelta(minutes=2), "second"),
        (timedelta(minutes=3), "minute"),
        (timedelta(hours=3), "hour"),
        (timedelta(days=6), "day"),
    ],
)
def test_the_step_of_the_plot_follows_the_span(span: timedelta, step: str) -> None:
    assert _step(span) == step
