"""The words that are allowed in seeds.

Dialects and kinds of errors are vars of dbt_project.yml, which the SQL reads, too. The other words stand in macros, and are compared with
them by tests/unit/test_vocabulary.py.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from orchestration.settings.sources import installed_project

# read from the installed project, as `project` may name a directory without these vars
_VARS: Final[dict[str, Any]] = yaml.safe_load((installed_project() / "dbt_project.yml").read_text(encoding="utf-8"))["vars"]

DIALECTS: Final[tuple[str, ...]] = tuple(_VARS["dialects"])
ERROR_KINDS: Final[tuple[str, ...]] = tuple(_VARS["error_kinds"])
PUBLISH_KINDS: Final = tuple(kind for kind in ERROR_KINDS if kind != "blocking")
"""The kinds that an error of Kafka's may have: only an application's error can be `blocking`."""
OTHER_KIND_WORDS: Final[tuple[str, ...]] = tuple(word for words in _VARS["error_kinds"].values() for word in words)
"""The names of the kinds in other vocabularies."""
KIND_PRECEDENCE: Final[tuple[str, ...]] = tuple(_VARS["error_kind_precedence"])
"""Of rules that differ only in their kind, the one whose kind comes first here decides."""
HEADER_PROFILES: Final = ("dlq", "safi", "spring", "connect")
"""The header profiles of dead letters. The macro dead_letter_header_names has the headers of each; `+stack` may follow the name."""
NO_TOPIC: Final = "none"
"""The word in place of a dead letter topic if messages that die are parked, the same as in the macro no_topic."""
EVERYTHING: Final = "everything"
"""The privacy that keeps and shows all, and needs no row: the model privacy_read adds it."""
CONCERNS: Final = ("record", "topic", "connection")
"""What an error of Kafka's may concern, the same as in publisher/errors.py."""
TOPIC_PLACEHOLDERS: Final = ("topic", "group", "kind")
"""The placeholders in the template of a destination, the same as in the macro topic_from_template."""
LINK_PLACEHOLDERS: Final = (
    *("message_id", "topic", "partition", "offset", "group", "class", "request_id", "process_id", "trace_id"),
    *("time", "time_ms", "from", "from_ms", "to", "to_ms"),
)
"""The placeholders in the template of a link, the same as in the macro link_placeholders."""
