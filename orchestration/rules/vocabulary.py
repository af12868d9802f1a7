"""The words that are allowed in seeds.

They are vars of dbt_project.yml, which the SQL reads, too. Placeholders stand here and in macros, which do something else with each of
them, so that a var would be one more copy; tests/unit/test_vocabulary.py compares the two.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from orchestration.settings.sources import installed_project

# read from the installed project, as `project` may name a directory without these vars
VARS: Final[dict[str, Any]] = yaml.safe_load((installed_project() / "dbt_project.yml").read_text(encoding="utf-8"))["vars"]

DIALECTS: Final[tuple[str, ...]] = tuple(VARS["dialects"])
ANY_DIALECT: Final[str] = VARS["any_dialect"]
"""The word in place of a dialect if each record is read in the one that its headers show."""
DIALECT_FIELDS: Final[tuple[str, ...]] = tuple(VARS["dialect_fields"])
DIALECT_ENCODINGS: Final[tuple[str, ...]] = tuple(VARS["dialect_encodings"])
ERROR_KINDS: Final[tuple[str, ...]] = tuple(VARS["error_kinds"])
PUBLISH_KINDS: Final = tuple(kind for kind in ERROR_KINDS if kind not in ("blocking", "follows"))
"""The kinds that an error of Kafka's may have: only an application can say that an error is `blocking`, or that a message `follows`."""
OTHER_KIND_WORDS: Final[tuple[str, ...]] = tuple(word for words in VARS["error_kinds"].values() for word in words)
"""The names of the kinds in other vocabularies."""
KIND_PRECEDENCE: Final[tuple[str, ...]] = tuple(VARS["error_kind_precedence"])
"""Of rules that differ only in their kind, the one whose kind comes first here decides."""
HEADER_PROFILES: Final[tuple[str, ...]] = tuple(VARS["header_profiles"])
"""The header profiles of dead letters; `+stack` may follow the name."""
NO_TOPIC: Final[str] = VARS["no_topic"]
"""The word in place of a dead letter topic if messages that die are parked."""
EVERYTHING: Final[str] = VARS["unrestricted_privacy"]
"""The privacy that keeps and shows all, and needs no row: the model privacy_read adds it."""
TOPIC_PLACEHOLDERS: Final = ("topic", "group", "kind")
"""The placeholders in the template of a destination: the arguments of the macro topic_from_template."""
LINK_PLACEHOLDERS: Final = (
    *("message_id", "topic", "partition", "offset", "group", "class", "request_id", "process_id", "trace_id"),
    *("time", "time_ms", "from", "from_ms", "to", "to_ms"),
)
"""The placeholders in the template of a link, the same as in the macro link_placeholders."""
