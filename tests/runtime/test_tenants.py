"""Who asks, and what becomes of what they took, without anything that listens."""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from extproc.errors import ApiError
from tests.at_once import at_once
from tests.configurations import parsed
from tests.telemetry.entries import DECISION, entry, usage
from tidegate.config import Config
from tidegate.runtime.callers import hashed
from tidegate.runtime.gatekeeper import Gatekeeper
from tidegate.runtime.tenants import Tenants
from tidegate.scheduling.request import InferenceRequest
from tidegate.telemetry.record import RequestRecord, parse
from tidegate.tokens.count import CountSource, TokenCount

ANY = {"requests_per_minute": 10, "tokens_per_day": 100}
NOON = 1_700_000_000.0
ALICE, BOB = "sk-alice", "sk-bob"
SECTIONS: dict[str, Any] = {
    "pools": [{"name": "default", "engine": "none", "endpoints": [{"address": "127.0.0.1:1"}]}],
    "tiers": [
        {
            "name": "gold",
            "priority": 5,
            "limits": {"tokens_per_minute": 1000, "requests_in_flight": 2},
            "models": [{"model": "big-*", "limits": {"requests_per_day": 3}}],
        }
    ],
    "tenants": [
        {"name": "alice", "tier": "gold", "identities": ["spiffe://alice"], "limits": {"tokens_per_minute": 2000}},
        {"name": "bob", "models": [{"model": "*", "limits": {"requests_per_day": 1}}]},
    ],
    "keys": [
        {"name": "a1", "tenant": "alice", "hash": hashed(ALICE), "limits": {"requests_per_minute": 10}},
        {"name": "b1", "tenant": "bob", "hash": hashed(BOB)},
    ],
}


def config(**more: Any) -> Config:
    return parsed({**SECTIONS, **more})


class Made:
    def __init__(self, **more: Any) -> None:
        self.registry = CollectorRegistry()
        self.output: int | None = 300
        self.tenants = Tenants(lambda: NOON, self.registry)
        self.gate = Gatekeeper(self.tenants, lambda _: self.output)
        self.configure(**more)

    def configure(self, **more: Any) -> None:
        taken = config(**more)
        self.tenants.configure(taken)
        self.gate.configure(taken)

    def admit(self, number: str, key: str = ALICE, model: str = "small", most: int | None = 100) -> dict[str, str]:
        asked = InferenceRequest(number, "chat_completions", model, TokenCount(50, CountSource.EXACT), most)
        return dict(at_once(self.gate.admit(asked, self.gate.identify({"x-api-key": key}))))

    def left(self, scope: str) -> dict[str, int]:
        page = json.loads(json.dumps(self.tenants.describe()))
        return {
            limit["limit"]: limit["left"]
            for tenant in page["tenants"]
            for budget in tenant["budgets"]
            if budget["scope"] == scope
            for limit in budget["limits"]
        }

    def metrics(self) -> str:
        return generate_latest(self.registry).decode()


def record(number: str, **fields: Any) -> RequestRecord:
    return parse(entry(decision={**DECISION, "reservation": number}, **fields))


def refused(made: Made, **headers: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        made.gate.identify(headers)
    return caught.value


def test_a_key_says_whose_it_is_and_by_that_what_tier() -> None:
    made = Made()
    caller = made.gate.identify({"authorization": f"Bearer {ALICE}"})
    assert (caller.tenant, caller.priority, caller.scopes) == ("alice", 5, ("tenant:alice", "key:a1"))
    caller = made.gate.identify({"x-api-key": BOB})
    assert (caller.tenant, caller.priority, caller.scopes) == ("bob", 0, ("tenant:bob", "key:b1"))


def test_a_hash_is_no_key() -> None:
    assert refused(Made(), **{"x-api-key": hashed(ALICE)}).status == 401


def test_nobody_is_anonymous_unless_that_is_a_tenant_and_a_wrong_key_never_is() -> None:
    assert refused(Made()).message.startswith("An API key is missing")
    made = Made(authentication={"anonymous": "bob"})
    assert made.gate.identify({"x-tenant-id": "alice"}).tenant == "bob"
    assert refused(made, **{"x-api-key": "sk-wrong"}).status == 401
    assert refused(made, authorization="Basic abc").status == 401


def test_the_header_of_a_proxy_in_front_counts_for_more_than_a_key() -> None:
    made = Made(authentication={"identity_header": "x-tenant-id"})
    assert made.gate.identify({"x-tenant-id": "bob", "authorization": "Bearer a.b.c"}).tenant == "bob"
    assert made.gate.identify({"x-tenant-id": "spiffe://alice"}).tenant == "alice"
    assert refused(made, **{"x-tenant-id": "nobody", "x-api-key": ALICE}).status == 401
    assert refused(made, **{"x-tenant-id": "", "x-api-key": ALICE}).status == 401
    assert made.gate.identify({"x-api-key": ALICE}).tenant == "alice"


def test_without_that_header_configured_it_says_nothing() -> None:
    assert Made().gate.identify({"x-tenant-id": "bob", "x-api-key": ALICE}).tenant == "alice"


SUB = ":metadata.filter_metadata['envoy.filters.http.jwt_authn']['payload']['sub']"
SAN = ":connection.uri_san_peer_certificate"
VERIFIED: dict[str, Any] = {
    "authentication": {
        "jwt": {"issuer": "x", "jwks_uri": "https://x/"},
        "certificate": "uri_san",
        "identity_header": "x-tenant-id",
        "anonymous": "bob",
    },
    "listener": {"tls": {"certificate": "/c", "key": "/k", "client_ca": "/a", "read_by": "envoy"}},
}


@pytest.mark.parametrize(
    ("said", "tenant"),
    [
        ({SUB: "bob", SAN: "spiffe://alice", "x-tenant-id": "alice", "x-api-key": ALICE}, "bob"),
        ({SAN: "spiffe://alice", "x-tenant-id": "bob", "x-api-key": BOB}, "alice"),
        ({SAN: "", "x-tenant-id": "alice"}, "alice"),
        ({SUB: "", SAN: "", "x-api-key": ALICE}, "alice"),
        ({}, "bob"),
    ],
)
def test_what_envoy_has_verified_counts_for_more_than_what_is_said(said: dict[str, str], tenant: str) -> None:
    assert Made(**VERIFIED).gate.identify(said).tenant == tenant


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({SUB: "nobody", "x-api-key": ALICE}, "Whoever this is"),
        ({SAN: "spiffe://nobody", "x-api-key": ALICE}, "Whoever this is"),
        ({SUB: "", "authorization": "Bearer a.b.c"}, "The token is not valid"),
        ({"authorization": "Bearer sk.no-token"}, "The API key is not valid"),
    ],
)
def test_whoever_is_verified_and_unknown_is_not_let_in_as_somebody_else(said: dict[str, str], message: str) -> None:
    made = Made(**VERIFIED)
    error = refused(made, **said)
    assert (error.status, error.message.startswith(message)) == (401, True)
    assert 'tidegate_unauthenticated_total{why="wrong"} 1.0' in made.metrics()


def test_what_nobody_configured_to_look_at_says_nothing() -> None:
    assert Made().gate.identify({SUB: "bob", SAN: "spiffe://bob", "x-api-key": ALICE}).tenant == "alice"


def test_caches_are_kept_apart_by_tenant_where_that_is_asked_for() -> None:
    def salts(**more: Any) -> list[str]:
        gate = Made(**more).gate
        return [gate.identify({"x-api-key": key}).salt for key in (ALICE, BOB)]

    assert salts() == ["", ""]
    assert salts(authentication={"salt_prefixes": True}) == ["alice", "bob"]


def test_a_tenants_own_limits_count_where_they_differ_from_its_tiers() -> None:
    made = Made()
    assert made.left("tenant:alice") == {"tokens_per_minute": 2000, "requests_in_flight": 2}
    assert made.left("tenant:alice/model:big-*") == {"requests_per_day": 3}
    assert made.left("tenant:bob/model:*") == {"requests_per_day": 1}
    assert made.left("key:a1") == {"requests_per_minute": 10}


def test_what_a_request_allows_itself_is_reserved_and_else_what_is_expected() -> None:
    made = Made()
    told = made.admit("r1", most=100)
    assert made.left("tenant:alice") == {"tokens_per_minute": 1850, "requests_in_flight": 1}
    assert told == {
        "tenant": "alice",
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "6s",
        "x-ratelimit-limit-tokens": "2000",
        "x-ratelimit-remaining-tokens": "1850",
        "x-ratelimit-reset-tokens": "5s",
    }
    made.admit("r2", most=None)
    assert made.left("tenant:alice") == {"tokens_per_minute": 1500, "requests_in_flight": 0}


def test_a_tier_may_reserve_what_is_expected_whatever_a_request_allows_itself() -> None:
    made = Made(tiers=[{**SECTIONS["tiers"][0], "reserve": "expected"}])
    made.admit("r1", most=1_000_000)
    assert made.left("tenant:alice")["tokens_per_minute"] == 2000 - 350


def test_a_refusal_takes_nothing_and_is_counted() -> None:
    made = Made()
    made.admit("r1")
    made.admit("r2")
    with pytest.raises(ApiError) as caught:
        made.admit("r3")
    assert (caught.value.status, caught.value.param) == (429, "requests_in_flight")
    assert made.left("key:a1") == {"requests_per_minute": 8}
    assert 'tidegate_tenant_refusals_total{limit="requests_in_flight",tenant="alice"} 1.0' in made.metrics()


def test_a_request_that_nobody_serves_takes_nothing() -> None:
    made = Made()
    made.output = None
    assert made.admit("r1", most=None) == {}
    assert made.left("tenant:alice") == {"tokens_per_minute": 2000, "requests_in_flight": 2}


@pytest.mark.parametrize(
    ("fields", "tokens", "requests"),
    [
        ({"tokens": usage(40, 10)}, 2000 - 50, 9),
        ({"tokens": usage(60, 200)}, 2000 - 260, 9),
        ({"tokens": None}, 2000 - 150, 9),
        ({"tokens": None, "status": 0, "flags": ("downstream_connection_termination",)}, 2000 - 150, 9),
        ({"status": 400}, 2000, 9),
        ({"status": 500}, 2000, 10),
        ({"status": 503}, 2000, 10),
        ({"status": 429}, 2000, 10),
        ({"status": 503, "attempts": 0, "served": None}, 2000, 10),
        ({"status": 0, "attempts": 0, "flags": ("downstream_remote_reset",)}, 2000, 10),
    ],
)
def test_what_was_taken_is_settled_by_how_the_request_ended(fields: dict[str, Any], tokens: int, requests: int) -> None:
    made = Made()
    made.admit("r1")
    for _ in range(2):
        made.tenants.ended(record("r1", **fields))
        made.tenants.withdraw("r1")
    assert made.left("tenant:alice") == {"tokens_per_minute": tokens, "requests_in_flight": 2}
    assert made.left("key:a1") == {"requests_per_minute": requests}
    assert made.tenants.describe()["requests_held"] == 0


def test_a_request_without_a_model_counts_against_every_models_limit() -> None:
    made = Made()
    made.admit("r1", model="")
    assert made.left("tenant:alice/model:big-*") == {"requests_per_day": 2}
    made.admit("r2", key=BOB, model="")
    with pytest.raises(ApiError, match="The tenant 'bob' for the model"):
        made.admit("r3", key=BOB, model="anything")


def test_a_reload_takes_keys_away_brings_others_and_forgets_no_use() -> None:
    made = Made()
    made.admit("r1")
    new = [{"name": "a2", "tenant": "alice", "hash": hashed("sk-new")}]
    made.configure(keys=new)
    assert refused(made, **{"x-api-key": ALICE}).status == 401
    assert made.gate.identify({"x-api-key": "sk-new"}).tenant == "alice"
    assert made.left("tenant:alice") == {"tokens_per_minute": 1850, "requests_in_flight": 1}
    made.configure()
    made.tenants.ended(record("r1", tokens=usage(10, 10)))
    assert made.left("tenant:alice") == {"tokens_per_minute": 1980, "requests_in_flight": 2}
    assert made.left("key:a1") == {"requests_per_minute": 10}


def test_the_metrics_say_what_is_left_and_used_and_hold_neither_key_nor_hash() -> None:
    made = Made()
    made.admit("r1")
    made.tenants.ended(record("r1", tokens=usage(40, 10)))
    refused(made, **{"x-api-key": "sk-wrong"})
    page = made.metrics()
    assert 'tidegate_limit_left{limit="tokens_per_minute",scope="tenant:alice"} 1950.0' in page
    assert 'tidegate_limit{limit="tokens_per_minute",scope="tenant:alice"} 2000.0' in page
    assert 'tidegate_tenant_tokens_total{kind="output",tenant="alice"} 10.0' in page
    assert 'tidegate_tenant_requests_total{tenant="bob"} 0.0' in page
    assert 'tidegate_unauthenticated_total{why="wrong"} 1.0' in page
    everything = page + json.dumps(made.tenants.describe())
    assert not any(secret in everything for secret in (ALICE, hashed(ALICE)[7:], "sk-wrong"))
    made.configure(tenants=SECTIONS["tenants"][:1], keys=SECTIONS["keys"][:1])
    assert "bob" not in made.metrics()


def test_no_number_of_wrong_keys_makes_a_series() -> None:
    made = Made()
    refused(made, **{"x-api-key": "sk"})
    before = len(made.metrics().splitlines())
    for number in range(1000):
        refused(made, **{"x-api-key": f"sk-{number}"})
    assert len(made.metrics().splitlines()) == before


def test_of_more_limits_than_are_exported_it_is_said_how_many_are_not() -> None:
    keys = [{"name": f"k{n}", "tenant": "alice", "hash": f"sha256:{n:064x}", "limits": {**ANY}} for n in range(3000)]
    made = Made(keys=keys)
    page = made.metrics()
    assert page.count("\ntidegate_limit_left{") == 5000
    assert "\ntidegate_limits_left_out 1004.0\n" in page
    assert len(made.left("key:k2999")) == 2
    assert "\ntidegate_limits_left_out 0.0\n" in Made().metrics()
