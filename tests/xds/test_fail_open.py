"""Which undecided requests go where, held against what the scheduler would have decided."""

import re
from fnmatch import translate

from envoy_data_plane.envoy.extensions.filters.http.json_to_metadata.v3 import JsonToMetadata
from hypothesis import given
from hypothesis import strategies as st

from extproc.apis import APIS
from tests.xds.test_resources import connection_manager, ext_proc, routes
from tidegate.config import Config
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.scheduling.routing import ModelRoutes
from xds import fail_open


def _config(*pools: tuple[str, tuple[str, ...], bool]) -> Config:
    declared = tuple(
        {"name": name, "models": models, "fail_open": opens, "endpoints": ({"address": f"127.0.0.1:{9000 + number}"},)}
        for number, (name, models, opens) in enumerate(pools)
    )
    return Config.model_validate({"pools": declared})


def test_without_such_a_pool_nothing_is_there() -> None:
    config = _config(("a", ("*",), False))
    assert ext_proc(config).failure_mode_allow is False
    assert [one.name for one in connection_manager(config).http_filters if "json" in one.name] == []
    assert not any("/open" in route.name or "/closed" in route.name for route in routes(config))


def test_with_one_the_filter_is_off_but_for_small_undecided_requests() -> None:
    config = _config(("a", ("*",), True))
    assert ext_proc(config).failure_mode_allow is True
    names = [one.name for one in connection_manager(config).http_filters]
    at = names.index(fail_open.READER)
    assert names[at - 1] == "envoy.filters.http.buffer", "before it, bodies would be read whose decision is on its way"
    packed = connection_manager(config).http_filters[at].typed_config
    assert packed is not None
    rules = JsonToMetadata.parse(packed.value).request_rules
    assert rules is not None
    assert (rules.allow_content_types, rules.allow_empty_content_type) == (["\n"], False)
    on = [route for route in routes(config) if fail_open.READER in route.typed_per_filter_config]
    assert [route.route.cluster for route in on] == ["tidegate_undecided"] * 2
    assert ["envoy.filters.http.ext_proc" in route.typed_per_filter_config for route in on] == [True, False]
    for route in on:
        length = route.match.headers[-1]
        assert (length.name, length.range_match.end) == ("content-length", fail_open.MOST_BYTES + 1)


def test_the_open_paths_are_those_of_the_apis_that_take_json() -> None:
    patterns = [*(re.escape(path) for path in fail_open.BY_USAGE.values()), *fail_open.PATHS]
    opened = {path for path in APIS if any(re.fullmatch(pattern, path) for pattern in patterns)}
    assert opened == {api.path for api in APIS.values() if api.parse is not None}
    # and nothing besides, of what is like them
    for path in ("/v2/rerank/x", "/v3/rerank", "/v2/score", "/v1/generate", "/v1/chat/", "/v1/models", "/completions"):
        assert not any(re.fullmatch(pattern, path) for pattern in patterns)
    assert {api.usage.value: api.path for api in APIS.values() if api.usage.value in fail_open.BY_USAGE} == dict(
        fail_open.BY_USAGE
    )


patterns_ = st.text("ab*", min_size=1, max_size=4)


@given(
    st.lists(
        st.tuples(st.lists(patterns_, min_size=1, max_size=3, unique=True), st.booleans()), min_size=1, max_size=3
    ),
    st.text("abc\n", min_size=1, max_size=4),
)
def test_the_first_way_that_fits_leads_to_the_pool_that_would_have_been_decided(
    given_pools: list[tuple[list[str], bool]], model: str
) -> None:
    seen: set[str] = set()
    pools = []
    for number, (models, opens) in enumerate(given_pools):
        own = tuple(dict.fromkeys(name for name in models if name not in seen))
        seen |= set(own)
        if own:
            pools.append((f"p{number}", own, opens))
    config = _config(*pools)
    wanted = ModelRoutes(
        PoolSpec(name, "none", models, (EndpointSpec("127.0.0.1:1", 1),)) for name, models, _ in pools
    ).pool_of(model)

    way = next((way for way in fail_open.ways(config) if _fits(way, model)), None)

    if not fail_open.wanted(config) or wanted is None:
        assert way is None
    else:
        assert way is not None
        assert way.name.partition("/")[0] == wanted
        assert (way.pool is not None) == next(opens for name, _, opens in pools if name == wanted)


def _fits(way: fail_open.Way, model: str) -> bool:
    """Whether the way's match fits the model, as Envoy matches strings; paths aside."""
    (metadata,) = way.match.dynamic_metadata
    assert metadata.value is not None
    said = metadata.value.string_match
    assert said is not None
    if said.safe_regex is not None:
        return re.fullmatch(said.safe_regex.regex, model) is not None
    if said.prefix is not None:
        return model.startswith(said.prefix)
    if said.suffix is not None:
        return model.endswith(said.suffix)
    return model == said.exact


def test_patterns_mean_to_envoy_what_they_mean_to_us() -> None:
    for pattern in ("*", "a*", "*a", "a*b", "*a*", "a.b*c", "**"):
        (way, *_) = fail_open.ways(_config(("p", (pattern,), True)))
        for name in ("a", "ab", "ba", "aXb", "a.bc", "axbc", "c", "a\nb"):
            assert _fits(way, name) == (re.fullmatch(translate(pattern), name) is not None), (pattern, name)
