"""Reads and checks the seed files before anything is loaded. seed_columns checks single cells, seed_references compares rows."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from orchestration.rules.seed_columns import COLUMNS, DEFAULTS, FORMER_NAMES, Check
from orchestration.rules.seed_references import contradictions
from orchestration.rules.seed_rows import Row, Seeds

__all__ = ["Row", "SeedError", "Seeds", "read_seeds"]


class SeedError(Exception):
    """The seeds can't be used: one line for each problem, with file, line, value, and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


def read_seeds(directory: Path) -> Seeds:
    """Reads and checks all seeds. Raises SeedError with every problem found, not only the first."""
    problems: list[str] = []
    rows: dict[str, tuple[Row, ...]] = {}
    digest = hashlib.sha256()
    for name, columns in COLUMNS.items():
        path = directory / f"{name}.csv"
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            problems.append(f"{path}: is missing; without rows it is this line: {','.join(columns)}")
            continue
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{path}: can't be read: {error}")
            continue
        digest.update(f"{name}\n{text}\n".encode())
        try:
            rows[name] = tuple(_read(path, text, columns, problems))
        except csv.Error as error:
            problems.append(f"{path}: can't be read as CSV: {error}; is there a quote that nothing closes?")
    if not problems:
        problems += contradictions(directory, rows)
    if problems:
        raise SeedError(problems)
    return Seeds(rows, digest.hexdigest())


def _read(path: Path, text: str, columns: Mapping[str, Check], problems: list[str]) -> Iterator[Row]:
    # as dbt reads it: a cell between quotes may hold line breaks, and only \n ends a line
    reader = csv.reader(io.StringIO(text))
    former = FORMER_NAMES.get(path.stem, {})
    header = [former.get(name, name) for name in next(reader, [])]
    optional = DEFAULTS.get(path.stem, {})
    if len(set(header)) < len(header) or set(header) - optional.keys() != columns.keys() - optional.keys():
        allowed = ", ".join([name for name in columns if name not in optional] + [f"{name} (may be left out)" for name in optional])
        wrong = "; ".join(_column_names(header, columns, optional))
        problems.append(f"{path}:1: the columns are {', '.join(header) or 'none'}; they must be {allowed}: {wrong}")
        return
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            problems.append(f"{path}:{reader.line_num}: has {len(cells)} values, the header has {len(header)} columns")
            continue
        given = {column: cell.strip() for column, cell in zip(header, cells, strict=True) if cell.strip() or column not in optional}
        row = Row(reader.line_num, {**optional, **given})
        for column, value in given.items():
            if value.lower() == "null":
                problems.append(f"{path}:{row.line}: {column} is {value!r}: dbt takes this word for an empty cell; leave the cell empty")
        for column, check in columns.items():
            objection = check(row[column])
            if objection:
                problems.append(f"{path}:{row.line}: {column} is {row[column]!r}: {objection}")
        yield row


def _column_names(header: list[str], columns: Iterable[str], optional: Iterable[str]) -> Iterator[str]:
    """What is wrong with each name in the first line of a seed, and what is missing there."""
    for place, name in enumerate(header):
        if name in header[:place]:
            yield f"the column {name!r} appears twice"
        elif name not in columns and name.strip() in columns:
            yield f"the column {name!r} has blanks around its name: it must be {name.strip()!r}, as dbt takes them for a part of it"
        elif name not in columns:
            near = difflib.get_close_matches(name.strip().lower(), [*columns], n=1)
            yield f"there is no column {name!r}{f'; did you mean {near[0]!r}?' if near else ''}"
    written = {name.strip() for name in header}
    for name in columns:
        if name not in written and name not in optional:
            yield f"the column {name!r} is missing"
