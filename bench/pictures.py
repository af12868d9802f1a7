"""Pictures of figures, as SVG: how late retries are, and how the time of a tick depends on what waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

Figures = list[dict[str, Any]]


def _lateness(figures: Figures) -> Figure:
    """For each delay, which part of the retries came at most so many seconds after they were due."""
    picture = Figure(figsize=(8, 3.5), layout="constrained")
    axes = picture.subplots()
    for row in figures:
        late = row["percentiles_s"]
        axes.plot(late, range(1, len(late) + 1), label=f"delay of {row['delay']}")
    axes.set(xlabel="seconds after the due time", ylabel="% of retries", xlim=(0, None), ylim=(0, 100))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    return picture


def _growth(figures: Figures) -> Figure:
    """The steps of a tick, by how many messages wait."""
    picture = Figure(figsize=(8, 3.5), layout="constrained")
    axes = picture.subplots()
    cases = [row["pending"] for row in figures]
    below = [0.0] * len(figures)
    for step in ("intake", "decide", "publish"):
        seconds = [row[f"{step}_ms"] / 1000 for row in figures]
        axes.bar(cases, seconds, bottom=below, label=step, width=0.6)
        below = [one + another for one, another in zip(below, seconds, strict=True)]
    others = [max(0.0, row["seconds"] - one) for row, one in zip(figures, below, strict=True)]
    axes.bar(cases, others, bottom=below, label="other", width=0.6, color="lightgrey")
    axes.set(xlabel="messages that wait", ylabel="seconds of a tick")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="upper left")
    return picture


PICTURES: dict[str, Callable[[Figures], Figure]] = {"lateness": _lateness, "growth": _growth}
"""The benchmarks that have a picture."""


def draw(bench: str, figures: Figures, file: Path) -> None:
    """Writes the picture of a benchmark's figures: the same figures give the same bytes."""
    with rc_context({"svg.hashsalt": "redrive"}):
        FigureCanvasSVG(PICTURES[bench](figures)).print_svg(file, metadata={"Date": None})  # type: ignore[no-untyped-call]
