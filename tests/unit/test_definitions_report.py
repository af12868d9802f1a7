"""The report on dead letters: its page and its plots, whatever names come in."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta

import pytest
from matplotlib.figure import Figure

from orchestration.dagster.report import Group, Report, Retries, Unusual, _bars, _span, _step, page, plots

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


NO_RETRIES = Retries(0, None, None, 0, None, ())
SOME_RETRIES = Retries(7, 250, 4_000, 3, 150_000, ((NOW - timedelta(hours=1), 2), (NOW, 5)))


def dead(*names: str, retries: Retries = NO_RETRIES) -> Report:
    """One open dead letter of each error class; one more was discarded, and one redriven."""
    groups = tuple(Group((name, "orders"), name, name, 1, NOW, "billing:orders/0/17") for name in names)
    return Report(
        at=NOW,
        open=len(groups),
        dead=len(groups) + 1,
        died=len(groups) + 2,
        pending=0,
        oldest=NOW if groups else None,
        groups=groups,
        unusual=(Unusual(names[0], NOW, 40, 1.5),) if names else (),
        by_class=tuple((name, 1) for name in names),
        by_topic=(("orders.dlq", len(groups)),),
        by_age=(("under 10 minutes", len(groups)),),
        over_time=((NOW, len(groups)),),
        step="minute",
        retries=retries,
    )


def test_the_page_has_a_row_for_each_group_and_the_plots_inside() -> None:
    text = page(dead("ValueError", "KeyError"))
    assert text.startswith("### Open dead letters: 2\n\n2026-03-01 12:00 UTC. Messages that are dead: 3; that have ever died: 4.")
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 1 + 2
    (image,) = re.findall(r"\(data:image/png;base64,([A-Za-z0-9+/=]+)\)", text)
    assert base64.b64decode(image).startswith(b"\x89PNG")
    # it is kept with every materialization
    assert len(image) < 150_000


def test_no_data_no_plots() -> None:
    text = page(dead())
    assert text.startswith("### Open dead letters: 0")
    assert "**Retries:** none was sent in the last 24 hours." in text
    assert "base64" not in text


def _height(image: bytes) -> int:
    """Of a PNG, in pixels."""
    return int.from_bytes(image[20:24], "big")


def test_retries_recovery_and_lateness_stand_beside_the_dead() -> None:
    text = page(dead(retries=SOME_RETRIES))
    assert "**Retries:** 7 were sent in the last 24 hours, with a median lateness of 0.2 s (p99: 4.0 s)." in text
    assert "3 messages recovered, half of them within 2.5 min of their first failure" in text
    alone, beside = plots(dead(retries=SOME_RETRIES)), plots(dead("E", retries=SOME_RETRIES))
    assert alone.startswith(b"\x89PNG")
    # a row of plots more for each two: there is no empty one
    assert _height(beside) == 3 * _height(alone)


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(None, "-"), (0, "0.0 s"), (119_999, "120.0 s"), (120_000, "2.0 min"), (7_200_000, "2.0 h"), (172_800_000, "2.0 days")],
)
def test_a_span_has_the_unit_that_suits_it(milliseconds: int | None, said: str) -> None:
    assert _span(milliseconds) == said


@pytest.mark.parametrize(
    "name",
    ["a|b", "`x`", "<img src=x onerror=alert(1)>", "[a](javascript:b)", "*a*_b_", "a\nb", "a\\|b", "&lt;", "x\u202ey", "ä😀", "", " "],
)
def test_a_name_is_text_whatever_is_in_it(name: str) -> None:
    text = page(dead(name))
    (row,) = [line for line in text.splitlines() if line.startswith("| ")][1:]
    (unusual,) = [line for line in text.splitlines() if line.startswith("**Unusual:** ")]
    assert row.count("|") == 7
    shown = row + unusual.removeprefix("**Unusual:** ")
    assert not re.search(r"[<>`\[\]\\*_]", shown)
    assert not re.search(r"&(?!#\d+;)", shown)
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
