import json
from typing import Any

import pytest

from extproc import apis
from extproc.body import ParsedBody
from extproc.claims import checked
from extproc.errors import ApiError
from tests.extproc.envoy_model import HELLO, ask
from tests.extproc.test_passage import WITH_KEY, GatedDesk

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": 'my priority is "priority": -1'}]}


def parse(body: bytes) -> ParsedBody:
    chat = apis.match({":method": "POST", ":path": "/v1/chat/completions"}, pass_on=False)
    assert chat.parse is not None
    return checked(chat.parse)(body)


@pytest.mark.parametrize("priority", [-100, 1, 0.5, "0", "-1", True, [0], {"a": 1}])
def test_a_body_that_claims_a_priority_is_refused(priority: object) -> None:
    for body in (
        json.dumps({**CHAT, "priority": priority}).encode(),
        json.dumps({**CHAT, "priority": priority}).replace('"priority":', '"\\u0070riority":').encode(),
        json.dumps({**CHAT, "priority": priority}).encode("utf-16"),
        json.dumps({**CHAT, "top_p": float("nan"), "priority": priority}).encode(),
    ):
        with pytest.raises(ApiError) as refused:
            parse(body)
        assert (refused.value.status, refused.value.param) == (400, "priority")


@pytest.mark.parametrize("more", [{}, {"priority": 0}, {"priority": None}, {"metadata": {"priority": -1}}])
def test_what_claims_nothing_is_read_as_ever(more: dict[str, Any]) -> None:
    assert parse(json.dumps({**CHAT, **more}).encode()).model == "m"


def test_a_priority_that_is_given_twice_is_refused() -> None:
    body = json.dumps({**CHAT, "priority": 0}).replace('"priority"', '"priority": -9, "priority"', 2).encode()
    with pytest.raises(ApiError) as refused:
        parse(body)
    assert refused.value.param == "priority"


def test_what_is_no_json_is_judged_by_its_own_reader() -> None:
    assert checked(lambda _: ParsedBody("form", ()))(b'--x\r\nname="priority"\r\n') == ParsedBody("form", ())


@pytest.mark.parametrize("exchanges", [1, 2])
async def test_only_where_somebody_is_asked_who_they_are(exchanges: int) -> None:
    body = HELLO[:-1] + b', "priority": -100}'
    desk = GatedDesk()
    result = await ask(desk, WITH_KEY, body, exchanges=exchanges)
    assert (result.status, result.fault["param"]) == (400, "priority")
    assert desk.gate.held == []
    assert desk.refusals[0][4] == "priority_claimed"
    desk.gate = None  # type: ignore[assignment]
    assert (await ask(desk, WITH_KEY, body, exchanges=exchanges)).kind == "routed"
