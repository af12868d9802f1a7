"""What the pages and comments refer to exists: linked pages, their headings, and files of the repository; folders only where linked."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = {".md", ".py", ".sql", ".yml", ".toml", ".csv"}
PAGES = sorted(path for path in (ROOT, ROOT / "docs", ROOT / "docs" / "decisions") for path in path.glob("*.md"))
# what begins a path of the repository, where a text names one; a decision tells what was there on its day, and the changelog, too
FOLDERS = ("models", "macros", "publisher", "orchestration", "dbt_project", "docs", "bench", "examples", "tests")
NAMED = re.compile(rf"(?<![\w/.~-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w\.(?:sql|py|yml|md|csv|png))\b")


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.+?)\s*$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.append(anchor if anchor not in found else f"{anchor}-{found.count(anchor)}")
    return {*found, *re.findall(r'<a (?:id|name)="([^"]+)"', text)}


def links(page: Path) -> list[tuple[str, str]]:
    """File and anchor of each link to something in the repository."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [(link.partition("#")[0], link.partition("#")[2]) for link in found if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_link_of_a_page_leads_somewhere(page: Path) -> None:
    dead = []
    for file, anchor in links(page):
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(f"{file}#{anchor}" if anchor else file)
    assert dead == []


def test_each_file_that_a_text_names_is_there() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    missing = []
    for name in listed:
        path = ROOT / name
        if path.suffix not in TEXTS or not path.is_file() or name == "CHANGELOG.md" or name.startswith(("docs/decisions/", "tests/")):
            continue
        for named in NAMED.findall(path.read_text(encoding="utf-8")):
            # relative to a page, or to the repository's root; with a placeholder in it, it is no name
            if "<" not in named and not (ROOT / named).exists() and not (path.parent / named).exists():
                missing.append(f"{name}: {named}")
    assert missing == []
