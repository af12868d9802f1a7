"""dbt's manifest of the project: another process parses the project if it has changed; else the manifest is read from the home."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from orchestration.files import copy_if_there
from orchestration.settings import Settings

Manifest = Mapping[str, Any]

# The files that a manifest is made from, relative to the project.
_PARSED = ("dbt_project.yml", "profiles.yml", "models/**/*", "macros/**/*", "dbt_project/**/*")
_SECONDS = 120


class ManifestError(Exception):
    """dbt can't parse the project. The message is dbt's."""


def load_manifest(settings: Settings) -> Manifest:
    """The manifest of the project as it is now.

    Parsing imports pyspark (dbt's adapter does) and takes seconds, so it happens in a process of its own, and only when something that
    it reads has changed. Raises ManifestError.
    """
    path = settings.home / "dagster" / "manifest" / f"{_digest(settings)[:16]}.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = _parse(settings, path)
    manifest: Manifest = json.loads(text)
    return manifest


def _parse(settings: Settings, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as target:
        arguments = [
            *(sys.executable, "-m", "dbt.cli.main", "parse", "--quiet", "--no-use-colors", "--log-level-file", "none"),
            *("--project-dir", str(settings.dbt_directory), "--profiles-dir", str(settings.project)),
            *("--target-path", target, "--log-path", target),
        ]
        environment = {**os.environ, **settings.dbt_environment}
        # dbt then parses only what differs from what the loop has parsed
        copy_if_there(settings.parsed_project, Path(target))
        try:
            done = subprocess.run(
                arguments, cwd=settings.dbt_directory, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ManifestError(f"dbt has not parsed {settings.dbt_directory} within {_SECONDS} s") from error
        if done.returncode != 0:
            raise ManifestError(f"dbt can't parse {settings.dbt_directory}:\n{(done.stdout + done.stderr).strip()}")
        # several processes may do this at once: each moves a complete file into place, and the files are equal
        text = (Path(target) / "manifest.json").read_text(encoding="utf-8")
        os.replace(Path(target) / "manifest.json", path)
    for old in path.parent.glob("*.json"):
        if old != path:
            # another process may do the same to this file: what was read above is returned
            old.unlink(missing_ok=True)
    return text


def _digest(settings: Settings) -> str:
    """A hash of all that the manifest depends on: the project's files, the settings that they read, and dbt's version."""
    digest = hashlib.sha256(version("dbt-core").encode())
    for name, content in _parsed(settings):
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _parsed(settings: Settings) -> Iterator[tuple[str, bytes]]:
    for pattern in _PARSED:
        for path in sorted(settings.dbt_directory.glob(pattern)):
            if path.is_file():
                yield path.relative_to(settings.dbt_directory).as_posix(), path.read_bytes()
    for path in sorted(settings.seeds.glob("*")):
        if path.is_file():
            yield str(path), path.read_bytes()
    for name in ("REDRIVE_SCHEMA", "REDRIVE_TARGET"):
        yield name, os.environ.get(name, "").encode()
