"""Seeds as files: what is wrong is told with file, line, value, and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.rules.seed_columns import COLUMNS, DEFAULTS, FORMER_NAMES
from orchestration.rules.seeds import SeedError, read_seeds
from orchestration.rules.topic_patterns import topic_matches

PROJECT_SEEDS = Path(__file__).parents[2] / "dbt_project" / "seeds"


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    for path in PROJECT_SEEDS.glob("*.csv"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("error_class, parent", "the column ' parent' has blanks around its name: it must be 'parent'"),
        ("error_class,parents", "there is no column 'parents'; did you mean 'parent'?"),
        ("error_class,parent,parent", "the column 'parent' appears twice"),
        ("error_class", "the column 'parent' is missing"),
        ("error_class,parent,zzz", "there is no column 'zzz'"),
    ],
)
def test_a_column_that_is_none_is_named_with_the_nearest(seeds: Path, header: str, told: str) -> None:
    path = seeds / "error_classes.csv"
    path.write_text("\n".join([header, *path.read_text(encoding="utf-8").splitlines()[1:]]), encoding="utf-8")
    with pytest.raises(SeedError) as refused:
        read_seeds(seeds)
    (problem,) = refused.value.problems
    assert problem.startswith(f"{path}:1: the columns are {', '.join(header.split(','))}; they must be error_class, parent: ")
    assert told in problem


def test_the_projects_own_seeds_are_valid() -> None:
    read = read_seeds(PROJECT_SEEDS)
    assert [row["policy"] for row in read.rows["retry_policies"]] == ["default", "patient"]


@pytest.mark.parametrize(
    ("seed", "row", "told"),
    [
        ("error_rules", "X,,,,retryable,*,*,*,", "kind is 'retryable': must be one of retriable, fatal, poison"),
        ("error_rules", "X Y,,,,fatal,*,*,*,", "error_class is 'X Y': must be a class's name"),
        ("error_rules", "^X(,,,,fatal,*,*,*,", "error_class is '^X(': is not a regular expression"),
        ("error_rules", "^(a+)+$,,,,fatal,*,*,*,", "error_class is '^(a+)+$': can take exponential time"),
        ("error_rules", "X,^(a+)+$,,,fatal,*,*,*,", "message is '^(a+)+$': can take exponential time"),
        ("error_rules", "X,,,h=^(a+)+$,fatal,*,*,*,", "header is 'h=^(a+)+$': can take exponential time"),
        ("error_rules", "X,,,,fatal,*,^(a+)+$,*,", "topic is '^(a+)+$': can take exponential time"),
        ("dead_letter_topics", "^(a+)+$,*,*,dead", "error_class is '^(a+)+$': can take exponential time"),
        ("privacy", "p,keep,keep,keep,^(a+)+$", "headers is '^(a+)+$': can take exponential time"),
        ("privacy", "p,keep,keep,keep,^(a|A)*b", "headers is '^(a|A)*b': can take exponential time"),
        ("sources", "s,failures,redrive,,^(a+)+$,earliest,true", "speaks_for is '^(a+)+$': can take exponential time"),
        ("error_rules", "X,^(,,,fatal,*,*,*,", "message is '^(': is not a regular expression"),
        ("error_rules", "X,,,=503,fatal,*,*,*,", "header is '=503': must be name=value"),
        ("error_rules", "X,,,status=^(,fatal,*,*,*,", "header is 'status=^(': is not a regular expression"),
        ("error_rules", "java.lang.NullPointerException,,,,fatal,*,*,*,", "has the same error_class, message, code, header, kind"),
        ("error_rules", "X,,,,fatal,*,*,NULL,", "consumer_group is 'NULL': dbt takes this word for an empty cell"),
        ("error_rules", "X,fatal", "has 2 values, the header has 9 columns"),
        ("error_classes", "ValueError,Exception", "has the same error_class as line"),
        ("error_classes", "X,", "parent is '': must not be empty"),
        ("transparent_wrappers", ",x", "error_class is '': must not be empty"),
        ("retry_policies", "p,", "definition is '': must not be empty"),
        ("retry_policies", "default,none", "has the same policy as line"),
        ("sources", "s,failures,avro,,^.*,earliest,true", "dialect is 'avro': must be one of redrive, spring"),
        ("sources", "s,^fail(,redrive,,^.*,earliest,true", "topic is '^fail(': is not a regular expression"),
        ("sources", "s,table:orders,redrive,,^.*,earliest,true", "topic is 'table:orders': must be the name of an Iceberg table"),
        ("sources", "s,a topic,redrive,,^.*,earliest,true", "topic is 'a topic': must be a topic's name"),
        ("sources", "s,failures,redrive,,^.*,now,true", "start is 'now': must be one of earliest, latest"),
        ("sources", "s,failures,redrive,,^.*,earliest,yes", "states_kind is 'yes': must be one of true, false"),
        ("routes", "bills,*,*,none,patient,{topic}-retry,{topic}.dlq,,", "retry_policy is 'none': must be a policy of retry_policies.csv"),
        ("routes", "bills,*,*,default,patient,{topik},{topic}.dlq,,", "retry_topic is '{topik}': must be a topic's name, in which"),
        ("routes", "bills,*,*,default,patient,redrive.failures,{topic}.dlq,,", "is read by the source 'failures'"),
        ("routes", "bills,*,soft,default,patient,{topic},{topic}.dlq,,", "error_kind is 'soft': must be one of *, retriable"),
        ("routes", "bills,*,*,default,patient,none,{topic}.dlq,,", "retry_topic is 'none': only dead letters may go nowhere"),
        (
            "routes",
            "bills,*,*,default,patient,{topic}-retry,no topic,,",
            "in which {topic}, {group} and {kind} may stand, or none for none",
        ),
        ("error_rules", "@outages,,,,blocking,*,*,*,", "error_class is '@outages': must be a set of error_sets.csv: @outage"),
        ("error_rules", "@outage,late,,,blocking,*,*,*,", "error_class is '@outage': a set has its own conditions"),
        ("error_rules", "@,,,,blocking,*,*,*,", "error_class is '@': must be the name of a set"),
        ("error_sets", "s,,,,,why", "has no condition: it would hold for any error"),
        ("error_sets", "a b,X,,,,why", "error_set is 'a b': must be the name of a set"),
        ("error_sets", "s,^(a+)+$,,,,why", "error_class is '^(a+)+$': can take exponential time"),
        ("error_sets", "s,@outage,,,,why", "error_class is '@outage': must be a class's name"),
        ("dead_letter_topics", ",*,*,dead", "error_class is '': must not be empty"),
        ("dead_letter_topics", "^X(,*,*,dead", "error_class is '^X(': is not a regular expression"),
        ("dead_letter_topics", "X,*,*,{topik}", "dead_letter_topic is '{topik}': must be a topic's name, in which"),
        (
            "dead_letter_topics",
            "X,*,*,redrive.failures",
            "dead_letter_topic is 'redrive.failures': that is read by",
        ),
        ("redrive_rules", "X Y,*,*,2,1h,why", "error_class is 'X Y': must be a class's name"),
        ("redrive_rules", "X,*,*,1,1h,why", "max_life_cycles is '1': must be a whole number from 2 to 1000"),
        ("redrive_rules", "X,*,*,2,soon,why", "delay is 'soon': must be a duration, up to 365 days: 90s, 5m"),
        ("redrive_rules", "X,*,*,2,366d,why", "delay is '366d': must be a duration"),
        ("redrive_rules", "X,*,*,2,99999999999d,why", "delay is '99999999999d': must be a duration"),
        ("redrive_rules", "X,*,*,2,1h,", "why is '': must not be empty"),
        ("privacy", "everything,drop,drop,drop,", "name is 'everything': is the privacy that keeps all"),
        ("privacy", "p,keep,keep,forget,", "payload is 'forget': must be one of keep, hide, drop"),
        ("privacy", "p,keep,keep,keep,cookie ^x(", "headers is 'cookie ^x(': is not a regular expression"),
        ("publish_error_kinds", "77777,X,fatal,record,,", "code is '77777'"),
        ("publish_error_kinds", "9999,X,fatal,message,,", "concerns is 'message': must be one of record, topic, connection"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(seeds: Path, seed: str, row: str, told: str) -> None:
    path = seeds / f"{seed}.csv"
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    path.write_text("\n".join([*lines, row]) + "\n", encoding="utf-8")
    with pytest.raises(SeedError) as error:
        read_seeds(seeds)
    assert told in str(error.value)
    assert f"{path}:{len(lines) + 1}:" in str(error.value)


def test_a_quote_that_nothing_closes_is_told(seeds: Path) -> None:
    path = seeds / "error_classes.csv"
    path.write_text(path.read_text(encoding="utf-8") + '"X,Exception\n' + "Y,Exception\n" * 20_000, encoding="utf-8")
    with pytest.raises(SeedError) as error:
        read_seeds(seeds)
    (told,) = error.value.problems
    assert told.startswith(f"{path}: can't be read as CSV: field larger than field limit")


def test_a_table_belongs_to_one_outbox(seeds: Path) -> None:
    path = seeds / "outboxes.csv"
    (header, *_) = path.read_text(encoding="utf-8").splitlines()
    names = header.split(",")

    def line(**values: str) -> str:
        return ",".join({"profile": "plain", "write_back": "mark", **values}.get(name, "") for name in names)

    orders = line(outbox="orders", connection="shop", table="outbox")
    path.write_text("\n".join([header, orders, line(outbox="bills", connection="shop", table="bills")]) + "\n", encoding="utf-8")
    read_seeds(seeds)
    path.write_text("\n".join([header, orders, line(outbox="bills", connection="shop", table="outbox")]) + "\n", encoding="utf-8")
    with pytest.raises(SeedError, match=r"outboxes.csv:3: table is 'outbox': the outbox 'orders' on line 2 reads it, too"):
        read_seeds(seeds)
    for table, other in (("outbox", "public.outbox"), ("public.outbox", "outbox")):
        first, second = (line(outbox=name, connection="shop", table=of) for name, of in (("orders", table), ("bills", other)))
        path.write_text("\n".join([header, first, second]) + "\n", encoding="utf-8")
        with pytest.raises(SeedError, match=rf"outboxes.csv:3: table is '{other}': it may be '{table}' on line 2"):
            read_seeds(seeds)
    first, second = (line(outbox=name, connection="shop", table=f"{name}.outbox") for name in ("orders", "bills"))
    path.write_text("\n".join([header, first, second]) + "\n", encoding="utf-8")
    read_seeds(seeds)


def test_a_dead_letter_topic_may_be_none_and_a_set_is_switched_on_by_one_row(seeds: Path) -> None:
    added = {
        "routes": "bills,*,*,default,patient,{topic}-retry,none,,",
        "dead_letter_topics": "X,*,*,none",
        "error_rules": "@outage,,,,SBE,*,orders,*,everything waits for it",
    }
    for name, row in added.items():
        with (seeds / f"{name}.csv").open("a", encoding="utf-8") as file:
            file.write(row + "\n")
    # even where a source reads whatever has that name
    with (seeds / "sources.csv").open("a", encoding="utf-8") as file:
        file.write("other,none,redrive,,orders,earliest,true\n")
    rows = read_seeds(seeds).rows
    assert (rows["routes"][-1]["dead_letter_topic"], rows["dead_letter_topics"][-1]["dead_letter_topic"]) == ("none", "none")
    assert (rows["error_rules"][-1]["error_class"], rows["error_rules"][-1]["topic"]) == ("@outage", "orders")


def test_every_problem_is_told_not_only_the_first(seeds: Path) -> None:
    (seeds / "routes.csv").unlink()
    (seeds / "sources.csv").write_text("name,topic\n", encoding="utf-8")
    with pytest.raises(SeedError) as error:
        read_seeds(seeds)
    assert len(error.value.problems) == 2


def test_a_changed_file_changes_the_digest(seeds: Path) -> None:
    before = read_seeds(seeds).digest
    (seeds / "error_rules.csv").open("a", encoding="utf-8").write("New,,,,fatal,*,*,*,\n")
    assert read_seeds(seeds).digest != before


@pytest.mark.parametrize(
    ("topic", "pattern", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "*", True),
        ("orders2", "orders", False),
        ("orders.eu", "^orders[.]", True),
        ("x", "^orders", False),
    ],
)
def test_patterns(topic: str, pattern: str, matches: bool) -> None:
    assert topic_matches(topic, pattern) is matches


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("dead_letter_headers", "json", "must be one of dlq, dlq+stack, safi, safi+stack, spring"),
        ("privacy", "nobody", "privacy is 'nobody': must be everything, or a name in privacy.csv: everything, personal"),
    ],
)
def test_what_is_wrong_with_a_column_that_may_be_left_out(seeds: Path, column: str, value: str, told: str) -> None:
    path = seeds / "routes.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([f"{lines[0]},{column}", f"{lines[1]},{value}"]) + "\n", encoding="utf-8")
    with pytest.raises(SeedError) as caught:
        read_seeds(seeds)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{path}:2: ")
    assert told in problem


@pytest.mark.parametrize(("adopt", "told"), [("dead", None), ("", None), ("died", "adopt is 'died': must be dead, or empty")])
def test_a_source_adopts_dead_letters_or_nothing(seeds: Path, adopt: str, told: str | None) -> None:
    path = seeds / "sources.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([f"{lines[0]},adopt", f"{lines[1]},{adopt}"]) + "\n", encoding="utf-8")
    if told is None:
        assert [row["adopt"] for row in read_seeds(seeds).rows["sources"]] == [adopt]
        return
    with pytest.raises(SeedError) as error:
        read_seeds(seeds)
    assert told in str(error.value)


def test_a_file_that_is_missing_is_told_with_what_would_do(seeds: Path) -> None:
    (seeds / "privacy.csv").unlink()
    with pytest.raises(SeedError, match=r"privacy[.]csv: is missing; without rows it is this line: name,stack,message,payload,headers"):
        read_seeds(seeds)
    (seeds / "privacy.csv").write_text("name,stack,message,payload,headers\n", encoding="utf-8")
    assert read_seeds(seeds).rows["privacy"] == ()


def test_a_column_that_the_file_lacks_has_its_default(seeds: Path) -> None:
    assert [source["adopt"] for source in read_seeds(seeds).rows["sources"]] == [""]
    path = seeds / "routes.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([f"{lines[0]},circuit_breaker_per", f"{lines[1]},partition", f"{lines[2]},"]) + "\n", encoding="utf-8")
    routes = read_seeds(seeds).rows["routes"]
    assert [(route["circuit_breaker_per"], route["publish_charge"]) for route in routes] == [("partition", "record"), ("topic", "record")]


def test_each_default_is_allowed_in_its_column_and_each_former_name_has_a_column() -> None:
    wrong = [(seed, column) for seed, defaults in DEFAULTS.items() for column, value in defaults.items() if COLUMNS[seed][column](value)]
    assert wrong == []
    for seed, names in FORMER_NAMES.items():
        assert names.keys().isdisjoint(COLUMNS[seed])
        assert set(names.values()) <= COLUMNS[seed].keys()


def test_a_column_may_have_its_former_name_for_one_version(seeds: Path) -> None:
    path = seeds / "routes.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([f"{lines[0]},gate", *(f"{line},partition" for line in lines[1:])]) + "\n", encoding="utf-8")
    assert {route["circuit_breaker_per"] for route in read_seeds(seeds).rows["routes"]} == {"partition"}


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("logs_url", "https://logs/?q={grupp}", "knows no {grupp}; placeholders are {message_id}, {topic}"),
        ("trace_url", "traces/{trace_id}", "must be an address (https://...), without blanks"),
        ("logs_url", "https://logs/?q=a b", "must be an address"),
        ("sequence", "$.order", None),
        ("sequence", "$.lines[0]['id']", None),
        ("sequence", "$.lines[*].id", "$.lines[*].id is no path to one place: $.name, $['name'], $.name[0]"),
        ("sequence", "$['order", "$['order is no path to one place"),
        ("sequence", "customer id", "must be one place: key, a header's name, or a path"),
        ("request_id", "x-request $meta.request", "$meta.request is no path: $.name, or $['name']"),
        ("owner", "team orders", None),
        ("logs_url", "https://logs/?q={group}&from={from_ms}", None),
        ("process_id", "x-process $.process $['process']", None),
    ],
)
def test_what_a_route_says_for_people(seeds: Path, column: str, value: str, told: str | None) -> None:
    path = seeds / "routes.csv"
    # without what the routes of the example say already
    lines = [",".join(line.split(",")[:7]) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("\n".join([f"{lines[0]},{column}", f'{lines[1]},"{value}"', f"{lines[2]},"]) + "\n", encoding="utf-8")
    if told is None:
        assert [route[column] for route in read_seeds(seeds).rows["routes"]] == [value, ""]
        return
    with pytest.raises(SeedError) as error:
        read_seeds(seeds)
    assert told in str(error.value)
