"""How requests end at engines that fail in each of the ways that engines do, as a real Envoy tells it."""

import http.client
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.failing_engine import FailingEngine, failing_engines
from tests.e2e.stack import Stack, configuration, fetch, until, up
from tests.ports import free_port


@pytest.fixture(scope="module")
def engines() -> Iterator[list[FailingEngine]]:
    with failing_engines(4) as running:
        yield running


@pytest.fixture(scope="module")
def stack(engines: list[FailingEngine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("endings")
    config = configuration([engine.port for engine in engines], "round_robin", "none")
    # Nobody is left alone here, however much fails.
    config["pools"][0] |= {"idle_timeout_seconds": 2.0, "breaker": {"enabled": False}, "checks": []}
    config["decision_log"] = {"file": str(folder / "decisions.jsonl"), "sample": 1.0}
    # An engine that is gone, in a pool of its own.
    gone = [{"address": f"127.0.0.1:{free_port()}"}]
    config["pools"].append({"name": "gone", "engine": "none", "models": ["gone"], "endpoints": gone})
    for pool in config["pools"]:
        pool["breaker"] = {"enabled": False}  # they fail on purpose
    with up(folder, config) as running:
        yield running


def endings(stack: Stack, word: str, **body: Any) -> tuple[tuple[int, Any, dict[str, str]], dict[str, int]]:
    """Ask, and return what came and the failed attempts that were counted by it, by how they ended."""
    before, number = counted(stack), stack.total("tidegate_requests_total")
    came = stack.ask(user=word, **body)
    until(lambda: stack.total("tidegate_requests_total") > number, 5, "the request's end is counted")
    return came, dict(counted(stack) - before)


def counted(stack: Stack) -> Counter[str]:
    counter: Counter[str] = Counter()
    for (name, labels), value in stack.metrics().items():
        if name == "tidegate_failed_attempts_total":
            counter[dict(labels)["ending"]] += int(value)
    return counter


@pytest.mark.parametrize(
    ("word", "status", "ending", "attempts"),
    [
        ("served", 200, None, 1),
        ("bad_request", 400, None, 1),
        ("too_long", 413, None, 1),
        ("not_supported", 501, None, 1),
        ("too_many", 429, "busy", 3),
        ("busy", 503, "busy", 3),
        ("unavailable", 503, "server_error", 3),
        ("bad_gateway", 502, "server_error", 3),
        ("failed", 500, "server_error", 1),
        ("unmeasured", 503, "server_error", 3),
        ("nothing", 500, "server_error", 1),
        ("full_memory", 500, "out_of_memory", 3),
        ("dead", 503, "engine_dead", 2),
        ("reset", 503, "reset", 2),
    ],
)
def test_an_error_is_told_by_its_kind_and_tried_again_where_that_may_help(
    stack: Stack, engines: list[FailingEngine], word: str, status: int, ending: str | None, attempts: int
) -> None:
    before = sum(engine.seen[word] for engine in engines)
    (got, body, headers), ended = endings(stack, word)
    assert got == status
    assert ended == ({ending: attempts} if ending else {})
    assert sum(engine.seen[word] for engine in engines) - before == attempts
    assert not [name for name in headers if "tidegate" in name.lower()]
    if status == 503 and attempts == 2:  # two engines fell silent over it: no third one is asked
        assert body["error"]["code"] == "service_unavailable"


@pytest.mark.parametrize(
    ("word", "ending"),
    [
        ("stream", None),
        ("quoted", None),
        ("bad_request_in_stream", None),
        ("busy_in_stream", "busy"),
        ("error_in_stream", "broken_answer"),
        ("dead_in_stream", "engine_dead"),
        ("no_error", None),
        ("overloaded", "busy"),
        ("failed_response", "broken_answer"),
    ],
)
def test_an_error_inside_a_stream_is_told_though_its_status_is_good(
    stack: Stack, word: str, ending: str | None
) -> None:
    (status, _, _), ended = endings(stack, word, stream=True)
    assert status == 200
    assert ended == ({ending: 1} if ending else {})


def test_a_stream_that_breaks_off_or_stands_still_is_ended_and_never_begun_again(
    stack: Stack, engines: list[FailingEngine]
) -> None:
    for word, ending in (("cut_off", "reset"), ("stands_still", "stalled"), ("silent", "timed_out")):
        before = counted(stack)
        if word == "silent":
            assert stack.ask(user=word, stream=True)[0] == 504
        else:
            with pytest.raises(http.client.IncompleteRead):
                stack.ask(user=word, stream=True)
        stack.settle()
        assert dict(counted(stack) - before) == {ending: 1}, word
        assert sum(engine.seen[word] for engine in engines) == 1, word


def test_an_engine_that_is_gone_is_unconnected(stack: Stack) -> None:
    before = counted(stack)
    assert stack.ask(model="gone")[0] == 503
    stack.settle()
    assert dict(counted(stack) - before) in ({"unconnected": 2}, {})  # by then it may be known to be gone


def test_attempts_follow_the_order_that_the_decision_names(stack: Stack, engines: list[FailingEngine]) -> None:
    order = engines[0].order
    order.clear()
    log = stack.folder / "decisions.jsonl"
    until(lambda: log.read_text().count("\n") == stack.total("tidegate_picks_total"), 5, "decisions are written")
    before = log.read_text().count("\n")
    for _ in range(3):
        endings(stack, "unavailable")
    until(lambda: log.read_text().count("\n") == before + 3, 5, "the decisions are written")
    named = [json.loads(line)["addresses"] for line in log.read_text().splitlines()[-3:]]
    assert [f"127.0.0.1:{port}" for port in order] == [address for addresses in named for address in addresses]


def test_when_all_engines_fail_retries_keep_to_their_budget(stack: Stack, engines: list[FailingEngine]) -> None:
    """20 % of the requests under way, and never fewer than ten."""
    for engine in engines:
        engine.pause = 0.1
    before = sum(engine.seen["unavailable"] for engine in engines)
    with ThreadPoolExecutor(60) as clients:
        statuses = list(clients.map(lambda _: stack.ask(user="unavailable")[0], range(300)))
    for engine in engines:
        engine.pause = 0.0
    assert statuses == [503] * 300
    asked = sum(engine.seen["unavailable"] for engine in engines) - before
    assert 300 < asked <= 1.3 * 300


def test_the_program_in_envoy_met_nothing_that_it_did_not_expect(stack: Stack) -> None:
    _, stats, _ = fetch(f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/stats?filter=lua.errors")
    assert "cluster.default.lua.errors: 0" in stats
