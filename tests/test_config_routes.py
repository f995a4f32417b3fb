"""Routes in the configuration file, and what makes no sense of them."""

from typing import Any

import pytest

from extproc.apis import APIS
from tests.configurations import faults, parsed
from tidegate import api_paths
from tidegate.config_routes import engine_paths, header_names, models_served, traffic
from tidegate.scheduling.routes import HeaderRule, Route


def config(*routes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a configuration with two pools and ``routes``, which lead to ``a`` unless they say otherwise."""
    return {
        "pools": [
            {"name": "a", "models": ["llama-*"], "adapters": ["sql"], "endpoints": [{"address": "10.0.0.1:1"}]},
            {"name": "b", "models": [], "endpoints": [{"address": "10.0.0.2:1"}]},
        ],
        "routes": [*({"pool": "a", **route} for route in routes), {"pool": "b", "model": "only-b"}],
        **more,
    }


def test_the_paths_of_the_apis_are_those_that_they_declare() -> None:
    declared: dict[str, list[str]] = {}
    for path, api in APIS.items():
        if api.answer is None:
            declared.setdefault(api.name, []).append(path)
    assert {name: list(paths) for name, paths in api_paths.PATHS.items()} == declared
    assert {api.name for api in APIS.values() if api.parse_form is not None} == api_paths.FORMS
    assert all(path.startswith(api_paths.ANSWERED_HERE) for path, api in APIS.items() if api.answer is not None)
    assert api_paths.own_path("rerank") == "/rerank"
    assert api_paths.own_path("unknown_path") == ""


def test_routes_are_what_decisions_keep_to() -> None:
    routes = parsed(
        config(
            {"path": "/api/v1/*", "api": "messages", "rewrite_model": "llama-3", "min_prompt_tokens": 8},
            {"name": "gold", "headers": [{"name": "x-tier", "prefix": "go"}, {"name": "x-b", "present": False}]},
        )
    ).routes
    first, second, third = traffic(routes)
    assert first == Route(*("a", "routes[0]", "/api/v1/*", "messages"), min_prompt_tokens=8, rewrite_model="llama-3")
    assert (second.name, second.headers) == (
        "gold",
        (HeaderRule("x-tier", prefix="go"), HeaderRule("x-b", present=False)),
    )
    assert (third.pool, third.model) == ("b", "only-b")
    assert header_names(routes) == ("x-b", "x-tier")
    assert models_served(routes) == ("llama-3", "only-b")


def test_engines_are_asked_by_the_paths_that_a_route_names_or_that_are_an_apis_own() -> None:
    routes = parsed(
        config(
            {"path": "/api/v1/chat", "api": "chat_completions"},
            {"path": "/api/v1/process", "api": "completions", "rewrite_path": "/process"},
            {"api": "embeddings"},
        )
    ).routes
    assert engine_paths(routes, "a") == ("/process", "/v1/chat/completions", "/v1/completions")
    assert engine_paths(routes, "b") == ("/v1/chat/completions", "/v1/completions")


@pytest.mark.parametrize(
    ("route", "fault"),
    [
        ({"pool": "c"}, "routes[0].pool: expected one of a, b, not 'c'"),
        ({"pool": "No"}, "routes[0].pool: expected 1 to 63 of a-z"),
        ({"path": "api"}, "routes[0].path: expected a path as it is after normalisation"),
        ({"path": "/a//b"}, "routes[0].path: expected a path as it is after normalisation"),
        ({"path": "/a/../b"}, "routes[0].path: expected a path as it is after normalisation"),
        ({"path": "/a?b"}, "routes[0].path: expected a path as it is after normalisation"),
        ({"path": "/a%2fb"}, "routes[0].path: expected a path as it is after normalisation"),
        ({"path": "/*/b"}, "routes[0].path: expected a path as it is after normalisation"),
        ({"path": "/v1/models"}, "routes[0].path: expected a path that goes to an engine, not '/v1/models'"),
        ({"path": "/x", "api": "chat"}, "routes[0].api: expected one of audio_speech, "),
        ({"path": "/x"}, "routes[0].api: missing; '/x' is no API's own, and unknown_paths are refused"),
        (
            {"path": "/v1/messages", "api": "embeddings"},
            "routes[0].api: expected messages, whose path it is, or none, not 'embeddings'",
        ),
        ({"headers": [{"name": "X-Tier", "exact": "a"}]}, "routes[0].headers[0].name: expected a header's name"),
        ({"headers": [{"name": ":path", "exact": "a"}]}, "routes[0].headers[0].name: expected a header's name"),
        (
            {"headers": [{"name": "authorization", "exact": "a"}]},
            "routes[0].headers[0].name: expected a header that is no secret, not 'authorization'",
        ),
        (
            {"headers": [{"name": "x-tenant-id", "exact": "a"}]},
            "routes[0].headers[0].name: expected a header that a client",
        ),
        (
            {"headers": [{"name": "x-envoy-a", "exact": "a"}]},
            "routes[0].headers[0].name: expected a header that a client",
        ),
        ({"headers": [{"name": "x-a"}]}, "routes[0].headers[0]: expected one of exact, prefix and present"),
        (
            {"headers": [{"name": "x-a", "exact": "a", "present": True}]},
            "routes[0].headers[0]: expected one of exact, prefix and present",
        ),
        ({"headers": [{"name": "x-a", "exact": " a"}]}, "routes[0].headers[0].exact: expected printable ASCII"),
        (
            {"min_prompt_tokens": 9, "max_prompt_tokens": 8},
            "routes[0].max_prompt_tokens: expected at least min_prompt_tokens, 9, not 8",
        ),
        ({"rewrite_model": "qwen"}, "routes[0].rewrite_model: expected a model that the pool a serves, not 'qwen'"),
        (
            {"model": "llama-3", "rewrite_model": "llama-3"},
            "routes[0].rewrite_model: expected another name than the client's, 'llama-3'",
        ),
        (
            {"path": "/v1/audio/translations", "rewrite_model": "llama-3"},
            "routes[0].rewrite_model: expected none, for the names in forms are not rewritten",
        ),
        (
            {"api": "images_edits", "rewrite_model": "llama-3"},
            "routes[0].rewrite_model: expected none, for the names in forms are not rewritten",
        ),
        (
            {"path": "/v1/score", "rewrite_path": "/v1/score"},
            "routes[0].rewrite_path: expected another path than the client's, '/v1/score'",
        ),
        ({"timeout_seconds": 0.0004}, "routes[0].timeout_seconds: expected 0 or at least 0.001, not 0.0004"),
        ({"path": "/v1/score", "rewrite_path": "/score?x"}, "routes[0].rewrite_path: expected a path of letters"),
        ({"path": "/v1/score", "rewrite_path": "/score/*"}, "routes[0].rewrite_path: expected a path of letters"),
    ],
)
def test_a_route_without_sense_is_refused(route: dict[str, Any], fault: str) -> None:
    found = faults(config(route))
    assert found[0].startswith(fault)
    assert len([line for line in found if not line.startswith("routes[1]: routes[0] takes all")]) == 1


def test_bounds_of_many_kinds_are_refused() -> None:
    routes = [{"model": f"m{at}", "timeout_seconds": 1 + at % 17, "retries": 1} for at in range(40)]
    assert faults(config(*routes)) == ["routes: expected at most 16 different combinations of timeouts and retries"]
    assert len(parsed(config(*routes[:16], {"model": "other"})).routes) == 18


def test_a_route_that_nothing_is_left_for_is_refused() -> None:
    data = config({"path": "/v1/*"}, {"path": "/v1/chat/completions", "model": "x"}, {"model": "x"})
    assert faults(data) == ["routes[1]: routes[0] takes all of its requests; expected it before that one"]


def test_a_pool_that_nothing_leads_to_is_refused() -> None:
    data = {**config(), "routes": []}
    assert faults(data) == ["pools[1].models: expected at least 1 in the list, or a route to the pool"]
    assert parsed({**data, "unknown_paths": {"pool": "b"}}).pools[1].models == ()


def test_what_is_passed_on_unread_may_be_routed_by_its_path_but_not_by_a_model() -> None:
    passing = {"unknown_paths": {"pool": "b"}}
    assert parsed(config({"path": "/custom/*"}, **passing)).routes[0].api is None
    (fault,) = faults(config({"path": "/custom/*", "model": "llama-3"}, **passing))
    assert fault == "routes[0].api: missing; what is passed on unread names no model"


@pytest.mark.parametrize("name", ["llama-3", "sql"])
def test_a_model_may_be_renamed_to_what_the_pool_serves(name: str) -> None:
    assert parsed(config({"model": "alias", "rewrite_model": name})).routes[0].rewrite_model == name


def test_a_pool_without_models_may_be_asked_for_any() -> None:
    data = config({"pool": "b", "model": "alias", "rewrite_model": "anything"})
    assert parsed(data).routes[0].rewrite_model == "anything"
