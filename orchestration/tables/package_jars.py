"""The jars of Spark's packages, as a first start has resolved them: they are on the class path, and need not be resolved again.

That saves the second that Spark takes to resolve packages it has already, and a copy of them for tasks; and the classes in these jars
can come from the archive of classes: Java archives what is on the class path only. docs/decisions/0066 has the measurements.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyspark

from orchestration.files import cache_directory, write_atomically

_PACKAGES = "spark.jars.packages"
_CLASS_PATH = "spark.driver.extraClassPath"


@dataclass(frozen=True)
class PackageJars:
    """The jars of one list of packages. file: where their paths are kept, one a line. provided: the directory of Spark's own jars."""

    file: Path
    provided: Path

    def class_path(self) -> str | None:
        """The jars, as a class path; None if they are not known, or one of them is gone: Spark resolves the packages then."""
        with suppress(OSError, UnicodeDecodeError):
            jars = self.file.read_text(encoding="utf-8").splitlines()
            if jars and all(Path(jar).is_file() for jar in jars):
                return os.pathsep.join(jars)
        return None

    def keep(self, resolved: str) -> None:
        """Keeps what a start has resolved. resolved: addresses of files, separated by commas, as in Spark's `spark.jars`.

        Without the jars that Spark has itself: on the class path, the others' would come before its own.
        """
        jars = [Path(unquote(urlsplit(address).path)) for address in resolved.split(",") if address]
        # Spark resolves org.example:name:1.0 to a file org.example_name-1.0.jar
        others = [jar for jar in jars if not (self.provided / jar.name.partition("_")[2]).exists()]
        if others and all(jar.is_file() and os.pathsep not in str(jar) for jar in jars):
            with suppress(OSError):
                self.file.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self.file, "".join(f"{jar}\n" for jar in others))


def package_jars(configuration: Mapping[str, str]) -> PackageJars | None:
    """The jars of a configuration's packages. None where they can't be put on the class path.

    On a cluster, executors in processes of their own need them, too, and Spark sends them. A user who adds jars, or has a Spark that is
    configured elsewhere, may have a class path already.
    """
    is_local = configuration.get("spark.master", "").startswith("local")
    has_own = bool({"spark.jars", _CLASS_PATH} & configuration.keys() or {"SPARK_HOME", "SPARK_CONF_DIR"} & os.environ.keys())
    if not is_local or not configuration.get(_PACKAGES) or has_own:
        return None
    settings = sorted((name, value) for name, value in configuration.items() if name.startswith("spark.jars."))
    key = hashlib.sha256(repr((pyspark.__version__, settings)).encode()).hexdigest()[:16]
    with suppress(OSError, RuntimeError):
        return PackageJars(cache_directory() / "packages" / f"{key}.txt", Path(pyspark.__file__).parent / "jars")
    return None


def on_the_class_path(configuration: Mapping[str, str], class_path: str) -> dict[str, str]:
    """A configuration with jars on the class path, in place of packages."""
    return {**{name: value for name, value in configuration.items() if name != _PACKAGES}, _CLASS_PATH: class_path}
