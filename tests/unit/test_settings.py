"""Settings: which source wins, what is refused and how it is said, and that secrets stay where they are."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from orchestration.settings import Settings, SettingsError, load_settings, redacted
from orchestration.settings.values import Addresses
from tests.unit.environment import set_all

SECRET = "s3cret"
pytestmark = pytest.mark.usefixtures("project")


def test_defaults_need_nothing(project: Path) -> None:
    settings = load_settings()
    assert settings.home == project / ".redrive"
    assert settings.catalog == project / ".redrive" / "catalog.db"
    assert settings.project == project
    assert settings.seeds == project / "dbt_project" / "seeds"
    assert settings.kafka == {}
    assert (settings.instance, settings.slots, settings.idle_for_seconds) == ("default", 2, 10)


def test_without_a_project_here_the_installed_one_is_used(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    root = Path(__file__).resolve().parents[2]
    assert load_settings().project == root


@pytest.mark.parametrize(
    ("file", "environment", "options", "expected"),
    [
        ("", {}, {}, 2),
        ("slots = 3", {}, {}, 3),
        ("slots = 3", {"REDRIVE_SLOTS": "4"}, {}, 4),
        ("slots = 3", {"REDRIVE_SLOTS": "4"}, {"slots": 5}, 5),
        ("slots = 3", {"REDRIVE_SLOTS": ""}, {"slots": None}, 3),
    ],
)
def test_options_over_environment_over_file_over_default(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    environment: dict[str, str],
    options: dict[str, object],
    expected: int,
) -> None:
    (project / "redrive.toml").write_text(file)
    set_all(monkeypatch, environment)
    assert load_settings(**options).slots == expected


@pytest.mark.parametrize(
    ("file", "environment", "expected"),
    [
        ("gate_release_rate = 7", {}, 7),
        ("", {"REDRIVE_GATE_RELEASE_RATE": "7"}, 7),
        ("gate_release_rate = 7", {"REDRIVE_CIRCUIT_BREAKER_RELEASE_RATE": "8"}, 8),
        ("", {"REDRIVE_GATE_RELEASE_RATE": "7", "REDRIVE_CIRCUIT_BREAKER_RELEASE_RATE": "8"}, 8),
        ("gate_release_rate = 7\ncircuit_breaker_release_rate = 8", {}, 8),
    ],
)
def test_a_setting_may_have_its_former_name_for_one_version(
    project: Path, monkeypatch: pytest.MonkeyPatch, file: str, environment: dict[str, str], expected: int
) -> None:
    (project / "redrive.toml").write_text(file)
    set_all(monkeypatch, environment)
    assert load_settings().circuit_breaker_release_rate == expected


@pytest.mark.parametrize(
    ("file", "environment", "expected"),
    [
        ("", {"REDRIVE_KAFKA__BOOTSTRAP_SERVERS": "a:1"}, {"bootstrap.servers": "a:1"}),
        ("", {"REDRIVE_KAFKA__LOG_LEVEL": "3"}, {"log_level": "3"}),
        ('[kafka]\n"bootstrap.servers" = "a:1"', {}, {"bootstrap.servers": "a:1"}),
        ('[kafka]\nbootstrap.servers = "a:1"', {}, {"bootstrap.servers": "a:1"}),
        (
            '[kafka]\n"bootstrap.servers" = "a:1"\n"client.id" = "c"',
            {"REDRIVE_KAFKA__BOOTSTRAP_SERVERS": "b:2"},
            {"bootstrap.servers": "b:2", "client.id": "c"},
        ),
        (
            '[kafka]\n"enable.ssl.certificate.verification" = false\n"fetch.max.bytes" = 5',
            {},
            {"enable.ssl.certificate.verification": "false", "fetch.max.bytes": "5"},
        ),
    ],
)
def test_kafka_properties_pass_through(
    project: Path, monkeypatch: pytest.MonkeyPatch, file: str, environment: dict[str, str], expected: dict[str, str]
) -> None:
    (project / "redrive.toml").write_text(file)
    set_all(monkeypatch, environment)
    settings = load_settings()
    assert settings.kafka == expected
    assert settings.kafka_properties == {"log_level": "0", **expected}


@pytest.mark.parametrize(
    ("file", "environment", "said"),
    [
        # wrong values: where, what is allowed, what was there
        ("", {"REDRIVE_SLOTS": "many"}, ["REDRIVE_SLOTS: must be a whole number from 1 to 256, not 'many'"]),
        ("slots = 0", {}, ["redrive.toml, slots: must be a whole number from 1 to 256, not '0'"]),
        ("poll_seconds = 0", {}, ["redrive.toml, poll_seconds: must be a number from 0.01 to 60, not '0'"]),
        (
            'decisions_topic = "a"\ngates_topic = "a"',
            {},
            ["redrive.toml, gates_topic: must be another topic than decisions_topic, which is a"],
        ),
        ("", {"REDRIVE_LOG_FORMAT": "xml"}, ["REDRIVE_LOG_FORMAT: must be one of text, json, not 'xml'"]),
        (
            "",
            {"REDRIVE_INSTANCE": "a b"},
            ["REDRIVE_INSTANCE: must be 1 to 100 letters, digits, dots, hyphens and underscores, not 'a b'"],
        ),
        ("kafka = 3", {}, ["redrive.toml, kafka: must be a table of Kafka properties"]),
        # unknown names
        ("slot = 3", {}, ["redrive.toml, slot: there is no such setting; did you mean slots?"]),
        ("", {"REDRIVE_SLOT": "3"}, ["REDRIVE_SLOT: there is no such setting; did you mean REDRIVE_SLOTS?"]),
        (
            "",
            {"REDRIVE_KAFKA_BOOTSTRAP_SERVERS": "a:1"},
            ["REDRIVE_KAFKA_BOOTSTRAP_SERVERS: there is no such setting; did you mean REDRIVE_KAFKA__BOOTSTRAP_SERVERS (two underscores)?"],
        ),
        (
            "",
            {"REDRIVE_KAFKA_JAVA_SASL_JAAS_CONFIG": SECRET},
            [
                "REDRIVE_KAFKA_JAVA_SASL_JAAS_CONFIG: there is no such setting; "
                "did you mean REDRIVE_KAFKA_JAVA__SASL_JAAS_CONFIG (two underscores)?"
            ],
        ),
        (
            "",
            {"REDRIVE_KAFKA": "{}"},
            ["REDRIVE_KAFKA: one variable for each Kafka property, as in REDRIVE_KAFKA__BOOTSTRAP_SERVERS"],
        ),
        # several at once, and secrets in none of them
        (
            "slots = 0\n[kafka]\nsasl.password = ['s3cret']",
            {"REDRIVE_KAFKA__SASL_USERNAME": "file:/nowhere/at/all"},
            [
                'redrive.toml, [kafka] "sasl.password": must be text, a number, true or false',
                "REDRIVE_KAFKA__SASL_USERNAME: names the file /nowhere/at/all, which can't be read: No such file or directory",
                "redrive.toml, slots: must be a whole number from 1 to 256, not '0'",
            ],
        ),
        (
            "",
            {"REDRIVE_PASSWORD": SECRET},
            ["REDRIVE_PASSWORD: there is no such setting; there are: REDRIVE_CONFIG, REDRIVE_HOME, "],
        ),
        ("password = 's3cret'", {}, ["redrive.toml, password: there is no such setting; "]),
        ("a = = 's3cret'", {}, ["redrive.toml: it is not valid TOML: "]),
        ("", {"REDRIVE_CONFIG": "no.toml"}, ["REDRIVE_CONFIG names no.toml: there is no such file"]),
        ("", {"REDRIVE_SEEDS": "nowhere"}, ["REDRIVE_SEEDS: must be a directory with the seed files; "]),
        ("project = 'nowhere'", {}, ["redrive.toml, project: must be the directory of redrive's dbt_project.yml; "]),
        ("", {"REDRIVE_HOME": "dbt_project.yml"}, ["REDRIVE_HOME: must be a directory; "]),
    ],
)
def test_what_is_wrong_is_one_line_each(
    project: Path, monkeypatch: pytest.MonkeyPatch, file: str, environment: dict[str, str], said: list[str]
) -> None:
    (project / "redrive.toml").write_text(file)
    set_all(monkeypatch, environment)
    with pytest.raises(SettingsError) as refused:
        load_settings()
    problems = sorted(refused.value.problems)
    assert len(problems) == len(said)
    for problem, expected in zip(problems, sorted(said), strict=True):
        assert problem.startswith(expected)
        assert "\n" not in problem
    assert refused.value.exit_code == 2
    # neither in the text nor in what a logged traceback would show
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None or SECRET not in str(refused.value.__context__)


def test_variables_that_the_projects_own_files_read_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_TARGET", "cluster")
    assert load_settings()


def test_another_file_can_be_named_and_its_paths_start_at_its_directory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "etc").mkdir()
    (project / "etc" / "mine.toml").write_text("home = 'state'")
    monkeypatch.setenv("REDRIVE_CONFIG", "etc/mine.toml")
    assert load_settings().home == project / "etc" / "state"


def test_what_dbt_reads_is_what_was_set_anywhere(project: Path) -> None:
    (project / "redrive.toml").write_text("home = 'elsewhere'")
    assert load_settings().dbt_environment == {
        "REDRIVE_HOME": str(project / "elsewhere"),
        "REDRIVE_SEEDS": str(project / "dbt_project" / "seeds"),
        "REDRIVE_INTERNAL_TOPICS": "redrive.commands redrive.sequences",
        "REDRIVE_ERROR_STACK_BYTES": "8192",
    }


def test_secrets_are_read_and_never_shown(project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    (project / "token").write_text(f"{SECRET}-from-file\n")
    (project / "redrive.toml").write_text(f"[kafka]\nsasl.password = '{SECRET}'")
    set_all(
        monkeypatch,
        {
            # a harmless name: being kept in a file is what makes it secret
            "REDRIVE_KAFKA__SASL_USERNAME": f"file:{project}/token",
            "REDRIVE_KAFKA__SASL_MECHANISMS": "PLAIN",
            "REDRIVE_KAFKA_JAVA__SSL_KEYSTORE_PASSWORD": SECRET,
            "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": "a:1",
        },
    )
    settings = load_settings()
    assert settings.kafka_properties["sasl.username"] == f"{SECRET}-from-file"
    assert settings.kafka_properties["sasl.password"] == SECRET
    assert f'password="{SECRET}"' in settings.kafka_java_properties["sasl.jaas.config"]

    with caplog.at_level(logging.INFO):
        logging.getLogger("test").info("%s %r", settings, settings.kafka_java_properties)
    shown = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()} {settings.kafka_properties}"
    assert SECRET not in shown + caplog.text
    assert "a:1" in shown


@pytest.mark.parametrize(
    ("address", "masked"),
    [
        ("postgresql://redrive:@db/shop", ["postgresql://redrive:@db/shop", "redrive:"]),
        ("postgresql://db/shop", ["postgresql://db/shop"]),
        ("postgresql://redrive:pass@db/shop", ["postgresql://redrive:pass@db/shop", "redrive:pass", "pass"]),
    ],
)
def test_an_address_without_a_password_masks_nothing_but_itself(address: str, masked: list[str]) -> None:
    assert Addresses(shop=address).secrets == masked


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("sasl.password", "x", True),
        ("sasl.jaas.config", "x", True),
        ("ssl.key.pem", "x", True),
        ("ssl.keystore.key", "x", True),
        ("sasl.oauthbearer.client.secret", "x", True),
        ("basic.auth.user.info", "u:p", True),
        ("schema.registry.url", "http://u:p@host", True),
        ("anything", "-----BEGIN PRIVATE KEY-----", True),
        ("sasl.oauthbearer.token.endpoint.url", "https://host/token", False),
        ("ssl.key.location", "/etc/key.pem", False),
        ("ssl.keystore.location", "/etc/store.p12", False),
        ("bootstrap.servers", "a:1,b:2", False),
        ("sasl.username", "me", False),
    ],
)
def test_redacted_hides_by_name_and_by_look(name: str, value: str, hidden: bool) -> None:
    assert redacted({name: value}) == {name: "***" if hidden else value}


def test_every_setting_says_what_is_allowed() -> None:
    from orchestration.settings.problems import allowed

    for name in Settings.model_fields:
        assert "None" not in allowed(Settings.model_fields, name)


@pytest.mark.parametrize("home", ["/proc/nope", "/proc/nope/deeper"])
def test_a_home_that_can_not_be_made_says_so_in_a_line(home: str) -> None:
    with pytest.raises(SettingsError) as wrong:
        load_settings(home=home).make_home()
    (problem,) = wrong.value.problems
    assert home in problem
    assert "--home or REDRIVE_HOME" in problem


def test_a_home_that_can_not_be_written_says_so_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(SettingsError, match="can't be written to by this user"):
        load_settings(home=tmp_path).make_home()


def test_a_home_is_made_once(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path / "a" / "b")
    assert settings.make_home() == settings.make_home() == tmp_path / "a" / "b"
    assert settings.home.is_dir()
