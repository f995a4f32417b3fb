"""Which endpoints run on which node."""

import pytest
from hypothesis import given

from tests.health.reports import REPORTS, engine, report
from tidegate.fleet.endpoint import EndpointSpec
from tidegate.health.places import Place, Places, listening
from tidegate.health.reported import Report

ANYBODY = "10.0.0.7:8000"


def test_an_endpoint_is_on_the_node_that_it_names_and_on_no_other() -> None:
    places = Places([EndpointSpec("10.0.0.7:8000", node="gpu-7", gpus=("GPU-1",)), EndpointSpec("10.0.0.8:8000")])
    assert places.on(report(node="gpu-7")) == (Place("10.0.0.7:8000", ("GPU-1",)),)
    assert places.on(report(node="gpu-8")) == ()
    assert places.on(report(node="10.0.0.7")) == (), "it said where it runs"
    assert places.named == {"gpu-7"}


def test_without_a_name_it_is_on_the_node_that_its_address_names() -> None:
    places = Places([EndpointSpec("10.0.0.7:8000"), EndpointSpec("10.0.0.7:8001"), EndpointSpec("[fd00::7]:8000")])
    found = places.on(report(node="10.0.0.7"))
    assert found == (Place("10.0.0.7:8000", (), alone=False), Place("10.0.0.7:8001", (), alone=False))
    assert places.on(report(node="fd00:0:0::7")) == (Place("[fd00::7]:8000"),)


def test_the_engine_that_an_agent_asks_is_on_its_node_where_agents_are_believed() -> None:
    endpoints = [EndpointSpec("127.0.0.1:8001"), EndpointSpec("10.0.0.8:8000")]
    said = report(engines=(engine("http://127.0.0.1:8001/health"), engine("tcp://10.0.0.8:8000")))
    assert Places(endpoints).on(said) == ()
    both = Places(endpoints, believed=lambda _: True).on(said)
    assert [place.address for place in both] == ["127.0.0.1:8001", "10.0.0.8:8000"]
    remote = Places(endpoints, believed=lambda host: not host.startswith("127."))
    assert remote.on(said) == (Place("10.0.0.8:8000"),), "127.0.0.1 is another machine there than here"


def test_an_endpoint_that_names_its_node_is_not_taken_by_one_that_asks_it() -> None:
    places = Places([EndpointSpec(ANYBODY, node="gpu-7")], believed=lambda _: True)
    assert places.on(report(node="gpu-8", engines=(engine(f"http://{ANYBODY}"),))) == ()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9901", "tcp://10.0.0.53:53", "http://169.254.169.254"])
def test_what_an_agent_says_adds_nobody(url: str) -> None:
    places = Places([EndpointSpec(ANYBODY)], believed=lambda _: True)
    assert places.on(report(engines=(engine(url),))) == ()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://10.0.0.7:8000/health", "10.0.0.7:8000"),
        ("http://10.0.0.7", "10.0.0.7:80"),
        ("https://[fd00:0::7]/", "[fd00::7]:443"),
        ("tcp://10.0.0.7:1", "10.0.0.7:1"),
        ("http://localhost:8000", ""),
        ("tcp://10.0.0.7", ""),
        ("http://10.0.0.7:99999", ""),
        ("http://[", ""),
        ("", ""),
    ],
)
def test_a_url_says_where_it_listens(url: str, place: str) -> None:
    assert listening(url) == place


@given(REPORTS)
def test_whatever_an_agent_says_it_speaks_for_declared_endpoints_alone(said: Report) -> None:
    endpoints = [EndpointSpec(ANYBODY), EndpointSpec("127.0.0.1:8000"), EndpointSpec("[fd00::1]:80", node="gpu-9")]
    found = Places(endpoints, believed=lambda _: True).on(said)
    assert {place.address for place in found} <= {ANYBODY, "127.0.0.1:8000"}
    assert len({place.address for place in found}) == len(found)
