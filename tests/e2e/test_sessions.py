"""Sessions that are known by another header, a cookie or a field of the body, through a real Envoy."""

import http.client
import json
from pathlib import Path

import pytest

from tests.e2e.picker_gateway import gateway
from tests.e2e.stack import MODEL, Stack, configuration, engines, until, up

NAMES = [f"name-{number}" for number in range(8)]
KEYS = {"header": "x-chat", "cookie": "sid", "body_field": "metadata.user_id"}


def ask(stack: Stack, key: str, name: str) -> str:
    """Return who answered a request of the session ``name``, which it says by ``key``."""
    headers = {"content-type": "application/json", "cookie": "other=1; theme=dark"}
    body: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    if key == "header":
        headers["x-chat"] = name
    elif key == "cookie":
        headers["cookie"] += f'; sid="{name}"'
    else:
        body["metadata"] = {"user_id": name}
    connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    told = answer.read()
    connection.close()
    assert answer.status == 200, told
    return answer.headers["x-served-by"]


@pytest.mark.parametrize("exchanges", [1, 2])
def test_by_whatever_key_a_session_stays_and_moves_once_when_its_engine_goes(tmp_path: Path, exchanges: int) -> None:
    with engines(tmp_path, "h100", "h100", "h100") as ports:
        config = configuration(ports, policy="session")
        config["control"]["ext_proc_exchanges"] = exchanges
        config["session"] = KEYS
        with up(tmp_path, config) as stack:
            homes = {name: ask(stack, "header", name) for name in NAMES}
            assert len(set(homes.values())) > 1
            for key in KEYS:
                assert {name: ask(stack, key, name) for name in NAMES} == homes
            gone = homes[NAMES[0]]
            members = stack.config["pools"][0]["endpoints"]
            members[:] = [member for member in members if member["address"] != gone]
            stack.write_config()
            until(lambda: ask(stack, "cookie", NAMES[0]) != gone, 10, "it has another home")
            after = {name: ask(stack, "cookie", name) for name in NAMES}
            moved = {name for name in NAMES if after[name] != homes[name]}
            assert moved == {name for name, home in homes.items() if home == gone}
            for key in KEYS:
                assert {name: ask(stack, key, name) for name in NAMES} == after


def test_another_key_counts_from_the_next_reload_on(tmp_path: Path) -> None:
    with engines(tmp_path, "h100", "h100", "h100") as ports:
        config = configuration(ports, policy="session")
        with up(tmp_path, config) as stack:
            stack.config["session"] = {"cookie": "sid"}
            stack.write_config()

            def steady() -> bool:
                homes = [[ask(stack, "cookie", name) for name in NAMES] for _ in range(2)]
                return homes[0] == homes[1] and len(set(homes[0])) > 1

            until(steady, 15, "the cookie says where a session goes")


async def test_at_an_endpoint_picker_a_session_is_known_by_its_cookie_too(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    async with gateway(tmp_path, "h2", engine_count=3, policy="session", session={"cookie": "sid"}) as running:

        async def served(name: str) -> str:
            headers = {"cookie": f"theme=dark; sid={name}"}
            async with running.client.post(running.chat, json=body, headers=headers) as answer:
                await answer.read()
            assert answer.status == 200
            return answer.headers["x-engine"]

        homes = {name: await served(name) for name in NAMES}
        assert len(set(homes.values())) > 1
        assert {name: await served(name) for name in NAMES} == homes
