"""Requests that a route takes: to its pool, by the name and the path that it gives them."""

import gzip
import json
from typing import Any

import pytest

from extproc.routed import Who
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import POST, Result, ask
from tests.extproc.forms import CONTENT_TYPE, form, part
from tidegate.scheduling.routes import HeaderRule, Route
from tidegate.scheduling.splits import Side, Split
from tidegate.tokens.count import CountSource, TokenCount

CHAT = "/v1/chat/completions"


def desk(*routes: Route) -> FakeDesk:
    made = FakeDesk()
    made.follow(*routes)
    return made


def body(content: str = "hello", model: str = "m", **fields: Any) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": content}], **fields}).encode()


async def send(at: FakeDesk, sent: bytes, path: str = CHAT, **headers: str) -> Result:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(at, {**POST, ":path": path, "content-length": str(len(sent)), **named}, sent)


async def test_a_request_goes_to_the_pool_of_its_route() -> None:
    at = desk(Route("other", "routes[0]", model="x"), Route("gold", "routes[1]", model="m"))
    result = await send(at, sent := body())
    (request,) = at.requests
    assert (request.pool, request.route, request.model) == ("gold", "routes[1]", "m")
    assert (result.kind, result.sent_on, result.mutated) == ("routed", sent, {})
    assert "path" not in result.metadata["tidegate"]


async def test_what_no_route_takes_goes_by_its_model_as_ever() -> None:
    at = desk(Route("other", model="x"), Route("other", min_prompt_tokens=1_000))
    await send(at, body())
    assert (at.requests[0].pool, at.requests[0].route) == ("", "")


@pytest.mark.parametrize(("letters", "pool"), [(89, "short"), (90, "long")])
async def test_a_long_prompt_goes_elsewhere(letters: int, pool: str) -> None:
    at = desk(Route("long", min_prompt_tokens=100), Route("short"))
    await send(at, body("x" * letters))
    assert at.requests[0].pool == pool


@pytest.mark.parametrize("exchanges", [1, 2])
async def test_headers_are_read_in_one_exchange_and_in_two(exchanges: int) -> None:
    at = desk(Route("gold", headers=(HeaderRule("x-routed-tier", exact="gold"),)))
    for tier in ("gold", "tin", None):
        headers = {**POST, **({} if tier is None else {"x-routed-tier": tier})}
        await ask(at, headers, body(), exchanges=exchanges)
    assert [request.pool for request in at.requests] == ["gold", "", ""]


@pytest.mark.parametrize("query", ["", "?a=/b"])
async def test_an_api_is_spoken_on_another_path_and_the_engine_asked_by_its_own(query: str) -> None:
    at = desk(Route("a", path="/api/v1/chat", api="chat_completions"))
    result = await send(at, body(), f"/api/v1/chat{query}")
    assert result.metadata["tidegate"]["path"] == CHAT
    assert result.metadata["tidegate"]["api"] == "chat_completions"
    assert result.mutated == {}
    assert at.requests[0].pool == "a"


async def test_a_request_on_another_path_that_goes_by_its_model_has_the_apis_own_path_too() -> None:
    at = desk(Route("a", path="/api/*", api="chat_completions", model="x"))
    result = await send(at, body(), "/api/v1/chat")
    assert (at.requests[0].pool, result.metadata["tidegate"]["path"]) == ("", CHAT)


async def test_a_route_may_say_by_which_path_the_engine_is_asked() -> None:
    at = desk(
        Route("a", path="/api/v1/chat", api="chat_completions", rewrite_path="/process"),
        Route("a", api="chat_completions", rewrite_path="/generate"),
    )
    for path, expected in (("/api/v1/chat", "/process"), (CHAT, "/generate")):
        assert (await send(at, body(), path)).metadata["tidegate"]["path"] == expected


async def test_errors_on_another_path_have_the_form_of_its_api() -> None:
    at = desk(Route("a", path="/api/claude", api="messages"))
    result = await send(at, b'{"model": "m"}', "/api/claude")
    assert result.kind == "answered"
    assert json.loads(result.body)["type"] == "error"


async def test_another_path_has_its_apis_method() -> None:
    at = desk(Route("a", path="/api/v1/chat", api="chat_completions"))
    result = await ask(at, {**POST, ":method": "GET", ":path": "/api/v1/chat"}, b"")
    assert (result.status, result.fault["message"]) == (405, "/api/v1/chat is served by POST alone.")
    assert (await send(at, body(), "/api/v1/chats")).status == 404


async def test_the_model_is_renamed_in_its_place_and_decided_on_by_the_new_name() -> None:
    at = desk(Route("a", model="m", rewrite_model="large"))
    sent = body(temperature=1.0, n=2)
    result = await send(at, sent)
    assert result.sent_on == sent.replace(b'"m"', b'"large"')
    assert result.mutated == {"content-length": str(len(sent) + 4)}
    assert result.metadata["tidegate"]["model"] == "large"
    assert result.metadata["tidegate"]["withhold"] is False
    assert (at.requests[0].model, [model for model, _ in at.counted]) == ("large", ["large"])


async def test_a_renamed_stream_is_asked_for_its_usage_too() -> None:
    at = desk(Route("default", rewrite_model="large"))
    at.injecting = at.reading = frozenset({"default"})
    result = await send(at, sent := body(stream=True))
    assert result.sent_on == b'{"stream_options":{"include_usage":true},' + sent.replace(b'"m"', b'"large"')[1:]
    assert result.mutated == {"content-length": str(len(result.sent_on))}
    assert result.metadata["tidegate"]["withhold"] is True


async def test_nothing_is_learned_from_a_count_by_another_name_than_the_engine_is_told() -> None:
    at = desk(Route("long", min_prompt_tokens=100, rewrite_model="large"), Route("short", rewrite_model="small"))
    await send(at, body("x" * 5))
    await send(at, body("x" * 100))
    assert [model for model, _ in at.counted] == ["large", "large"]
    assert [(request.model, request.prompt) for request in at.requests] == [
        ("small", TokenCount(15, CountSource.SAMPLED)),
        ("large", TokenCount(110, CountSource.SAMPLED, 110)),
    ]


async def test_nor_where_no_route_takes_it_in_the_end() -> None:
    at = desk(Route("long", min_prompt_tokens=100, rewrite_model="large"))
    await send(at, sent := body())
    assert (at.requests[0].model, at.requests[0].prompt.uncorrected) == ("m", None)
    assert (await send(at, sent)).sent_on == sent


async def test_a_compressed_body_is_not_renamed_but_refused() -> None:
    at = desk(Route("a", rewrite_model="large"))
    result = await send(at, gzip.compress(body()), **{"content-encoding": "gzip"})
    assert (result.status, result.details) == (415, "tidegate_unsupported_encoding")
    assert at.requests == []
    assert (await send(desk(Route("a")), gzip.compress(body()), **{"content-encoding": "gzip"})).kind == "routed"


async def test_a_form_is_not_renamed_but_refused() -> None:
    at = desk(Route("a", rewrite_model="large"))
    sent = form(part("model", b"m"), part("file", b"\0" * 9, filename="a.wav"))
    result = await send(at, sent, "/v1/audio/transcriptions", **{"content-type": CONTENT_TYPE})
    assert (result.status, result.fault["param"]) == (400, "model")
    assert at.requests == []


async def test_an_error_names_the_model_as_its_client_did() -> None:
    at = desk(Route("a", model="alias", rewrite_model="missing"))
    result = await send(at, body(model="alias"))
    assert result.fault["message"] == 'The model "alias" does not exist.'


async def test_what_is_passed_on_unread_goes_by_its_path_and_keeps_its_bytes() -> None:
    at = desk(Route("a", path="/custom/*"), Route("b", rewrite_model="large"))
    at.unknown_paths = "default"
    for path in ("/custom/x", "/x"):
        assert (await send(at, b"\0\1", path)).sent_on == b"\0\1"
    assert [(request.pool, request.model) for request in at.requests] == [("a", ""), ("b", "")]


CANARY = (Side("canary", 10, "m-new"), Side("stable", 90))


async def test_ten_thousand_requests_of_a_split_are_shared_out_within_a_hundredth() -> None:
    at = desk(Route("stable", model="m", split=Split(CANARY)))
    for _ in range(10_000):
        await send(at, body())
    pools = [request.pool for request in at.requests]
    assert abs(pools.count("canary") - 1_000) <= 10
    assert pools.count("canary") + pools.count("stable") == 10_000


async def test_each_side_of_a_split_has_its_own_name_for_the_model() -> None:
    at = desk(Route("stable", model="m", split=Split(CANARY)))
    results = [await send(at, body()) for _ in range(20)]
    sent = [json.loads(result.sent_on or b"")["model"] for result in results]
    assert list(zip(sent, (request.pool for request in at.requests), strict=True)).count(("m-new", "canary")) == 2
    assert sent.count("m") == 18


async def test_a_header_keeps_a_user_on_a_side() -> None:
    at = desk(Route("stable", model="m", split=Split(CANARY, ":x-user")))
    for user in map(str, range(100)):
        await send(at, body(), x_user=user)
        await send(at, body(), x_user=user)
    pools = [request.pool for request in at.requests]
    assert pools[::2] == pools[1::2]
    assert 2 <= pools[::2].count("canary") <= 25


async def test_a_session_keeps_its_side_and_so_does_a_tenant() -> None:
    by_session = Who(session="s")
    assert by_session.key(Split(CANARY, "session"), {}) == "s"
    assert Who(tenant="acme").key(Split(CANARY, "tenant"), {}) == "acme"
    assert by_session.key(Split(CANARY), {"x-user": "u"}) == ""
    assert by_session.key(None, {}) == ""


async def test_a_request_without_what_keeps_it_goes_for_itself() -> None:
    at = desk(Route("stable", model="m", split=Split(CANARY, ":x-user")))
    for _ in range(100):
        await send(at, body())
    assert [request.pool for request in at.requests].count("canary") == 10


async def test_a_split_behind_a_bound_is_shared_out_among_those_that_it_takes() -> None:
    at = desk(Route("long", min_prompt_tokens=100, model="m"), Route("stable", model="m", split=Split(CANARY)))
    for number in range(200):
        await send(at, body("x" * (200 if number % 2 else 10)))
    pools = [request.pool for request in at.requests]
    assert (pools.count("long"), pools.count("canary"), pools.count("stable")) == (100, 10, 90)
