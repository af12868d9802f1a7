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

A Kafka property whose value is ``file:`` and a path has what is in that file as its value, less the line's end. No
error quotes the value of a Kafka property, and the text of a Settings object has ``***`` for those that are secret.

What Spark and dbt take from the environment (``profiles.yml``, ``dbt_project.yml``) is theirs; dbt_environment gives
them the settings that they share with us.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from orchestration.cli.output import hide
from publisher import MASK, SecretText, is_secret, secrets_of

if TYPE_CHECKING:
    # its module loads the Kafka client, which no command needs for its settings
    from publisher import RejectedPropertiesError

_PREFIX: Final = "REDRIVE_"
_CONFIG_VARIABLE: Final = "REDRIVE_CONFIG"
_CONFIG_FILE: Final = "redrive.toml"
_TABLES: Final = ("kafka", "kafka_java")
_PATHS: Final = ("home", "project", "seeds")

# What the SQL reads beside the settings themselves: left in the environment by dbt_environment.
_FOR_SQL: Final = {"REDRIVE_INTERNAL_TOPICS"}

# The few properties of librdkafka that are not spelled with dots: the environment can't tell them from the rest.
_WITH_UNDERSCORES: Final = {"log_level"}


class SettingsError(Exception):
    """The settings can't be used: one line for each problem, with its place and what is allowed there."""

    exit_code: ClassVar[int] = 2

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__("\n".join(self.problems))


class Properties(dict[str, str]):
    """Kafka properties by name. Everything that would print them prints the secrets as ``***``."""

    def __repr__(self) -> str:
        return repr(redacted(self))

    __str__ = __repr__


def redacted(properties: Mapping[str, str]) -> dict[str, str]:
    """The same properties, fit for a log: a value that is secret by its name or its look is ``***``."""
    return {name: MASK if is_secret(name, value) else value for name, value in properties.items()}


def _property_value(value: object) -> str:
    """A property as both clients take it: text. Numbers, true and false are what TOML makes of them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise ValueError("must be text, a number, true or false")
    if not value.startswith("file:"):
        return value
    path = Path(value.removeprefix("file:")).expanduser()
    try:
        return SecretText(path.read_text(encoding="utf-8").rstrip("\r\n"))
    except OSError as error:
        raise ValueError(f"names the file {path}, which can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"names the file {path}, which is not UTF-8 text") from None


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


# A validator that gives back the value itself, so that a SecretText stays one.
_Property = Annotated[Any, BeforeValidator(_property_value)]
_KafkaProperties = Annotated[dict[str, _Property], AfterValidator(Properties), PlainSerializer(redacted, return_type=dict[str, str])]
_AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
# Parts of a transactional.id and of metric and file names: what Kafka allows in a topic's name is safe in all of them.
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
_TopicOrNone = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{0,249}$")]
_Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
_Size = Annotated[int, Field(ge=1024, le=2**40)]


def _find_project() -> Path:
    here = Path.cwd()
    return here if (here / "dbt_project.yml").is_file() else Path(__file__).resolve().parent.parent


class Settings(BaseSettings):
    """Everything that can be set. Read with load_settings, which turns what is wrong into lines a user can act on."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    home: _AbsolutePath = Path(".redrive")
    """Where the state lives: catalog, warehouse, status, the demo's broker."""
    project: _AbsolutePath = Field(default_factory=_find_project)
    """The directory of dbt_project.yml: the current one if it has one, else the one redrive is installed from."""
    seeds: _AbsolutePath = Field(default_factory=lambda data: data.get("project", Path()) / "dbt_project" / "seeds")
    """The directory of the seeds: policies, rules, routes, sources."""

    kafka: _KafkaProperties = Field(default_factory=Properties, validate_default=False)
    """Properties for every Kafka client, in librdkafka's spelling."""
    kafka_java: _KafkaProperties = Field(default_factory=Properties, validate_default=False)
    """Properties for Spark's Kafka client alone, in Java's spelling."""

    instance: _Name = "default"
    """Tells loops apart that share a Kafka cluster; two with the same name fence each other."""
    transactional_prefix: _Name = "redrive"
    """How transactional ids begin: what the ACL on them must allow."""
    transactions: bool = True
    """Whether the brokers have transactions. Without them an older loop is not fenced in Kafka, only told; see docs/configuration.md."""
    decisions_topic: _TopicOrNone = ""
    """A topic to which each decision is announced, as JSON; see docs/announcements.md. Empty: no announcements."""
    commands_topic: _TopicOrNone = "redrive.commands"
    """The topic that operators' commands come through; see docs/redrive.md. Empty: none are obeyed. No topic yet: none have come."""
    gates_topic: _TopicOrNone = ""
    """A topic on which it is told which gates are closed, as JSON by scope; see docs/gates.md. Empty: it is not told."""
    protected_topics: Annotated[str, StringConstraints(pattern=r"^ *([A-Za-z0-9._-]{1,249}\*?( +|$))*$")] = "redrive.commands"
    """Topics that no message is sent to, beside this installation's own: another one's. Names, with blanks between; * ends a prefix."""
    create_topics: bool = False
    """Whether the loop makes retry and dead letter topics that are missing, each with as many partitions as the original."""
    create_topics_replication: Annotated[int, Field(ge=-1, le=100)] = -1
    """The replication factor of topics that redrive makes. -1: the brokers' default."""
    gate_release_rate: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """How many messages a second an opened gate lets go of those that it held."""
    settle_seconds: Annotated[float, Field(ge=0, le=86_400)] = 30
    """How long after a group has processed a retry its failure may still be reported; then it counts as recovered."""
    group: _Name = "redrive"
    """The consumer group whose offsets show how far the intake is. Nothing reads them back."""
    slots: Annotated[int, Field(ge=1, le=256)] = 2
    """How many producers publish at the same time."""

    intake_max_rows: _Count = 50_000
    """Rows taken in within one tick, all sources together: bounds the memory and the length of a tick. As many are issued of commands."""
    intake_max_bytes: _Size = 64 * 1024 * 1024
    """Bytes taken in within one tick: an estimate, by the mean size of the records taken in before."""
    publish_max_rows: _Count = 200_000
    """Rows sent within one tick."""
    publish_max_bytes: _Size = 256 * 1024 * 1024
    """Bytes of keys, values and headers sent within one tick: an estimate."""

    error_stack_bytes: Annotated[int, Field(ge=256, le=65_536)] = 8192
    """How much of a stack trace is kept with a dead letter, and goes along with it where its route says so, in bytes of UTF-8."""

    idle_for_seconds: Annotated[int, Field(ge=0, le=86_400)] = 10
    """How long nothing must have come, with nothing waiting, before `run --until-idle` ends."""
    poll_seconds: Annotated[float, Field(ge=0.01, le=60)] = 0.5
    """How often Kafka is asked for new records while nothing is due. Each time is one small request."""

    maintenance_snapshot_minutes: Annotated[int, Field(ge=1, le=525_600)] = 60
    """Snapshots older than this are expired by `redrive maintain`: longer than any statement takes that reads the tables."""
    maintenance_snapshots: _Count = 20
    """How many of the last snapshots are kept, whatever their age."""
    maintenance_orphan_days: Annotated[int, Field(ge=2, le=3650)] = 3
    """Files that nothing refers to are removed when they are older: longer than any commit takes."""

    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Port on which the loop answers Prometheus; 0: none. See docs/metrics.md."""
    metrics_address: str = "0.0.0.0"
    """Where that port is: on all interfaces, as who scrapes is elsewhere. 127.0.0.1 for this machine alone."""
    metrics_waiting_seconds: Annotated[float, Field(ge=1, le=86_400)] = 60
    """How often the messages that wait are counted."""
    metrics_max_series: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """How many topics and error classes a metric tells apart; the others are counted as `other`."""

    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def internal_topics(self) -> tuple[str, ...]:
        """What no message is sent to, beside topics that begin with an underscore: names, of which * may end one for all that begin so."""
        own = (self.commands_topic, self.decisions_topic, self.gates_topic)
        return tuple(dict.fromkeys((*filter(None, own), *self.protected_topics.split())))

    def is_internal(self, topic: str) -> bool:
        """Whether no message is sent to a topic, whoever asks for it: as the macro is_internal_topic decides it."""
        return topic.startswith("_") or any(
            topic.startswith(name[:-1]) if name.endswith("*") else topic == name for name in self.internal_topics
        )

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
        """What the loop tells about itself, for `redrive status`."""
        return self.home / "status.json"

    @property
    def project_digest(self) -> Path:
        """Which version of the project made the tables and views."""
        return self.home / "project.digest"

    @property
    def broker_directory(self) -> Path:
        """The state of the demo's broker."""
        return self.home / "broker"

    def make_home(self) -> Path:
        """Makes the directory of the state where there is none, for the loop and whatever else writes; returns it. Raises SettingsError."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"can't be made: {error.strerror}"
        else:
            if os.access(self.home, os.W_OK | os.X_OK):
                return self.home
            reason = "can't be written to by this user"
        raise SettingsError([f"home is {self.home}, which {reason}. --home or REDRIVE_HOME names the directory of the state"])

    @property
    def dbt_environment(self) -> dict[str, str]:
        """What must be in the environment before dbt or Spark reads the project's files, wherever it was set."""
        return {
            "REDRIVE_HOME": str(self.home),
            "REDRIVE_SEEDS": str(self.seeds),
            "REDRIVE_INTERNAL_TOPICS": " ".join(self.internal_topics),
            "REDRIVE_ERROR_STACK_BYTES": str(self.error_stack_bytes),
        }

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
            raise ValueError(f"must be a directory with the seed files; {path} is none")
        return path

    @field_validator("home")
    @classmethod
    def _is_no_file(cls, path: Path) -> Path:
        if path.exists() and not path.is_dir():
            raise ValueError(f"must be a directory; {path} is a file")
        return path

    @property
    def kafka_properties(self) -> Properties:
        """For confluent-kafka (librdkafka), as they were set: producers, consumers, admin clients.

        What the library itself would print to standard error, between a command's own lines, is off unless somebody sets `log_level`.
        """
        return Properties({"log_level": "0", **self.kafka})

    def require_brokers(self) -> None:
        """Raises SettingsError where nobody has said where Kafka is: whatever else a command does first would be for nothing."""
        if not self.kafka.get("bootstrap.servers"):
            raise SettingsError(
                ["kafka bootstrap.servers is not set: REDRIVE_KAFKA__BOOTSTRAP_SERVERS=host:9092, or [kafka] in redrive.toml"]
            )

    @property
    def kafka_java_properties(self) -> Properties:
        """For Spark's Kafka client (Java): derived from ``kafka``, overlaid with ``kafka_java``.

        Without the prefix ``kafka.`` that Spark's options have. Raises SettingsError for a certificate or a key that
        Java can't read.
        """
        if (jaas := self.kafka_java.get("sasl.jaas.config")) is not None and not _LOGIN.fullmatch(jaas):
            # Java would say which part it can't read, and so quote it
            raise SettingsError(
                [f'{where_set("sasl.jaas.config")}: must be a login module, a flag, options and a semicolon: MODULE required name="value";']
            )
        # where Java's own trust store is named, librdkafka's needn't be one that Java can read
        own = {"ssl.ca.location", "ssl.ca.pem"} if self.kafka_java.keys() & _TRUST_STORES else set()
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
        return init_settings, _Environment(settings_cls), _TomlFile(settings_cls)


def load_settings(**changes: object) -> Settings:
    """Reads the settings. ``changes``, a command's options, come before everything; None is an option not given.

    Raises SettingsError, with all problems at once.
    """
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    try:
        settings = Settings(**given)
        hide({*secrets_of(settings.kafka), *secrets_of(settings.kafka_java)})
        return settings
    except ValidationError as error:
        # `default_factory_not_called`: a default that follows from a setting that is wrong itself
        details = [item for item in error.errors(include_url=False) if item["type"] != "default_factory_not_called"]
        problems = [_problem(detail, given) for detail in details]
    # Raised here, not in the handler: the chain of causes would print what pydantic knows about the values.
    raise SettingsError(problems)


class _Source(PydanticBaseSettingsSource):
    """The part of pydantic's interface that a source of whole dictionaries does not need."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError


class _Environment(_Source):
    """Settings by field; a variable nobody knows stays under its own name, and is refused with all other extras."""

    def __call__(self) -> dict[str, Any]:
        found: dict[str, Any] = {table: {} for table in _TABLES}
        dbt_variables = _dbt_variables()
        for variable, value in os.environ.items():
            if not variable.startswith(_PREFIX) or variable == _CONFIG_VARIABLE or not value:
                continue
            name, separator, rest = variable.removeprefix(_PREFIX).partition("__")
            field = name.lower()
            if field in _TABLES and rest:
                found[field][_property_name(rest)] = value
            elif field in self.settings_cls.model_fields and field not in _TABLES and name.isupper() and not separator:
                found[field] = value
            elif variable not in dbt_variables and variable not in _FOR_SQL:
                found[variable] = value
        return {name: value for name, value in found.items() if value}


class _TomlFile(_Source):
    def __call__(self) -> dict[str, Any]:
        path, content = _read_config()
        for table in _TABLES:
            if isinstance(content.get(table), dict):
                # Dotted names without quotes are tables within tables in TOML: read as what was meant.
                content[table] = dict(_flattened(content[table]))
        for name in _PATHS:
            if isinstance(content.get(name), str):
                content[name] = path.absolute().parent / Path(content[name]).expanduser()
        return content


def _dbt_variables() -> set[str]:
    """The variables that the project's own files read: they are known, though not here."""
    _, content = _read_config()
    project = Path(os.environ.get(f"{_PREFIX}PROJECT") or content.get("project") or _find_project())
    found: set[str] = set()
    for name in ("profiles.yml", "dbt_project.yml"):
        if (path := project / name).is_file():
            found.update(re.findall(rf"env_var\(\s*['\"]({_PREFIX}\w+)", path.read_text(encoding="utf-8")))
    return found


def _config_path() -> Path:
    return Path(os.environ.get(_CONFIG_VARIABLE) or _CONFIG_FILE).expanduser()


def _read_config() -> tuple[Path, dict[str, Any]]:
    path = _config_path()
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not os.environ.get(_CONFIG_VARIABLE):
            return path, {}
        reason = "there is no such file"
    except OSError as error:
        reason = f"it can't be read: {error.strerror}"
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except tomllib.TOMLDecodeError as error:
        # says where, and never what stands there
        reason = f"it is not valid TOML: {error}"
    where = f"{_CONFIG_VARIABLE} names {path}" if os.environ.get(_CONFIG_VARIABLE) else str(path)
    raise SettingsError([f"{where}: {reason}"])


def _flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _property_name(rest: str) -> str:
    name = rest.lower()
    return name if name in _WITH_UNDERSCORES else name.replace("_", ".")


def _problem(detail: ErrorDetails, changes: Mapping[str, object]) -> str:
    """One line: where, what is allowed, and what was there (unless that may be a secret)."""
    name, *rest = (str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return _unknown(name)
    where = _origin(name, rest[0] if rest else None, changes)
    text = str(detail["ctx"]["error"]) if detail["type"] == "value_error" else f"must be {_allowed(name)}"
    if name in _TABLES or detail["type"] == "value_error":
        return f"{where}: {text}"
    return f"{where}: {text}, not {str(detail['input'])!r}"


def _origin(name: str, key: str | None, changes: Mapping[str, object]) -> str:
    if name in changes:
        return f"option --{name.replace('_', '-')}"
    variables = [
        variable
        for variable in os.environ
        if variable == f"{_PREFIX}{name.upper()}"
        or (key and variable.startswith(f"{_PREFIX}{name.upper()}__") and _property_name(variable.partition("__")[2]) == key)
    ]
    if variables and os.environ[variables[0]]:
        return variables[0]
    path, content = _read_config()
    if name in content:
        return f'{path}, [{name}] "{key}"' if key else f"{path}, {name}"
    return f"{_PREFIX}{name.upper()} (not set)"


def where_set(name: str) -> str:
    """Where a Kafka property was set: a variable, or a line of redrive.toml; its name where nobody knows."""
    for table in _TABLES:
        stem = f"{_PREFIX}{table.upper()}__"
        for variable, value in os.environ.items():
            if variable.startswith(stem) and value and _property_name(variable.removeprefix(stem)) == name:
                return f"{variable} ({name})"
        path, content = _read_config()
        if isinstance(content.get(table), dict) and name in dict(_flattened(content[table])):
            return f'{path}{_line_of(path, table, name)}, [{table}] "{name}"'
    return f"Kafka property {name}"


def _line_of(path: Path, table: str, name: str) -> str:
    """`:` and the line on which a property stands in a file of settings; nothing where it is spread over tables within tables."""
    inside = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if text.startswith("["):
            inside = text.strip("[] ") == table
        elif inside and text.partition("=")[0].strip().strip("\"'") == name:
            return f":{number}"
    return ""


def rejected(error: RejectedPropertiesError) -> SettingsError:
    """What a Kafka client says against its properties, with the place that each came from."""
    return SettingsError([f"{', '.join(map(where_set, error.names))}: {error}" if error.names else str(error)])


def _unknown(name: str) -> str:
    fields = list(Settings.model_fields)
    if not name.startswith(_PREFIX):
        # a table or a key of the file
        near = difflib.get_close_matches(name, fields, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(fields)}"
        return f"{_config_path()}, {name}: there is no such setting; {hint}"
    for table in sorted(_TABLES, key=len, reverse=True):
        stem = f"{_PREFIX}{table.upper()}"
        rest = name.removeprefix(stem)
        if name in (stem, f"{stem}__"):
            return f"{name}: one variable for each Kafka property, as in {stem}__BOOTSTRAP_SERVERS"
        if name.startswith(f"{stem}_"):
            return f"{name}: there is no such setting; did you mean {stem}__{rest.strip('_')} (two underscores)?"
    # without what all of them begin with: it would make any two look alike
    known = ["CONFIG", *(field.upper() for field in fields if field not in _TABLES)]
    near = difflib.get_close_matches(name.removeprefix(_PREFIX), known, n=1)
    hint = f"did you mean {_PREFIX}{near[0]}?" if near else f"there are: {', '.join(_PREFIX + name for name in known)}"
    return f"{name}: there is no such setting; {hint}"


def _allowed(name: str) -> str:
    field = Settings.model_fields[name]
    if name in _TABLES:
        return "a table of Kafka properties"
    if options := getattr(field.annotation, "__args__", ()):
        return f"one of {', '.join(map(str, options))}"
    if field.annotation is Path:
        return "a path"
    if name in ("decisions_topic", "gates_topic", "commands_topic"):
        return "a topic's name, or empty for none"
    if name == "protected_topics":
        return "topics' names, with blanks between; a name that ends with * stands for all that begin so"
    if field.annotation is str:
        return "1 to 100 letters, digits, dots, hyphens and underscores"
    if field.annotation is bool:
        return "true or false"
    kind = "a whole number" if field.annotation is int else "a number"
    least = next((item.ge for item in field.metadata if hasattr(item, "ge")), None)
    most = next((item.le for item in field.metadata if hasattr(item, "le")), None)
    return f"{kind} from {least} to {most}"


# Same name, other meaning: values that are right for librdkafka and stop the Java client, or that Spark refuses.
_LIBRDKAFKA_ONLY: Final = frozenset(
    {
        "auto.offset.reset",
        "builtin.features",
        "client.software.name",
        "client.software.version",
        "debug",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.ssl.certificate.verification",
        "group.id",
        "interceptor.classes",
        "log_level",
        "partition.assignment.strategy",
        "partitioner",
        "plugin.library.paths",
        "sasl.kerberos.keytab",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.principal",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.providers",
        "transactional.id",
    }
)
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_LOGIN: Final = re.compile(
    r'\s*[\w.$]+\s+(required|requisite|sufficient|optional)(\s+[\w.]+\s*=\s*("(\\.|[^"\\])*"|[^\s";]+))*\s*;\s*', re.IGNORECASE
)
_KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"


# How Java is told whom to trust.
_TRUST_STORES: Final = frozenset({"ssl.truststore.location", "ssl.truststore.certificates"})


def to_java(kafka: Mapping[str, str]) -> dict[str, str]:
    """Properties in librdkafka's spelling, in that of the Java client.

    What Java calls the same passes as it is; what it does not know it ignores. Translated are the names in which the
    two differ: SASL users and Kerberos keytabs (to ``sasl.jaas.config``), certificates and keys in PEM files (to a PEM
    trust store and key store). What can't be (OAuth, cipher lists) is for ``kafka_java``. Raises SettingsError for a
    file that can't be read and for a key that is not PKCS#8, the only form that Java reads.
    """
    java = {name: value for name, value in kafka.items() if name not in _LIBRDKAFKA_ONLY}
    if "security.protocol" in java:
        java["security.protocol"] = java["security.protocol"].upper()
    mechanism = kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms")
    if mechanism:
        java["sasl.mechanism"] = mechanism
    if "sasl.jaas.config" not in java and (login := _jaas(kafka, (mechanism or "GSSAPI").upper())):
        java["sasl.jaas.config"] = login
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    return java | _trust_store(kafka) | _key_store(kafka)


def _jaas(kafka: Mapping[str, str], mechanism: str) -> str | None:
    if mechanism in _LOGIN_MODULES and "sasl.username" in kafka:
        options = {"username": kafka["sasl.username"], "password": kafka.get("sasl.password", "")}
        module = _LOGIN_MODULES[mechanism]
    elif mechanism == "GSSAPI" and "sasl.kerberos.keytab" in kafka:
        options = {"useKeyTab": "true", "storeKey": "true", "keyTab": kafka["sasl.kerberos.keytab"]}
        if "sasl.kerberos.principal" in kafka:
            options["principal"] = kafka["sasl.kerberos.principal"]
        module = _KERBEROS_MODULE
    else:
        return None
    quoted = (f'{name}="{_escaped(value)}"' for name, value in options.items())
    return f"{module} required {' '.join(quoted)};"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _trust_store(kafka: Mapping[str, str]) -> dict[str, str]:
    if pem := kafka.get("ssl.ca.pem"):
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem}
    location = kafka.get("ssl.ca.location")
    # `probe` looks for the system's certificates; Java brings its own and needs no telling
    if not location or location == "probe":
        return {}
    if Path(location).is_dir():
        raise SettingsError(
            [
                f"ssl.ca.location is the directory {location}, which Java can't use: name one PEM file, or set "
                "ssl.truststore.location in kafka_java"
            ]
        )
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}


def _key_store(kafka: Mapping[str, str]) -> dict[str, str]:
    if "ssl.keystore.location" in kafka:
        # PKCS#12 is the only kind librdkafka reads
        return {"ssl.keystore.type": "PKCS12"}
    chain = kafka.get("ssl.certificate.pem") or _read_pem(kafka, "ssl.certificate.location")
    key = kafka.get("ssl.key.pem") or _read_pem(kafka, "ssl.key.location")
    if not chain or not key:
        return {}
    # `BEGIN PRIVATE KEY` or `BEGIN ENCRYPTED PRIVATE KEY`; openssl's older forms say RSA or EC in between
    if not re.search("-----BEGIN (ENCRYPTED )?PRIVATE KEY-----", key):
        where = kafka.get("ssl.key.location", "ssl.key.pem")
        raise SettingsError(
            [f"the key in {where} is not PKCS#8, which Java needs: convert it with `openssl pkcs8 -topk8 -in OLD -out NEW`"]
        )
    # As text: Java wants both in one file, and librdkafka has them in two.
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": SecretText(key)}


def _read_pem(kafka: Mapping[str, str], name: str) -> str | None:
    if name not in kafka:
        return None
    try:
        return Path(kafka[name]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError([f"{name} names {kafka[name]}, which can't be read: {reason}"]) from None
