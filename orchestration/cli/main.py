"""The command line: its groups of commands put together. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import logging
import sys

import typer
from rich.markup import escape

from orchestration.cli import dagster, dlq, dlq_commands, init, rules, run, sequences, tables, verify, waiting
from orchestration.cli.screen import in_a_process_of_its_own, tell
from orchestration.errors import is_ours

app = typer.Typer(help="Retries and dead letters for Kafka, decided in SQL.", no_args_is_help=True, pretty_exceptions_enable=False)

# in the order of `redrive --help`
for command in (
    init.init,
    run.run,
    run.tick,
    rules.check,
    tables.sql,
    rules.explain,
    rules.classify,
    run.status,
    verify.verify,
    tables.maintain,
    run.demo,
):
    app.command()(command)
# its options are those of `dagster dev`
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)(dagster.dagster)
app.command()(run.broker)
app.add_typer(rules.policy, name="policy")
dlq_commands.add_to(dlq.dlq)
app.add_typer(dlq.dlq, name="dlq")
app.add_typer(waiting.waiting, name="waiting")
app.add_typer(sequences.sequences, name="sequences")


def main() -> None:
    """Entry point: an error is shown in a few lines, without a traceback unless the log level is DEBUG."""
    in_a_process_of_its_own()
    try:
        app()
    except Exception as error:
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            raise
        tell.print(f"[red]{'error' if is_ours(error) else type(error).__name__}:[/red] {escape(_in_words(error))}", style="")
        raise SystemExit(getattr(error, "exit_code", 1)) from None


def _in_words(error: Exception) -> str:
    """The text of an error; of one of Spark's, without the JVM's stack, and with what to do if a file of a table is damaged."""
    if is_ours(error) or "pyspark" not in sys.modules:
        return str(error)
    from orchestration.tables.spark import in_short, is_damaged, java_errors

    if not java_errors(error):
        return str(error)
    hint = ". A file of a table is missing or damaged: docs/operations.md, A file is damaged" if is_damaged(error) else ""
    return f"{in_short(error)}{hint}"
