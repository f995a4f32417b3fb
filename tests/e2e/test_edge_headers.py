"""Headers at the edge: what a client may not say, what must reach the engine, and what nobody may change."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.e2e.gateway import CHAT, Gateway, standing
from tests.e2e.raw_http import send

STRIPPED = {
    "Gateway API": (
        *("x-gateway-destination-endpoint", "x-gateway-destination-endpoint-subset"),
        *("x-gateway-destination-endpoint-served", "x-gateway-destination-endpoint-scores", "x-gateway-peer-metadata"),
        *("x-gateway-model-name-rewrite", "x-gateway-inference-objective", "x-gateway-inference-fairness-id"),
        "x-gateway-inference-request-cost",
    ),
    "llm-d": (
        *("x-llm-d-fairness-id", "x-llm-d-objective", "x-llm-d-model-name-rewrite", "x-llm-d-slo-ttft-ms"),
        *("x-llm-d-slo-tpot-ms", "x-llm-d-request-dropped-reason", "x-llm-d-inference-objective"),
        *("x-prefiller-url", "x-prefiller-host-port", "x-encoder-hosts-ports", "x-data-parallel-host-port"),
    ),
    "Envoy": (
        *("x-envoy-original-dst-host", "x-envoy-upstream-rq-timeout-ms", "x-envoy-max-retries", "x-envoy-retry-on"),
        *("x-envoy-upstream-alt-stat-name", "x-envoy-decorator-operation", "x-envoy-hedge-on-per-try-timeout"),
        *("x-envoy-upstream-stream-duration-ms", "x-envoy-force-trace", "x-envoy-ip-tags", "x-forwarded-client-cert"),
    ),
    "other gateways": ("x-ai-eg-model", "x-ai-eg-selected-route", "routing-strategy", "user", "target-pod"),
    "our own": (
        *("x-tenant-id", "x-priority", "x-session-node", "x-canary", "x-token-budget", "x-token-estimate"),
        "grpc-timeout",
    ),
}
NAMES = [name for names in STRIPPED.values() for name in names]
CLIENT = (b"x-envoy-external-address", b"127.0.0.1")
"""What Envoy itself says of where a request came from, whatever the client said."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncIterator[Gateway]:
    async with standing() as running:
        running.decider.destinations = running.engines[1].address
        yield running


pytestmark = pytest.mark.asyncio(loop_scope="module")


def _request(*headers: tuple[str, str], body: bytes = b"{}", target: str = CHAT) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"POST {target} HTTP/1.1\r\nhost: gateway\r\n{lines}content-length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body


async def _sent(gateway: Gateway, *headers: tuple[str, str]) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Send a request with ``headers``; return its status and what the picked engine saw, if it was asked."""
    picked, other = gateway.engines[1], gateway.engines[0]
    for engine in gateway.engines:
        engine.pairs.clear()
    gateway.decider.headers.clear()
    answer = await send(gateway.config.listener.port, _request(*headers, ("connection", "close")))
    assert other.pairs == [], "no client chooses an endpoint"
    assert len(answer.statuses) == 1, answer.raw
    return answer.statuses[0], picked.pairs[0] if picked.pairs else []


EVIL = "169.254.169.254:80"
FORMS = {
    "once": lambda name: [(name, EVIL)],
    "twice": lambda name: [(name, EVIL), (name, EVIL)],
    "in capitals": lambda name: [(name.upper(), EVIL)],
    "in mixed case": lambda name: [(name.title(), EVIL), (name, EVIL)],
    "as a list": lambda name: [(name, f"{EVIL},{EVIL} , 127.0.0.1:9901")],
    "with spaces": lambda name: [(name, f"   {EVIL}\t ")],
    "empty": lambda name: [(name, "")],
}


@pytest.mark.parametrize("form", FORMS)
async def test_control_headers_are_stripped_in_every_form(gateway: Gateway, form: str) -> None:
    headers = [pair for name in NAMES for pair in FORMS[form](name)]

    for start in range(0, len(headers), 80):  # Envoy takes a hundred
        status, seen = await _sent(gateway, *headers[start : start + 80], ("x-mine", "kept"))
        names = {name.decode() for name, _ in seen}
        assert status == 200
        assert not names & set(NAMES)
        assert [pair for pair in seen if pair[0].startswith((b"x-envoy-", b"x-gateway-"))] in ([], [CLIENT])
        assert (b"x-mine", b"kept") in seen
        assert not set(gateway.decider.headers[0]) & set(NAMES)


@pytest.mark.parametrize("name", ["x_gateway_destination_endpoint", "x-gateway_destination-endpoint", "X_Tenant_Id"])
async def test_an_underscore_does_not_hide_a_header(gateway: Gateway, name: str) -> None:
    status, seen = await _sent(gateway, (name, EVIL))

    assert (status, seen) == (400, [])


@pytest.mark.parametrize(
    "named",
    [
        *("x-gateway-destination-endpoint", "x-request-id", "content-length", "host", "transfer-encoding", "x-mine"),
        *("close, x-request-id", "keep-alive, x-gateway-destination-endpoint", "authorization", "te, trailers"),
    ],
)
async def test_a_header_that_connection_names_does_not_change_the_decision(gateway: Gateway, named: str) -> None:
    picked, other = gateway.engines[1], gateway.engines[0]
    for engine in gateway.engines:
        engine.pairs.clear()
    raw = _request(("connection", named), ("x-gateway-destination-endpoint", other.address), ("x-mine", "a"))

    answer = await send(gateway.config.listener.port, raw, wait=1.0)

    assert other.pairs == []
    assert answer.statuses in ([200], [400])
    if answer.statuses == [200]:
        names = {name for name, _ in picked.pairs[0]}
        assert {b"host", b"x-request-id"} <= names
        assert {b"content-length", b"transfer-encoding"} & names
        assert b"x-gateway-destination-endpoint" not in names


async def test_headers_for_envoy_have_no_effect(gateway: Gateway) -> None:
    gateway.engines[1].status = 503
    try:
        status, _ = await _sent(
            gateway,
            ("x-envoy-max-retries", "50"),
            ("x-envoy-retry-on", "5xx"),
            ("x-envoy-upstream-rq-timeout-ms", "1"),
            ("x-envoy-original-dst-host", gateway.engines[0].address),
        )
    except AssertionError:
        # Its retries go to the other engine, as they should: two at most.
        status = 503
    finally:
        gateway.engines[1].status = 200
    assert sum(len(engine.pairs) for engine in gateway.engines) <= 3
    assert status in {200, 503}


async def test_repeated_headers_and_odd_bytes_reach_the_engine_as_they_are(gateway: Gateway) -> None:
    status, seen = await _sent(
        gateway,
        ("x-many", "one"),
        ("X-Many", "two, three"),
        ("x-many", ""),
        ("x-bytes", "caf\xe9 \x80\xff"),
        ("x-long", "v" * 8_000),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("authorization", "Bearer sk-x"),
    )

    values = [value for name, value in seen if name == b"x-many"]
    assert status == 200
    assert b",".join(values).replace(b" ", b"") == b"one,two,three,"
    assert (b"x-bytes", b"caf\xe9 \x80\xff") in seen
    assert (b"x-long", b"v" * 8_000) in seen
    assert (b"authorization", b"Bearer sk-x") in seen
    assert b"; ".join(value for name, value in seen if name == b"cookie") == b"a=1; b=2"
    assert not {"authorization", "cookie", "x-many"} & set(gateway.decider.headers[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("content-length", "1"), ("transfer-encoding", "chunked"), ("host", "evil"), (":authority", "evil")),
        *((":path", "/v1/admin"), (":method", "GET"), (":scheme", "https"), ("x-envoy-max-retries", "9")),
        *(("Content-Length", "1"), ("Host", "evil")),
    ],
)
async def test_what_frames_or_routes_a_request_cannot_be_set_by_a_decision(
    gateway: Gateway, name: str, value: str
) -> None:
    gateway.decider.sets = {name: value}
    gateway.engines[1].targets.clear()
    gateway.engines[1].digests.clear()
    try:
        status, seen = await _sent(gateway)
    finally:
        gateway.decider.sets = {}

    if status == 200:
        assert gateway.engines[1].targets == [f"POST {CHAT}"]
        assert (b"host", b"gateway") in seen
        assert (b"content-length", b"2") in seen
        assert b"transfer-encoding" not in {key for key, _ in seen}
        assert b"x-envoy-max-retries" not in {key for key, _ in seen}
    else:
        assert status >= 500
        assert seen == []


async def test_what_an_engine_says_to_gateways_does_not_reach_the_client(gateway: Gateway) -> None:
    status, _ = await gateway.post()
    assert status == 200
    assert not {name.lower() for name in gateway.last_headers} & {
        *("x-gateway-destination-endpoint-served", "endpoint-load-metrics", "x-envoy-upstream-service-time"),
    }


async def test_requests_with_headers_of_every_kind_do_not_meet(gateway: Gateway) -> None:
    statuses = await asyncio.gather(*(gateway.post(headers={name: EVIL}) for name in NAMES))
    assert {status for status, _ in statuses} == {200}
