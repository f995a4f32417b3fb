"""``tidegate bootstrap``: what an Envoy of a group is told to say of itself."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.configurations import EXAMPLE
from tests.test_config_envoys import EDGE, SIDECAR, config
from tidegate.cli import main


@pytest.mark.parametrize(
    ("options", "node"),
    [
        (("--group", "edge"), {"id": "edge-envoy", "cluster": "tidegate"}),
        (("--group", "edge", "--id", "edge-7"), {"id": "edge-7", "cluster": "tidegate"}),
        (("--group", "sidecar"), {"id": "envoy", "cluster": "apps", "metadata": {"role": "sidecar"}}),
        (("--id", "edge-1"), {"id": "edge-1", "cluster": "tidegate"}),
    ],
)
def test_it_prints_what_puts_an_envoy_into_a_group(
    tmp_path: Path, options: tuple[str, ...], node: dict[str, object]
) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_text(yaml.safe_dump(config(EDGE, SIDECAR, others="refuse")))
    result = CliRunner().invoke(main, ["bootstrap", "--config", str(file), *options])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.output)["node"] == node


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--group", "x"), "expected one of edge, sidecar, default, not 'x'"),
        (("--group", "edge", "--id", "pod-1"), "an Envoy with the id 'pod-1' is refused"),
        ((), "an Envoy with the id 'envoy' is refused; expected one of edge, sidecar"),
    ],
)
def test_an_envoy_that_would_be_refused_is_said_to_be_before_it_starts(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_text(yaml.safe_dump(config(EDGE, SIDECAR, others="refuse")))
    result = CliRunner().invoke(main, ["bootstrap", "--config", str(file), *options])
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(("options", "port"), [((), 9901), (("--admin-port", "9902"), 9902)])
def test_a_second_envoy_on_one_machine_gets_an_admin_port_of_its_own(
    tmp_path: Path, options: tuple[str, ...], port: int
) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_bytes(EXAMPLE)
    result = CliRunner().invoke(main, ["bootstrap", "--config", str(file), *options])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.output)["admin"]["address"]["socket_address"]["port_value"] == port
