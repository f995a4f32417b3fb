"""What Envoy is told of credentials: nothing unless there are tenants."""

from typing import Any

import pytest

from extproc import credentials as shown
from extproc import ratelimit
from tests.configurations import EVERY_KEY, parsed
from tidegate.config import Config
from xds import build, credentials, exchanges, routes
from xds.type_urls import ORDER


def config(**more: Any) -> Config:
    pools = [{"name": "default", "engine": "none", "endpoints": [{"address": "127.0.0.1:1"}]}]
    return parsed({"pools": pools, **more})


TENANTS = {"tenants": [{"name": "acme"}]}
WITH_HEADER = {**TENANTS, "authentication": {"identity_header": "x-tenant-id"}}


def test_both_sides_know_the_same_names() -> None:
    assert (shown.AUTHORIZATION, shown.API_KEY) == credentials.CREDENTIALS
    assert ratelimit.HEADERS == credentials.RATE_LIMITS


@pytest.mark.parametrize(
    ("more", "read"),
    [
        ({}, ()),
        (TENANTS, ("authorization", "x-api-key")),
        (WITH_HEADER, ("authorization", "x-api-key", "x-tenant-id")),
    ],
)
def test_what_says_who_asks_is_read_and_taken_from_the_request_where_there_are_tenants(
    more: dict[str, Any], read: tuple[str, ...]
) -> None:
    made = config(**more)
    assert credentials.of_callers(made) == exchanges.also_read(made) == read
    assert set(exchanges.attributes(made)) - set(exchanges.ATTRIBUTES) == {
        f"request.headers['{name}']" for name in read
    }
    removed = routes.route_configuration(made).request_headers_to_remove
    assert removed == ["accept-encoding", "grpc-timeout", *read]


def test_without_tenants_envoy_is_told_nothing_of_keys_or_limits() -> None:
    # The fuse is a limit on all together, and nobody's in particular.
    unlimited = {**EVERY_KEY, "listener": {**EVERY_KEY["listener"], "max_requests_per_second": None}}
    resources = b"".join(resource.body for resource in _resources(parsed(unlimited)))
    assert b"authorization" not in resources
    assert b"x-api-key" not in resources
    assert b"ratelimit" not in resources


def test_with_tenants_it_is_told_which_headers_and_no_hash() -> None:
    key = {"name": "k", "tenant": "acme", "hash": f"sha256:{'ab' * 32}"}
    resources = b"".join(resource.body for resource in _resources(config(**WITH_HEADER, keys=[key])))
    for told in (b"request.headers['authorization']", b"%DYNAMIC_METADATA(tidegate:x-ratelimit-reset-tokens)%"):
        assert told in resources
    assert b"abab" not in resources
    assert b"acme" not in resources


def _resources(made: Config) -> list[Any]:
    snapshot = build.snapshot(made, [])
    return [resource for kind in ORDER for resource in snapshot.of_type(kind).values()]
