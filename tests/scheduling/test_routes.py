"""Which route takes a request."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.scheduling.routes import HeaderRule, Route, Routes, chosen
from tidegate.scheduling.routing import fits

CHAT = "chat_completions"
OWN = "/v1/chat/completions"


def pool(routes: list[Route], tokens: int = 10, **asked: Any) -> str | None:
    """Return the pool of a request by ``routes``."""
    request = {"path": OWN, "api": CHAT, "headers": {}, "model": "m", **asked}
    route = chosen(Routes(routes).possible(**request), tokens)
    return None if route is None else route.pool


def test_the_first_route_that_fits_counts() -> None:
    routes = [Route("a", model="x"), Route("b", model="m"), Route("c")]
    assert pool(routes) == "b"
    assert pool(routes, model="x") == "a"
    assert pool(routes, model="y") == "c"
    assert pool(routes[:2], model="y") is None
    assert pool([]) is None


def test_a_path_is_the_whole_of_it_or_its_beginning() -> None:
    routes = [Route("exact", path="/api/v1/chat"), Route("below", path="/api/*")]
    assert pool(routes, path="/api/v1/chat") == "exact"
    assert pool(routes, path="/api/v1/chats") == "below"
    assert pool(routes, path="/api") is None


@pytest.mark.parametrize(
    ("rule", "kept", "broken"),
    [
        (HeaderRule("x", exact="gold"), ["gold"], ["gold,gold", "Gold", "", None]),
        (HeaderRule("x", prefix="go"), ["go", "gold"], ["Go", "", None]),
        (HeaderRule("x"), ["", "y"], [None]),
        (HeaderRule("x", present=False), [None], ["", "y"]),
    ],
)
def test_a_header_is_the_whole_of_it_or_its_beginning_or_there_or_not(
    rule: HeaderRule, kept: list[str | None], broken: list[str | None]
) -> None:
    for values, expected in ((kept, "a"), (broken, None)):
        for value in values:
            assert pool([Route("a", headers=(rule,))], headers={} if value is None else {"x": value}) == expected


def test_all_headers_have_to_fit() -> None:
    routes = [Route("a", headers=(HeaderRule("x"), HeaderRule("y", exact="1")))]
    assert pool(routes, headers={"x": "", "y": "1"}) == "a"
    assert pool(routes, headers={"y": "1"}) is None


def test_an_api_is_a_condition_on_every_path() -> None:
    routes = [Route("a", api="embeddings"), Route("b", api=CHAT)]
    assert pool(routes) == "b"
    assert pool(routes, api="embeddings", path="/v1/embeddings") == "a"


@pytest.mark.parametrize(
    ("tokens", "expected"), [(0, "short"), (99, "short"), (100, "long"), (200, "long"), (201, None)]
)
def test_the_bounds_of_tokens_are_both_inside(tokens: int, expected: str | None) -> None:
    routes = [Route("short", max_prompt_tokens=99), Route("long", min_prompt_tokens=100, max_prompt_tokens=200)]
    assert pool(routes, tokens) == expected


def test_what_is_possible_ends_with_the_first_route_that_takes_any_number() -> None:
    routes = [Route("a", min_prompt_tokens=9), Route("b", model="x"), Route("c"), Route("d")]
    possible = Routes(routes).possible(OWN, CHAT, {}, "m")
    assert [route.pool for route in possible] == ["a", "c"]


def test_the_api_of_an_unknown_path_is_that_of_the_first_route_there() -> None:
    gold = (HeaderRule("tier", exact="gold"),)
    routes = Routes(
        [
            Route("a", api="embeddings"),
            Route("a", path="/api/*"),
            Route("a", path="/api/x", api="messages", headers=gold),
            Route("a", path="/api/*", api=CHAT, model="never-looked-at"),
        ]
    )
    assert routes.api_of("/api/x", {}) == CHAT
    assert routes.api_of("/api/x", {"tier": "gold"}) == "messages"
    assert routes.api_of("/other", {}) == ""


PATHS = ("", "/a", "/a*", "/ab", "/ab*", "/b")
NOT_GIVEN = st.none()
BEGINNINGS = st.sampled_from(["a", "ab"])
RULES = st.one_of(
    st.builds(HeaderRule, st.sampled_from("xy"), BEGINNINGS, NOT_GIVEN, st.just(True)),
    st.builds(HeaderRule, st.sampled_from("xy"), NOT_GIVEN, BEGINNINGS, st.just(True)),
    st.builds(HeaderRule, st.sampled_from("xy"), NOT_GIVEN, NOT_GIVEN, st.booleans()),
)
ROUTES = st.builds(
    Route,
    st.sampled_from("pq"),
    path=st.sampled_from(PATHS),
    api=st.sampled_from(["", CHAT, "embeddings"]),
    headers=st.lists(RULES, max_size=2).map(tuple),
    model=st.sampled_from(["", "*", "a", "a*", "*a", "ab", "a*b", "ab*", "*b*"]),
    min_prompt_tokens=st.sampled_from([0, 1, 5]),
    max_prompt_tokens=st.sampled_from([None, 4, 5]),
    rewrite_model=st.sampled_from(["", "z"]),
    split=st.just(None),
)
REQUESTS = st.fixed_dictionaries(
    {
        "path": st.sampled_from(["/a", "/ab", "/abc", "/b", ""]),
        "api": st.sampled_from([CHAT, "embeddings"]),
        "headers": st.dictionaries(st.sampled_from("xy"), st.sampled_from(["", "a", "ab", "abc", "b"])),
        "model": st.sampled_from(["", "a", "ab", "aab", "ba", "b", "a*b"]),
    }
)


def takes(route: Route, tokens: int, *, path: str, api: str, headers: dict[str, str], model: str) -> bool:
    """Return what the words of the configuration say."""
    at = path.startswith(route.path[:-1]) if route.path.endswith("*") else route.path in {"", path}
    for rule in route.headers:
        value = headers.get(rule.name)
        if rule.exact is not None:
            at = at and value == rule.exact
        elif rule.prefix is not None:
            at = at and value is not None and value.startswith(rule.prefix)
        else:
            at = at and (value is not None) == rule.present
    named = not route.model or fits(route.model, model)
    most = 1_000 if route.max_prompt_tokens is None else route.max_prompt_tokens
    return at and named and route.api in {"", api} and route.min_prompt_tokens <= tokens <= most


@settings(deadline=None)
@given(st.lists(ROUTES, max_size=6), REQUESTS, st.integers(0, 8))
def test_the_route_that_is_chosen_is_the_first_whose_words_fit(
    routes: list[Route], request: dict[str, Any], tokens: int
) -> None:
    expected = next((route for route in routes if takes(route, tokens, **request)), None)
    assert chosen(Routes(routes).possible(**request), tokens) == expected


@settings(deadline=None, max_examples=400)
@given(ROUTES, ROUTES, REQUESTS, st.integers(0, 8))
def test_a_route_that_covers_another_takes_all_that_the_other_takes(
    one: Route, other: Route, request: dict[str, Any], tokens: int
) -> None:
    assert one.covers(one)
    assert Route("a").covers(one)
    if one.covers(other) and takes(other, tokens, **request):
        assert takes(one, tokens, **request)


@pytest.mark.parametrize(
    ("one", "other", "covered"),
    [
        (Route("a", path="/a*"), Route("a", path="/ab"), True),
        (Route("a", path="/a*"), Route("a"), False),
        (Route("a", path="/ab*"), Route("a", path="/a*"), False),
        (Route("a", model="gpt-*"), Route("a", model="gpt-4*", api=CHAT), True),
        (Route("a", model="gpt-4*"), Route("a", model="gpt-*"), False),
        (Route("a", model="gpt"), Route("a"), False),
        (Route("a", max_prompt_tokens=9), Route("a", min_prompt_tokens=2), False),
        (Route("a", min_prompt_tokens=2), Route("a", min_prompt_tokens=3), True),
        (Route("a", headers=(HeaderRule("x"),)), Route("a", headers=(HeaderRule("x", prefix="y"),)), True),
        (Route("a", headers=(HeaderRule("x", prefix="y"),)), Route("a", headers=(HeaderRule("x", exact="yes"),)), True),
        (Route("a", headers=(HeaderRule("x", present=False),)), Route("a", headers=(HeaderRule("x"),)), False),
    ],
)
def test_what_a_route_covers(one: Route, other: Route, covered: bool) -> None:
    assert one.covers(other) == covered
