"""``agents``, and what endpoints and pools say of their GPUs."""

from pathlib import Path
from typing import Any

import pytest

from tests.authority import Authority, tls
from tests.configurations import EVERY_KEY, changed, faults, parsed
from tidegate.runtime import ports


def with_agents(**agents: Any) -> dict[str, Any]:
    return {**EVERY_KEY, "agents": agents}


def test_nobody_listens_for_agents_unless_it_is_asked_for() -> None:
    assert parsed({**EVERY_KEY, "agents": None}).agents is None
    taken = parsed(with_agents()).agents
    assert taken is not None
    assert (taken.address, taken.port, taken.tls) == ("127.0.0.1", 18100, None)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1"])
def test_on_this_machine_no_certificates_are_needed(address: str) -> None:
    assert parsed(with_agents(address=address)).agents is not None


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.2"])
def test_elsewhere_they_are_unless_it_is_said_aloud(address: str) -> None:
    expected = f"agents.tls: expected certificates, or insecure: true, where agents report to {address}"
    assert faults(with_agents(address=address)) == [expected]
    assert parsed(with_agents(address=address, insecure=True)).agents is not None


def test_with_certificates_agents_may_come_from_everywhere(tmp_path: Path) -> None:
    files = tls(Authority(tmp_path, "ours"), Authority(tmp_path, "theirs"))
    del files["envoy"]
    taken = parsed(with_agents(address="0.0.0.0", tls=files)).agents
    assert taken is not None
    assert taken.tls is not None
    assert taken.tls.files.client_ca == files["client_ca"]
    files["key"] = str(tmp_path / "none.key")
    (line,) = faults(with_agents(address="0.0.0.0", tls=files))
    assert line.startswith("agents.tls: expected certificates that can be used")


def test_the_port_is_one_of_its_own_and_looked_at_before_anything_starts() -> None:
    said = faults(with_agents(port=9091))
    assert said == ["agents.port: 127.0.0.1:9091 is taken already by admin.port; expected a port of its own"]
    claims = ports.of_control_plane(parsed(with_agents()))
    assert ("GPU agents (agents.port)", "127.0.0.1", 18100) in claims


@pytest.mark.parametrize("node", ["", "-gpu", "gpu 7", "x" * 254])
def test_a_node_is_a_name_that_an_agent_can_have(node: str) -> None:
    (line,) = faults(changed("pools.0.endpoints.0.node", node))
    assert line.startswith("pools[0].endpoints[0].node: expected")


def test_an_endpoint_may_run_on_some_of_its_nodes_gpus() -> None:
    endpoint = parsed(EVERY_KEY).pools[0].endpoints[0]
    assert (endpoint.node, endpoint.gpus) == ("gpu-7.internal", ("GPU-5a1c", "MIG-77"))
    (line,) = faults(changed("pools.0.endpoints.0.gpus.0", "no uuid"))
    assert line.startswith("pools[0].endpoints[0].gpus[0]: expected")


def test_how_vram_is_judged_is_one_of_four_words() -> None:
    (line,) = faults(changed("pools.0.vram.judged", "strictly"))
    assert line == "pools[0].vram.judged: expected one of 'auto', 'growth', 'headroom' or 'ignore', not 'strictly'"


def test_an_endpoint_runs_on_each_of_its_gpus_once() -> None:
    one, other = (f"GPU-{number:08x}-0000-0000-0000-000000000000" for number in (1, 2))
    (line,) = faults(changed("pools.0.endpoints.0.gpus", [one, other, one]))
    assert line == f"pools[0].endpoints[0].gpus: expected each GPU once, not '{one}' again"
    assert parsed(changed("pools.0.endpoints.0.gpus", [one, other]))
