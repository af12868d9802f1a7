"""The package's public face, what it may know of, and how large it may grow."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import publisher

PROJECT = Path(__file__).parents[2]
MODULES = sorted((PROJECT / "publisher").glob("*.py"))


def imports_of(path: Path) -> list[tuple[str, str]]:
    """What a file imports, wherever in it: (module, name)."""
    tree = ast.parse(path.read_text())
    named = [(node.module or "", name.name) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names]
    return named + [(name.name, "") for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]


def test_the_public_names_are_those_that_orchestration_uses() -> None:
    used = [found for path in (PROJECT / "orchestration").rglob("*.py") for found in imports_of(path)]

    assert sorted(publisher.__all__) == sorted({name for module, name in used if module == "publisher"})
    assert [module for module, _ in used if module.startswith("publisher.")] == []
    assert sorted(publisher._MODULE_OF) == sorted(publisher.__all__)


@pytest.mark.parametrize("name", publisher.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(publisher, name) is not None


def test_it_knows_kafka_and_arrow_and_nothing_of_the_rest() -> None:
    script = (
        "import sys, publisher; [getattr(publisher, name) for name in publisher.__all__]; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )

    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert {"confluent_kafka", "pyarrow"} <= set(loaded)
    assert not {"dagster", "dbt", "orchestration", "pandas", "pyspark"} & set(loaded)


@pytest.mark.parametrize("script", ["from publisher import masked, is_secret", "import orchestration.settings, orchestration.output"])
def test_who_asks_what_is_secret_waits_for_neither_arrow_nor_kafka(script: str) -> None:
    script = f"import sys; {script}; print(*{{name.partition('.')[0] for name in sys.modules}})"

    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT).stdout.split()

    assert not {"confluent_kafka", "pyarrow"} & set(loaded)


def test_no_module_imports_itself_by_way_of_others() -> None:
    names = {path.stem for path in MODULES} - {"__init__"}
    graph = {
        path.stem: {part for module, name in imports_of(path) for part in (module.removeprefix("publisher."), name) if part in names}
        for path in MODULES
        if path.stem != "__init__"
    }

    assert len(list(TopologicalSorter(graph).static_order())) == len(names)


def test_it_is_thin() -> None:
    lines = {path.name: len(path.read_text().splitlines()) for path in MODULES}

    assert len(lines) <= 16
    assert max(lines.values()) <= 350
    assert sum(lines.values()) <= 2_400
    functions = [node for path in MODULES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    assert [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= 60] == []
