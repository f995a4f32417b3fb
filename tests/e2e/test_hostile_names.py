"""Names and prompts that would harm a log, a metrics page or an error, and what no error may tell."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.stack import MODEL, Stack, configuration, engines, fetch, up
from tests.extproc.json_bodies import PYTHON_WORDS
from tests.ports import free_port

SECRET = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("names")
    with engines(folder, "h100") as ports:
        config = configuration(ports)
        # Nobody is there: what Envoy says of it is for us alone.
        config["pools"].append({**config["pools"][0], "name": "gone", "models": ["gone"]})
        config["pools"][1]["endpoints"] = [{"address": f"127.0.0.1:{free_port()}"}]
        with up(folder, config) as running:
            yield running


NAMES = [
    'gpt\n"} evil 1',
    'a",tenant="b',
    "\x1b[2J\x1b]0;owned\x07",
    "%n%s%x",
    "{0.__class__}",
    "${jndi:ldap://x}",
    "tidegate_requests_total{} 1\n# HELP x",
    "\u202egnp.exe",
    "\ufeff",
    "\x00",
    "a" * 256,
    "\N{GRINNING FACE}" * 60,
    "..//../etc/passwd",
    "model\r\nx-injected: 1",
    "  ",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_model_is_routed_or_refused_and_harms_nothing(stack: Stack, name: str) -> None:
    status, answer, headers = stack.ask(model=name)

    assert status in {200, 404}, answer
    assert "x-injected" not in {key.lower() for key in headers}
    stack.settle()
    _, page, _ = fetch(f"{stack.admin}/metrics")
    assert list(text_string_to_metric_families(page))
    assert all("evil" not in line or line.startswith("tidegate_") for line in page.splitlines())
    assert "\x1b" not in page
    assert "\x1b[2J" not in stack.log()
    assert "owned" not in stack.log()


def test_a_name_of_ten_kilobytes_is_refused_by_its_field(stack: Stack) -> None:
    status, answer, _ = stack.ask(model="x" * 10_000)

    assert (status, answer["error"]["param"]) == (400, "model")
    assert len(answer["error"]["message"]) < 200


def test_more_names_than_anybody_serves_make_a_bounded_number_of_series(stack: Stack) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: stack.ask(model=f"m-{number}"), range(1_200)))
    stack.settle()

    models = {dict(labels).get("model", "") for _, labels in stack.metrics()}
    assert len(models) <= 1_010
    assert all(len(model) <= 256 for model in models)


def _bodies() -> dict[str, tuple[str, Any, int]]:
    said = [{"role": "user", "content": SECRET}]
    chat = {"model": MODEL, "messages": said}
    return {
        "no model": ("/chat/completions", {"messages": said}, 400),
        "a model that is none": ("/chat/completions", {**chat, "model": 7}, 400),
        "a bad limit": ("/chat/completions", {**chat, "max_tokens": SECRET}, 400),
        "no messages": ("/chat/completions", {"model": MODEL, "messages": SECRET}, 400),
        "a bad part": ("/chat/completions", {"model": MODEL, "messages": [{"content": [7, SECRET]}]}, 400),
        "bad tools": ("/chat/completions", {**chat, "tools": {SECRET: 1}}, 400),
        "an array": ("/chat/completions", [SECRET], 400),
        "no prompt": ("/completions", {"model": MODEL, "prompt": {SECRET: 1}}, 400),
        "no input": ("/embeddings", {"model": MODEL, "input": {SECRET: 1}}, 400),
        "messages": ("/messages", {"model": MODEL, "max_tokens": 1, "messages": [{"content": {SECRET: 1}}]}, 400),
        "no such path": (f"/{SECRET}", chat, 404),
        "nobody there": ("/chat/completions", {**chat, "model": "gone"}, 503),
        "nobody there, for a message": ("/messages", {**chat, "model": "gone", "max_tokens": 1}, 503),
    }


@pytest.mark.parametrize("case", _bodies())
def test_no_error_tells_a_prompt_an_address_or_a_type(stack: Stack, case: str) -> None:
    path, body, status = _bodies()[case]

    got, answer, headers = fetch(f"{stack.clients}{path}", body)

    text = json.dumps(answer) + json.dumps(headers)
    assert got == status
    assert SECRET not in text
    addresses = [endpoint["address"] for pool in stack.config["pools"] for endpoint in pool["endpoints"]]
    assert not any(address in text for address in addresses)
    assert "127.0.0.1" not in text
    assert not any(word in text for word in (*PYTHON_WORDS, "upstream", "envoy", "ext_proc", "tidegate_"))


def test_nothing_failed_on_the_way(stack: Stack) -> None:
    stack.settle()

    assert stack.inflight() == {}
    assert stack.total("tidegate_ext_proc_streams_total", outcome="failed") == 0
    assert "Traceback" not in stack.log()
    assert SECRET not in stack.log()
