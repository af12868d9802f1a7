"""`redrive init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from orchestration.cli.screen import tell


def init(directory: Annotated[Path, typer.Argument(metavar="DIR", help="Created if it doesn't exist.")]) -> None:
    """Write rules, settings and a dbt project to edit into a directory. If one of the files exists, only the link `installed` is made."""
    from orchestration.starter.directory import make_directory

    made = make_directory(directory.expanduser())
    for path in made:
        print(path)
    tell.print(escape(f"\nedit {directory / 'seeds' / 'sources.csv'} and {directory / 'redrive.toml'}; README.md there says how to go on"))
