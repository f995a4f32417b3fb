"""Who asks, and for how much: what the configuration says of tenants, held against each request.

Keys are random and long, so that their plain hash says nothing of them. A shown key is hashed, found by its hash, and
compared in constant time: how long that takes depends on nothing that whoever guesses could learn from.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry

from extproc import credentials, ratelimit
from extproc.errors import ApiError
from tidegate.config import Config
from tidegate.config_tenants import LimitSet, ModelLimits, Tenant, Tier, limits_of
from tidegate.scheduling import caller as callers
from tidegate.scheduling.allowance import Allowance
from tidegate.scheduling.caller import Caller
from tidegate.scheduling.request import InferenceRequest
from tidegate.telemetry import tenants as telemetry
from tidegate.telemetry.record import RequestRecord
from tidegate.telemetry.status import JsonObject

HASH_PREFIX: Final = "sha256:"

ExpectedOutput = Callable[[InferenceRequest], int | None]
"""Returns how many tokens an answer will hardly exceed, ``None`` where nobody serves the request."""
_NOBODY: Final = ("", Caller(""))


def hashed(key: str) -> str:
    """Return what the configuration holds of an API key."""
    return HASH_PREFIX + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class Tenants:
    """The tenants of one configuration after another, and what they use."""

    def __init__(self, clock: Callable[[], float], expected: ExpectedOutput, registry: CollectorRegistry) -> None:
        """Go by ``clock`` (seconds since the epoch) and by the answers' ``expected`` lengths; count in ``registry``."""
        self._expected = expected
        self._allowance = Allowance(clock)
        self._figures = telemetry.TenantFigures(registry, self._allowance.left)
        self._keys: dict[str, tuple[str, Caller]] = {}
        self._identities: dict[str, Caller] = {}
        self._anonymous: Caller | None = None
        self._identity_header: str | None = None
        self._config: Config | None = None

    def configure(self, config: Config) -> None:
        """Take over the tenants of ``config``; what was used stays used, and what is held stays held."""
        tiers, salted = {tier.name: tier for tier in config.tiers}, config.authentication.salt_prefixes
        limits = {}
        known: dict[str, Caller] = {}
        for tenant in config.tenants:
            tier = tiers.get(tenant.tier or "") or Tier(name=tenant.name)
            scope = f"tenant:{tenant.name}"
            by_model = {f"{scope}/model:{pattern}": (pattern, sets) for pattern, sets in _models(tier, tenant).items()}
            limits[scope] = limits_of(tier.limits, tenant.limits)
            limits |= {of_model: limits_of(*sets) for of_model, (_, sets) in by_model.items()}
            patterns = [(pattern, of_model) for of_model, (pattern, _) in by_model.items()]
            by_limit = tier.reserve == "limit"
            salt = tenant.name if salted else ""
            known[tenant.name] = Caller(tenant.name, tier.priority, (scope,), callers.models(patterns), by_limit, salt)
        self._keys = {}
        for key in config.keys:
            owner, scope = known[key.tenant], f"key:{key.name}"
            limits[scope] = limits_of(key.limits)
            self._keys[key.hash] = (key.hash, owner._replace(scopes=(*owner.scopes, scope)))
        authentication = config.authentication
        self._identities = known | {name: known[t.name] for t in config.tenants for name in t.identities}
        self._anonymous = known[authentication.anonymous] if authentication.anonymous else None
        self._identity_header = authentication.identity_header
        self._allowance.configure({scope: given for scope, given in limits.items() if given})
        self._figures.configure(known)
        self._config = config

    # -- the gate

    def identify(self, headers: Mapping[str, str]) -> Caller:
        """Return who asks.

        Raises:
            ApiError: 401, that cannot be said.
        """
        if self._identity_header is not None and (identity := headers.get(self._identity_header)) is not None:
            # What a proxy in front says counts for more: what Authorization holds then is for that proxy.
            return self._known(self._identities.get(identity))
        try:
            key = credentials.key_of(headers)
        except ApiError:
            self._figures.unauthenticated("malformed")
            raise
        if key is not None:
            shown = hashed(key)
            known, caller = self._keys.get(shown, _NOBODY)
            return self._known(caller if hmac.compare_digest(known, shown) else None)
        if self._anonymous is None:
            self._figures.unauthenticated("missing")
            raise credentials.missing()
        return self._anonymous

    def _known(self, caller: Caller | None) -> Caller:
        if caller is None:
            self._figures.unauthenticated("wrong")
            raise credentials.wrong()
        return caller

    async def admit(self, request: InferenceRequest, caller: Caller) -> Mapping[str, str]:
        """Take what ``request`` will probably cost; return what the client is told of its limits.

        Raises:
            ApiError: 429, a limit is in the way.
        """
        output = self._expected(request)
        if output is None:
            return {}  # nobody serves it, which it is told next
        if caller.reserves_limit and request.max_output_tokens is not None:
            output = request.max_output_tokens
        exceeded = self._allowance.reserve(request, caller, output)
        told = ratelimit.told(self._allowance.standing(caller, request.model))
        if exceeded is not None:
            self._figures.limited(caller.tenant, exceeded.limit.name)
            raise ratelimit.exceeded(exceeded, told)
        self._figures.admitted(caller.tenant)
        return {"tenant": caller.tenant, **told}

    def withdraw(self, request_id: str) -> None:
        """Give back what was taken for a request that went nowhere, or whose end was never told."""
        self._allowance.release(request_id)

    def ended(self, record: RequestRecord) -> None:
        """Settle a request that is over by what it used, as far as that is known.

        What no engine served (no attempt, 429 or 500 and more) comes back whole. What an engine refused costs a
        request and no tokens. Of an answer whose usage nobody told, as of one whose client left, stays taken what was
        expected, or what was seen of it.
        """
        if not len(self._allowance):
            return
        if record.attempts == 0 or record.status >= 500 or record.status == 429:
            self._allowance.release(record.reservation)
            return
        refused = record.status >= 400
        settled = self._allowance.settle(
            record.reservation,
            0 if refused else record.usage.prompt_tokens,
            0 if refused else record.output_tokens,
        )
        if settled is not None:
            self._figures.used(settled.tenant, settled.used.input_tokens, settled.used.output_tokens)

    # -- what one sees

    def describe(self) -> JsonObject:
        """Return the page of the tenants."""
        return {"tenants": list(self._described()), "requests_held": len(self._allowance)}

    def _described(self) -> Iterator[JsonObject]:
        if self._config is None:
            return
        left = self._allowance.left()
        for tenant in self._config.tenants:
            keys = [key.name for key in self._config.keys if key.tenant == tenant.name]
            own = f"tenant:{tenant.name}"
            scopes = [own, *(scope for scope in left if scope.startswith(f"{own}/")), *(f"key:{key}" for key in keys)]
            yield {
                "name": tenant.name,
                "tier": tenant.tier,
                "priority": self._identities[tenant.name].priority,
                "keys": keys,
                "budgets": [telemetry.describe(scope, left[scope]) for scope in scopes if scope in left],
            }


def _models(tier: Tier, tenant: Tenant) -> dict[str, tuple[LimitSet, ...]]:
    """Return the limits for single models by pattern, the tier's and then the tenant's own."""
    sets: dict[str, tuple[LimitSet, ...]] = {}
    given: tuple[ModelLimits, ...] = (*tier.models, *tenant.models)
    for one in given:
        sets[one.model] = (*sets.get(one.model, ()), one.limits)
    return sets
