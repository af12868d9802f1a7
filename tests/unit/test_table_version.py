"""The version of the tables, which SQL writes into new ones and Python into those of before."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from orchestration.tables.migration import _RENAMED, _TABLES, TABLE_VERSION

PROJECT = Path(__file__).parents[2]


def test_sql_and_python_have_the_same_version() -> None:
    macro = (PROJECT / "macros" / "materializations" / "table_version.sql").read_text(encoding="utf-8")
    assert re.findall(r"return\((\d+)\)", macro) == [str(TABLE_VERSION)]
    assert max(_RENAMED) == TABLE_VERSION


def test_what_is_renamed_is_described_under_its_present_name() -> None:
    described: dict[str, set[str]] = {}
    for path in (PROJECT / "models").glob("**/*.yml"):
        for model in (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("models", ()):
            described[model["name"]] = {column["name"] for column in model.get("columns", ())}
    present: dict[tuple[str, str], str] = {}
    for _, tables in sorted(_RENAMED.items()):
        assert tables.keys() <= set(_TABLES)
        for table, columns in tables.items():
            top = {old: new for old, new in columns.items() if "." not in old}
            # a column may be renamed again
            present |= {key: top[name] for key, name in present.items() if key[0] == table and name in top}
            present |= {(table, old): new for old, new in top.items()}
    for (table, old), new in present.items():
        assert new in described[table]
        assert old not in described[table]
