"""TLS on every connection of a fleet, with a real Envoy: to engines that are known or not, and between us and Envoy."""

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.authority import Authority, tls
from tests.e2e.stack import Stack, configuration, until, up
from tests.e2e.tls_engine import secured

DOMAIN = "fleet.example"
ENGINE = f"spiffe://{DOMAIN}/engine"
ENVOY = f"spiffe://{DOMAIN}/tidegate/envoy/envoy"


class Fleet(NamedTuple):
    """A running stack, and the folder in which the certificates are that it uses."""

    stack: Stack
    folder: Path


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("secured")
    ours, theirs, engines = (Authority(folder, name) for name in ("ours", "theirs", "engines"))
    strangers = Authority(folder, "strangers")
    shown, key = ours.issue("to-engines")
    to = {"certificate": str(shown), "key": str(key), "ca": str(engines.certificate)}
    by_uri, by_name = engines.issue_uri("by-uri", ENGINE), engines.issue("by-name", "engine.internal")
    pools: dict[str, tuple[tuple[Path, Path], dict[str, Any]]] = {
        "known": (by_uri, {**to, "san": ["other.internal", ENGINE]}),
        "named": (by_name, {**to, "server_name": "engine.internal"}),
        "misnamed": (by_name, {**to, "server_name": "other.internal"}),
        "strange": (by_uri, {**to, "ca": str(strangers.certificate), "san": [ENGINE]}),
        "shy": (by_uri, {"ca": str(engines.certificate), "san": [ENGINE]}),
    }
    config = configuration([1])
    (first,) = config["pools"]
    # Those that are not accepted are only connected to by us, so that it is Envoy that has to notice.
    known = {"known": "vllm", "named": "vllm"}
    config["control"]["tls"] = {**tls(ours, theirs), "trust_domain": DOMAIN}
    certificate, its_key = theirs.issue_uri("envoys", ENVOY)
    config["control"]["tls"]["envoy"] |= {"certificate": str(certificate), "key": str(its_key)}
    with contextlib.ExitStack() as running:
        config["pools"] = [
            {
                **first,
                "name": name,
                "models": [name],
                "engine": known.get(name, "none"),
                "endpoints": [{"address": f"127.0.0.1:{running.enter_context(secured(shows, ours.certificate))}"}],
                "tls": settings,
            }
            for name, (shows, settings) in pools.items()
        ]
        yield Fleet(running.enter_context(up(folder, config)), folder)


@pytest.mark.parametrize("pool", ["known", "named"])
def test_engines_are_asked_that_are_who_they_should_be(fleet: Fleet, pool: str) -> None:
    status, answer, _ = fleet.stack.ask(model=pool)
    assert status == 200, answer
    until(lambda: fleet.stack.total("tidegate_endpoint_up", pool=pool) == 1, 30, "its load is read")


@pytest.mark.parametrize("pool", ["misnamed", "strange", "shy"])
def test_no_request_goes_to_any_other_engine_nor_from_anybody_else(fleet: Fleet, pool: str) -> None:
    status, answer, _ = fleet.stack.ask(model=pool)
    assert status == 503, answer
    assert "error" in answer


def test_a_pool_whose_files_are_broken_is_alone_in_that_and_comes_back_when_they_are_mended(fleet: Fleet) -> None:
    ca = fleet.folder / "broken.pem"
    ca.write_text("no certificate")
    known, shy = fleet.stack.config["pools"][0], fleet.stack.config["pools"][-1]
    tls = copy.deepcopy({**known["tls"], "ca": str(ca)})
    fleet.stack.config["pools"][-1] = {**shy, "name": "broken", "models": ["broken"], "tls": tls}
    fleet.stack.write_config()
    until(lambda: fleet.stack.ask(model="broken")[0] == 503, 60, "there is a pool that cannot be connected to")
    assert "pools.broken.tls.ca" in fleet.stack.log()
    assert fleet.stack.ask(model="known")[0] == 200
    ca.write_bytes((fleet.folder / "engines.pem").read_bytes())
    until(lambda: fleet.stack.ask(model="broken")[0] == 200, 60, "it is mended")


def test_envoy_comes_back_with_a_renewed_certificate_of_a_new_authority(fleet: Fleet) -> None:
    settings = fleet.stack.config["control"]["tls"]
    renewed = Authority(fleet.folder / "renewed")
    certificate, key = renewed.issue_uri("envoys", ENVOY)
    renewed.certificate.rename(settings["client_ca"])
    key.rename(settings["envoy"]["key"])
    certificate.rename(settings["envoy"]["certificate"])
    assert fleet.stack.ask(model="known")[0] == 200
    before = fleet.stack.child("serve")
    before.kill()
    until(
        lambda: fleet.stack.ask(model="known")[0] == 200,
        60,
        "the new control plane serves an Envoy of the new authority",
    )
    until(lambda: fleet.stack.total("tidegate_requests_total", outcome="ok") >= 1, 30, "and hears its log")
    until(lambda: fleet.stack.total("tidegate_xds_clients_behind") == 0, 30, "and has it follow")
