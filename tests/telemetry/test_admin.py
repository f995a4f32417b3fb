"""The admin pages, asked over HTTP."""

import contextlib
import io
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.telemetry.fleets import DEAD, KNOWN, SILENT, pool
from tidegate.fleet.view import Adapters
from tidegate.telemetry.admin import EXPLAIN, PAGES, UnanswerableError, make_app
from tidegate.telemetry.metrics import Metrics
from tidegate.telemetry.status import JsonObject, describe

Client = TestClient[web.Request, web.Application]


def status() -> JsonObject:
    return describe(
        [pool(KNOWN, SILENT), pool(DEAD._replace(kv_usage=float("nan")), name="second")],
        version="1.2.3",
        config_file="tidegate.yaml",
        uptime_seconds=12.3456,
        reservations=3,
    )


@contextlib.asynccontextmanager
async def pages(reasons: list[str] | None = None) -> AsyncIterator[Client]:
    app = make_app(Metrics(list, int).render, lambda: reasons or [], status)
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_metrics_have_the_content_type_of_their_format() -> None:
    async with pages() as client:
        response = await client.get("/metrics")
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "tidegate_inflight_reservations 0.0" in await response.text()


async def test_a_living_process_is_healthy_even_when_it_is_not_ready() -> None:
    async with pages(["no endpoint can be reached"]) as client:
        response = await client.get("/healthz")
        assert (response.status, await response.text()) == (200, "ok\n")


async def test_ready_when_there_is_no_reason_against_it() -> None:
    async with pages() as client:
        response = await client.get("/readyz")
        assert (response.status, await response.text()) == (200, "ok\n")


async def test_not_ready_says_why_one_reason_a_line() -> None:
    async with pages(["no configuration", "no Envoy"]) as client:
        response = await client.get("/readyz")
        assert (response.status, await response.text()) == (503, "no configuration\nno Envoy\n")


async def test_status_tells_all_there_is_to_know_of_each_endpoint() -> None:
    async with pages() as client:
        response = await client.get("/status")
        assert response.content_type == "application/json"
        page = await response.json()
    assert {key: page[key] for key in page if key != "pools"} == {
        "version": "1.2.3",
        "config_file": "tidegate.yaml",
        "uptime_seconds": 12.346,
        "inflight_reservations": 3,
        "workers": [],
        "kv_events": [],
        "sharing": None,
        "discovery": [],
    }
    known = page["pools"][0]["endpoints"][0]
    told = {
        **KNOWN._asdict(),
        "reachability": "reachable",
        "health": "healthy",
        "models": [],
        "pace": KNOWN.pace._asdict(),
    }
    del told["cached_tokens"]
    assert known == told
    silent = page["pools"][0]["endpoints"][1]
    assert silent["running"] is silent["kv_usage"] is silent["report_age"] is None
    assert page["pools"][1]["endpoints"][0]["kv_usage"] is None


async def test_status_names_the_adapters() -> None:
    adapters = Adapters(frozenset({"b", "a"}), frozenset(), 2.0)
    page = describe(
        [pool(KNOWN._replace(adapters=adapters))], version="1", config_file=None, uptime_seconds=1.0, reservations=0
    )
    assert json.loads(json.dumps(page))["pools"][0]["endpoints"][0]["adapters"] == {
        "running": ["a", "b"],
        "waiting": [],
        "most": 2.0,
    }


async def test_the_index_lists_every_page() -> None:
    async with pages() as client:
        response = await client.get("/")
        text = await response.text()
        assert response.content_type == "text/plain"
        for path in PAGES:
            assert path in text
            assert (await client.get(path)).status == 200


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/status/x", "/..%2fetc%2fpasswd"])
async def test_any_other_page_is_not_found(path: str) -> None:
    async with pages() as client:
        response = await client.get(path)
        assert response.status == 404
        assert response.content_type == "text/plain"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
async def test_nothing_can_be_done_but_get(method: str) -> None:
    async with pages() as client:
        for path in ("/", *PAGES):
            response: aiohttp.ClientResponse = await client.request(method, path)
            assert response.status == 405


async def test_answers_are_neither_kept_nor_guessed_at() -> None:
    async with pages() as client:
        response = await client.get("/status")
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_questions_are_answered_where_they_are_asked_and_what_has_no_answer_says_so() -> None:
    async def explain(body: bytes) -> bytes:
        if body != b"why":
            raise UnanswerableError(404, "nobody knows")
        return b'{"because": 1}\n'

    app = make_app(Metrics(list, int).render, list, status, explain=explain)
    async with TestClient(TestServer(app)) as client:
        answer = await client.post(EXPLAIN, data=b"why")
        assert (answer.status, answer.content_type, await answer.json()) == (200, "application/json", {"because": 1})
        answer = await client.post(EXPLAIN, data=b"what")
        assert (answer.status, await answer.text()) == (404, "nobody knows\n")
        assert (await client.get(EXPLAIN)).status == 405
        assert (await client.post(EXPLAIN, data=io.BytesIO(b"x" * 2_000_000))).status == 413
        assert EXPLAIN in await (await client.get("/")).text()
    async with pages() as client:
        assert (await client.post(EXPLAIN, data=b"why")).status == 404
        assert EXPLAIN not in await (await client.get("/")).text()
