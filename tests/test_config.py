"""The configuration: what it may say, and what is said about what it may not."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from tests.configurations import EVERY_KEY, EXAMPLE, changed, faults, parsed
from tests.tokens.model_files import write
from tidegate.config import Config, Pool, parse
from tidegate.config_control import Control
from tidegate.config_endpoint import Endpoint
from tidegate.scheduling import filters, pickers, scorers

# What it may say


def test_the_example_is_enough() -> None:
    config = parse(EXAMPLE, "tidegate.yaml")
    assert (config.listener.port, config.admin.port, config.control.xds_port) == (8080, 9090, 18000)
    (pool,) = config.pools
    assert (pool.name, pool.engine, pool.models, pool.policy) == ("default", "vllm", ("*",), "least_tokens")
    assert pool.endpoints == (Endpoint(address="127.0.0.1:8001"), Endpoint(address="127.0.0.1:8002", weight=2))


def test_every_key_is_taken_as_it_is_given() -> None:
    given_keys = parsed(EVERY_KEY).model_dump(mode="json")
    pool = given_keys.pop("pools")[0]
    assert pool.pop("lanes") == [{"above_tokens": 30_000, "share": 0.25, "endpoints": []}]
    assert pool == {key: value for key, value in EVERY_KEY["pools"][0].items() if key != "lanes"}
    assert given_keys == {key: value for key, value in EVERY_KEY.items() if key != "pools"}


def test_every_key_is_described_and_every_number_bounded() -> None:
    def check(model: type[BaseModel]) -> None:
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            assert field.description.endswith("."), f"{model.__name__}.{name}"
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                check(field.annotation)
            elif field.annotation in (int, float):
                bounds = {type(part).__name__ for part in field.metadata}
                assert {"Ge", "Le"} <= bounds, f"{model.__name__}.{name}"
                assert len([part for part in field.metadata if type(part).__name__ == "Ge"]) == 1
        for inner in ("Pool", "Endpoint"):
            assert inner in Config.model_json_schema()["$defs"]

    check(Config)


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        parse(EXAMPLE, "tidegate.yaml").listener.port = 1  # type: ignore[misc]


def test_envoy_connects_to_the_bound_address_unless_another_is_advertised() -> None:
    assert parse(EXAMPLE, "x").control.reached_at == "127.0.0.1"
    assert parsed(EVERY_KEY).control.reached_at == "10.0.0.2"


def test_a_report_counts_through_two_missed_scrapes() -> None:
    assert parse(EXAMPLE, "x").scrape.stale_after_seconds == 5.0
    assert parsed(changed("scrape.interval_seconds", 30)).scrape.stale_after_seconds == 91.0


def test_every_policy_can_be_chosen() -> None:
    for name in pickers.names():
        assert parsed(changed("pools.1.policy", name)).pools[1].policy == name


@pytest.mark.parametrize("name", [*filters.names()])
def test_every_filter_can_be_chosen(name: str) -> None:
    assert parsed(changed("pools.0.filters", [name])).pools[0].filters == (name,)


@pytest.mark.parametrize("name", [*scorers.names()])
def test_every_scorer_can_be_weighed(name: str) -> None:
    assert parsed(changed("pools.0.scorers", [{"name": name}])).pools[0].scorers[0].weight == 1.0


def test_each_worker_has_a_port() -> None:
    assert list(parse(EXAMPLE, "x").control.ports) == [18001]
    assert list(parsed(changed("control.workers", 1)).control.ports) == [2]
    control = {"ext_proc_port": 7000, "workers": 3}
    assert list(parsed({**EVERY_KEY, "control": control}).control.ports) == [7000, 7001, 7002]


@pytest.mark.parametrize(
    ("control", "said"),
    [
        (
            {"ext_proc_port": 17998, "workers": 4},
            "control.ext_proc_port: 127.0.0.1:18000 is taken already by control.xds_port; expected a port of its own",
        ),
        (
            {"ext_proc_port": 65534, "workers": 3},
            "control.workers: expected ports up to 65535, one for each worker, not 65536",
        ),
    ],
)
def test_a_workers_port_must_be_there_and_free(control: dict[str, int], said: str) -> None:
    assert faults({**EVERY_KEY, "control": control}) == [said]


def test_equal_addresses_are_written_alike() -> None:
    config = parsed(changed("pools.0.endpoints.0.address", "[FD00:0:0:0::1]:8000"))
    assert config.pools[0].endpoints[0].address == "[fd00::1]:8000"


# What it may not say


@pytest.mark.parametrize(
    ("path", "siblings"),
    [
        ("pool", ", ".join(Config.model_fields)),
        ("listener.prot", "address, port, max_requests_per_second, tls, filters"),
        ("admin.path", "address, port"),
        ("control.port", ", ".join(Control.model_fields)),
        ("envoy.binary", "admin_address, admin_port, concurrency, group"),
        (
            "limits.max",
            (
                "max_body_bytes, compressed_bodies, decision_timeout_seconds, absence_seconds, idle_timeout_seconds, "
                "lease_seconds, quarantine_seconds"
            ),
        ),
        ("scrape.path", "interval_seconds, timeout_seconds, max_bytes"),
        ("pools.0.polices", ", ".join(Pool.model_fields)),
        ("pools.0.scorers.0.share", "name, weight"),
        (
            "pools.0.endpoints.0.port",
            "address, weight, role, models, max_running, gpu, node, gpus, drain, kv_events_port, kv_events_replay_port",
        ),
        ("decision_log.path", "file, sample, max_bytes"),
    ],
)
def test_an_unknown_key_is_named_with_those_that_may_stand_there(path: str, siblings: str) -> None:
    key = re.sub(r"\.(\d)", r"[\1]", path)
    assert faults(changed(path, 1)) == [f"{key}: unknown key; expected one of {siblings}"]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("decision_log.file", "x.jsonl", "decision_log.file: expected the absolute path of a file, not 'x.jsonl'"),
        ("pools.0.filters", ["best"], "pools[0].filters[0]: expected one of adapter, breaker, fits"),
        ("pools.0.scorers.0.name", "best", "pools[0].scorers[0].name: expected one of active_requests, kv_usage"),
        ("pools.0.scorers.1.name", "queue", "pools[0].scorers[1].name: 'queue' is given already"),
        ("pools.0.policy", "random", "pools[0].scorers: expected none with the policy random"),
        ("pools.0.adapters", ["llama-*"], "pools[0].adapters[0]: model 'llama-*' is given already at pools[0].models"),
        ("pools.0.endpoints.0.role", "cook", "pools[0].endpoints[0].role: expected one of"),
        (
            "listener",
            8080,
            "listener: expected a mapping with the keys address, port, max_requests_per_second, tls, filters, not 8080",
        ),
        (
            "listener",
            None,
            "listener: expected a mapping with the keys address, port, max_requests_per_second, tls, filters, not null",
        ),
        ("listener.port", "8080", "listener.port: expected a whole number, not '8080'"),
        ("listener.port", 80.5, "listener.port: expected a whole number, not 80.5"),
        ("listener.port", True, "listener.port: expected a whole number, not true"),
        ("listener.port", None, "listener.port: expected a whole number, not null"),
        ("listener.port", [80], "listener.port: expected a whole number, not a list"),
        ("listener.port", {}, "listener.port: expected a whole number, not a mapping"),
        ("listener.port", 0, "listener.port: expected at least 1, not 0"),
        ("listener.port", 65536, "listener.port: expected at most 65535, not 65536"),
        (
            "listener.address",
            "localhost",
            "listener.address: expected an IP address, such as 127.0.0.1, not 'localhost'",
        ),
        ("listener.address", 1, "listener.address: expected text, not 1"),
        ("envoy.concurrency", 0, "envoy.concurrency: expected at least 1, not 0"),
        ("limits.max_body_bytes", 10, "limits.max_body_bytes: expected at least 1024, not 10"),
        ("limits.max_body_bytes", 10**9, "limits.max_body_bytes: expected at most 268435456, not 1000000000"),
        ("limits.lease_seconds", 5, "limits.lease_seconds: expected at least 25, not 5"),
        ("limits.lease_seconds", float("nan"), "limits.lease_seconds: expected a finite number, not NaN"),
        (
            "limits.idle_timeout_seconds",
            float("inf"),
            "limits.idle_timeout_seconds: expected a finite number, not Infinity",
        ),
        ("limits.idle_timeout_seconds", "5s", "limits.idle_timeout_seconds: expected a number, not '5s'"),
        ("limits.decision_timeout_seconds", -1, "limits.decision_timeout_seconds: expected at least 0.001, not -1"),
        (
            "limits.decision_timeout_seconds",
            1e300,
            "limits.decision_timeout_seconds: expected at most 86400, not 1e+300",
        ),
        ("scrape.interval_seconds", 0, "scrape.interval_seconds: expected at least 0.05, not 0"),
        ("pools", {}, "pools: expected a list, not a mapping"),
        ("pools", [], "pools: expected at least 1 in the list, not an empty list"),
        ("pools.0", "x", "not 'x'"),
        ("pools.0.name", "Llama", "pools[0].name: expected 1 to 63 of a-z, 0-9 and hyphens"),
        ("pools.0.name", "tidegate_ext_proc", "pools[0].name: expected 1 to 63 of a-z, 0-9 and hyphens"),
        ("pools.0.name", "a\n", "pools[0].name: expected 1 to 63 of a-z, 0-9 and hyphens"),
        ("pools.0.name", "xds", "pools[0].name: expected a name other than 'xds', which is Envoy's cluster"),
        (
            "pools.0.engine",
            "vlm",
            "pools[0].engine: expected one of 'vllm', 'sglang', 'tgi', 'trtllm', 'llamacpp' or 'none'",
        ),
        ("pools.0.models", "llama", "pools[0].models: expected a list, not 'llama'"),
        ("pools.0.models", [""], "pools[0].models[0]: expected at least 1 characters, not ''"),
        ("pools.0.models", ["x" * 300], "pools[0].models[0]: expected at most 256 characters, not 'xxx"),
        ("pools.0.models", [1], "pools[0].models[0]: expected text, not 1"),
        ("pools.0.policy", "best", "pools[0].policy: expected one of cache_aware, kv_headroom, least_request, "),
        ("pools.0.destinations", 11, "pools[0].destinations: expected at most 10, not 11"),
        ("pools.0.retries", -1, "pools[0].retries: expected at least 0, not -1"),
        ("pools.0.tokenizer", 1, "pools[0].tokenizer: expected text, not 1"),
        (
            "pools.0.tokenizer",
            "a.json",
            "pools[0].tokenizer: expected the absolute path of a tokenizer.json, not 'a.json'",
        ),
        (
            "pools.0.tokenizer",
            "/x.json",
            "pools[0].tokenizer: expected a tokenizer.json; '/x.json' cannot be used: it ",
        ),
        ("pools.0.endpoints", [], "pools[0].endpoints: expected at least 1 in the list"),
        ("pools.0.endpoints.0.weight", 0, "pools[0].endpoints[0].weight: expected at least 1, not 0"),
        ("pools.0.endpoints.0.address", "10.0.0.1", "pools[0].endpoints[0].address: expected ip:port, such as"),
        ("pools.0.endpoints.0.address", "engine:80", "pools[0].endpoints[0].address: expected ip:port, such as"),
        ("pools.0.endpoints.0.address", "10.0.0.1:0", "pools[0].endpoints[0].address: expected ip:port, such as"),
        (
            "pools.0.endpoints.0",
            "10.0.0.1:80",
            "pools[0].endpoints[0]: expected a mapping with the keys address, weight, role, models, ",
        ),
    ],
)
def test_a_bad_value_is_one_line_with_its_key_and_what_was_expected(path: str, value: Any, said: str) -> None:
    (line,) = faults(changed(path, value))
    assert said in line


def test_a_tokenizer_is_read_when_the_configuration_is(tmp_path: Path) -> None:
    file = write(tmp_path / "tokenizer.json")
    assert parsed(changed("pools.0.tokenizer", str(file))).pools[0].tokenizer == str(file)
    file.write_text("{}")
    (line,) = faults(changed("pools.0.tokenizer", str(file)))
    assert line.startswith("pools[0].tokenizer: expected a tokenizer.json; ")
    assert line.endswith("it is no tokenizer.json that the package tokenizers understands")


def test_a_word_that_older_yaml_takes_for_true_is_shown_as_it_was_written() -> None:
    assert "listener.port: expected a whole number, not 'yes'" in faults(b"listener: {port: yes}\npools: []")


def test_a_missing_key_is_named() -> None:
    assert faults({}) == ["pools: missing; this key is required"]
    assert faults({"pools": [{"endpoints": [{}]}]}) == [
        "pools[0].name: missing; this key is required",
        "pools[0].endpoints[0].address: missing; this key is required",
    ]


def test_every_fault_has_its_line() -> None:
    data = changed("listener.port", 0)
    data["admin"]["port"] = "x"
    data["pools"][1]["endpoints"][0]["weight"] = 0
    assert [line.split(":")[0] for line in faults(data)] == [
        "listener.port",
        "admin.port",
        "pools[1].endpoints[0].weight",
    ]


def test_very_many_faults_are_counted_rather_than_listed() -> None:
    lines = faults({"pools": [], **{f"key{number}": 1 for number in range(500)}})
    assert len(lines) == 51
    assert lines[-1] == "and 451 more"


def test_an_odd_key_is_shown_on_one_line() -> None:
    assert "['two\\nlines']: unknown key" in faults({**EVERY_KEY, "two\nlines": 1})[0]
    assert len(faults({**EVERY_KEY, "x" * 5000: 1})[0]) < 300


def test_a_long_value_is_cut() -> None:
    assert len(faults(changed("pools.0.policy", "x" * 5000))[0]) < 300


# What no key says alone


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "pools.0.endpoints",
            [{"address": "10.0.0.1:80"}, {"address": "10.0.0.1:80", "weight": 2}],
            "pools[0].endpoints[1].address: endpoint '10.0.0.1:80' is given already at pools[0].endpoints[0].address;",
        ),
        (
            "pools.1.endpoints.0.address",
            "[fd00:0::1]:8000",
            "pools[1].endpoints[0].address: endpoint '[fd00::1]:8000' is given already at pools[0].endpoints[0].",
        ),
        (
            "pools.1.name",
            "llama",
            "pools[1].name: pool name 'llama' is given already at pools[0].name; expected each once",
        ),
        (
            "pools.1.models",
            ["qwen", "meta/*"],
            "pools[1].models[1]: model 'meta/*' is given already at pools[0].models[1]; expected each once",
        ),
        ("admin.port", 1, "control.xds_port: 0.0.0.0:1 is taken already by admin.port; expected a port of its own"),
        (
            "control.xds_port",
            2,
            "control.ext_proc_port: 0.0.0.0:2 is taken already by control.xds_port; expected a port",
        ),
        (
            "listener.port",
            3,
            "envoy.admin_port: 127.0.0.2:3 is taken already by listener.port; expected a port of its own",
        ),
        (
            "pools.1.endpoints.0.address",
            "127.0.0.9:80",
            "pools[1].endpoints[0].address: 127.0.0.9:80 is where Envoy itself listens for clients; expected an engine",
        ),
    ],
)
def test_what_contradicts_another_key_names_both(path: str, value: Any, said: str) -> None:
    (line,) = faults(changed(path, value))
    assert said in line


def test_unknown_paths_are_refused_unless_a_pool_takes_them() -> None:
    assert parse(EXAMPLE, "x").unknown_paths.pool is None
    assert parsed(changed("unknown_paths", "refuse")).unknown_paths.pool is None
    assert parsed(changed("unknown_paths", {"pool": "rest"})).unknown_paths.pool == "rest"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("accept", "unknown_paths: expected refuse, or a mapping with the key pool, not 'accept'"),
        (7, "unknown_paths: expected refuse, or a mapping with the key pool, not 7"),
        (None, "unknown_paths: expected refuse, or a mapping with the key pool, not null"),
        ({}, "unknown_paths.pool: missing; this key is required"),
        ({"pool": 7}, "unknown_paths.pool: expected text, not 7"),
        ({"pool": "gone"}, "unknown_paths.pool: expected one of llama, rest, not 'gone'"),
        ({"pool": "rest", "to": 1}, "unknown_paths.to: unknown key; expected one of pool"),
    ],
)
def test_what_is_neither_refusal_nor_a_pool_is_told_what_was_expected(value: Any, said: str) -> None:
    assert faults(changed("unknown_paths", value)) == [said]


def test_an_endpoint_that_is_the_listener_itself_is_a_loop() -> None:
    data = yaml.safe_load(EXAMPLE)
    data["pools"][0]["endpoints"][0]["address"] = "127.0.0.1:8080"
    (line,) = faults(data)
    assert "127.0.0.1:8080 is where Envoy itself listens" in line


def test_the_listeners_port_on_another_machine_is_an_engine() -> None:
    assert parsed(changed("pools.1.endpoints.0.address", "10.0.0.3:80"))


@pytest.mark.parametrize("control", [{"address": "0.0.0.0"}, {"advertise": "::"}])
def test_envoy_must_be_told_where_to_connect(control: dict[str, str]) -> None:
    (line,) = faults(changed("control", control))
    assert line.startswith("control.advertise: expected the IP address that Envoy connects to; ")


def test_one_port_on_two_addresses_is_two_ports() -> None:
    data = changed("envoy.admin_port", 9091)
    assert (data["admin"]["address"], data["envoy"]["admin_address"]) == ("127.0.0.1", "127.0.0.2")
    assert parsed(data)


def test_all_contradictions_are_said_at_once() -> None:
    data = changed("pools.1.name", "llama")
    data["control"]["ext_proc_port"] = 1
    assert len(faults(data)) == 2


def test_a_pattern_that_envoy_cannot_read_is_refused_where_a_pool_fails_open() -> None:
    long = "a" * 40 + "*" + "b" * 40
    (fault,) = faults({**changed("pools.0.models", [long]), "routes": []})
    assert fault.startswith("pools[0].models: expected at most 64 bytes of a pattern with a * inside")
    for model in (f"{long[:40]}{long[:40]}*", f"*{long[:40]}{long[:40]}", "a*b", "a" * 200):
        assert parsed({**changed("pools.0.models", [model]), "routes": []}).pools[0].models == (model,)
    closed = {**changed("pools.0.fail_open", False), "routes": []}
    closed["pools"][0]["models"] = [long]
    assert parsed(closed).pools[0].models == (long,)
