"""The summary of the demo: three questions answered in SQL, how late retries were, a dry run of a redrive, what to do next."""

from __future__ import annotations

import statistics
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestration.clock import wall_clock
from orchestration.demo.topics import Findings
from orchestration.loop.loop import Loop
from orchestration.operators.commands import CommandRequest
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.lists import keep, select_deliveries, shown
from orchestration.operators.selections import Selection
from orchestration.output import console, errors, printable
from orchestration.rules.rulebook import Rulebook
from orchestration.settings import Settings
from orchestration.settings.sources import is_clone
from orchestration.tables.analysed_views import views_to_ask
from orchestration.tables.query import print_rows, query


def sum_up(loop: Loop, findings: Findings, tick_ms: list[int]) -> bool:
    """Prints the three questions and their answers, and what to do next; returns whether nothing went wrong."""
    screen = console(160)
    settings = loop.settings
    clean = not findings.lost and not findings.early and not findings.twice
    for question, analysis in (
        ("What was retried, and how often?", "what_was_retried"),
        ("What is dead, and why?", "what_is_dead"),
        ("Was anything lost, early or sent twice?", "what_went_wrong"),
    ):
        text = (settings.dbt_directory / "dbt_project" / "analyses" / f"{analysis}.sql").read_text(encoding="utf-8")
        rows = query(views_to_ask(settings), loop.dbt.compiled(text), 100)
        screen.print(f"\n[bold]{question}[/bold]  (dbt_project/analyses/{analysis}.sql)")
        print_rows(rows, "table", screen)
        if analysis == "what_went_wrong":
            clean = clean and all(int(count) == 0 for what, count in rows.rows if what != "dead letters not acknowledged yet")
    screen.print(_lateness(loop, tick_ms))
    screen.print(
        f"\nIn the topics themselves: {findings.orders} orders, {findings.retries} retries, {findings.dead} dead letters; "
        f"lost {len(findings.lost)}, early {findings.early}, twice {findings.twice}."
    )
    kept_as = _dry_run(loop, screen)
    screen.print(_next_steps(settings, kept_as))
    if not clean:
        errors().print(f"[red]something was lost, early or sent twice[/red] {' '.join(findings.lost[:20])}")
    return clean


def _next_steps(settings: Settings, kept_as: str) -> str:
    """Commands to try on the state that the demo leaves, for the directory in which it was run."""
    elsewhere = settings.home != Path.cwd() / ".redrive"
    home = f" --home {settings.home}" if elsewhere else ""
    uv_run = "uv run " if is_clone() else ""
    environment = f"REDRIVE_HOME={settings.home} " if elsewhere else ""
    if is_clone():
        dbt = f"{environment}uv run dbt build            tests and views, on the same tables"
    elif settings.project == Path.cwd():
        dbt = f"{environment}dbt build            tests and views, on the same tables"
    else:
        dbt = f"redrive init DIR    writes rules, settings and a dbt project to edit; REDRIVE_HOME={settings.home} dbt build works there"
    return f"""
[bold]Next[/bold], on the state that is left:
  {uv_run}redrive sql{home} "select state, count(*) from messages group by state"
  {uv_run}redrive explain{home} billing:orders/0/0    why it was sent again, or died
  {uv_run}redrive dlq groups{home}    dead letters by cause
  {uv_run}redrive dlq show{home} ID    one of them: its payload, its stack, and whom to ask (`dlq list` has the ids)
  {uv_run}redrive broker{home}        starts this broker again; then, beside it:
  {uv_run}redrive run{home}           goes on where the demo stopped (with REDRIVE_KAFKA__BOOTSTRAP_SERVERS as the broker prints it)
  {uv_run}redrive dlq redrive{home} --list {kept_as} --reason "fixed"    sends what the dry run showed; the loop must run
  {dbt}"""


def _lateness(loop: Loop, tick_ms: list[int]) -> str:
    """How late retries were sent, and why."""
    (row,) = loop.spark.sql(
        f"select percentile_approx(lateness_ms, array(0.5, 0.99)) as late from {loop.schema}.attempts where lateness_ms is not null"
    ).collect()
    if not row["late"] or not tick_ms:
        return "\nNothing was sent that could have been late."
    median, most = (f"{ms / 1000:.1f} s" for ms in row["late"])
    tick = f"{statistics.median(tick_ms) / 1000:.1f} s"
    return (
        f"\nSent p50 {median}, p99 {most} after it was due. What is decided before it is due is sent on time; a retry whose delay is "
        "shorter than the tick that takes its report in and decides about it is late by the rest. Here, with broker, consumer and loop "
        f"on one machine, half of the ticks that had something to do took more than {tick}; the first decisions of a process take "
        "seconds longer."
    )


def _dry_run(loop: Loop, screen: Console) -> str:
    """Shows a dry run of a redrive of the dead letters of one bug; returns the name of the list that is kept."""
    dead = DeadLetters(loop.settings)
    listed = select_deliveries(dead, "redrive", Selection(state="open", error_class="KeyError"), None)
    request = CommandRequest("redrive", "the demo", "demo")
    screen.print("\n[bold]What would be sent again, if the bug behind KeyError were fixed?[/bold]  (a dry run: nothing is sent)")
    table = Table(show_header=False, box=None, pad_edge=False)
    for what, counts in shown(lambda: Rulebook(loop.settings), request, listed, wall_clock()):
        for place, (name, count) in enumerate(counts):
            table.add_row("" if place else what, str(count), escape(printable(name)))
    screen.print(table)
    return keep(loop.settings.home, listed)
