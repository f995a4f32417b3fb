"""Who asks: what the configuration says of tenants and their keys, held against each request's headers.

Keys are random and long, so that their plain hash says nothing of them. A shown key is hashed, found by its hash, and
compared in constant time: how long that takes depends on nothing that whoever guesses could learn from.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from extproc import credentials
from extproc.errors import ApiError
from tidegate.config import Config
from tidegate.config_tenants import LimitSet, ModelLimits, Tenant, Tier, limits_of
from tidegate.scheduling import caller as callers
from tidegate.scheduling.budget import Limit
from tidegate.scheduling.caller import Caller

HASH_PREFIX: Final = "sha256:"

DOTS: Final = 2
"""In a token, which has three parts. What Envoy found valid is known by what it says, and not looked for as a key."""

_NOBODY: Final = ("", Caller(""))


def hashed(key: str) -> str:
    """Return what the configuration holds of an API key."""
    return HASH_PREFIX + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def limits(config: Config) -> dict[str, tuple[Limit, ...]]:
    """Return the limits of ``config`` by scope: of tenants, of what tenants use of some models, and of keys."""
    tiers = {tier.name: tier for tier in config.tiers}
    said: dict[str, tuple[Limit, ...]] = {}
    for tenant in config.tenants:
        tier = _tier(tiers, tenant)
        said[_scope(tenant)] = limits_of(tier.limits, tenant.limits)
        said |= {_of_model(tenant, pattern): limits_of(*sets) for pattern, sets in _models(tier, tenant).items()}
    said |= {f"key:{key.name}": limits_of(key.limits) for key in config.keys}
    return {scope: given for scope, given in said.items() if given}


class Callers:
    """Those whom one configuration after another knows."""

    def __init__(self, unauthenticated: Callable[[str], None]) -> None:
        """Tell ``unauthenticated`` why somebody was not known: ``missing``, ``wrong`` or ``malformed``."""
        self._unauthenticated = unauthenticated
        self._keys: dict[str, tuple[str, Caller]] = {}
        self._identities: dict[str, Caller] = {}
        self._anonymous: Caller | None = None
        self._identity_header: str | None = None
        self._attributes: tuple[str, ...] = ()
        self._tokens = False

    def configure(self, config: Config) -> None:
        """Take over the tenants and keys of ``config``."""
        tiers, authentication = {tier.name: tier for tier in config.tiers}, config.authentication
        known: dict[str, Caller] = {}
        for tenant in config.tenants:
            tier = _tier(tiers, tenant)
            by_model = callers.models((one, _of_model(tenant, one)) for one in _models(tier, tenant))
            by_limit = tier.reserve == "limit"
            salt = tenant.name if authentication.salt_prefixes else ""
            known[tenant.name] = Caller(tenant.name, tier.priority, (_scope(tenant),), by_model, by_limit, salt)
        self._keys = {}
        for key in config.keys:
            owner = known[key.tenant]
            self._keys[key.hash] = (key.hash, owner._replace(scopes=(*owner.scopes, f"key:{key.name}")))
        self._identities = known | {name: known[t.name] for t in config.tenants for name in t.identities}
        self._anonymous = known[authentication.anonymous] if authentication.anonymous else None
        self._identity_header = authentication.identity_header
        self._attributes = tuple(f":{name}" for name in authentication.attributes)
        self._tokens = authentication.jwt is not None

    def identify(self, headers: Mapping[str, str]) -> Caller:
        """Return who asks.

        Raises:
            ApiError: 401, that cannot be said.
        """
        for attribute in self._attributes:
            if identity := headers.get(attribute):
                return self._known(self._identities.get(identity), credentials.unknown)
        if self._identity_header is not None and (identity := headers.get(self._identity_header)) is not None:
            # What a proxy in front says counts for more: what Authorization holds then is for that proxy.
            return self._known(self._identities.get(identity), credentials.unknown)
        try:
            key = credentials.key_of(headers)
        except ApiError:
            self._unauthenticated("malformed")
            raise
        if key is not None:
            shown = hashed(key)
            known, caller = self._keys.get(shown, _NOBODY)
            wrong = credentials.expired if self._tokens and key.count(".") == DOTS else credentials.wrong
            return self._known(caller if hmac.compare_digest(known, shown) else None, wrong)
        if self._anonymous is None:
            self._unauthenticated("missing")
            raise credentials.missing()
        return self._anonymous

    def _known(self, caller: Caller | None, wrong: Callable[[], ApiError]) -> Caller:
        if caller is None:
            self._unauthenticated("wrong")
            raise wrong()
        return caller


def _tier(tiers: Mapping[str, Tier], tenant: Tenant) -> Tier:
    return tiers.get(tenant.tier or "") or Tier(name=tenant.name)


def _scope(tenant: Tenant) -> str:
    return f"tenant:{tenant.name}"


def _of_model(tenant: Tenant, pattern: str) -> str:
    return f"{_scope(tenant)}/model:{pattern}"


def _models(tier: Tier, tenant: Tenant) -> dict[str, tuple[LimitSet, ...]]:
    """Return the limits for single models by pattern, the tier's and then the tenant's own."""
    sets: dict[str, tuple[LimitSet, ...]] = {}
    given: tuple[ModelLimits, ...] = (*tier.models, *tenant.models)
    for one in given:
        sets[one.model] = (*sets.get(one.model, ()), one.limits)
    return sets
