"""The Java that Spark and the demo's broker run with."""

from __future__ import annotations

import os
import shutil


def java_program() -> str | None:
    """The path of Java: that of JAVA_HOME if it is set, else of the PATH. None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
