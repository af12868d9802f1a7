"""Options and arguments that several groups of commands share, and the settings that all of them load."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orchestration.log_lines import JsonLines, LogLines
from orchestration.tables.query import Format

if TYPE_CHECKING:
    from orchestration.operators.dead_letters import DeadLetters
    from orchestration.operators.selections import Selection
    from orchestration.operators.sequences import SequenceSelection
    from orchestration.settings import Settings

Output = Annotated[Format, typer.Option("--format", help="json: one array; jsonl: one object a line; csv: with a header line.")]
Home = Annotated[Path | None, typer.Option("--home", help="The directory of the state; also REDRIVE_HOME.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="The most rows to show.")]


def settings_of(**options: object) -> Settings:
    """Loads the settings, which a command's options override, and sets up logging by them."""
    # imported here: `--help` and a wrong option need none, and to import them takes a third of a second
    from orchestration.settings import load_settings

    settings = load_settings(**options)
    level = getattr(logging, settings.log_level.upper())
    logging.basicConfig(level=level, stream=sys.stderr, force=True)
    logging.getLogger().handlers[0].setFormatter(JsonLines() if settings.log_format == "json" else LogLines())
    for noisy in ("py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return settings


# ---------- completed by the shell


def _remembered(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """Completes with what was shown last, because starting Spark would take ten seconds."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        from orchestration.cli.completion import recall
        from orchestration.settings import SettingsError, load_settings

        try:
            known = recall(load_settings(home=ctx.params.get("home")).home)
        except SettingsError:
            return []
        return [text for text in known.get(kind, ()) if text.startswith(incomplete)]

    return complete


def _kept_lists(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the names of lists that dry runs have kept, the latest first."""
    from orchestration.settings import SettingsError, load_settings

    try:
        lists = load_settings(home=ctx.params.get("home")).home / "lists"
    except SettingsError:
        return []
    latest_first = sorted(lists.glob(f"{incomplete}*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.stem for path in latest_first]


# ---------- which messages

MessageId = Annotated[str, typer.Argument(metavar="ID", help="As `dlq list` shows it.", autocompletion=_remembered("message_id"))]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="As `dlq list` shows them.", autocompletion=_remembered("message_id"))
]
Topic = Annotated[
    str | None,
    typer.Option("--topic", help="The original topic; ^ begins a regular expression.", autocompletion=_remembered("original_topic")),
]
_Class = Annotated[
    str | None,
    typer.Option(
        "--class",
        help="Error class, with or without its package; ^ begins a regular expression.",
        autocompletion=_remembered("error_class"),
    ),
]
_Group = Annotated[
    str | None,
    typer.Option("--group", help="The consumer group; ^ begins a regular expression.", autocompletion=_remembered("consumer_group")),
]
_Fingerprint = Annotated[
    str | None, typer.Option("--fingerprint", help="As `dlq groups` shows it.", autocompletion=_remembered("fingerprint"))
]
_State = Annotated[
    Literal["open", "redriven", "recovered", "discarded", "refused", "all"],
    typer.Option(
        "--state",
        help="open: neither redriven nor discarded since it died; redriven: sent again; recovered: sent again and processed; discarded; "
        "refused: the rules allow no destination.",
    ),
]


@dataclass(frozen=True)
class Filters:
    """The options that select dead letters. state: the default differs by command."""

    topic: Topic = None
    error_class: _Class = None
    group: _Group = None
    fingerprint: _Fingerprint = None
    state: _State = "open"
    since: Annotated[str | None, typer.Option("--since", help="Died since: 90s, 30m, 2h, 7d, 4w ago, or 2026-03-01T12:00.")] = None
    where: Annotated[str | None, typer.Option("--where", help="One condition in SQL over the columns of the mart `stranded_messages`.")] = (
        None
    )

    @property
    def is_empty(self) -> bool:
        """Whether no option is given. The state doesn't count, as it has a default."""
        return not any((self.topic, self.error_class, self.group, self.fingerprint, self.since, self.where))

    def selected(self, dead: DeadLetters) -> Selection:
        """The options as a checked selection. --since is checked first, as it needs no Spark."""
        from orchestration.clock import wall_clock
        from orchestration.operators.selections import Selection, parse_since

        since = None if self.since is None else parse_since(self.since, wall_clock())
        for option, wanted in (("--topic", self.topic), ("--class", self.error_class), ("--group", self.group)):
            if wanted is not None and wanted.startswith("^"):
                dead.checked_pattern(option, wanted)
        return Selection(
            state=self.state,
            topic=self.topic,
            error_class=self.error_class,
            group=self.group,
            fingerprint=self.fingerprint,
            since=since,
            where=None if self.where is None else dead.checked(self.where),
        )


@dataclass(frozen=True)
class WaitingFilters:
    """The options that select waiting messages."""

    topic: Topic = None
    error_class: _Class = None
    group: _Group = None
    since: Annotated[str | None, typer.Option("--since", help="Last failed since then; as for `dlq list`.")] = None
    where: Annotated[str | None, typer.Option("--where", help="One condition in SQL over the columns of the mart `messages`.")] = None

    @property
    def filters(self) -> Filters:
        """The same selection as Filters."""
        return Filters(self.topic, self.error_class, self.group, None, "all", self.since, self.where)


@dataclass(frozen=True)
class SequenceFilters:
    """The options that select sequences."""

    topic: Topic = None
    group: _Group = None
    state: Annotated[
        Literal["waiting", "dead", "following", "sent", "all"],
        typer.Option(
            "--state",
            help="waiting: for a retry; dead: for a dead message; following: what waited is to be sent; sent: it is, and not processed.",
        ),
    ] = "all"

    def selected(self, dead: DeadLetters, keys: Sequence[str] | None = None) -> SequenceSelection:
        """The options as a checked selection. keys: names of sequences."""
        from orchestration.operators.sequences import SequenceSelection

        for option, wanted in (("--topic", self.topic), ("--group", self.group)):
            if wanted is not None and wanted.startswith("^"):
                dead.checked_pattern(option, wanted)
        return SequenceSelection(tuple(keys or ()), self.topic, self.group, self.state)


OPEN = Filters()
DISCARDED = Filters(state="discarded")
ANY_STATE = Filters(state="all")
WAITING = WaitingFilters()
ANY_SEQUENCE = SequenceFilters()


@dataclass(frozen=True)
class Choice:
    """Which of the selected messages a command is about, and whether it is sent or only shown."""

    everything: Annotated[bool, typer.Option("--all", help="All messages: needed if no other option selects.")] = False
    most: Annotated[
        int | None,
        typer.Option("--max", min=1, help="Only this many: the dead letters that were due first, or the waiting messages due next."),
    ] = None
    listed: Annotated[
        str | None,
        typer.Option("--list", help="Exactly the list that a dry run has shown; no other option selects then.", autocompletion=_kept_lists),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and keep the list for --list. Do nothing.")] = False


CHOICE = Choice()

WithFollowers = Annotated[
    bool,
    typer.Option(
        "--with-followers", help="Also the messages that are dead only because they follow a selected one: see the mart `followers`."
    ),
]

# ---------- details of a command

Reason = Annotated[str, typer.Option("--reason", help="Why: it is kept with the command.")]
Who = Annotated[str | None, typer.Option("--who", help="Who gives the command. Default: the system's user.")]
Ticket = Annotated[str | None, typer.Option("--ticket", help="A ticket or an address.")]
Rate = Annotated[str | None, typer.Option("--rate", help="50/s, 10/m, 1/h. Default: as fast as it goes.")]
CommandId = Annotated[str, typer.Argument(metavar="COMMAND", help="As `dlq redrive` printed it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and keep the list for --list. Do nothing.")]
