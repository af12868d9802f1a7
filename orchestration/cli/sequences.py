"""`redrive sequences`: shows sequences that are held, and commands about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.bundles import with_bundles
from orchestration.cli.commanding import carry_out, who_asks
from orchestration.cli.options import ANY_SEQUENCE, Home, Limit, Output, Reason, SequenceFilters, Ticket, Who, settings_of
from orchestration.cli.screen import asking, print_found, tell
from orchestration.output import printable

if TYPE_CHECKING:
    from orchestration.answers.asking import Asking
    from orchestration.operators.commands import CommandRequest
    from orchestration.operators.lists import Target
    from orchestration.operators.sequences import SequenceSelection

sequences = typer.Typer(help="List sequences in which a message has failed; go on without it.", no_args_is_help=True)

Key = Annotated[str, typer.Argument(metavar="SEQUENCE", help="As `sequences list` shows it: group:topic/partition/id.")]
Keys = Annotated[
    list[str] | None, typer.Argument(metavar="[SEQUENCE]...", help="As `sequences list` shows them: group:topic/partition/id.")
]
Everything = Annotated[bool, typer.Option("--all", help="All sequences: needed if nothing else selects.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Do nothing.")]


@sequences.command("list")
@with_bundles
def sequences_list(filters: SequenceFilters = ANY_SEQUENCE, output: Output = "table", limit: Limit = 50, home: Home = None) -> None:
    """List sequences in which a message has failed and is not processed yet, or is dead; the one held longest first."""
    from orchestration.operators.rendering import sequence_table
    from orchestration.operators.sequences import listed

    settings = settings_of(home=home)
    asked = asking(settings)
    rows = asked.tables.select(listed(filters.selected(asked.dead_letters)), limit)
    print_found(settings, rows, output, sequence_table, "no sequence matches: none is held")


@sequences.command("show")
def sequences_show(key: Key, output: Output = "table", limit: Limit = 50, home: Home = None) -> None:
    """Show the messages of a sequence that are not processed, in its order."""
    from orchestration.operators.rendering import member_table
    from orchestration.operators.sequences import members

    settings = settings_of(home=home)
    rows = asking(settings).tables.select(members(key), limit)
    print_found(settings, rows, output, member_table, f"{printable(key)} is not held")


def _add_command(name: str, does: str, find: Callable[[Asking, SequenceSelection], Mapping[str, Sequence[Target]]]) -> None:
    """Adds a command about sequences. find: the deliveries that commands are to list, by what these want."""

    def say(
        reason: Reason,
        keys: Keys = None,
        filters: SequenceFilters = ANY_SEQUENCE,
        everything: Everything = False,
        ticket: Ticket = None,
        who: Who = None,
        dry_run: DryRun = False,
        home: Home = None,
    ) -> None:
        from orchestration.operators.commands import CommandRequest

        asked = _asked(home, dry_run=dry_run)
        found = find(asked, _chosen(asked, keys, filters, everything=everything))
        _give(asked, {CommandRequest(what, reason, who_asks(who), ticket): listed for what, listed in found.items()}, dry_run=dry_run)

    sequences.command(name, help=does)(with_bundles(say))


def _to_release(asked: Asking, selection: SequenceSelection) -> Mapping[str, Sequence[Target]]:
    from orchestration.operators.sequences import to_release

    return {"in_turn": to_release(asked.dead_letters, selection)}


def _to_skip(asked: Asking, selection: SequenceSelection) -> Mapping[str, Sequence[Target]]:
    from orchestration.operators.sequences import left_out, to_skip

    found = to_skip(asked.dead_letters, selection)
    for text in left_out(asked.dead_letters, selection, [one for listed in found.values() for one in listed]):
        tell.print(f"left out: {printable(text)}", markup=False, highlight=False)
    return found


_add_command(
    "release",
    "Send the messages that wait now, without the one that has failed. That one stays as it is, and later ones wait for it.",
    _to_release,
)
_add_command(
    "skip",
    "End the first message that has failed: cancel it if it waits for its retry, discard it if it is dead. The next ones go on.",
    _to_skip,
)


def _asked(home: Path | None, *, dry_run: bool) -> Asking:
    settings = settings_of(home=home)
    if not dry_run:
        settings.require_brokers()
    return asking(settings)


def _chosen(asked: Asking, keys: list[str] | None, filters: SequenceFilters, *, everything: bool) -> SequenceSelection:
    from orchestration.operators.commands import CommandError

    if not (keys or filters.topic or filters.group or everything):
        raise CommandError("no sequences are selected: name some, or give --topic, --group or --all; --state alone selects nothing")
    return filters.selected(asked.dead_letters, keys)


def _give(asked: Asking, commands: Mapping[CommandRequest, Sequence[Target]], *, dry_run: bool) -> None:
    """Gives the commands that list anything."""
    from orchestration.operators.commands import check_request
    from orchestration.rules.seeds import read_seeds

    seeds = read_seeds(asked.settings.seeds)
    if not any(commands.values()):
        tell.print("no message of these sequences is in a state that this command changes: nothing is done")
        raise typer.Exit(1)
    for request, listed in commands.items():
        if listed:
            check_request(asked.settings, seeds, request)
            carry_out(asked, request, listed, dry_run=dry_run, keeps=False)
