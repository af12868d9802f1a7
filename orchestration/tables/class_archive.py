"""The archive of Spark's classes: a JVM that ends writes the classes that it has loaded, and later ones map that file.

Spark loads some twenty thousand classes while it starts. Reading, parsing and verifying them takes half of the start; from an archive they
are ready to use. Java (17 and later) checks that an archive belongs to its own version and class path, and goes without where it doesn't.
docs/decisions/0055 has the measurements.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from orchestration.files import cache_directory, remove_unused
from orchestration.java import java_program

# The first bytes of an archive. Java writes them last: an archive whose JVM was killed while it wrote has none.
_MAGIC = b"\xa8\xab\x0b\xf0"

# For this long after a JVM has started with the option to write an archive at its end, no other one gets that option: some writes of 170 MB
# at once would slow all down. A JVM that runs longer, such as the loop's, no longer counts: all other starts would go without. In seconds.
_WRITES_FOR = 300


@dataclass(frozen=True)
class ClassArchive:
    """An archive in a directory that processes share. key: of everything that the archive depends on; another key is another archive."""

    directory: Path
    key: str

    def option(self) -> str | None:
        """The option for a JVM that starts: to use the archive or, if there is none, to write it at its end.

        None if another JVM has got the option to write it a short while ago, or if the directory can't be used.
        """
        with suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._tidy()
            if self._archive.is_file():
                os.utime(self._archive)
                return _quoted(f"-XX:SharedArchiveFile={self._archive}")
            if not any(self.directory.glob(f"{self.key}.*.part")):
                # the JVM ends after this process: what it has written is taken by the next start
                part = self.directory / f"{self.key}.{os.getpid()}-{time.time_ns()}.part"
                part.touch()
                return _quoted(f"-XX:ArchiveClassesAtExit={part}")
        return None

    @property
    def _archive(self) -> Path:
        return self.directory / f"{self.key}.jsa"

    def _tidy(self) -> None:
        now = time.time()
        for part in self.directory.glob("*.part"):
            with part.open("rb") as file:
                is_whole = file.read(len(_MAGIC)) == _MAGIC
            if is_whole:
                part.replace(self.directory / f"{part.name.partition('.')[0]}.jsa")
            elif part.stat().st_mtime < now - _WRITES_FOR:
                part.unlink(missing_ok=True)
        # such as those of an earlier Java
        remove_unused(self.directory, "*.jsa")


def class_archive(packages: str) -> ClassArchive | None:
    """The archive for this Java, this PySpark and these packages. None if there is no Java on the path, or no place for files."""
    java = java_program()
    with suppress(OSError, RuntimeError):
        if java is not None:
            program = Path(java).resolve()
            facts = (program, program.stat().st_mtime_ns, pyspark.__version__, pyspark.__file__, packages)
            return ClassArchive(cache_directory() / "classes", hashlib.sha256(repr(facts).encode()).hexdigest()[:16])
    return None


def _quoted(option: str) -> str | None:
    """The option as a word among the options of a JVM, which Spark splits at blanks."""
    return None if '"' in option or "\\" in option else f'"{option}"'
