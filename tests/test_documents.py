"""Documents and rules that would otherwise quietly stop being true."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.configurations import EVERY_KEY, EVERY_KEY_OF_A_SPLIT, EVERY_KEY_OF_TENANTS
from tidegate.cli import main
from tidegate.config import parse
from tidegate.runtime import demo
from tidegate.scheduling import filters, pickers, scorers
from tidegate.simulator.settings import DEFAULT_MODEL
from tidegate.telemetry.metrics import Metrics
from tools import configuration_reference

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("tidegate", "extproc", "xds", "protos", "bench", "tools", "tests", "deploy")
FORBIDDEN_NAMES = re.compile(r"(?:^|_)(?:managers?|helpers?|utils?|utilities|common)(?:_|$)")
MAX_LINES = 400


def python_files() -> list[Path]:
    return sorted(
        path for folder in SOURCES for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts
    )


def test_the_configuration_reference_is_what_its_generator_writes() -> None:
    found = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert found == configuration_reference.reference_text(), "run: python -m tools.configuration_reference"


def test_the_schema_for_editors_is_what_its_generator_writes() -> None:
    found = (ROOT / "docs/configuration.schema.json").read_text(encoding="utf-8")
    assert found == configuration_reference.schema_text(), "run: python -m tools.configuration_reference"


def test_the_generator_writes_both_files(tmp_path: Path) -> None:
    configuration_reference.write(tmp_path / "docs")
    written = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "docs").iterdir()}
    assert json.loads(written.pop("configuration.schema.json")) == configuration_reference.schema()
    assert written == {"configuration.md": configuration_reference.reference_text()}


def test_the_example_in_the_reference_can_be_used() -> None:
    document = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", document, re.DOTALL)
    assert len(parse(example.encode(), "docs/configuration.md").pools) == 1


def test_every_key_is_in_the_reference() -> None:
    document = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")

    def check(data: Any) -> None:
        for key, value in data.items():
            assert f"| `{key}` |" in document
            inner = value[0] if isinstance(value, list) and value else value
            if isinstance(inner, dict):
                check(inner)

    check({**EVERY_KEY, **EVERY_KEY_OF_TENANTS})
    check(EVERY_KEY_OF_A_SPLIT)
    check({"mirror": {"pool": "rest", "percent": 2.5}})


def test_the_schema_refuses_unknown_keys_everywhere() -> None:
    schema = configuration_reference.schema()
    assert all(model["additionalProperties"] is False for model in [schema, *schema["$defs"].values()])


@pytest.mark.parametrize("policy", pickers.names())
def test_every_policy_is_in_the_reference_and_has_its_test(policy: str) -> None:
    assert f"- `{policy}`: " in (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert (ROOT / f"tests/scheduling/pickers/test_{policy}.py").is_file()


@pytest.mark.parametrize("name", [*filters.names(), *scorers.names()])
def test_every_filter_and_scorer_is_in_the_reference(name: str) -> None:
    assert f"- `{name}`: " in (ROOT / "docs/configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_every_command_says_what_it_does(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.help
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


def test_no_module_is_named_for_nothing() -> None:
    named = [
        path
        for path in python_files()
        if any(map(FORBIDDEN_NAMES.search, path.relative_to(ROOT).with_suffix("").parts))
    ]
    assert named == []


@pytest.mark.parametrize("name", ["utils", "http_helpers", "common", "connection_manager"])
def test_names_that_say_nothing_are_recognised(name: str) -> None:
    assert FORBIDDEN_NAMES.search(name)
    assert not FORBIDDEN_NAMES.search("commonality")


def test_no_file_is_too_long_to_read() -> None:
    lengths = {path: path.read_bytes().count(b"\n") for path in python_files() if not path.stem.endswith("_pb2")}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_the_envoy_folder_is_no_package() -> None:
    assert not list((ROOT / "envoy").rglob("*.py")), "a Python package named envoy breaks the Envoy binary's wrapper"


def test_the_list_of_commands_says_each_in_full() -> None:
    listed = CliRunner().invoke(main, ["--help"], terminal_width=80).output.partition("Commands:")[2]
    assert "up " in listed
    assert "..." not in listed


@pytest.mark.parametrize(
    "path", sorted(path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
)
def test_what_a_document_links_to_is_there(path: Path) -> None:
    prose = re.sub(r"`[^`]*`", "", (ROOT / path).read_text(encoding="utf-8"))
    targets = re.findall(r"\[[^\]`]+\]\((?!https?:)([^)#]+)", prose)
    assert [target for target in targets if not (ROOT / path).parent.joinpath(target).exists()] == []


def test_every_metric_that_the_operations_name_exists() -> None:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    exported = re.findall(r"^# TYPE tidegate_(\w+) ", Metrics(tuple, int).render().decode(), re.MULTILINE)
    named = re.findall(r"`(?:tidegate_)?(\w+_(?:total|seconds|requests|tokens|success|streams|up))`", text)
    assert len(named) > 15
    assert set(named) <= set(exported)


@pytest.mark.parametrize("file", ["README.md", "docker-compose.yml"])
def test_what_a_document_has_one_paste_asks_for_the_model_that_the_simulated_engines_serve(file: str) -> None:
    asked = re.findall(r'"model": ?"([^"]+)"', (ROOT / file).read_text(encoding="utf-8"))
    assert {*asked} == {DEFAULT_MODEL} == {demo.MODEL}
