"""The decision on one request: which pool, which endpoints, reserved in the same breath.

There is no ``await`` in here, so no two requests can meet in the middle of a decision, and a burst that arrives between
two scrapes spreads: each decision sees the reservations of all before it.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.fleet.events import PoolsDeclared, RequestReserved
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.filters import reachable
from tidegate.scheduling.pickers import PickerContract, make
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng
from tidegate.scheduling.routing import ModelRoutes

FILTERS = (reachable.keep,)


@dataclass(frozen=True, slots=True)
class Policy:
    """How a pool's endpoints are chosen.

    Attributes:
        picker: a name from ``pickers.names()``.
        destinations: how many endpoints are named in a decision, the fallbacks for Envoy's retries included; 1 or more.
    """

    picker: str
    destinations: int = 3


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a request goes.

    Attributes:
        pool: the pool, which is also the Envoy cluster.
        policy: the picker that chose.
        addresses: the endpoint picked, then its fallbacks in the order in which to try them.
        reservation: what now counts as in flight; whoever holds it sees to its release.
    """

    pool: str
    policy: str
    addresses: tuple[str, ...]
    reservation: Reservation


class RefusalReason(enum.Enum):
    """Why a request goes nowhere."""

    UNKNOWN_MODEL = "unknown_model"
    NO_ENDPOINTS = "no_endpoints"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request goes nowhere; ``pool`` is empty when no pool was found."""

    reason: RefusalReason
    pool: str = ""


class Dispatcher:
    """Decides on requests over one fleet."""

    def __init__(self, fleet: Fleet, rng: Rng, make_picker: Callable[[str], PickerContract] = make) -> None:
        """Decide over ``fleet``; ``rng`` settles ties, ``make_picker`` returns the picker of a policy's name."""
        self._fleet = fleet
        self._rng = rng
        self._make_picker = make_picker
        self._routes = ModelRoutes(())
        self._policies: dict[str, Policy] = {}
        self._pickers: dict[str, PickerContract] = {}

    def configure(self, declared: PoolsDeclared, policies: Mapping[str, Policy]) -> None:
        """Take over the pools and their policies, by pool name; a picker whose policy stays keeps its state.

        Raises:
            KeyError: a pool without a policy, or a policy of an unknown picker.
        """
        pickers = {
            pool.name: self._pickers[pool.name]
            if self._policies.get(pool.name, policies[pool.name]).picker == policies[pool.name].picker
            and pool.name in self._pickers
            else self._make_picker(policies[pool.name].picker)
            for pool in declared.pools
        }
        self._routes = ModelRoutes(declared.pools)
        self._policies = dict(policies)
        self._pickers = pickers

    def pool_of(self, model: str) -> str | None:
        """Return the name of the pool that serves ``model``, or ``None``."""
        return self._routes.pool_of(model)

    def decide(self, request: InferenceRequest, now: float) -> Decision | Refusal:
        """Choose endpoints for ``request`` at ``now`` (seconds) and reserve the first of them.

        Raises:
            ValueError: a request of the same id is in flight.
        """
        if request.id in self._fleet.ledger:
            raise ValueError(f"request {request.id} is in flight already")
        name = self._pool_of(request)
        if name is None:
            return Refusal(RefusalReason.UNKNOWN_MODEL)
        if name not in self._policies:
            return Refusal(RefusalReason.NO_ENDPOINTS)
        candidates: Sequence[EndpointView] = self._fleet.view(name, now).endpoints
        if not candidates:
            return Refusal(RefusalReason.NO_ENDPOINTS, name)
        kind, limit = request.kind, request.max_output_tokens
        expected = self._fleet.expected_output(name, limit, kind)
        request = replace(request, output_tokens=expected)
        ranked = self._pickers[name].rank(request, _filtered(request, candidates), self._rng)
        addresses = tuple(endpoint.address for endpoint in ranked[: self._policies[name].destinations])
        reservation = Reservation(
            id=request.id,
            pool=name,
            address=addresses[0],
            prompt_tokens=request.prompt.tokens,
            output_tokens=expected,
            reserved_at=now,
            uncached_tokens=max(0, request.prompt.tokens - ranked[0].cached_tokens),
            kind=kind,
        )
        self._fleet.apply(RequestReserved(reservation), now)
        return Decision(name, self._policies[name].picker, addresses, reservation)

    def _pool_of(self, request: InferenceRequest) -> str | None:
        if request.pool:
            return request.pool
        if request.model:
            return self._routes.pool_of(request.model)
        return next(iter(self._policies)) if len(self._policies) == 1 else None


def _filtered(request: InferenceRequest, candidates: Sequence[EndpointView]) -> Sequence[EndpointView]:
    """Apply the filters; one that would leave nobody is passed over: a doubtful endpoint beats a sure refusal."""
    for keep in FILTERS:
        candidates = keep(request, candidates) or candidates
    return candidates
