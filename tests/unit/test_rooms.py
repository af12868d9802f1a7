"""The folders of orchestration/ have an order: what one imports doesn't import it, not even in the middle of a function."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ORCHESTRATION = Path(__file__).parents[2] / "orchestration"


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
    rooms: dict[str, set[str]] = {}
    for path in sorted(ORCHESTRATION.rglob("*.py")):
        room = path.relative_to(ORCHESTRATION).parts[0].removesuffix(".py")
        rooms.setdefault(room, set()).update(imported(path) - {room})
    assert {"loop", "kafka", "tables"} <= rooms.keys()
    assert rooms["loop"] >= {"kafka", "tables"}
    # raises CycleError, which names the circle
    order = list(TopologicalSorter(rooms).static_order())
    assert order.index("output") < order.index("kafka") < order.index("loop") < order.index("cli")
