"""What a request has in common with others, and that only hashes of it are handed on."""

import json
from collections.abc import Mapping

import pytest

from extproc.affinity import beginning
from extproc.apis import chat_completions, completions
from extproc.body import ParsedBody
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import POST, ask
from tidegate.scheduling.caller import Caller
from tidegate.scheduling.request import InferenceRequest

LONG = "A system prompt that many requests begin with. " * 40


class Admits:
    """Takes every request for one caller's."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def identify(self, headers: Mapping[str, str]) -> Caller:
        return self.caller

    async def admit(self, request: InferenceRequest, caller: Caller) -> Mapping[str, str]:
        return {}

    def withdraw(self, request_id: str) -> None:
        raise AssertionError(request_id)


def chat(*messages: str, **more: object) -> bytes:
    given = [{"role": "user", "content": message} for message in messages]
    return json.dumps({"model": "m", "messages": given, **more}).encode()


def parsed(*messages: str, **more: object) -> ParsedBody:
    return chat_completions.parse(chat(*messages, **more))


async def decided(desk: FakeDesk, body: bytes) -> InferenceRequest:
    for exchanges in (1, 2):
        assert (await ask(desk, headers=POST, body=body, exchanges=exchanges)).kind == "routed"
    one, two = desk.requests
    assert one._replace(id=two.id) == two
    return one


async def test_a_policy_that_looks_at_prefixes_is_given_them() -> None:
    desk = FakeDesk()
    desk.prefixes = True
    request = await decided(desk, chat(LONG, "hello"))
    assert request.prefix == beginning(parsed(LONG, "hello"), request.prompt.tokens).hashes
    assert len(request.prefix) == len(LONG) // 512
    assert request.block_tokens > 0


async def test_for_any_other_nothing_is_hashed() -> None:
    request = await decided(FakeDesk(), chat(LONG, "hello"))
    assert (request.prefix, request.block_tokens, request.session) == ((), 0, "")


@pytest.mark.parametrize(
    "other",
    [{"model": "n"}, {"cache_salt": "tenant"}, {"tools": [{"type": "function", "function": {"name": "f"}}]}],
)
def test_another_model_salt_or_tools_have_nothing_in_common(other: dict[str, object]) -> None:
    one, two = beginning(parsed(LONG), 400).hashes, beginning(parsed(LONG, **other), 400).hashes
    assert one
    assert two
    assert not set(one) & set(two)


async def test_what_is_known_of_caches_is_kept_apart_by_tenant_where_that_is_asked_for() -> None:
    body = chat(LONG, "hello")

    async def of(caller: Caller | None) -> tuple[int, ...]:
        desk = FakeDesk()
        desk.prefixes, desk.gate = True, None if caller is None else Admits(caller)
        return (await decided(desk, body)).prefix

    callers = (Caller("a"), Caller("a", salt="a"), Caller("a", salt="a"), Caller("b", salt="b"))
    whole, a, again, b = [await of(caller) for caller in callers]
    assert whole == await of(None)
    assert a == again
    assert not set(whole) & set(a)
    assert not set(a) & set(b)


def test_a_completion_is_salted_as_well() -> None:
    salted = completions.parse(json.dumps({"model": "m", "prompt": LONG, "cache_salt": "x"}).encode())
    odd = completions.parse(json.dumps({"model": "m", "prompt": LONG, "cache_salt": 5}).encode())
    assert (salted.salt, odd.salt) == ("x", "")


def test_a_conversation_that_goes_on_has_its_beginning_in_common() -> None:
    one, two = beginning(parsed(LONG, "hello"), 400).hashes, beginning(parsed(LONG, "hello", LONG), 800).hashes
    assert two[: len(one)] == one
