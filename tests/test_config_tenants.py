"""What the configuration may say of tenants, and what is said about what it may not."""

import copy
from typing import Any

import pytest

from tests.configurations import EVERY_KEY, EVERY_KEY_OF_TENANTS, faults, parsed
from tidegate.config_tenants import LimitSet, limits_of
from tidegate.control_headers import CONTROL_PREFIXES
from tidegate.scheduling.budget import Limit, Unit, Window

URI = "expected a URL that begins with https:// (http:// on a loopback address)"
QUOTED = "expected 1 to 256 characters, none of them a quote or a backslash"


def whole() -> dict[str, Any]:
    data = copy.deepcopy({**EVERY_KEY, **EVERY_KEY_OF_TENANTS})
    data["pools"][0]["fail_open"] = False
    return data


def spoiled(path: str, value: Any) -> dict[str, Any]:
    data = whole()
    *parents, last = path.split(".")
    at: Any = data
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[int(last) if isinstance(at, list) else last] = value
    return data


def test_every_key_is_taken_as_it_is_given() -> None:
    taken = parsed(whole()).model_dump(mode="json")
    assert {name: taken[name] for name in EVERY_KEY_OF_TENANTS} == EVERY_KEY_OF_TENANTS


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("tenants.0.tier", "silver", "tenants[0].tier: expected the name of a tier, not 'silver'"),
        ("keys.0.tenant", "nobody", "keys[0].tenant: expected the name of a tenant, not 'nobody'"),
        ("authentication.anonymous", "x", "authentication.anonymous: expected the name of a tenant, not 'x'"),
        (
            "tenants.1.name",
            "acme",
            "tenants[1].name: 'acme' is given already at tenants[0].name; expected each once",
        ),
        (
            "tenants.1.identities",
            ["spiffe://acme/ci"],
            (
                "tenants[1].identities[0]: 'spiffe://acme/ci' is given already at tenants[0].identities[0]; "
                "expected each once"
            ),
        ),
        (
            "tenants.1.identities",
            ["acme"],
            "tenants[1].identities[0]: 'acme' is given already at tenants[0].name; expected each once",
        ),
        (
            "authentication.jwt.jwks_file",
            "/etc/keys.json",
            "authentication.jwt: expected either jwks_file or jwks_uri",
        ),
        ("authentication.jwt.jwks_uri", None, "authentication.jwt: expected either jwks_file or jwks_uri"),
        *(
            (
                "authentication.jwt.jwks_uri",
                uri,
                f"authentication.jwt.jwks_uri: {URI}, not '{uri}'",
            )
            for uri in (
                "http://issuer.example/keys",
                "https://",
                "ftp://x",
                "https://a:b@c/",
                "https://x:0/",
                "https://[",
            )
        ),
        (
            "authentication.jwt.claim",
            "a'] || true || m['b",
            f"authentication.jwt.claim: {QUOTED}, not \"a'] || true || m['b\"",
        ),
        (
            "authentication.certificate",
            "email",
            "authentication.certificate: expected one of 'uri_san', 'dns_san' or 'subject', not 'email'",
        ),
        (
            "listener.tls.client_ca",
            None,
            "authentication.certificate: expected listener.tls.client_ca beside it, or clients show no certificate",
        ),
        (
            "listener.tls",
            None,
            "authentication.certificate: expected listener.tls.client_ca beside it, or clients show no certificate",
        ),
        ("listener.filters.0.config", "x", "listener.filters[0].config: expected a mapping, not 'x'"),
        (
            "listener.filters.0.type",
            "Lua",
            "listener.filters[0].type: expected a message such as envoy.extensions.filters.http.lua.v3.Lua, not 'Lua'",
        ),
        ("tiers.0.priority", 101, "tiers[0].priority: expected at most 100, not 101"),
        ("tiers.0.limits.burst", 0, "tiers[0].limits.burst: expected at least 0.01, not 0"),
        (
            "tiers.0.limits.tokens_per_minute",
            0,
            "tiers[0].limits.tokens_per_minute: expected at least 1, not 0",
        ),
        (
            "tenants.0.name",
            "a/b",
            "tenants[0].name: expected 1 to 63 of a-z, 0-9 and hyphens, with no hyphen at either end, not 'a/b'",
        ),
        (
            "pools.0.fail_open",
            True,
            "pools[0].fail_open: expected false where there are tenants: without a decision anybody would get in",
        ),
    ],
)
def test_what_does_not_go_together_is_said(path: str, value: Any, said: str) -> None:
    assert said in faults(spoiled(path, value))


@pytest.mark.parametrize("wrong", ["sk-live-secret", "sha256:secret", f"sha256:{'0A' * 32}", f"md5:{'0a' * 16}", ""])
def test_what_is_written_in_place_of_a_hash_is_not_repeated(wrong: str) -> None:
    """It may be the key."""
    (fault,) = faults(spoiled("keys.0.hash", wrong))
    assert fault.startswith("keys[0].hash: expected sha256: and 64 hexadecimal digits")
    assert "secret" not in fault


def test_the_same_key_cannot_be_two_tenants() -> None:
    data = whole()
    data["keys"].append({"name": "other", "tenant": "guest", "hash": data["keys"][0]["hash"]})
    (fault,) = faults(data)
    assert fault == "keys[1].hash: is given already at keys[0].hash; expected each key once"


@pytest.mark.parametrize(
    "header",
    [
        *(f"{prefix}tenant" for prefix in CONTROL_PREFIXES),
        *("X-Tenant-Id", "tenant", "x-api-key", "x-request-id", "x-session-id", "x-request-timeout", "x-priority"),
        *("x-forwarded-for", "x-a_b", "x-", "authorization"),
    ],
)
def test_a_header_that_means_something_else_cannot_say_who_asks(header: str) -> None:
    (fault,) = faults(spoiled("authentication.identity_header", header))
    assert fault.startswith("authentication.identity_header: expected a header such as x-tenant-id")


def test_a_header_that_nobody_looks_at_is_an_error() -> None:
    data = {**copy.deepcopy(EVERY_KEY), "authentication": {"identity_header": "x-tenant-id"}}
    assert faults(data) == ["authentication.identity_header: expected tenants beside it, or nobody looks at it"]


def test_what_a_later_set_says_counts_and_a_burst_is_of_each_minutes_limit() -> None:
    tier = LimitSet(requests_per_minute=60, tokens_per_minute=1000, tokens_per_day=5, requests_in_flight=3)
    assert limits_of(tier, LimitSet(tokens_per_minute=500, burst=0.1)) == (
        Limit(Unit.REQUESTS, Window.MINUTE, 60, 6),
        Limit(Unit.TOKENS, Window.MINUTE, 500, 50),
        Limit(Unit.TOKENS, Window.DAY, 5),
        Limit(Unit.REQUESTS, Window.IN_FLIGHT, 3),
    )
    assert limits_of(LimitSet(requests_per_minute=5, burst=0.01)) == (Limit(Unit.REQUESTS, Window.MINUTE, 5, 1),)
    assert limits_of(LimitSet(), LimitSet()) == ()
