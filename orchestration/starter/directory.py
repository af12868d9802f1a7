"""Makes a directory for the rules and settings of an installed redrive, in which dbt works, too.

dbt reads the models from `installed`, a link to the installed project. It must be a link: dbt writes compiled models into its target
directory by their paths, and with a model path that is absolute, or leads upwards, it would overwrite the installed models.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from orchestration.settings import Settings
from orchestration.settings.sources import installed_project

LINK: Final = "installed"
_TEMPLATES: Final = Path(__file__).parent

# lines of dbt_project.yml in a clone, and what replaces them in such a directory
_PATHS: Final = {
    "model-paths: [models]": f"model-paths: [{LINK}/models]",
    "macro-paths: [macros]": f"macro-paths: [{LINK}/macros]",
    "'dbt_project/seeds'": "'seeds'",
    "test-paths: [dbt_project/data_tests]": f"test-paths: [{LINK}/dbt_project/data_tests]",
    "analysis-paths: [dbt_project/analyses]": f"analysis-paths: [{LINK}/dbt_project/analyses]",
}
_HEAD: Final = f"""\
# What dbt needs to work in this directory. The loop runs the installed project and takes the variables under `vars` from here.
# `{LINK}` is a link to the installed project: `redrive init` and `redrive run` make it.
"""


class StarterError(Exception):
    """The directory can't be written, or has files that would be overwritten."""


def make_directory(directory: Path) -> list[Path]:
    """Writes the files of a new directory; returns them. If one of them exists, raises StarterError and writes none.

    In a directory made by `redrive init` the link is renewed in any case, as its target differs between machines.
    """
    files = _files()
    there = sorted(name for name in files if (directory / name).exists() or (directory / name).is_symlink())
    try:
        if there:
            renewed = link_installed(directory)
            raise StarterError(
                f"{directory} has {', '.join(there)} already: nothing was written"
                + (f", except for the link {LINK}, which now leads to {installed_project()}" if renewed else "")
            )
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        link_installed(directory)
    except OSError as error:
        raise StarterError(f"{error.filename or directory}: {error.strerror}") from None
    return [directory / name for name in files]


def link_installed(directory: Path) -> bool:
    """Creates or renews the link in a directory made by `redrive init`; returns whether it has changed. Raises OSError."""
    link, target = directory / LINK, installed_project()
    if not _is_ours(directory) or (link.is_symlink() and link.readlink() == target):
        return False
    link.unlink(missing_ok=True)
    link.symlink_to(target, target_is_directory=True)
    return True


def relink(settings: Settings) -> None:
    """Renews the link in the project's directory, if `redrive init` made it. The loop itself needs no link, so errors are ignored."""
    with suppress(OSError):
        link_installed(settings.project)


def _is_ours(directory: Path) -> bool:
    project = directory / "dbt_project.yml"
    return project.is_file() and f"[{LINK}/models]" in project.read_text(encoding="utf-8")


def _files() -> dict[str, str]:
    """The text of each file, by its path in the directory."""
    project = installed_project()
    dbt_project = (project / "dbt_project.yml").read_text(encoding="utf-8")
    for of_a_clone, of_ours in _PATHS.items():
        if dbt_project.count(of_a_clone) != 1:
            raise StarterError(f"{project / 'dbt_project.yml'} does not have {of_a_clone!r} once")
        dbt_project = dbt_project.replace(of_a_clone, of_ours)
    seeds = sorted((project / "dbt_project" / "seeds").glob("*.csv"))
    return {
        "README.md": _template("README.md"),
        "redrive.toml": _template("settings.toml"),
        "dbt_project.yml": _HEAD + dbt_project,
        "profiles.yml": (project / "profiles.yml").read_text(encoding="utf-8"),
        ".gitignore": _template("gitignore"),
        **{f"seeds/{path.name}": path.read_text(encoding="utf-8") for path in seeds},
        # creates the directory, which the file of a JDBC catalog needs if `dbt build` runs before the loop
        ".redrive/.gitignore": "*\n!.gitignore\n",
    }


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
