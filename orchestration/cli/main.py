"""The command line. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.table import Column, Table

from orchestration.cli.log_lines import JsonLines, LogLines
from orchestration.cli.output import SafeConsole, as_json, console, errors, printable
from orchestration.errors import is_ours
from orchestration.settings import Settings, SettingsError, load_settings
from orchestration.tables.query import Format

if TYPE_CHECKING:
    from orchestration.loop.loop import Loop
    from orchestration.operators.commands import Listed, Wish
    from orchestration.operators.dead_letters import DeadLetters, Selection, State
    from orchestration.rules.seeds import Seeds
    from orchestration.tables.query import Rows

log = logging.getLogger(__name__)
app = typer.Typer(help="Retries and dead letters for Kafka, decided in SQL.", no_args_is_help=True, pretty_exceptions_enable=False)
_errors = errors()

_Output = Annotated[Format, typer.Option("--format", help="json: one array; jsonl: one object a line; csv: with a header line.")]
_Home = Annotated[Path | None, typer.Option("--home", help="Where the state lives. REDRIVE_HOME says the same.")]


# How wide `explain` is at most.
_EXPLAIN_COLUMNS = 120

SUPERSEDED_EXIT = 3
"""How `redrive run` ends when another loop has taken over."""


def main() -> None:
    """Entry point: a user's mistake is told in a line or a few, never as a traceback."""
    try:
        app()
    except Exception as error:
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            raise
        _errors.print(f"[red]{'error' if is_ours(error) else type(error).__name__}:[/red] {escape(str(error))}", style="")
        raise SystemExit(getattr(error, "exit_code", 1)) from None


@app.command()
def run(
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing waits and nothing came for --idle-for.")] = False,
    idle_for: Annotated[int | None, typer.Option("--idle-for", help="Seconds.")] = None,
    at_most: Annotated[
        int | None,
        typer.Option(
            "--at-most", min=1, help="End after so many seconds in any case; with --until-idle with code 1, if it isn't idle then."
        ),
    ] = None,
    home: _Home = None,
) -> None:
    """Turn the loop until it is stopped: intake, fold, publish. SIGTERM and Ctrl-C end it; what is being sent is written down."""
    settings = _settings(home=home, idle_for_seconds=idle_for)
    _with_loop(settings, until_idle=until_idle, at_most=at_most)


@app.command()
def tick(home: _Home = None) -> None:
    """Turn the loop once."""
    from orchestration.loop.loop import Loop

    loop = _loop(Loop, _settings(home=home))
    done = loop.tick()
    loop.close()
    if loop.superseded_by is not None:
        raise SystemExit(SUPERSEDED_EXIT)
    print(as_json({"counts": done.counts, "step_ms": done.step_ms}))


@app.command()
def check(
    create: Annotated[bool, typer.Option("--create", help="Make the topics that are missing.")] = False,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", help="A consumer group that has not committed offsets yet; may be given more than once."),
    ] = None,
    home: _Home = None,
) -> None:
    """Say what would keep the loop from working: seeds, brokers, topics, catalog. Exits with 1 if anything would."""
    from orchestration.rules.check import run_checks

    findings = run_checks(_settings(home=home), create=create, groups=group or ())
    table = Table("", "what", "found", box=None, pad_edge=False)
    for finding in findings:
        level = "[yellow]warn[/yellow]" if finding.warns else "[green]ok[/green]" if finding.ok else "[red]bad[/red]"
        table.add_row(level, escape(finding.what), escape(finding.found))
    # a pipe has no width: nothing is folded there
    console().print(table)
    raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)


@app.command()
def sql(
    statement: Annotated[str | None, typer.Argument(help="One select. Tables need no schema: select * from messages")] = None,
    output: _Output = "table",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many rows.")] = 1000,
    tables: Annotated[bool, typer.Option("--tables", help="List what can be asked: marts, rules and ledgers.")] = False,
    home: _Home = None,
) -> None:
    """Ask the tables something. `--tables` lists them; `describe messages` shows the columns of one, with what they mean."""
    from orchestration.tables.query import list_tables, print_rows, select

    if tables == (statement is not None):
        raise typer.BadParameter("either one select, or --tables", param_hint="STATEMENT")
    settings = _settings(home=home)
    print_rows(list_tables(settings) if statement is None else select(settings, statement, limit), output)


@app.command()
def explain(
    message_id: Annotated[str, typer.Argument(help="As `messages` has it: group:topic/partition/offset.")],
    output: _Output = "table",
    home: _Home = None,
) -> None:
    """Tell a message's life in order: each failure, which rule decided and why, each send, and what comes next."""
    from orchestration.rules.explain import Rulebook, told
    from orchestration.tables.query import Rows, print_rows

    rows = Rulebook(_settings(home=home)).history_of(message_id)
    if output != "table":
        print_rows(Rows(tuple(rows[0]), tuple(tuple(row.get(name) for name in rows[0]) for row in rows), more=False), output)
        return
    # for people, wherever it goes: a ticket folds it no better
    screen = console()
    screen.width = min(screen.width, _EXPLAIN_COLUMNS)
    screen.print(_pairs((at, printable(what)) for at, what in told(rows)))


@app.command()
def classify(
    error_class: Annotated[str | None, typer.Option("--class", help="The exception's class, in full.")] = None,
    message: Annotated[str | None, typer.Option("--message")] = None,
    stack: Annotated[typer.FileText | None, typer.Option("--stack", help="A file with the stack trace; - reads standard input.")] = None,
    topic: Annotated[str, typer.Option("--topic", help="The original topic.")] = "",
    group: Annotated[str | None, typer.Option("--group", help="The consumer group.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="The source that the report comes through.")] = None,
    code: Annotated[str | None, typer.Option("--code", help="Kafka's error code or name, or another.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="name=value; may be given more than once.")] = None,
    home: _Home = None,
) -> None:
    """Say which of the rules that are loaded would match an error."""
    from orchestration.rules.explain import Error, Rulebook

    headers = {name: value for name, _, value in (text.partition("=") for text in header or ())}
    error = Error(error_class, message, None if stack is None else stack.read(), code, headers, topic, group, source)
    verdict = Rulebook(_settings(home=home)).classify(error)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("kind", escape(verdict.kind))
    table.add_row("rule", escape(verdict.rule))
    table.add_row("matched", escape(verdict.matched or "-"))
    for place, (name, text) in enumerate(verdict.causes):
        table.add_row("causes" if place == 0 else "", escape(f"{name or '-'}{': ' + text if text else ''}"))
    for rule in verdict.passed_over:
        table.add_row("not by", escape(rule))
    console().print(table)


_policy = typer.Typer(help="Ask about retry policies.", no_args_is_help=True)
app.add_typer(_policy, name="policy")


@_policy.command("try")
def policy_try(
    definition: Annotated[str, typer.Argument(help='"exponential(initial=1s, factor=2, max=60s, jitter=0.3, attempts=5)"')],
    failures: Annotated[int, typer.Option("--failures", min=1, max=1000, help="How many failures to show.")] = 12,
    home: _Home = None,
) -> None:
    """Show when a message would be sent again: after each failure the delay, and the time since the first."""
    from orchestration.rules.explain import Rulebook

    schedule = Rulebook(_settings(home=home)).schedule_of(definition, failures)
    table = Table("failure", "waits", "since the first failure", "", box=None, pad_edge=False)
    longest = max((wait.most_ms for wait in schedule.waits), default=0) or 1
    for wait in schedule.waits:
        table.add_row(
            str(wait.failure),
            _span(wait.least_ms, wait.most_ms),
            _span(wait.total_least_ms, wait.total_most_ms),
            "#" * max(1, round(40 * wait.most_ms / longest)),
        )
    console().print(table)
    bounds = [f"failure {schedule.max_attempts}"] if schedule.max_attempts is not None else []
    bounds += [f"{_seconds(schedule.max_elapsed_ms)} after the first"] if schedule.max_elapsed_ms is not None else []
    ends = {"dead_letter": "dead", "drop": "dropped"}[schedule.on_exhausted]
    first = ", whichever comes first" if len(bounds) > 1 else ""
    print(f"{ends} at {' or '.join(bounds)}{first}" if bounds else "no end")


_Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many rows.")]


def _remembered(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """Completes what was shown last: to ask Spark would take ten seconds."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        from orchestration.cli.completion import recall

        try:
            known = recall(load_settings(home=ctx.params.get("home")).home)
        except SettingsError:
            return []
        return [text for text in known.get(kind, ()) if text.startswith(incomplete)]

    return complete


def _kept_lists(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the names of lists that dry runs have kept, the latest first."""
    try:
        lists = load_settings(home=ctx.params.get("home")).home / "lists"
    except SettingsError:
        return []
    latest_first = sorted(lists.glob(f"{incomplete}*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.stem for path in latest_first]


_MessageId = Annotated[str, typer.Argument(metavar="ID", help="As `dlq list` shows it.", autocompletion=_remembered("message_id"))]
_Topic = Annotated[
    str | None,
    typer.Option("--topic", help="The original topic; ^ begins a regular expression.", autocompletion=_remembered("original_topic")),
]
_Class = Annotated[
    str | None,
    typer.Option("--class", help="Error class, with or without its package; or ^...", autocompletion=_remembered("error_class")),
]
_Group = Annotated[str | None, typer.Option("--group", help="The consumer group; or ^...", autocompletion=_remembered("consumer_group"))]
_Fingerprint = Annotated[
    str | None, typer.Option("--fingerprint", help="As `dlq groups` shows it.", autocompletion=_remembered("fingerprint"))
]
_Since = Annotated[str | None, typer.Option("--since", help="90s, 30m, 2h, 7d, 4w ago, or 2026-03-01T12:00.")]
_Where = Annotated[str | None, typer.Option("--where", help="One condition in SQL over the columns of the mart `stranded_messages`.")]
_State = Annotated[
    Literal["open", "redriven", "recovered", "discarded", "refused", "all"], typer.Option("--state", help="What was done about it.")
]

_dlq = typer.Typer(help="Find and understand dead letters.", no_args_is_help=True)
app.add_typer(_dlq, name="dlq")


@_dlq.command("list")
def dlq_list(
    topic: _Topic = None,
    error_class: _Class = None,
    group: _Group = None,
    fingerprint: _Fingerprint = None,
    state: _State = "open",
    since: _Since = None,
    where: _Where = None,
    output: _Output = "table",
    limit: _Limit = 50,
    home: _Home = None,
) -> None:
    """List dead letters, the latest first; those that nothing was done about, unless --state says otherwise."""
    from orchestration.operators.dead_letters import dead_letter_table

    settings = _settings(home=home)
    with _starting_spark():
        dead, selection = _selected(settings, _Filters(topic, error_class, group, fingerprint, state, since, where))
        rows = dead.find(selection, limit)
    _print(settings, rows, output, dead_letter_table, "no dead letter is like that")


@_dlq.command("show")
def dlq_show(
    message_id: _MessageId,
    payload: Annotated[
        Path | None,
        typer.Option("--payload", help="Write the value, byte for byte, into this file, or - for standard output, and nothing else."),
    ] = None,
    output: Annotated[Literal["table", "json"], typer.Option("--format", help="json: one object.")] = "table",
    home: _Home = None,
) -> None:
    """Show a dead letter: why it died, where it lies, its payload, headers, stack and history."""
    from orchestration.operators.dead_letters import DeadLetters, facts, header_lines, payload_lines
    from orchestration.rules.explain import told
    from orchestration.tables.query import Rows, print_rows

    settings = _settings(home=home)
    with _starting_spark():
        dead = DeadLetters(settings)
        row = dead.get(message_id)
        steps = dead.history_of(message_id) if output == "table" and payload is None else []
    if payload is not None:
        _write_payload(row["value"], payload)
        return
    if output == "json":
        print_rows(Rows(tuple(row), (tuple(row.values()),), more=False), "jsonl")
        return
    screen = console()
    screen.print(_pairs(facts(row)))
    headers = _pairs(header_lines(row["headers"]))
    history = _pairs((at, printable(what)) for at, what in told(steps))
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


@_dlq.command("groups")
def dlq_groups(
    topic: _Topic = None,
    error_class: _Class = None,
    group: _Group = None,
    fingerprint: _Fingerprint = None,
    state: _State = "all",
    since: _Since = None,
    where: _Where = None,
    output: _Output = "table",
    limit: _Limit = 50,
    home: _Home = None,
) -> None:
    """Group dead letters by what they died of: class, and top frame of the stack or the message without what differs each time."""
    from orchestration.operators.dead_letters import group_table

    settings = _settings(home=home)
    with _starting_spark():
        dead, selection = _selected(settings, _Filters(topic, error_class, group, fingerprint, state, since, where))
        rows = dead.groups(selection, limit)
    _print(settings, rows, output, group_table, "no dead letter is like that")


@_dlq.command("stats")
def dlq_stats(topic: _Topic = None, output: _Output = "table", limit: _Limit = 50, home: _Home = None) -> None:
    """Say by topic how many die, by hour, and whether that is usual there."""
    from orchestration.clock import wall_clock
    from orchestration.operators.dead_letters import DeadLetters, stats_table

    settings = _settings(home=home)
    with _starting_spark():
        rows = DeadLetters(settings).stats(wall_clock(), topic, limit)
    _print(settings, rows, output, stats_table, "nothing died in the last 7 days")


@_dlq.command("related")
def dlq_related(message_id: _MessageId, output: _Output = "table", limit: _Limit = 50, home: _Home = None) -> None:
    """List dead letters that may have to do with one: the same key, process or error, or died within a minute in the same group."""
    from orchestration.operators.dead_letters import DeadLetters, related_table

    settings = _settings(home=home)
    with _starting_spark():
        rows = DeadLetters(settings).related(message_id, limit)
    _print(settings, rows, output, related_table, f"no other dead letter has to do with {message_id}")


@_dlq.command("export")
def dlq_export(
    to: Annotated[Path, typer.Option("--to", help="A new file: .jsonl, with bytes in base64, or .parquet.")],
    topic: _Topic = None,
    error_class: _Class = None,
    group: _Group = None,
    fingerprint: _Fingerprint = None,
    state: _State = "open",
    since: _Since = None,
    where: _Where = None,
    home: _Home = None,
) -> None:
    """Write dead letters to a file, with payloads and headers."""
    settings = _settings(home=home)
    with _starting_spark():
        dead, selection = _selected(settings, _Filters(topic, error_class, group, fingerprint, state, since, where))
        count = dead.export(selection, to)
    _errors.print(f"{count} dead letters written to {escape(str(to))}")


_waiting = typer.Typer(help="Look at messages that wait.", no_args_is_help=True)
app.add_typer(_waiting, name="waiting")


@_waiting.command("list")
def waiting_list(
    topic: _Topic = None,
    error_class: _Class = None,
    group: _Group = None,
    since: Annotated[str | None, typer.Option("--since", help="Failed last so long ago at most; as for `dlq list`.")] = None,
    where: Annotated[str | None, typer.Option("--where", help="One condition in SQL over the columns of the mart `messages`.")] = None,
    output: _Output = "table",
    limit: _Limit = 50,
    home: _Home = None,
) -> None:
    """List messages that will be sent, or whose dead letter will be; the next one first."""
    from orchestration.operators.dead_letters import waiting_table

    settings = _settings(home=home)
    with _starting_spark():
        dead, selection = _selected(settings, _Filters(topic, error_class, group, None, "all", since, where))
        rows = dead.waiting(selection, limit)
    _print(settings, rows, output, waiting_table, "no message like that waits")


_Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="As `dlq list` shows them.", autocompletion=_remembered("message_id"))
]
_Reason = Annotated[str, typer.Option("--reason", help="Why: it is kept with the command.")]
_Who = Annotated[str | None, typer.Option("--who", help="Who wants it. Default: the system's user.")]
_Ticket = Annotated[str | None, typer.Option("--ticket", help="A ticket or an address.")]
_All = Annotated[bool, typer.Option("--all", help="All of them: needed where nothing else chooses.")]
_Max = Annotated[int | None, typer.Option("--max", min=1, help="Only so many: the oldest.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing. --list does just that later.")]
_List = Annotated[str | None, typer.Option("--list", help="The list that a dry run showed, and no other.", autocompletion=_kept_lists)]
_Rate = Annotated[str | None, typer.Option("--rate", help="50/s, 10/m, 1/h. Default: as fast as it goes.")]
_CommandId = Annotated[str, typer.Argument(metavar="COMMAND", help="As `dlq redrive` said it.")]


@_dlq.command("redrive")
def dlq_redrive(
    reason: _Reason,
    ids: _Ids = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="retry (today's route; default), original, or a topic.", autocompletion=lambda: ["retry", "original"]),
    ] = None,
    rate: _Rate = None,
    at: Annotated[str | None, typer.Option("--at", help="Not before: 2026-03-01T12:00, in UTC.")] = None,
    canary: Annotated[int | None, typer.Option("--canary", help="So many first; the rest when they have succeeded.")] = None,
    assume_after: Annotated[
        str | None, typer.Option("--assume-after", help="Where success can't be seen: no report for so long is one. Default: 5m.")
    ] = None,
    ticket: _Ticket = None,
    who: _Who = None,
    topic: _Topic = None,
    error_class: _Class = None,
    group: _Group = None,
    fingerprint: _Fingerprint = None,
    state: _State = "open",
    since: _Since = None,
    where: _Where = None,
    everything: _All = False,
    most: _Max = None,
    listed: _List = None,
    dry_run: _DryRun = False,
    home: _Home = None,
) -> None:
    """Send dead letters again: decided anew under today's routes, with all attempts, under their old id."""
    from orchestration.operators.commands import Wish, parse_assume_after, parse_at, parse_rate

    wish = Wish(
        "redrive",
        reason,
        _who(who),
        ticket,
        rate=None if rate is None else parse_rate(rate),
        at=None if at is None else parse_at(at),
        canary=canary,
        assume_after=None if assume_after is None else parse_assume_after(assume_after),
        to=to,
    )
    filters = _Filters(topic, error_class, group, fingerprint, state, since, where)
    chosen = _Chosen(ids, filters, everything, most, listed, dry_run)
    _give(home, wish, chosen)


def _about_dead_letters(what: str, does: str, state: Literal["open", "discarded"]) -> None:
    def say(
        reason: _Reason,
        ids: _Ids = None,
        ticket: _Ticket = None,
        who: _Who = None,
        topic: _Topic = None,
        error_class: _Class = None,
        group: _Group = None,
        fingerprint: _Fingerprint = None,
        state: _State = state,
        since: _Since = None,
        where: _Where = None,
        everything: _All = False,
        most: _Max = None,
        listed: _List = None,
        dry_run: _DryRun = False,
        home: _Home = None,
    ) -> None:
        from orchestration.operators.commands import Wish

        filters = _Filters(topic, error_class, group, fingerprint, state, since, where)
        chosen = _Chosen(ids, filters, everything, most, listed, dry_run)
        _give(home, Wish(what, reason, _who(who), ticket), chosen)

    _dlq.command(what, help=does)(say)


_about_dead_letters("discard", "Say that nothing is to be done about dead letters any more. They stay where they are.", "open")
_about_dead_letters("restore", "Take a discard back.", "discarded")
_about_dead_letters("note", "Write something down about dead letters: a reason, a ticket.", "open")


@_dlq.command("purge")
def dlq_purge(
    reason: _Reason,
    ids: _Ids = None,
    ticket: _Ticket = None,
    who: _Who = None,
    topic: _Topic = None,
    error_class: _Class = None,
    group: _Group = None,
    fingerprint: _Fingerprint = None,
    state: _State = "discarded",
    since: _Since = None,
    where: _Where = None,
    everything: _All = False,
    most: _Max = None,
    listed: _List = None,
    dry_run: _DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    home: _Home = None,
) -> None:
    """Remove the payloads of discarded dead letters: they can't be sent again. The copies in Kafka are left."""
    from orchestration.operators.commands import Wish

    filters = _Filters(topic, error_class, group, fingerprint, state, since, where)
    chosen = _Chosen(ids, filters, everything, most, listed, dry_run)
    _give(home, Wish("purge", reason, _who(who), ticket), chosen, asks=not yes)


def _about_waiting(name: str, what: str, does: str) -> None:
    def say(
        reason: _Reason,
        ids: _Ids = None,
        rate: _Rate = None,
        ticket: _Ticket = None,
        who: _Who = None,
        topic: _Topic = None,
        error_class: _Class = None,
        group: _Group = None,
        since: _Since = None,
        where: Annotated[str | None, typer.Option("--where", help="One condition in SQL over the columns of the mart `messages`.")] = None,
        everything: _All = False,
        most: _Max = None,
        listed: _List = None,
        dry_run: _DryRun = False,
        home: _Home = None,
    ) -> None:
        from orchestration.operators.commands import Wish, parse_rate

        filters = _Filters(topic, error_class, group, None, "all", since, where)
        chosen = _Chosen(ids, filters, everything, most, listed, dry_run)
        _give(home, Wish(what, reason, _who(who), ticket, rate=None if rate is None else parse_rate(rate)), chosen)

    _waiting.command(name, help=does)(say)


_about_waiting("send-now", "send_now", "Send messages now that wait for a later time, as they are.")
_about_waiting("cancel", "cancel", "End messages that wait: nothing more is sent of them.")


@_dlq.command("triage")
def dlq_triage(dry_run: _DryRun = False, home: _Home = None) -> None:
    """Send again what the seed `redrive_rules` says: one command for each rule. Without rules it does nothing."""
    from orchestration.operators.commands import check_wish, triage
    from orchestration.operators.dead_letters import DeadLetters
    from orchestration.rules.seeds import read_seeds

    settings = _settings(home=home)
    seeds = read_seeds(settings.seeds)
    if not dry_run:
        settings.require_brokers()
    with _starting_spark():
        wanted = triage(DeadLetters(settings))
    for wish, listed in wanted:
        check_wish(settings, seeds, wish)
        _errors.print(escape(wish.reason))
        _carry_out(settings, seeds, wish, listed, dry_run=dry_run)
    if not wanted:
        _errors.print("no rule wants anything sent again now")


def _about_commands(what: str, does: str) -> None:
    def say(command: _CommandId, reason: _Reason, who: _Who = None, home: _Home = None) -> None:
        from orchestration.operators.commands import Wish

        _give(home, Wish(what, reason, _who(who), of=command), None)

    _dlq.command(what, help=does)(say)


_about_commands("pause", "Stop issuing what a command lists, until it is resumed.")
_about_commands("resume", "Go on with a command that was paused, or whose canaries failed or take too long.")
_about_commands("stop", "End a command: what it has not issued yet is left as it is.")


class _Filters(NamedTuple):
    """What the options of the command line select by."""

    topic: str | None
    error_class: str | None
    group: str | None
    fingerprint: str | None
    state: State
    since: str | None
    where: str | None


class _Chosen(NamedTuple):
    """What the command line says about which messages are meant."""

    ids: list[str] | None
    filters: _Filters
    everything: bool
    most: int | None
    listed: str | None
    dry_run: bool

    @property
    def says_nothing(self) -> bool:
        # a state alone chooses nothing: it has a default
        return not any((self.ids, self.everything, *(said for name, said in self.filters._asdict().items() if name != "state")))


def _who(who: str | None) -> str:
    import getpass

    return who or getpass.getuser()


def _give(home: Path | None, wish: Wish, chosen: _Chosen | None, *, asks: bool = False) -> None:
    """Gives a command, or shows what it would do. asks: whether people at a terminal are asked first."""
    from orchestration.operators.commands import CommandError, check_wish, kept, select_deliveries, send
    from orchestration.rules.seeds import read_seeds
    from orchestration.tables.query import first_of

    settings = _settings(home=home)
    seeds = read_seeds(settings.seeds)
    check_wish(settings, seeds, wish)
    if chosen is None or not chosen.dry_run:
        settings.require_brokers()
    if chosen is None:
        command = send(settings, wish)
        _errors.print(f"{wish.what} of command {wish.of} is given, as command {command}")
        return
    if chosen.listed is not None:
        listed = kept(settings.home, chosen.listed)[: chosen.most]
    elif chosen.says_nothing:
        raise CommandError("which ones? ids, --topic, --class, --group, --since, --where, or --all")
    else:
        with _starting_spark():
            dead, selection = _selected(settings, chosen.filters)
            listed = select_deliveries(dead, wish.what, dataclasses.replace(selection, ids=tuple(chosen.ids or ())), chosen.most)
    if not listed:
        state = chosen.filters.state
        _errors.print(f"no message is like that{'' if state == 'all' else f', of those that are {state} (--state)'}: nothing is done")
        raise typer.Exit(1)
    if (missing := set(chosen.ids or ()) - {one.message_id for one in listed}) and not (chosen.listed or chosen.most):
        _errors.print(
            f"{len(missing)} of these ids are left out, as what is asked doesn't hold for them: {escape(first_of(sorted(missing)))}"
        )
    _carry_out(settings, seeds, wish, listed, dry_run=chosen.dry_run, asks=asks)


def _carry_out(settings: Settings, seeds: Seeds, wish: Wish, listed: Sequence[Listed], *, dry_run: bool, asks: bool = False) -> None:
    """Sends a command with its list; or shows the list, and keeps it. asks: whether people at a terminal are asked first."""
    from orchestration.operators.commands import keep, send

    if dry_run:
        _show_list(settings, seeds, wish, listed)
        try:
            kept_as = f"This list is kept: --list {keep(settings.home, listed)} instead of a choice does just that"
        except OSError as error:
            kept_as = f"This list is not kept for --list, as {settings.home} can't be written to: {error.strerror}"
        _errors.print(f"nothing was done. {escape(kept_as)}")
        return
    if asks and sys.stdin.isatty():
        _show_list(settings, seeds, wish, listed)
        typer.confirm(f"{wish.what} these {len(listed)} messages? It can't be undone", abort=True, err=True)
    with _progress(f"writing {wish.what} of {len(listed)} messages") as told:
        command = send(settings, wish, listed, told)
    _errors.print(
        f'{wish.what} of {len(listed)} messages is given; `redrive sql "select * from redrives"` shows how it goes', highlight=False
    )
    print(command)


def _show_list(settings: Settings, seeds: Seeds, wish: Wish, listed: Sequence[Listed]) -> None:
    from orchestration.clock import wall_clock
    from orchestration.operators.commands import shown

    table = Table(show_header=False, box=None, pad_edge=False)
    for what, counts in shown(settings, seeds, wish, listed, wall_clock()):
        for place, (name, count) in enumerate(counts):
            table.add_row("" if place else what, f"{count}", escape(printable(name)))
    for place, one in enumerate(listed[:5]):
        table.add_row("" if place else "for example", "", escape(printable(one.message_id)))
    console().print(table)


def _selected(settings: Settings, filters: _Filters) -> tuple[DeadLetters, Selection]:
    """What was said on the command line, checked; what can be checked without Spark before it is started."""
    from orchestration.clock import wall_clock
    from orchestration.operators.dead_letters import DeadLetters, Selection, parse_since

    since = None if filters.since is None else parse_since(filters.since, wall_clock())
    dead = DeadLetters(settings)
    for option, wanted in (("--topic", filters.topic), ("--class", filters.error_class), ("--group", filters.group)):
        dead.checked_pattern(option, wanted)
    return dead, Selection(**{**filters._asdict(), "since": since, "where": dead.checked(filters.where)})


def _print(settings: Settings, rows: Rows, output: Format, table: Callable[[Rows], Table], nothing: str) -> None:
    """Prints rows to standard output; that there are none, or more, to standard error."""
    from orchestration.cli.completion import remember
    from orchestration.tables.query import print_rows, say_more

    remember(settings.home, rows)
    if output != "table":
        print_rows(rows, output)
        return
    if rows.rows:
        console().print(table(rows))
    else:
        _errors.print(escape(nothing))
    say_more(rows)


def _pairs(lines: Iterable[tuple[str, str]]) -> Table:
    """Two columns, folded where they don't fit: an address that was shortened leads nowhere."""
    table = Table("", Column(overflow="fold"), box=None, pad_edge=False, show_header=False)
    for name, text in lines:
        table.add_row(escape(name), escape(text))
    return table


def _write_payload(value: bytearray | None, to: Path) -> None:
    if value is None:
        raise typer.BadParameter("the value is null: there is nothing to write", param_hint="--payload")
    if str(to) == "-":
        sys.stdout.buffer.write(bytes(value))
        sys.stdout.flush()
        return
    to.write_bytes(bytes(value))
    _errors.print(f"{len(value)} bytes written to {escape(str(to))}")


@contextmanager
def _starting_spark() -> Iterator[None]:
    """Says on standard error, if people read it, what they wait for."""
    if not sys.stderr.isatty():
        yield
        return
    # while Spark starts, whatever is printed to standard error goes into its log: this goes on to the terminal
    with os.fdopen(os.dup(2), "w") as terminal, SafeConsole(file=terminal).status("starting Spark, and reading: ten seconds or more"):
        yield


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Shows on standard error, if people read it, how far something is."""
    with Progress(console=_errors, disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def _span(least_ms: int, most_ms: int) -> str:
    return _seconds(least_ms) if least_ms == most_ms else f"{_seconds(least_ms)} to {_seconds(most_ms)}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:,.3f}".rstrip("0").rstrip(".") + " s"


@app.command()
def status(output: Annotated[Literal["table", "json"], typer.Option("--format")] = "table", home: _Home = None) -> None:
    """Say how the loop is, from the small file that it writes: needs neither Spark nor Kafka."""
    from dataclasses import asdict

    from orchestration.loop.status import is_alive, read_status

    settings = _settings(home=home)
    found = read_status(settings.status_file)
    if found is None:
        _errors.print(f"no loop has run yet with its state under {settings.home}")
        raise typer.Exit(1)
    if output == "json":
        print(as_json({**asdict(found), "alive": is_alive(found)}))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row(
        "loop",
        found.state
        if is_alive(found)
        else f"{found.state}, but its process {found.pid} is gone"
        if found.state != "stopped"
        else "stopped",
    )
    for name, value in (
        ("generation", f"{found.generation} of instance {found.instance}"),
        ("last tick", f"{found.tick} at {found.at}"),
        ("did", " ".join(f"{name}={count}" for name, count in found.counts.items()) or "nothing"),
        ("took", " ".join(f"{step}={ms}ms" for step, ms in found.step_ms.items()) or "-"),
        ("next due", found.next_due or "-"),
        ("floor", found.floor),
        ("decided", f"up to batch {found.watermark} of {found.batch}"),
    ):
        table.add_row(name, str(value))
    for what, why in found.trouble.items():
        table.add_row(f"[red]{escape(what)}[/red]", escape(why))
    console(None).print(table)


@app.command()
def maintain(output: Annotated[Literal["table", "json"], typer.Option("--format")] = "table", home: _Home = None) -> None:
    """Compact the tables' files, expire old snapshots, remove orphans. Beside a running loop or without one; hourly, say."""
    from orchestration.tables.maintenance import maintain, print_report

    print_report(maintain(_settings(home=home)), output)


@app.command()
def demo(
    port: Annotated[int | None, typer.Option("--port", help="Port of the broker. Default: a free one.")] = None,
    seconds: Annotated[int, typer.Option("--seconds", help="How long it goes on once everything is up.")] = 90,
    home: _Home = None,
) -> None:
    """Watch messages fail, wait, return and die: a real broker, a flaky consumer, and the loop, for about two minutes."""
    from orchestration.demo.demo import run_demo

    raise typer.Exit(run_demo(_settings(home=home), port=port, seconds=seconds))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def dagster(ctx: typer.Context, home: _Home = None) -> None:
    """Start Dagster on the project: `dagster dev`, with its options, and with DAGSTER_HOME in the state, unless it is set already."""
    from orchestration.dagster.dev import serve

    serve(_settings(home=home), ctx.args)


@app.command()
def broker(
    port: Annotated[int | None, typer.Option("--port", help="Default: the one it had before.")] = None,
    home: _Home = None,
) -> None:
    """Start the demo's broker again, on the state that it left, until Ctrl-C."""
    from orchestration.demo.broker import serve

    serve(_settings(home=home).broker_directory, port)


def _settings(**options: object) -> Settings:
    settings = load_settings(**options)
    level = getattr(logging, settings.log_level.upper())
    logging.basicConfig(level=level, stream=sys.stderr, force=True)
    logging.getLogger().handlers[0].setFormatter(JsonLines() if settings.log_format == "json" else LogLines())
    for noisy in ("py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return settings


def _with_loop(settings: Settings, *, until_idle: bool, at_most: int | None) -> None:
    from orchestration.loop.loop import Loop

    loop = _loop(Loop, settings)
    idle = loop.run(until_idle=until_idle, at_most=at_most)
    if loop.superseded_by is not None:
        # said already; a code of its own, so that a supervisor doesn't start what would take over in turn
        raise SystemExit(SUPERSEDED_EXIT)
    if until_idle and not idle and not loop.stopping.is_set():
        # said already, with what it waits for
        raise SystemExit(1)


def _loop(make: type[Loop], settings: Settings) -> Loop:
    """A loop that has started, and that SIGTERM and Ctrl-C end."""
    settings.require_brokers()
    loop = make(settings)
    end_on_signals(loop)
    loop.start()
    return loop


# How long a loop that was told to end has for it, in seconds: a fold takes longer, and needs not be waited for.
_GRACE = 2.0


def end_on_signals(loop: Loop) -> None:
    """Lets SIGTERM and Ctrl-C end the loop, and the process: within seconds, whatever it is doing, but for what it is sending.

    A loop may end anywhere, and the next one goes on from there; only what is sent and not written down would be sent again. The second
    signal doesn't wait for that either.
    """

    # a handler runs when the call returns that the main thread is in: one into librdkafka takes ten seconds where the broker is gone
    heard, told = socket.socketpair()
    told.setblocking(False)
    signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    # dbt's locks are left to this process's tracker, which would say so
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    threading.Thread(target=_end_when_told, args=(loop, heard, told), name="signals", daemon=True).start()


def _end_when_told(loop: Loop, heard: socket.socket, told: socket.socket) -> None:
    """Hears signals. told: the other end, which must stay open."""
    ends = False
    while told.fileno() >= 0:
        number = signal.Signals(heard.recv(1)[0])
        if number not in (signal.SIGTERM, signal.SIGINT):
            continue
        if ends:
            os._exit(128 + number)
        ends = True
        loop.stopping.set()
        threading.Thread(target=_end_in_time, args=(loop, number.name), name="end", daemon=True).start()


def _end_in_time(loop: Loop, why: str) -> None:
    """Ends the process if the loop does not get to it."""
    log.info("%s: the loop ends", why)
    time.sleep(_GRACE)
    if loop.sending.locked():
        log.info("what is being sent is written down before the end")
        with loop.sending:
            pass
        time.sleep(_GRACE)
    with loop.sending:
        try:
            loop.say_goodbye()
        finally:
            os._exit(0 if loop.superseded_by is None else SUPERSEDED_EXIT)
