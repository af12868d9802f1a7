"""Output that several groups of commands share: rows, pairs, progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import Progress
from rich.table import Column, Table

from orchestration.output import console, errors
from orchestration.tables.query import Format

if TYPE_CHECKING:
    from orchestration.answers.asking import Asking
    from orchestration.settings import Settings
    from orchestration.tables.query import Rows

tell = errors()
"""Standard error: everything that is not a result."""

# By how much the priority of a command that starts Spark is lower than that of other processes.
_NICER = 10

_is_a_process_of_its_own = False


def print_found(settings: Settings, rows: Rows, output: Format, table: Callable[[Rows], Table], nothing: str) -> None:
    """Prints rows to standard output; a note that there are none, or more, to standard error."""
    from orchestration.cli.completion import remember
    from orchestration.tables.query import print_rows, say_more

    remember(settings.home, rows)
    if output != "table":
        print_rows(rows, output)
        return
    if rows.rows:
        console().print(table(rows))
    else:
        tell.print(escape(nothing))
    say_more(rows)


def pairs(lines: Iterable[tuple[str, str]]) -> Table:
    """A table of two columns. Text is folded, never cut: a link that is cut doesn't work."""
    table = Table("", Column(overflow="fold"), box=None, pad_edge=False, show_header=False)
    for name, text in lines:
        table.add_row(escape(name), escape(text))
    return table


def asking(settings: Settings) -> Asking:
    """Asks the running loop of the home. If this process must start Spark, it says so on standard error."""
    from orchestration.answers.asking import Asking

    def starting(why: str) -> None:
        tell.print(f"{escape(why)}: this command starts Spark, which takes ten seconds or more")
        if _is_a_process_of_its_own:
            # on a machine with few processors, a loop would send late for as long as this command runs
            os.nice(_NICER)

    return Asking(settings, starting)


def in_a_process_of_its_own() -> None:
    """Called by a process that ends with the command: only that one may give its processors to others."""
    global _is_a_process_of_its_own
    _is_a_process_of_its_own = True


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, int], None]]:
    """Shows progress on standard error, if it is a terminal."""
    with Progress(console=tell, disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)
