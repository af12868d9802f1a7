"""Which seeds the tables of a home have, so that a test which changes one loads no others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestration.tables.dbt import Dbt


@dataclass
class LoadedSeeds:
    """The files of a directory as they were when they were loaded, by name. What is not among them is loaded by the next `load`."""

    directory: Path
    dbt: Dbt
    loaded: dict[str, bytes]

    @classmethod
    def all(cls, directory: Path, dbt: Dbt) -> LoadedSeeds:
        """All files have been loaded, as they are."""
        return cls(directory, dbt, _contents(directory))

    def load(self) -> None:
        """Loads the files that have changed, and makes the rules of them. Raises DbtError."""
        before, now = self.loaded, _contents(self.directory)
        changed = sorted(name for name, content in now.items() if content != before.get(name))
        if changed:
            # a load that fails may have made some of the tables: all files are loaded again then
            self.loaded = {}
            self.dbt.run("seed", select=changed)
            # before the rules, which may be refused: the tables have those seeds all the same, until the files are right again
            self.loaded = now
            self.dbt.run("run", select=["rules"])


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in directory.iterdir()}
