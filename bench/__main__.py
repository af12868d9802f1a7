"""Command line of the benchmarks. Prints a table to standard output; with --json, also writes a list of objects to a file.

With --against, a second table compares the figures with those of such a file. Compare only figures of one machine and one session.
With --plot, `lateness` and `growth` also draw a picture.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from orchestration.demo.broker import Broker, BrokerSettings

Figures = list[dict[str, Any]]

# The function bench_<name> is in the module of the same name, but for these.
_MODULES = {"start": "orders"}
_BENCHES = (
    *(
        "answers",
        "backlog",
        "decide",
        "growth",
        "lanes",
        "lateness",
        "marts",
        "orders",
        "outbox",
        "policy",
        "publish",
        "questions",
        "rate",
        "redrive",
        "reference",
        "restart",
        "retention",
    ),
    *("sequences", "soak", "start", "tick"),
)


def main() -> None:
    """Runs one benchmark with a new broker and a new home, which are removed afterwards."""
    from bench.pictures import PICTURES, draw

    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("bench", choices=_BENCHES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with the figures that an earlier --json has written")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the figures into this SVG file")
    parser.add_argument("--quick", action="store_true", help="small sizes and few runs, to test the benchmark itself")
    options = parser.parse_args()
    if options.plot and options.bench not in PICTURES:
        parser.error(f"--plot: {options.bench} has no picture; {' and '.join(PICTURES)} have one")
    before: Figures | None = options.against and json.loads(options.against.read_text(encoding="utf-8"))
    logging.basicConfig(level=logging.WARNING)
    with TemporaryDirectory(prefix="redrive-bench-") as directory:
        home = Path(directory)
        with Broker(BrokerSettings(home / "broker", heap="1g")) as broker:
            figures = _bench(options.bench)({"bootstrap.servers": broker.bootstrap_servers}, home, options.quick)
    screen = Console(width=140)
    screen.print(_table(figures))
    if before is not None:
        screen.print()
        screen.print(_table(compared(before, figures)))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        draw(options.bench, figures, options.plot)


def _bench(name: str) -> Callable[[dict[str, str], Path, bool], Figures]:
    # imported when it is run: some of the modules import Spark
    bench: Callable[[dict[str, str], Path, bool], Figures] = getattr(import_module(f"bench.{_MODULES.get(name, name)}"), f"bench_{name}")
    return bench


def compared(before: Figures, after: Figures) -> Figures:
    """One object per figure that both have and that differs: its case, both values, and their ratio."""
    rows: Figures = []
    for row in after:
        name = " ".join(f"{value}" for value in row.values() if isinstance(value, str)) or f"{next(iter(row.values())):,}"
        # cases are matched by their first column: a name, or a size
        key = next(iter(row))
        earlier = next((one for one in before if one.get(key) == row[key]), {})
        for figure, value in row.items():
            was = earlier.get(figure)
            if figure != key and isinstance(value, int | float) and isinstance(was, int | float) and value != was:
                ratio = f"{value / was:.2f}" if was else "-"
                rows.append({"of": name, "figure": figure, "before": was, "after": value, "after / before": ratio})
    return rows or [{"nothing to compare": "the file has no figure of these cases, or the same"}]


def _table(figures: Figures) -> Table:
    # lists are for pictures
    columns = [name for name, value in figures[0].items() if not isinstance(value, list)]
    table = Table(*columns, box=None, pad_edge=False)
    for row in figures:
        values = [row[name] for name in columns]
        table.add_row(
            *(f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value) for value in values)
        )
    return table


if __name__ == "__main__":
    main()
