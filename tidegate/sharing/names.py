"""What accounts and requests are called in Redis: nothing that says whose they are.

Names of tenants, keys and models are hashed with a salt, and have the same length whatever they were. No name is part
of a Redis key: those are few, and fixed by the configuration.
"""

import hashlib
import hmac
import json
from typing import Final

MOST_REMEMBERED: Final = 65_536
"""Accounts, and endpoints, whose names are remembered; what is configured, and not what clients send, makes them."""

KEYS: Final = ("meta", "used", "held", "leases", "replicas", "inflight")
"""The Redis keys, in the order in which the script takes them."""


def keys(prefix: str) -> tuple[str, ...]:
    """Return the Redis keys under ``prefix``; its braces keep them in one slot of a cluster."""
    return tuple(f"{{{prefix}}}:{key}" for key in KEYS)


class Names:
    """Names under one salt."""

    def __init__(self, salt: str) -> None:
        """Hash with ``salt``, the same for all replicas."""
        self._salt = salt.encode()
        self._accounts: dict[tuple[str, str], str] = {}
        self._endpoints: dict[str, bytes] = {}

    def account(self, scope: str, limit: str) -> str:
        """Return the name of the limit ``limit`` of ``scope``. No two pairs that differ get the same."""
        known = self._accounts.get((scope, limit))
        if known is None:
            if len(self._accounts) >= MOST_REMEMBERED:
                self._accounts.clear()
            known = self._accounts[scope, limit] = self._hashed(json.dumps([scope, limit]))
        return known

    def request(self, request_id: str) -> str:
        """Return the name of a request, in which a client may have had its say."""
        return self._hashed(request_id)

    def endpoint(self, address: str) -> bytes:
        """Return the name of an endpoint, of 8 bytes: many are told at a time, and none is paid for."""
        known = self._endpoints.get(address)
        if known is None:
            if len(self._endpoints) >= MOST_REMEMBERED:
                self._endpoints.clear()
            known = self._endpoints[address] = self._digest(f"endpoint {address}")[:8]
        return known

    def _hashed(self, text: str) -> str:
        return self._digest(text).hex()[:32]

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._salt, text.encode("utf-8", "surrogatepass"), hashlib.sha256)
