"""The rows of seeds, as files have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One row of a seed file: its values by column, and its line in the file."""

    line: int
    values: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.values[column]


@dataclass(frozen=True)
class Seeds:
    """All seeds by name, and a digest of their files: another digest means that they must be loaded again."""

    rows: Mapping[str, tuple[Row, ...]]
    digest: str
