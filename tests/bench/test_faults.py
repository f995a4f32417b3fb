"""What the report on faults says, and what it runs, as far as that can be said without running it."""

import json
import math
import subprocess
from pathlib import Path

import pytest

from bench import envoy
from bench.fault_fleet import Host, Node, settings
from bench.faults import FAULTS, HEADING, Fault, Seen, quantile, row
from tests.agent.stub import Orders
from tests.ports import free_port
from tidegate import config


def node(folder: Path, number: int = 1) -> Node:
    return Node(number, 8000 + number, folder, Orders(folder, folder / f"orders-{number}"))


@pytest.mark.parametrize(
    ("values", "share", "found"), [([3.0, 1.0, 2.0], 0.5, 2.0), ([3.0, 1.0, 2.0], 0.99, 3.0), ([5.0], 0.5, 5.0)]
)
def test_a_quantile_is_one_of_the_values(values: list[float], share: float, found: float) -> None:
    assert quantile(values, share) == found


def test_of_nothing_there_is_no_quantile() -> None:
    assert math.isnan(quantile([], 0.5))


@pytest.mark.parametrize(
    ("last", "sick", "said"), [(None, True, "0"), (3.21, True, "3.2"), (14.2, True, ">15"), (3.0, False, "-")]
)
def test_a_line_says_when_the_last_request_went_there(last: float | None, sick: bool, said: str) -> None:
    fault = Fault("engine killed", lambda _: None, sick=sick)
    seen = Seen(asked=200, lost=["no end"] * 3, seconds=[0.5, 0.7], last=last, there=0.01, mistaken=1 / 7)
    line = row(fault, "Tidegate", seen, 15.0)
    assert line.split()[2:9] == ["Tidegate", "3", "of", "200", said, "1.0%" if sick else "-", "14%"]
    assert len(line) == len(HEADING)


def test_envoys_page_tells_how_it_is_with_a_host() -> None:
    status = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 8001}},
        "stats": [{"name": "rq_total", "value": "7"}, {"name": "cx_connect_fail", "value": "2"}, {"name": "rq_error"}],
        "health_status": {"failed_outlier_check": True},
    }
    assert Host.of(status) == Host("127.0.0.1:8001", 9, 0, unhealthy=True)


def test_every_fault_strikes_somebody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    struck: list[str] = []
    for name in ("kill_engine", "kill_agent", "freeze"):
        monkeypatch.setattr(Node, name, lambda self: struck.append(self.name))
    for name in ("fault", "give"):
        monkeypatch.setattr(Node, name, lambda self, *_, **__: struck.append(self.name))
    for key, fault in FAULTS.items():
        struck.clear()
        fault.strike([node(tmp_path, number) for number in range(1, 9)])
        assert len(set(struck)) == (4 if key == "liars" else 1), key


@pytest.mark.parametrize("heard", [True, False])
def test_the_configuration_is_one(tmp_path: Path, heard: bool) -> None:
    ports = [free_port() for _ in range(6)]
    text = settings(ports, [node(tmp_path)], "predicted_latency", heard=heard)
    parsed = config.parse(text.encode(), "faults")
    assert [endpoint.address for endpoint in parsed.pools[0].endpoints] == ["127.0.0.1:8001"]


def test_an_envoy_that_guards_itself_is_one(tmp_path: Path) -> None:
    file = tmp_path / "envoy.json"
    file.write_text(envoy.guarded(free_port(), free_port(), [8001, 8002]))
    (cluster,) = json.loads(file.read_text())["static_resources"]["clusters"]
    assert cluster["outlier_detection"]["max_ejection_percent"] == 50
    try:
        command = [envoy.binary(), "--mode", "validate", "--config-path", str(file)]
    except FileNotFoundError:
        pytest.skip("there is no Envoy here")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
