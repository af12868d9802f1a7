"""`redrive dagster`: `dagster dev` with an instance that keeps its history, and has no telemetry."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from orchestration.settings import Settings
from orchestration.settings.sources import PREFIX, file_from

_INSTANCE = Path(__file__).with_name("dagster.yaml")

# the options of `dagster dev` that choose what to load
_CHOOSING = frozenset(
    [
        *("-m", "--module-name", "-f", "--python-file", "--package-name", "-w", "--workspace", "--empty-workspace"),
        *("--grpc-port", "--grpc-socket"),
    ]
)


def serve(settings: Settings, arguments: Sequence[str]) -> None:
    """Replaces this process by `dagster dev`, which then gets the signals, and whose exit code is that of the command."""
    environment = environment_of(settings)
    print(f"DAGSTER_HOME is {environment['DAGSTER_HOME']}", file=sys.stderr, flush=True)
    os.chdir(settings.project)
    chosen = any(argument.partition("=")[0] in _CHOOSING for argument in arguments)
    what = () if chosen or _names_what_to_load(Path("pyproject.toml")) else ("--module-name", "orchestration.definitions")
    os.execve(sys.executable, [sys.executable, "-m", "dagster", "dev", *what, *arguments], environment)


def _names_what_to_load(file: Path) -> bool:
    """Whether it is a pyproject.toml for Dagster, as that of a clone is. One of an application, beside the rules, is not."""
    try:
        return "dagster" in tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError):
        return False


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment for Dagster: DAGSTER_HOME, and the settings that depend on the current directory, which `serve` changes.

    If DAGSTER_HOME is set, it stays. Otherwise it is a directory in the home, which gets a copy of dagster.yaml if it has none.
    """
    paths = {"REDRIVE_HOME": settings.home, "REDRIVE_PROJECT": settings.project, "REDRIVE_SEEDS": settings.seeds}
    files = {name: file_from(Path.cwd(), value) for name, value in os.environ.items() if name.startswith(PREFIX)}
    environment = {**os.environ, **files, **{name: str(path) for name, path in paths.items()}}
    if config := os.environ.get("REDRIVE_CONFIG"):
        environment["REDRIVE_CONFIG"] = str(Path(config).absolute())
    elif (file := Path("redrive.toml").absolute()).is_file():
        environment["REDRIVE_CONFIG"] = str(file)
    if not os.environ.get("DAGSTER_HOME"):
        home = settings.make_home() / "dagster"
        home.mkdir(exist_ok=True)
        if not (home / _INSTANCE.name).exists():
            shutil.copyfile(_INSTANCE, home / _INSTANCE.name)
        environment["DAGSTER_HOME"] = str(home)
    return environment
