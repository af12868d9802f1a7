"""Commands that ask the rules: check, explain, classify, policy try."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from orchestration.cli.options import Home, Output, settings_of
from orchestration.cli.screen import asking, pairs
from orchestration.output import console, printable

# The greatest width of `explain`, in characters.
_EXPLAIN_COLUMNS = 120

policy = typer.Typer(help="Ask about retry policies.", no_args_is_help=True)


def check(
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Create missing topics that redrive writes to: the commands topic, the topic of sequences, and retry and dead "
            "letter topics of known groups. "
            "Report topics are not created.",
        ),
    ] = False,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", help="Also check topics for this consumer group, which has committed no offsets yet; may be repeated."),
    ] = None,
    home: Home = None,
) -> None:
    """Check seeds, brokers, topics and catalog for what would keep the loop from working. Exits with 1 if a check fails."""
    from orchestration.rules.check import run_checks

    findings = run_checks(asking(settings_of(home=home)), create=create, groups=group or ())
    table = Table("", "what", "found", box=None, pad_edge=False)
    for finding in findings:
        level = "[yellow]warn[/yellow]" if finding.warns else "[green]ok[/green]" if finding.ok else "[red]bad[/red]"
        table.add_row(level, escape(finding.what), escape(finding.found))
    console().print(table)
    raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)


def explain(
    message_id: Annotated[str, typer.Argument(help="As `messages` has it: group:topic/partition/offset.")],
    output: Output = "table",
    home: Home = None,
) -> None:
    """Show a message's history in order: each failure, which rule decided and why, each send, and what comes next."""
    from orchestration.rules.explain import in_words
    from orchestration.tables.query import Rows, print_rows

    rows = asking(settings_of(home=home)).rulebook.history_of(message_id)
    if output != "table":
        print_rows(Rows(tuple(rows[0]), tuple(tuple(row.get(name) for name in rows[0]) for row in rows), more=False), output)
        return
    # folded even in a pipe, as this text is for people, and often goes into a ticket
    screen = console()
    screen.width = min(screen.width, _EXPLAIN_COLUMNS)
    screen.print(pairs((at, printable(what)) for at, what in in_words(rows)))


def classify(
    error_class: Annotated[str | None, typer.Option("--class", help="The exception's class, in full.")] = None,
    message: Annotated[str | None, typer.Option("--message")] = None,
    stack: Annotated[typer.FileText | None, typer.Option("--stack", help="A file with the stack trace; - reads standard input.")] = None,
    topic: Annotated[str, typer.Option("--topic", help="The original topic.")] = "",
    group: Annotated[str | None, typer.Option("--group", help="The consumer group.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="The source that reads the report.")] = None,
    code: Annotated[str | None, typer.Option("--code", help="An error code or name, Kafka's or another.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="name=value; may be given more than once.")] = None,
    home: Home = None,
) -> None:
    """Show which of the loaded rules matches an error."""
    from orchestration.rules.rulebook import Error

    headers = {name: value for name, _, value in (text.partition("=") for text in header or ())}
    error = Error(error_class, message, None if stack is None else stack.read(), code, headers, topic, group, source)
    verdict = asking(settings_of(home=home)).rulebook.classify(error)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("kind", escape(verdict.kind))
    table.add_row("rule", escape(verdict.rule))
    table.add_row("matched", escape(verdict.matched or "-"))
    for place, (name, text) in enumerate(verdict.causes):
        table.add_row("causes" if place == 0 else "", escape(f"{name or '-'}{': ' + text if text else ''}"))
    for rule in verdict.passed_over:
        table.add_row("passed over", escape(f"{rule}: its message, code or header doesn't match"))
    console().print(table)


@policy.command("try")
def policy_try(
    definition: Annotated[str, typer.Argument(help='"exponential(initial=1s, factor=2, max=60s, jitter=0.3, attempts=5)"')],
    failures: Annotated[int, typer.Option("--failures", min=1, max=1000, help="How many failures to show.")] = 12,
    home: Home = None,
) -> None:
    """Show when a message would be sent again: after each failure the delay, and the time since the first."""
    schedule = asking(settings_of(home=home)).rulebook.schedule_of(definition, failures)
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


def _span(least_ms: int, most_ms: int) -> str:
    return _seconds(least_ms) if least_ms == most_ms else f"{_seconds(least_ms)} to {_seconds(most_ms)}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:,.3f}".rstrip("0").rstrip(".") + " s"
