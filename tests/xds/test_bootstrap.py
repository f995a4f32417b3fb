from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.envoy_process import validate
from tests.xds.fleets import config
from tidegate.config_envoys import Node
from xds import bootstrap


def filled(**sections: Mapping[str, Any]) -> dict[str, Any]:
    text = bootstrap.render(
        config("a", **sections), bootstrap.template(), Node("envoy-7", "edge", {"role": "a 'b' $x"})
    )
    told: dict[str, Any] = yaml.safe_load(text)
    return told


def test_it_names_the_control_plane_and_the_admin_page_of_the_configuration() -> None:
    control = {"advertise": "10.1.2.3", "xds_port": 1234}
    told = filled(control=control, envoy={"admin_address": "127.0.0.2", "admin_port": 99})
    (cluster,) = told["static_resources"]["clusters"]
    member = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    assert member["address"]["socket_address"] == {"address": "10.1.2.3", "port_value": 1234}
    assert told["admin"]["address"]["socket_address"] == {"address": "127.0.0.2", "port_value": 99}
    assert told["node"] == {"id": "envoy-7", "cluster": "edge", "metadata": {"role": "a 'b' $x"}}


def test_it_asks_for_increments_over_one_stream() -> None:
    ads = filled()["dynamic_resources"]["ads_config"]
    assert ads["api_type"] == "DELTA_GRPC"
    assert {*filled()["dynamic_resources"]} == {"ads_config", "cds_config", "lds_config"}


async def test_a_real_envoy_accepts_it() -> None:
    variants: tuple[dict[str, Mapping[str, Any]], ...] = (
        {},
        {"control": {"address": "::1"}, "envoy": {"admin_address": "::1"}},
    )
    for sections in variants:
        status, said = await validate(bootstrap.render(config("a", **sections), bootstrap.template()))
        assert status == 0, said


def test_an_installed_wheel_brings_the_template_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = tmp_path / "templates"
    packaged.mkdir()
    (packaged / "bootstrap.yaml").write_text("from the wheel")
    monkeypatch.setattr(bootstrap, "__file__", str(tmp_path / "site-packages" / "xds" / "bootstrap.py"))
    monkeypatch.setattr(resources, "files", {"tidegate": tmp_path}.__getitem__)
    assert bootstrap.template() == "from the wheel"
