"""Which seeds the tables of a home have, so that a test which changes one loads no others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from orchestration.tables.dbt import Dbt


@dataclass
class LoadedSeeds:
    """The files of a directory, as they were when they were loaded. A file that is not among them may have been loaded or not."""

    directory: Path
    dbt: Dbt
    loaded: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def all(cls, directory: Path, dbt: Dbt) -> LoadedSeeds:
        """All files have been loaded, as they are."""
        return cls(directory, dbt, _contents(directory))

    def load(self) -> None:
        """Loads the files that have changed, and makes the rules of them. Raises DbtError."""
        before, now = self.loaded, _contents(self.directory)
        changed = sorted(name for name, content in now.items() if content != before.get(name))
        if changed:
            # of a load that fails it isn't known which tables it has made
            self.loaded = {}
            self.dbt.run("seed", select=changed)
            # rules that can't be made stay as they were: the seeds are different then, and are loaded again with what is right
            self.loaded = now
            self.dbt.run("run", select=["rules"])


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in directory.iterdir()}
