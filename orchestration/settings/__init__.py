"""What a user can set, and where it is read from: the environment over ``redrive.toml`` over the defaults.

Environment: ``REDRIVE_`` and the name of the setting, upper case: ``REDRIVE_SLOTS=4``. A Kafka property follows two
underscores, with underscores for dots: ``REDRIVE_KAFKA__BOOTSTRAP_SERVERS=broker:9092`` is ``bootstrap.servers``. An
empty variable counts as not set.

``redrive.toml`` in the current directory, or the file that ``REDRIVE_CONFIG`` names; its relative paths start at the
directory of that file::

    slots = 4

    [kafka]                                  # for librdkafka unchanged, for Spark's client in Java's spelling
    "bootstrap.servers" = "broker:9092"
    "security.protocol" = "SASL_SSL"
    "sasl.password" = "file:/run/secrets/kafka"

    [kafka_java]                             # for Spark's client only; overrides what is derived from [kafka]
    "sasl.login.callback.handler.class" = "com.example.Login"

If the value of a Kafka property is ``file:`` and a path, the content of that file is its value, without line ends at its end. No
error quotes the value of a Kafka property, and the text of a Settings object has ``***`` for those that are secret.

``profiles.yml`` and ``dbt_project.yml`` may read other environment variables; dbt_environment has the settings that they share with this
program.
"""

from __future__ import annotations

from orchestration.settings.java import to_java
from orchestration.settings.model import Settings, load_settings
from orchestration.settings.problems import rejected, where_set
from orchestration.settings.values import Properties, SettingsError, redacted

__all__ = ["Properties", "Settings", "SettingsError", "load_settings", "redacted", "rejected", "to_java", "where_set"]
