"""The settings, and values that are derived from them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from orchestration.output import hide
from orchestration.settings.java import LOGIN, TRUST_STORES, to_java
from orchestration.settings.problems import problem_of, where_set
from orchestration.settings.sources import PREFIX, Environment, TomlFile, find_project, find_seeds, installed_project
from orchestration.settings.values import (
    AbsolutePath,
    Addresses,
    Connections,
    Count,
    KafkaProperties,
    Name,
    Properties,
    SettingsError,
    Size,
    TopicOrNone,
)
from publisher import secrets_of


class Settings(BaseSettings):
    """All settings. load_settings reads them, and reports problems as lines that a user can act on."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    home: AbsolutePath = Path(".redrive")
    """Where the state lives: catalog, warehouse, status, the demo's broker."""
    project: AbsolutePath = Field(default_factory=find_project)
    """The directory of dbt_project.yml and profiles.yml: the current one if it has dbt_project.yml, else the installed project."""
    seeds: AbsolutePath = Field(default_factory=lambda data: find_seeds(data.get("project", Path())))
    """The directory of the seeds: policies, rules, routes, sources."""

    kafka: KafkaProperties = Field(default_factory=Properties, validate_default=False)
    """Properties for every Kafka client, in librdkafka's spelling."""
    kafka_java: KafkaProperties = Field(default_factory=Properties, validate_default=False)
    """Properties for Spark's Kafka client only, in Java's spelling; they override what is derived from `kafka`."""

    connections: Connections = Field(default_factory=Addresses, validate_default=False)
    """Addresses of the databases with outbox tables, by the name that the seed `outboxes` has."""

    instance: Name = "default"
    """The name of the installation. Loops that share a Kafka cluster need different names: two with the same name fence each other."""
    transactional_prefix: Name = "redrive"
    """The prefix of transactional ids, which the ACL on them must allow."""
    transactions: bool = True
    """Whether the brokers have transactions. Without them Kafka doesn't fence an older loop, which may send until it reads the new
    generation."""
    decisions_topic: TopicOrNone = ""
    """A topic to which each decision is written, as JSON; see docs/decision-feed.md. Empty: no decision feed."""
    commands_topic: TopicOrNone = "redrive.commands"
    """The topic of operators' commands; see docs/redrive.md. Empty: no commands are executed. The topic need not exist."""
    circuit_breakers_topic: TopicOrNone = ""
    """A topic to which the state of circuit breakers is written, as JSON by their key; see docs/circuit-breakers.md. Empty: none."""
    sequences_topic: TopicOrNone = "redrive.sequences"
    """The topic that tells consumers which sequences are held; see docs/sequences.md. It is written if a route has a `sequence`. It must
    have one partition, and be compacted. Empty: none."""
    gates_topic: TopicOrNone = ""
    """The same in the form of version 0.1, where `closed` means that retries are held back. The next version removes it."""
    protected_topics: Annotated[str, StringConstraints(pattern=r"^ *([A-Za-z0-9._-]{1,249}\*?( +|$))*$")] = "redrive.commands"
    """Further topics that no message is sent to, such as those of another installation. Names, separated by blanks; a * at the end: all
    names with this prefix."""
    create_topics: bool = False
    """Whether the loop creates missing retry and dead letter topics, each with as many partitions as the original."""
    create_topics_replication: Annotated[int, Field(ge=-1, le=100)] = -1
    """The replication factor of topics that redrive creates. -1: the brokers' default."""
    circuit_breaker_release_rate: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """How many held messages a second a circuit breaker releases after it has closed."""
    settle_seconds: Annotated[float, Field(ge=0, le=86_400)] = 30
    """How long after a group has processed a retry a report of its failure may still come. If none has, the message is `recovered`."""
    group: Name = "redrive"
    """The consumer group whose offsets show how far the intake is. Nothing reads them back."""
    slots: Annotated[int, Field(ge=1, le=256)] = 2
    """How many producers publish at the same time."""
    look_ahead_seconds: Annotated[float, Field(ge=0, le=300)] = 30
    """How far ahead the loop hands messages over to the timed lane, which sends each at its due time. 0: publish steps send what is due."""

    intake_max_rows: Count = 50_000
    """The most records that one tick takes in, all sources together: bounds the memory and the length of a tick. A tick issues at most as
    many orders, and at most 25,000."""
    intake_max_bytes: Size = 64 * 1024 * 1024
    """Bytes taken in within one tick: an estimate, by the mean size of the records taken in before."""
    publish_max_rows: Count = 200_000
    """Rows sent within one tick."""
    publish_max_bytes: Size = 256 * 1024 * 1024
    """Bytes of keys, values and headers sent within one tick: an estimate."""

    error_stack_bytes: Annotated[int, Field(ge=256, le=65_536)] = 8192
    """How many bytes (UTF-8) of a stack trace are kept with a dead letter, and sent with it if its route says so."""

    idle_for_seconds: Annotated[int, Field(ge=0, le=86_400)] = 10
    """`run --until-idle` ends when ticks have had nothing to do for this long, and nothing waits."""
    poll_seconds: Annotated[float, Field(ge=0.01, le=60)] = 0.5
    """How often Kafka is asked for new records while nothing is due. Each look is one small request."""

    maintenance_snapshot_minutes: Annotated[int, Field(ge=1, le=525_600)] = 60
    """`redrive maintain` expires snapshots that are older than this. It must be longer than any statement that reads the tables takes."""
    maintenance_snapshots: Count = 10
    """How many of the last snapshots are kept, whatever their age."""
    maintenance_orphan_days: Annotated[int, Field(ge=2, le=3650)] = 3
    """After this many days `redrive maintain` removes files that no snapshot refers to. It must be longer than any commit takes."""

    retention_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    """`redrive maintain` removes messages that were finished this many days ago; 0: none. What waits or is dead stays.

    At least 8: a delivery is recognised by the headers of a report for 7 days after its due time (pointer_retention_days).
    """
    ticks_days: Annotated[int, Field(ge=7, le=36_500)] = 30
    """`redrive maintain` removes rows of `ticks` that are older than this."""

    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Port on which the loop answers Prometheus; 0: none. See docs/metrics.md."""
    metrics_address: str = "0.0.0.0"
    """The address of that port. Default: all interfaces, as Prometheus usually runs elsewhere. 127.0.0.1: only this machine."""
    metrics_waiting_seconds: Annotated[float, Field(ge=1, le=86_400)] = 60
    """How often waiting messages are counted for the metrics, in seconds."""
    metrics_max_series: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """How many series with distinct topics and error classes a metric may have; the rest is counted as `other`."""

    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def internal_topics(self) -> tuple[str, ...]:
        """Topics that no message is sent to, beside those that begin with an underscore. A * at the end: all names with this prefix."""
        own = (self.commands_topic, self.decisions_topic, self.circuit_breakers_topic, self.sequences_topic, self.gates_topic)
        return tuple(dict.fromkeys((*filter(None, own), *self.protected_topics.split())))

    def is_internal(self, topic: str) -> bool:
        """Whether a topic is internal, so that no message is sent to it; the same as in the macro is_internal_topic."""
        return topic.startswith("_") or any(
            topic.startswith(name[:-1]) if name.endswith("*") else topic == name for name in self.internal_topics
        )

    @property
    def dbt_directory(self) -> Path:
        """The directory in which dbt runs: `project` if it has models, as a clone has; else the installed project.

        A directory made by `redrive init` has no models, as an upgrade would leave old ones in it.
        """
        return self.project if (self.project / "models").is_dir() else installed_project()

    @property
    def catalog(self) -> Path:
        """The SQLite file of the Iceberg catalog."""
        return self.home / "catalog.db"

    @property
    def warehouse(self) -> Path:
        """The directory of the tables' files."""
        return self.home / "warehouse"

    @property
    def status_file(self) -> Path:
        """The status file of the loop, for `redrive status`."""
        return self.home / "status.json"

    @property
    def project_digest(self) -> Path:
        """The file with the hash of the SQL that made the tables and views."""
        return self.home / "project.digest"

    @property
    def parsed_project(self) -> Path:
        """The file in which dbt keeps what it has parsed: it parses again only what differs."""
        return self.home / "dbt" / "partial_parse.msgpack"

    @property
    def decide_statements(self) -> Path:
        """The file with the statements of a decide run, as dbt has compiled them."""
        return self.home / "decide.json"

    @property
    def broker_directory(self) -> Path:
        """The state of the demo's broker."""
        return self.home / "broker"

    def make_home(self) -> Path:
        """Creates the directory of the state if it is missing; returns it. Raises SettingsError."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"can't be made: {error.strerror}"
        else:
            if os.access(self.home, os.W_OK | os.X_OK):
                return self.home
            reason = "can't be written to by this user"
        raise SettingsError([f"home is {self.home}, which {reason}. --home or REDRIVE_HOME names the directory of the state"])

    def of_one_tick(self) -> Settings:
        """The settings for a loop that ends after one tick: its publish step sends what is due, and it has no timed lane."""
        return self.model_copy(update={"look_ahead_seconds": 0})

    @property
    def dbt_environment(self) -> dict[str, str]:
        """The environment variables that dbt and Spark need when they read the project's files."""
        return {
            "REDRIVE_HOME": str(self.home),
            "REDRIVE_SEEDS": str(self.seeds),
            "REDRIVE_INTERNAL_TOPICS": " ".join(self.internal_topics),
            "REDRIVE_ERROR_STACK_BYTES": str(self.error_stack_bytes),
        }

    @field_validator("commands_topic", "decisions_topic", "circuit_breakers_topic", "sequences_topic", "gates_topic")
    @classmethod
    def _is_a_topic_of_its_own(cls, topic: str, others: ValidationInfo) -> str:
        # a reader of one topic would take the records of the other for its own
        for name in ("commands_topic", "decisions_topic", "circuit_breakers_topic", "sequences_topic"):
            if topic and others.data.get(name) == topic:
                raise ValueError(f"must be another topic than {name}, which is {topic}")
        return topic

    @field_validator("retention_days")
    @classmethod
    def _is_none_or_long(cls, days: int) -> int:
        if 0 < days < 8:
            raise ValueError("must be 0, or at least 8")
        return days

    @field_validator("project")
    @classmethod
    def _has_a_project(cls, path: Path) -> Path:
        if not (path / "dbt_project.yml").is_file():
            raise ValueError(f"must be the directory of redrive's dbt_project.yml; {path} has none")
        return path

    @field_validator("seeds")
    @classmethod
    def _is_a_directory(cls, path: Path) -> Path:
        if not path.is_dir():
            raise ValueError(f"must be a directory with the seed files; {path} is not a directory")
        return path

    @field_validator("home")
    @classmethod
    def _is_no_file(cls, path: Path) -> Path:
        if path.exists() and not path.is_dir():
            raise ValueError(f"must be a directory; {path} is a file")
        return path

    @property
    def kafka_properties(self) -> Properties:
        """The properties for confluent-kafka (librdkafka), unchanged: producers, consumers, admin clients.

        The library's own output to standard error is off unless `log_level` is set.
        """
        return Properties({"log_level": "0", **self.kafka})

    def require_brokers(self) -> None:
        """Raises SettingsError if bootstrap.servers is not set, before a command does anything else."""
        if not self.kafka.get("bootstrap.servers"):
            raise SettingsError(
                ["kafka bootstrap.servers is not set: REDRIVE_KAFKA__BOOTSTRAP_SERVERS=host:9092, or [kafka] in redrive.toml"]
            )

    @property
    def kafka_java_properties(self) -> Properties:
        """The properties for Spark's Kafka client (Java): derived from ``kafka``, overlaid with ``kafka_java``.

        Without the prefix ``kafka.`` that Spark's options have. Raises SettingsError for a certificate or a key that
        Java can't read.
        """
        if (jaas := self.kafka_java.get("sasl.jaas.config")) is not None and not LOGIN.fullmatch(jaas):
            # checked here, as Java's error would quote the part that it can't parse
            raise SettingsError(
                [f'{where_set("sasl.jaas.config")}: must be a login module, a flag, options and a semicolon: MODULE required name="value";']
            )
        # if kafka_java names a trust store, Java doesn't use librdkafka's certificates, so they may have a form that it can't read
        own = {"ssl.ca.location", "ssl.ca.pem"} if self.kafka_java.keys() & TRUST_STORES else set()
        return Properties({**to_java({name: value for name, value in self.kafka.items() if name not in own}), **self.kafka_java})

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, Environment(settings_cls), TomlFile(settings_cls)


def load_settings(**changes: object) -> Settings:
    """Reads the settings. ``changes``, a command's options, override everything; None is an option that is not given.

    Raises SettingsError, with all problems at once.
    """
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    try:
        settings = Settings(**given)
        hide({*secrets_of(settings.kafka), *secrets_of(settings.kafka_java), *Addresses(settings.connections).secrets})
        return settings
    except ValidationError as error:
        # `default_factory_not_called`: a default that is derived from a setting that is wrong itself
        details = [item for item in error.errors(include_url=False) if item["type"] != "default_factory_not_called"]
        problems = [problem_of(Settings.model_fields, detail, given) for detail in details]
    # Raised here, not in the handler: the chain of causes would print the values that pydantic has.
    raise SettingsError(problems)
