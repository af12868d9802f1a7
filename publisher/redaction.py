"""Keeps secrets out of error texts: those end up in tables, logs and tickets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_SECRET_NAME: Final = re.compile(r"password|passwd|secret|token|credential|jaas|private|\.key\.|\.key$|oauthbearer\.config", re.I)
_MASK: Final = "***"

# Long enough for any reason, short enough for a column that people read.
_LONGEST: Final = 500


def redact(text: str, kafka: Mapping[str, str]) -> str:
    """`text` with the value of every secret property of `kafka` masked, on one line, at most 500 characters long."""
    # The longest first: a secret may be part of another.
    for secret in sorted((v for k, v in kafka.items() if v and _SECRET_NAME.search(k)), key=len, reverse=True):
        text = text.replace(secret, _MASK)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
