"""What tenants use: taken before a request goes anywhere, set right when it is over, and shown."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry

from tidegate.config import Config
from tidegate.runtime import callers
from tidegate.scheduling.allowance import Allowance, Answer, Ask
from tidegate.sharing.allowance import SharedAllowance
from tidegate.telemetry import tenants as telemetry
from tidegate.telemetry.record import RequestRecord
from tidegate.telemetry.status import JsonObject


class Tenants:
    """The tenants of one configuration after another, and what they use. It is a ``Till``.

    Attributes:
        shared: what is shared with other replicas, if it is.
        unauthenticated: counts a request of which it is not known whose it is.
    """

    def __init__(
        self, clock: Callable[[], float], registry: CollectorRegistry, shared: SharedAllowance | None = None
    ) -> None:
        """Go by ``clock`` (seconds since the epoch); count in ``registry``.

        What tenants use is counted here, or in what is ``shared`` with other replicas.
        """
        self._alone = Allowance(clock)
        self.shared = shared
        self._allowance = self._alone if shared is None else shared
        self._figures = telemetry.TenantFigures(registry, self._allowance.left)
        self._config: Config | None = None
        self.unauthenticated = self._figures.unauthenticated

    def configure(self, config: Config) -> None:
        """Take over the tenants of ``config``; what was used stays used, and what is held stays held."""
        self._allowance.configure(callers.limits(config))
        self._figures.configure(tenant.name for tenant in config.tenants)
        self._config = config

    async def take(self, ask: Ask) -> Answer:
        """Take what is asked for from all limits, or from none."""
        if self.shared is None:
            answer = Answer(self._alone.reserve(ask), self._alone.standing(ask.scopes))
        else:
            answer = await self.shared.take(ask)
        if answer.exceeded is None:
            self._figures.admitted(ask.tenant)
        else:
            self._figures.limited(ask.tenant, answer.exceeded.limit.name)
        return answer

    def withdraw(self, request_id: str) -> None:
        """Give back what was taken for a request that went nowhere, or whose end was never told."""
        self._allowance.release(request_id)

    def progressed(self, request_id: str) -> None:
        """Take note that a request goes on, which another replica may have let in that is no more."""
        if self.shared is not None:
            self.shared.progressed(request_id)

    def ended(self, record: RequestRecord) -> None:
        """Settle a request that is over by what it used, as far as that is known.

        What no engine served (no attempt, 429 or 500 and more) comes back whole. What an engine refused costs a
        request and no tokens. Of an answer whose usage nobody told, as of one whose client left, stays taken what was
        expected, or what was seen of it.
        """
        if self.shared is None and not len(self._alone):
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

    # -- over a restart

    @property
    def allowance(self) -> Allowance:
        """What is counted in this process alone; nothing, where it is shared."""
        return self._alone

    # -- what one sees

    def describe(self) -> JsonObject:
        """Return the page of the tenants."""
        return {
            "tenants": list(self._described()),
            "requests_held": len(self._allowance),
            "sharing": self.sharing(),
        }

    def sharing(self) -> JsonObject | None:
        """Return how it stands with the Redis through which this is shared; ``None`` where there is none."""
        return None if self.shared is None else self.shared.state()._asdict()

    def _described(self) -> Iterator[JsonObject]:
        if self._config is None:
            return
        left, tiers = self._allowance.left(), {tier.name: tier for tier in self._config.tiers}
        for tenant in self._config.tenants:
            keys = [key.name for key in self._config.keys if key.tenant == tenant.name]
            own = f"tenant:{tenant.name}"
            scopes = [own, *(scope for scope in left if scope.startswith(f"{own}/")), *(f"key:{key}" for key in keys)]
            yield {
                "name": tenant.name,
                "tier": tenant.tier,
                "priority": tiers[tenant.tier].priority if tenant.tier else 0,
                "keys": keys,
                "budgets": [telemetry.describe(scope, left[scope]) for scope in scopes if scope in left],
            }
