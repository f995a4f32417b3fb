"""What Envoy is told where the configuration has routes."""

from typing import Any

import pytest
from envoy_data_plane.envoy.config.route import v3 as route

from tests.xds.fleets import config
from tidegate.config import Config
from tidegate.config_routes import traffic
from tidegate.control_headers import CONTROL_NAMES
from xds import exchanges, fail_open
from xds.filters import SMUGGLERS, SMUGGLERS_BUT_LENGTH, http_filters
from xds.local_replies import ANTHROPIC_PATHS, local_reply_config
from xds.messages import seconds
from xds.names import DEADLINE_HEADER
from xds.routes import route_configuration


def routed(*routes: dict[str, Any], **pool: Any) -> Config:
    """Return a configuration with the pools ``a`` and ``b``, and ``routes``."""
    made = config("a", "b").model_dump()
    first, *rest = made["pools"]
    made["pools"] = ({**first, **pool}, *rest)
    return Config.model_validate({**made, "routes": tuple({"pool": "a", **one} for one in routes)})


def rewrites(of: Config) -> list[tuple[str, str]]:
    """Return the names of the routes that rewrite a path, and to what."""
    found = []
    for one in route_configuration(of).virtual_hosts[0].routes:
        rewrite = one.route.regex_rewrite if one.route else None
        if rewrite is not None:
            found.append((one.name, rewrite.substitution))
    return found


def test_without_routes_nothing_is_rewritten() -> None:
    assert rewrites(config("a", "b")) == []
    assert exchanges.attributes(config("a")) == list(exchanges.ATTRIBUTES)


def test_paths_are_rewritten_by_what_was_decided_before_any_route_without_a_path() -> None:
    found = routed({"path": "/x", "api": "messages"}, {"api": "score", "rewrite_path": "/s"})
    own = [(f"{pool}{usage}/v1/messages", "/v1/messages") for pool in "ab" for usage in ("/responses", "/messages", "")]
    scored = [(f"a{usage}/s", "/s") for usage in ("/responses", "/messages", "")]
    assert rewrites(found) == [*scored, *own]
    names = [one.name for one in route_configuration(found).virtual_hosts[0].routes]
    assert names.index("a/v1/messages") < names.index("a/responses") < names.index("a") < names.index("b/v1/messages")


def test_a_path_is_rewritten_for_nobody_who_was_not_told_so() -> None:
    found = routed({"path": "/x", "api": "messages"})
    for one in route_configuration(found).virtual_hosts[0].routes:
        if one.route and one.route.regex_rewrite:
            keys = [wanted.path[0].key for wanted in one.match.dynamic_metadata] if one.match else []
            assert {"pool", "path"} <= set(keys)


def test_what_a_route_bounds_goes_before_what_its_pool_says() -> None:
    hasty = {"headers": ({"name": "x-hasty", "present": True},), "timeout_seconds": 5.0, "retries": 0}
    found = routed(
        {**hasty, "model": "m"},
        hasty,
        {"model": "n", "idle_timeout_seconds": 7.0},
        {"model": "o", "pool": "b"},
        timeout_seconds=60.0,
        idle_timeout_seconds=20.0,
    )
    bounded = []
    for one in route_configuration(found).virtual_hosts[0].routes:
        if one.route and one.match and one.name.startswith("a/messages"):
            keys = [wanted.path[0].key for wanted in one.match.dynamic_metadata]
            duration, retries = one.route.max_stream_duration, one.route.retry_policy
            assert duration
            assert retries
            bounds = (duration.max_stream_duration, one.route.idle_timeout, retries.num_retries)
            bounded.append((one.name, "bounds" in keys, bounds))
    assert bounded == [
        ("a/messages/5,,0", True, (seconds(5), seconds(20), 0)),
        ("a/messages/,7,", True, (seconds(60), seconds(7), 2)),
        ("a/messages", False, (seconds(60), seconds(20), 2)),
    ]
    assert [one.bounds for one in traffic(found.routes)] == ["5,,0", "5,,0", ",7,", ""]


def test_bounds_and_paths_make_no_more_routes_than_there_are_ways() -> None:
    def ways(**each: Any) -> int:
        routes = [{"model": f"m{at}", **{key: make(at) for key, make in each.items()}} for at in range(60)]
        return len(route_configuration(routed(*routes)).virtual_hosts[0].routes)

    none = ways()
    paths = ways(rewrite_path=lambda at: f"/{at}/chat") - none
    bounds = ways(timeout_seconds=lambda at: float(at % 16)) - none
    assert (paths, bounds) == (60 * 3, 16 * 3)
    both = ways(rewrite_path=lambda at: f"/{at}/chat", timeout_seconds=lambda at: float(at % 16)) - none
    assert both == 2 * paths


def test_the_headers_of_routes_are_sent_in_both_kinds_of_exchange() -> None:
    headers = [{"name": "x-b", "present": True}, {"name": "content-type", "exact": "a"}, {"name": "x-a", "prefix": "a"}]
    sent = bytes(http_filters(routed({"headers": tuple(headers)}))[0])
    plain = bytes(http_filters(routed())[0])
    for name in (b"x-a", b"x-b"):
        assert sent.count(b"request.headers['%s']" % name) == 1
        assert sent.count(name) == 2
        assert name not in plain
    assert sent.count(b"content-type") == plain.count(b"content-type")


@pytest.mark.parametrize(("rewrite", "expected"), [({}, SMUGGLERS), ({"rewrite_model": "a"}, SMUGGLERS_BUT_LENGTH)])
def test_a_length_may_be_set_where_a_model_is_renamed_and_a_path_never(rewrite: dict[str, str], expected: str) -> None:
    sent = bytes(http_filters(routed({"path": "/x", "api": "messages", **rewrite}))[0])
    assert expected.encode() in sent
    assert expected.startswith("^(:.*|")


def test_errors_of_envoys_own_have_anthropics_form_where_its_api_is_spoken() -> None:
    routes = [{"path": path, "api": "messages"} for path in ("/api/claude", "/claude/v1.0/*", "/v1/*")]
    told = bytes(local_reply_config(routed(*reversed(routes))))
    assert rb"/v1/messages([/?].*)?|/claude/v1\.0/.*|/api/claude([?].*)?" in told
    assert ANTHROPIC_PATHS.encode() in bytes(local_reply_config(config("a")))


def test_what_tells_envoy_of_deadlines_is_taken_out_at_the_edge() -> None:
    assert DEADLINE_HEADER in CONTROL_NAMES


def _closed(of: Config) -> list[fail_open.Way]:
    ways = list(fail_open.ways(of))
    closed = [way for way in ways if way.name.startswith("routes[")]
    assert ways[: len(closed)] == closed
    assert all(way.pool is None for way in closed)
    return closed


def test_what_a_route_may_take_fails_closed_before_anything_fails_open() -> None:
    of = routed(
        {"path": "/x/*", "api": "messages", "model": "b*c"},
        {"headers": ({"name": "x-t", "exact": "g"}, {"name": "x-n", "present": False}), "min_prompt_tokens": 9},
        {"model": "exact", "path": "/v1/score"},
        fail_open=True,
    )
    first, second, third = (way.match for way in _closed(of))
    assert (first.prefix, first.dynamic_metadata[0].value.string_match.prefix) == ("/x/", "b")  # type: ignore[union-attr]
    assert (second.prefix, second.dynamic_metadata[0].value.present_match) == ("/", True)  # type: ignore[union-attr]
    assert [header.name for header in second.headers] == ["x-t", "x-n"]
    assert second.headers[0].string_match is not None
    assert second.headers[1].present_match is False
    assert (third.path, third.dynamic_metadata[0].value.string_match.exact) == ("/v1/score", "exact")  # type: ignore[union-attr]


def test_where_nothing_fails_open_nothing_is_read_for_it() -> None:
    assert _closed(routed({"model": "x"})) == []
    names = [one.name for one in route_configuration(routed({"model": "x"})).virtual_hosts[0].routes]
    assert not [name for name in names if "closed" in name]
    assert isinstance(route_configuration(routed()), route.RouteConfiguration)
