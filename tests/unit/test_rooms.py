"""What keeps the code easy to find: the folders of orchestration/ have an order, and modules, functions and models are short."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

PROJECT = Path(__file__).parents[2]
ORCHESTRATION = PROJECT / "orchestration"

# What is longer than other modules, functions or models says so, and why, with these words.
REASON = "onger than other"


def imported(path: Path) -> set[str]:
    """The folders, or modules beside them, that a module imports. What only a type checker imports doesn't count."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("orchestration."):
            found.add(node.module.split(".")[1])
        waiting += ast.iter_child_nodes(node)
    return found


def test_no_folder_imports_one_that_imports_it() -> None:
    """What one folder imports doesn't import it, not even in the middle of a function."""
    rooms: dict[str, set[str]] = {}
    for path in sorted(ORCHESTRATION.rglob("*.py")):
        room = path.relative_to(ORCHESTRATION).parts[0].removesuffix(".py")
        rooms.setdefault(room, set()).update(imported(path) - {room})
    assert {"loop", "kafka", "tables"} <= rooms.keys()
    assert rooms["loop"] >= {"kafka", "tables"}
    # raises CycleError, which names the circle
    order = list(TopologicalSorter(rooms).static_order())
    assert order.index("output") < order.index("kafka") < order.index("loop") < order.index("cli")


def test_what_is_longer_than_others_says_why() -> None:
    modules = [path for room in ("bench", "orchestration", "publisher", "tests") for path in (PROJECT / room).rglob("*.py")]
    models = [*(PROJECT / "models").rglob("*.sql")]
    assert len(modules) > 100
    assert len(models) > 50
    too_long: list[str] = []
    for paths, most in ((modules, 350), (models, 120)):
        for path in paths:
            lines = path.read_text(encoding="utf-8").splitlines()
            if len(lines) > most and not any(REASON in line for line in lines[:20]):
                too_long.append(f"{path.relative_to(PROJECT)}: {len(lines)} lines")
    for path in modules:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                source = text.splitlines()[node.lineno - 1 : node.end_lineno]
                if len(source) > 60 and REASON not in "\n".join(source):
                    too_long.append(f"{path.relative_to(PROJECT)}: {node.name}: {len(source)} lines")
    assert too_long == []
