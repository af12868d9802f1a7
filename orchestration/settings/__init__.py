"""What a user can set, and where it is read from: the environment over ``redrive.toml`` over the defaults.

Environment: ``REDRIVE_`` and the name of the setting, upper case: ``REDRIVE_SLOTS=4``. A Kafka property follows two
underscores, with underscores for dots: ``REDRIVE_KAFKA__BOOTSTRAP_SERVERS=broker:9092`` is ``bootstrap.servers``. A
variable that is set to nothing counts as not set.

``redrive.toml`` in the current directory, or the file that ``REDRIVE_CONFIG`` names; its relative paths start at the
directory of that file::

    slots = 4

    [kafka]                                  # to both clients, as it stands
    "bootstrap.servers" = "broker:9092"
    "security.protocol" = "SASL_SSL"
    "sasl.password" = "file:/run/secrets/kafka"

    [kafka_java]                             # to Spark's client alone, over what is derived from [kafka]
    "sasl.login.callback.handler.class" = "com.example.Login"

If the value of a Kafka property is ``file:`` and a path, the content of that file is its value, without the line end at its end. No
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
