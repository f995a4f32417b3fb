"""Who asks, as Envoy has verified it: tokens and clients' certificates. In one exchange and in two."""

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.authority import Authority
from tests.e2e.echoing_engine import echoing
from tests.e2e.stack import Stack, configuration, until, up
from tests.tokens_issued import Issuer, unsigned
from tidegate.runtime.callers import hashed

KEY = f"sk-test-{'1' * 32}"
SPIFFE, OTHERS = "spiffe://example/acme/ci", "spiffe://example/strangers"
TENANTS: dict[str, Any] = {
    "tenants": [
        {"name": "acme", "identities": [SPIFFE], "limits": {"requests_per_minute": 1000}},
        {"name": "other", "limits": {"requests_per_minute": 2000}},
        {"name": "guest", "limits": {"requests_per_minute": 3000}},
    ],
    "keys": [{"name": "k", "tenant": "other", "hash": hashed(KEY)}],
}
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}).encode()
ISSUER, STRANGER = Issuer(), Issuer("https://stranger.example")
IMPOSTOR = Issuer()
"""It signs in another's name."""


class Door(NamedTuple):
    """A running stack, and the authority that signs for its clients."""

    stack: Stack
    authority: Authority
    folder: Path


@pytest.fixture(scope="module", params=[1, 2])
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp(f"verified-{request.param}")
    authority = Authority(folder / "authority")
    certificate, key = authority.issue("server")
    keys = folder / "keys.json"
    keys.write_text(json.dumps(ISSUER.key_set()))
    jwt = {"issuer": ISSUER.name, "audiences": ["tidegate", "gateway"], "jwks_file": str(keys), "claim": "tenant"}
    with echoing() as port:
        config = {**configuration([port], engine="none"), **TENANTS}
        config["control"]["ext_proc_exchanges"] = request.param
        config["listener"]["tls"] = {
            "certificate": str(certificate),
            "key": str(key),
            "client_ca": str(authority.certificate),
            "client_certificate": "optional",
        }
        config["authentication"] = {"jwt": jwt, "certificate": "uri_san", "anonymous": "guest"}
        with up(folder, config) as stack:
            yield Door(stack, authority, folder)


def context(door: Door, identity: str | None = None, authority: Authority | None = None) -> ssl.SSLContext:
    """Return a client's TLS, with a certificate for ``identity`` where one is given."""
    made = ssl.create_default_context(cafile=str(door.authority.certificate))
    if identity is not None:
        signer = authority or door.authority
        issue = signer.issue_uri if "://" in identity else signer.issue
        made.load_cert_chain(*issue("client", identity))
    return made


def ask(
    door: Door,
    headers: dict[str, str],
    identity: str | None = None,
    authority: Authority | None = None,
    path: str = "/v1/chat/completions",
) -> tuple[int, Any, dict[str, str]]:
    port = door.stack.config["listener"]["port"]
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context(door, identity, authority))
    with contextlib.closing(connection):
        connection.request("POST", path, BODY, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), {name.lower(): value for name, value in answer.getheaders()}


def limit(door: Door, headers: dict[str, str], identity: str | None = None) -> str:
    """Return the limit that says whose request it was."""
    status, answer, said = ask(door, headers, identity)
    assert status == 200, answer
    assert {"authorization", "x-api-key", "x-forwarded-client-cert"}.isdisjoint(answer["seen"])
    return said["x-ratelimit-limit-requests"]


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_a_token_says_who_asks_and_no_engine_sees_it(door: Door) -> None:
    assert limit(door, bearer(ISSUER.token(aud="tidegate", tenant="acme"))) == "1000"
    assert limit(door, bearer(ISSUER.token(aud=["x", "gateway"], tenant=SPIFFE))) == "1000"
    assert limit(door, bearer(ISSUER.token(aud="tidegate", tenant="other"))) == "2000"


def test_keys_go_on_beside_tokens_and_so_does_whoever_shows_nothing(door: Door) -> None:
    assert limit(door, bearer(KEY)) == "2000"
    assert limit(door, {"x-api-key": KEY}) == "2000"
    assert limit(door, {}) == "3000"


@pytest.mark.parametrize(
    "token",
    [
        ISSUER.token(aud="tidegate", tenant="acme", exp=int(time.time()) - 120),
        ISSUER.token(aud="tidegate", tenant="acme", exp=None),
        ISSUER.token(aud="tidegate", tenant="acme", nbf=int(time.time()) + 600),
        ISSUER.token(aud="elsewhere", tenant="acme"),
        ISSUER.token(tenant="acme"),
        STRANGER.token(aud="tidegate", tenant="acme"),
        IMPOSTOR.token(aud="tidegate", tenant="acme"),
        unsigned(iss=ISSUER.name, aud="tidegate", tenant="acme"),
        ISSUER.token(aud="tidegate", tenant="acme")[:-3] + "AAA",
        ISSUER.token(aud="tidegate", tenant="nobody"),
        ISSUER.token(aud="tidegate"),
        ISSUER.token(aud="tidegate", tenant=""),
        ISSUER.token(aud="tidegate", tenant=["acme"]),
        ISSUER.token(aud="tidegate", sub="acme", tenant=7),
        "a.b.c",
    ],
    ids=[
        *("expired", "for-ever", "not-yet", "for-another", "for-nobody", "of-another-issuer", "forged", "unsigned"),
        *("spoiled", "of-nobody", "of-no-tenant", "of-an-empty-tenant", "of-a-list", "of-a-number", "no-token"),
    ],
)
def test_any_other_token_is_refused_in_the_form_of_the_api_and_is_never_anonymous(door: Door, token: str) -> None:
    status, answer, said = ask(door, bearer(token))
    assert (status, answer["error"]["code"], said["www-authenticate"]) == (401, "invalid_api_key", "Bearer")
    status, answer, _ = ask(door, {**bearer(token), "anthropic-version": "2023-06-01"}, path="/v1/messages")
    assert (status, answer["type"], answer["error"]["type"]) == (401, "error", "authentication_error")


def test_an_expired_token_is_called_one(door: Door) -> None:
    _, answer, _ = ask(door, bearer(ISSUER.token(aud="tidegate", tenant="acme", exp=1)))
    assert "expired" in answer["error"]["message"]


def test_a_clients_certificate_says_who_asks_and_a_token_says_it_first(door: Door) -> None:
    assert limit(door, {}, SPIFFE) == "1000"
    assert limit(door, bearer(ISSUER.token(aud="tidegate", tenant="other")), SPIFFE) == "2000"
    status, answer, _ = ask(door, {"x-api-key": KEY}, OTHERS)
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")


def test_a_certificate_without_such_a_name_says_nothing(door: Door) -> None:
    assert limit(door, {"x-api-key": KEY}, "client.example") == "2000"


def test_a_certificate_of_another_authority_does_not_get_in(door: Door) -> None:
    strangers = Authority(door.folder / "strangers")
    with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
        ask(door, {}, SPIFFE, strangers)


@pytest.mark.parametrize(
    "name",
    [
        *("x-tenant-id", "x-forwarded-client-cert", "x-jwt-payload", "x-priority"),
        "connection.uri-san-peer-certificate",
        "metadata.filter-metadata",
    ],
)
def test_no_header_makes_a_client_somebody(door: Door, name: str) -> None:
    claims = {name: SPIFFE if "cert" in name else "acme"}
    assert limit(door, claims) == "3000"
    assert limit(door, {**claims, "x-api-key": KEY}) == "2000"
    assert limit(door, {**claims, **bearer(ISSUER.token(aud="tidegate", tenant="other"))}, SPIFFE) == "2000"


def test_names_as_ours_are_not_even_taken_as_headers(door: Door) -> None:
    for name in ("connection.uri_san_peer_certificate", "metadata.filter_metadata"):
        port = door.stack.config["listener"]["port"]
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context(door))
        with contextlib.closing(connection):
            connection.request("POST", "/v1/chat/completions", BODY, {"content-type": "application/json", name: SPIFFE})
            assert connection.getresponse().status == 400


def test_it_is_counted_who_was_not_known_and_nothing_secret_is_printed(door: Door) -> None:
    token = ISSUER.token(aud="tidegate", tenant="nobody")
    before = door.stack.total("tidegate_unauthenticated_total", why="wrong")
    assert ask(door, bearer(token))[0] == 401
    until(lambda: door.stack.total("tidegate_unauthenticated_total", why="wrong") == before + 1, 5, "it is counted")
    assert token not in door.stack.log()
