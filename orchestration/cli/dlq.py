"""`redrive dlq`: commands that find and show dead letters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from orchestration.cli.bundles import with_bundles
from orchestration.cli.options import ANY_STATE, OPEN, Filters, Home, Limit, MessageId, Output, Topic, settings_of
from orchestration.cli.screen import asking, pairs, print_found, tell
from orchestration.output import console, printable

dlq = typer.Typer(help="Find dead letters; redrive, discard or purge them; pause, resume or stop such commands.", no_args_is_help=True)


@dlq.command("list")
@with_bundles
def dlq_list(
    filters: Filters = OPEN,
    output: Output = "table",
    limit: Limit = 50,
    home: Home = None,
) -> None:
    """List dead letters, the latest first. By default only open ones, which nobody has redriven or discarded: see --state."""
    from orchestration.operators.rendering import dead_letter_table

    settings = settings_of(home=home)
    dead = asking(settings).dead_letters
    rows = dead.find(filters.selected(dead), limit)
    nothing = "no dead letter matches" if filters.state == "all" else f"no dead letter in state {filters.state} (--state) matches"
    print_found(settings, rows, output, dead_letter_table, nothing)


@dlq.command("show")
def dlq_show(
    message_id: MessageId,
    payload: Annotated[
        Path | None,
        typer.Option("--payload", help="Only write the value, byte for byte, to this file; - is standard output."),
    ] = None,
    output: Annotated[Literal["table", "json"], typer.Option("--format", help="json: one object.")] = "table",
    home: Home = None,
) -> None:
    """Show a dead letter: why it died, where it lies, its payload, headers, stack and history."""
    from orchestration.operators.rendering import facts, header_lines, payload_lines
    from orchestration.rules.explain import in_words
    from orchestration.tables.query import Rows, print_rows

    settings = settings_of(home=home)
    dead = asking(settings).dead_letters
    row = dead.get(message_id)
    steps = dead.history_of(message_id) if output == "table" and payload is None else []
    if payload is not None:
        _write_payload(row["value"], payload)
        return
    if output == "json":
        print_rows(Rows(tuple(row), (tuple(row.values()),), more=False), "jsonl")
        return
    screen = console()
    screen.print(pairs(facts(row)))
    headers = pairs(header_lines(row["headers"]))
    history = pairs((at, printable(what)) for at, what in in_words(steps))
    value = None if row["value"] is None else bytes(row["value"])
    for title, lines in (
        ("payload", list(payload_lines(value, row["payload_type"], row["schema_id"]))),
        ("stack", [printable(line.expandtabs(4)) for line in (row["error_stack"] or "").splitlines()]),
    ):
        if lines:
            screen.print(f"\n[bold]{title}[/bold]")
            screen.print("\n".join(lines), markup=False, soft_wrap=True)
    for title, part in (("headers", headers), ("history", history)):
        if part.row_count:
            screen.print(f"\n[bold]{title}[/bold]")
            screen.print(part)


@dlq.command("groups")
@with_bundles
def dlq_groups(
    filters: Filters = ANY_STATE,
    output: Output = "table",
    limit: Limit = 50,
    home: Home = None,
) -> None:
    """Group dead letters by cause: error class, and top frame of the stack, or the message without numbers and ids."""
    from orchestration.operators.rendering import group_table

    settings = settings_of(home=home)
    dead = asking(settings).dead_letters
    rows = dead.groups(filters.selected(dead), limit)
    print_found(settings, rows, output, group_table, "no dead letter matches")


@dlq.command("stats")
def dlq_stats(topic: Topic = None, output: Output = "table", limit: Limit = 50, home: Home = None) -> None:
    """Show how many messages die in each topic, by hour, and whether that is usual."""
    from orchestration.clock import wall_clock
    from orchestration.operators.rendering import stats_table

    settings = settings_of(home=home)
    rows = asking(settings).dead_letters.stats(wall_clock(), topic, limit)
    print_found(settings, rows, output, stats_table, "nothing died in the last 7 days")


@dlq.command("related")
def dlq_related(message_id: MessageId, output: Output = "table", limit: Limit = 50, home: Home = None) -> None:
    """List dead letters that may be related to one: the same key, process or error, or died within a minute in the same group."""
    from orchestration.operators.rendering import related_table

    settings = settings_of(home=home)
    rows = asking(settings).dead_letters.related(message_id, limit)
    print_found(settings, rows, output, related_table, f"no other dead letter is related to {message_id}")


@dlq.command("export")
@with_bundles
def dlq_export(
    to: Annotated[Path, typer.Option("--to", help="A new file: .jsonl, with bytes in base64, or .parquet.")],
    filters: Filters = OPEN,
    home: Home = None,
) -> None:
    """Write dead letters to a file, with payloads and headers."""
    from orchestration.operators.export import export

    dead = asking(settings_of(home=home)).own_dead_letters("an export may be too large for a running loop to send")
    count = export(dead, filters.selected(dead), to)
    tell.print(f"{count} dead letters written to {escape(str(to))}")


def _write_payload(value: bytearray | None, to: Path) -> None:
    if value is None:
        raise typer.BadParameter(
            "there is no value to write: it is null, only the original record has it, privacy hides or drops it, or it was purged",
            param_hint="--payload",
        )
    if str(to) == "-":
        sys.stdout.buffer.write(bytes(value))
        sys.stdout.flush()
        return
    to.write_bytes(bytes(value))
    tell.print(f"{len(value)} bytes written to {escape(str(to))}")
