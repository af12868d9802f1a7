"""Commands about the tables: sql, maintain."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from orchestration.cli.options import Home, Output, settings_of


def sql(
    statement: Annotated[str | None, typer.Argument(help="One select. Tables need no schema: select * from messages")] = None,
    output: Output = "table",
    limit: Annotated[int, typer.Option("--limit", min=1, help="The most rows to show.")] = 1000,
    tables: Annotated[bool, typer.Option("--tables", help="List the tables and views: marts, rules and ledgers.")] = False,
    home: Home = None,
) -> None:
    """Run one select over the tables. `--tables` lists them; `describe messages` shows and explains the columns of one."""
    from orchestration.cli.screen import asking
    from orchestration.tables.query import list_tables, print_rows

    if tables == (statement is not None):
        raise typer.BadParameter("either one select, or --tables", param_hint="STATEMENT")
    settings = settings_of(home=home)
    print_rows(list_tables(settings) if statement is None else asking(settings).tables.select(statement, limit), output)


def maintain(output: Annotated[Literal["table", "json"], typer.Option("--format")] = "table", home: Home = None) -> None:
    """Compact the tables' files, expire old snapshots, remove orphaned files. May run beside the loop. Run it regularly, such as hourly."""
    from rich.markup import escape

    from orchestration.cli.screen import tell
    from orchestration.clock import wall_clock
    from orchestration.operators.outbox_purge import purge_outboxes
    from orchestration.tables.maintenance import maintain, print_report

    settings = settings_of(home=home)
    print_report(maintain(settings), output)
    purged = purge_outboxes(settings, wall_clock())
    for one in purged:
        tell.print(escape(str(one)))
    if any(one.problem for one in purged):
        raise typer.Exit(1)
