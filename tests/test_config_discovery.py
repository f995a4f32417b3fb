"""What a pool's ``discovery`` may say, and what is said about the rest."""

from typing import Any

import pytest

from tests.configurations import faults, parsed
from tidegate.config import Config


def pools(discovery: Any, **more: Any) -> dict[str, Any]:
    return {"pools": [{"name": "llm", "discovery": discovery, **more}]}


def config(discovery: Any) -> Config:
    return parsed(pools(discovery))


EACH: list[dict[str, Any]] = [
    {"file": {"path": "/etc/endpoints.yaml"}},
    {"dns": {"name": "LLM.example.com.", "port": 8000}},
    {"dns": {"name": "_llm._tcp.example.com", "records": "srv", "servers": ["10.0.0.53:53"]}},
    {"kubernetes": {"namespace": "ml", "selector": "app=vllm", "port": 8000}},
    {"kubernetes": {"namespace": "ml", "inference_pool": "llama"}},
    {"kubernetes": {"namespace": "ml", "service": "vllm"}},
    {"consul": {"service": "llm", "url": "https://consul.example.com:8501/", "token_file": "/run/token"}},
]


@pytest.mark.parametrize("discovery", EACH)
def test_a_pool_whose_endpoints_are_discovered_needs_none_listed(discovery: dict[str, Any]) -> None:
    (pool,) = config(discovery).pools
    assert pool.endpoints == ()
    assert pool.discovery is not None
    assert pool.discovery.kind == next(iter(discovery))


def test_a_pool_has_endpoints_or_finds_them() -> None:
    assert faults({"pools": [{"name": "llm"}]}) == [
        "pools[0].endpoints: expected at least 1 in the list, not an empty list"
    ]


def test_what_was_read_can_be_written_down_and_read_again() -> None:
    """Workers are told the configuration in this way."""
    said = config(EACH[0])
    assert Config.model_validate_json(said.model_dump_json()) == said


def test_names_and_urls_have_one_spelling() -> None:
    dns, consul = config(EACH[1]).pools[0].discovery, config(EACH[-1]).pools[0].discovery
    assert dns is not None
    assert dns.dns is not None
    assert dns.dns.name == "llm.example.com"
    assert consul is not None
    assert consul.consul is not None
    assert consul.consul.url == "https://consul.example.com:8501"


def test_answers_that_flap_by_themselves_linger_unless_the_file_says_otherwise() -> None:
    found = [config(one).pools[0].discovery for one in EACH]
    assert [one.lingers for one in found if one] == [0.0, 10.0, 10.0, 0.0, 0.0, 0.0, 3.0]
    told = config({**EACH[1], "linger_seconds": 0}).pools[0].discovery
    assert told is not None
    assert told.lingers == 0.0


@pytest.mark.parametrize(
    ("discovery", "said"),
    [
        ({}, "expected exactly one of file, dns, consul, kubernetes"),
        ({**EACH[0], **EACH[1]}, "not file and dns"),
        ({"dns": {"name": "llm.test"}}, "expected a port with addresses"),
        ({"dns": {"name": "llm.test", "port": 1, "records": "srv"}}, "none with srv"),
        ({"dns": {"name": "10.0.0.1", "port": 1}}, "expected a DNS name"),
        ({"dns": {"name": "a..b", "port": 1}}, "expected a DNS name"),
        ({"file": {"path": "endpoints.yaml"}}, "expected an absolute path"),
        ({"consul": {"service": "x", "url": "http://user:secret@consul:8500"}}, "expected a URL"),
        ({"consul": {"service": "x", "url": "ftp://consul"}}, "expected a URL"),
        ({**EACH[0], "allow": ["10.0.0.1/8"]}, "expected a network"),
        ({**EACH[0], "max_shrink": 1.5}, "expected at most 1"),
        ({"kubernetes": {"namespace": "ml"}}, "exactly one of service, selector, inference_pool"),
        ({"kubernetes": {"namespace": "ml", "service": "a", "inference_pool": "b"}}, "exactly one of service"),
        ({"kubernetes": {"namespace": "ml", "selector": "a=b"}}, "expected a port with selector"),
        ({"kubernetes": {"selector": "a=b", "port": 1}}, "missing; this key is required"),
        ({"zookeeper": {}}, "unknown key"),
    ],
)
def test_what_cannot_be_meant_is_refused(discovery: dict[str, Any], said: str) -> None:
    (line,) = faults(pools(discovery))
    assert line.startswith("pools[0].discovery")
    assert said in line
