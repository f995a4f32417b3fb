"""The decision on one request: which pool, which endpoints, reserved in the same breath.

There is no ``await`` in here, so no two requests can meet in the middle of a decision, and a burst that arrives between
two scrapes spreads: each decision sees the reservations of all before it.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tidegate.fleet.events import PoolsDeclared, RequestReserved
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import EndpointView
from tidegate.scheduling import filters
from tidegate.scheduling.candidates import Lookout, named
from tidegate.scheduling.explain import Case, Explanation, Recorded, explain
from tidegate.scheduling.filters import Filter
from tidegate.scheduling.lanes import Lanes
from tidegate.scheduling.pickers import PickerContract, make, uses_prefix
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng
from tidegate.scheduling.room import Room
from tidegate.scheduling.routing import ModelRoutes, Route

PickerMaker = Callable[[str, Mapping[str, float]], PickerContract]
"""Returns a fresh picker of a policy's name; with the weights of its scorers, empty for its own."""


class Decision(NamedTuple):
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
    NO_ROOM = "no_room"
    """Whoever could serve it has no room for it now, or others wait for that already."""
    QUARANTINED = "quarantined"
    """It killed engines."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request goes nowhere.

    Attributes:
        reason: why.
        pool: where it wanted to; empty when no pool was found.
        request: with its pool and what its answer will probably take, where there is no room for it.
    """

    reason: RefusalReason
    pool: str = ""
    request: InferenceRequest | None = None


class Dispatcher:
    """Decides on requests over one fleet."""

    def __init__(self, fleet: Fleet, rng: Rng, make_picker: PickerMaker = make) -> None:
        """Decide over ``fleet``; ``rng`` settles ties, ``make_picker`` returns the picker of a policy's name."""
        self._fleet = fleet
        self._lookout = Lookout(fleet, rng)
        self._rng = rng
        self._make_picker = make_picker
        self._routes = ModelRoutes(())
        self._policies: dict[str, Policy] = {}
        self._pickers: dict[str, PickerContract] = {}
        self._lanes: dict[str, Lanes] = {}
        self._needed: dict[str, tuple[Filter, ...]] = {}
        self._rooms: Mapping[str, Room] = {}
        self._needed_while_well: dict[str, tuple[Filter, ...]] = {}
        self._sample = 0.0
        self._record: Callable[[Case], None] | None = None

    def sample(self, share: float, record: Callable[[Case], None]) -> None:
        """Have ``share`` of the decisions, 0 to 1, told to ``record`` with all that they rest on."""
        self._sample, self._record = share, record

    def configure(
        self,
        declared: PoolsDeclared,
        policies: Mapping[str, Policy],
        rooms: Mapping[str, Room] = MappingProxyType({}),
    ) -> None:
        """Take over the pools and their policies, by pool name; a picker whose policy stays keeps its state.

        ``rooms`` are those of the pools whose requests wait for room.

        Raises:
            KeyError: a pool without a policy, or a policy of an unknown picker or filter.
            ValueError: a policy that weighs scorers, and its picker does not.
        """
        pickers = {pool.name: self._picker(pool.name, policies[pool.name]) for pool in declared.pools}
        for policy in policies.values():
            filters.chain(policy.filters)
        needed, while_well = {}, {}
        for pool in declared.pools:
            names, room = policies[pool.name].filters, rooms.get(pool.name)
            needed[pool.name] = _with_room(filters.needed(pool, names), room)
            while_well[pool.name] = _with_room(filters.needed(pool, names, well=True), room)
        self._routes = ModelRoutes(declared.pools)
        self._policies, self._rooms = dict(policies), rooms
        self._needed, self._needed_while_well = needed, while_well
        self._pickers = pickers
        self._lookout.keep(pickers)
        self._lanes = {pool: Lanes(policy.lanes) for pool, policy in policies.items() if policy.lanes}

    def _picker(self, pool: str, policy: Policy) -> PickerContract:
        before = self._policies.get(pool)
        stays = before is not None and (before.picker, before.weights) == (policy.picker, policy.weights)
        if stays and pool in self._pickers:
            return self._pickers[pool]
        return self._make_picker(policy.picker, dict(policy.weights))

    def _filters(self, pool: str, policy: Policy) -> tuple[Filter, ...]:
        chosen = (self._needed_while_well if self._fleet.is_well(pool) else self._needed)[pool]
        if not policy.lanes:
            return chosen
        self._lanes[pool].declare(self._fleet.members(pool))
        return (*chosen, self._lanes[pool].filter)

    def _case(
        self,
        request: InferenceRequest,
        policy: Policy,
        candidates: Sequence[EndpointView],
        draws: Sequence[float] = (),
        addresses: tuple[str, ...] = (),
    ) -> Case:
        pool = request.pool
        parts = tuple(self._lanes[pool].part(one.address) for one in candidates) if policy.lanes else ()
        members = len(self._fleet.members(pool))
        return Case(request, policy, members, tuple(candidates), tuple(draws), addresses, parts)

    def pool_of(self, model: str) -> str | None:
        """Return the name of the pool that serves ``model``, or ``None``."""
        return self._routes.pool_of(model)

    def route_of(self, model: str) -> Route | None:
        """Return the way to what serves ``model``, or ``None``."""
        return self._routes.find(model)

    def wants_prefix(self, model: str, pool: str = "") -> bool:
        """Return whether decisions on requests for ``model``, or those for ``pool``, look at the prompt's beginning."""
        picker = self._pickers.get(pool or self.pool_of(model) or "")
        return picker is not None and uses_prefix(picker)

    def longest_output(self, request: InferenceRequest) -> int | None:
        """Return the tokens that nine in ten answers such as that to ``request`` stay below.

        ``None`` where nobody serves it.
        """
        placed = self._placed(request)
        if isinstance(placed, Refusal):
            return None
        return self._fleet.longest_output(placed.pool, request.max_output_tokens, request.kind)

    def place(self, request: InferenceRequest) -> InferenceRequest | Refusal:
        """Return ``request`` with its pool, and what its answer will probably take; or why it has none."""
        return self._placed(request)

    def decide(self, request: InferenceRequest, now: float, *, in_turn: bool = False) -> Decision | Refusal:
        """Choose endpoints for ``request`` at ``now`` (seconds) and reserve the first of them.

        Where a pool has room for its requests to wait for, a request goes behind those that wait already unless it is
        ``in_turn``; one that is has no room where nobody can serve it, since that may change.

        Raises:
            ValueError: a request of the same id is in flight.
        """
        if request.id in self._fleet.ledger:
            raise ValueError(f"request {request.id} is in flight already")
        placed = self._placed(request)
        if isinstance(placed, Refusal):
            return placed
        request, name = placed, placed.pool
        if self._fleet.quarantine and self._fleet.quarantine.holds(request.fingerprint, now):
            return Refusal(RefusalReason.QUARANTINED, name)
        policy, picker = self._policies[name], self._pickers[name]
        room = self._rooms.get(name)
        if room is not None and room.wanted and not in_turn:
            return Refusal(RefusalReason.NO_ROOM, name, request)
        looked = self._lookout.look(request, name, picker, self._filters(name, policy), now)
        if not looked.kept:
            if room is not None and (in_turn or self._anybody(request, policy, room, now)):
                return Refusal(RefusalReason.NO_ROOM, name, request)
            return Refusal(RefusalReason.NO_ENDPOINTS, name)
        rng: Rng = self._rng
        recorded = Recorded(rng) if self._sample and rng.random() < self._sample else None
        ranked = picker.rank(request, looked.kept, recorded or rng)
        addresses = tuple(endpoint.address for endpoint in named(request, ranked, looked, policy.destinations))
        if looked.turned:
            self._lookout.decided(name, looked.turned, addresses[0])
        cached = ranked[0].cached_tokens
        reservation = Reservation(
            id=request.id,
            pool=name,
            address=addresses[0],
            prompt_tokens=request.prompt.tokens,
            output_tokens=request.output_tokens or 0,
            reserved_at=now,
            uncached_tokens=request.prompt.tokens - cached if request.prefix else None,
            kind=request.kind,
            fingerprint=request.fingerprint,
        )
        self._fleet.apply(RequestReserved(reservation, request.prefix, request.block_tokens), now)
        if recorded is not None and self._record is not None:
            self._record(self._case(request, policy, looked.candidates, recorded.draws, addresses))
        return Decision(name, policy.picker, addresses, reservation)

    def _anybody(self, request: InferenceRequest, policy: Policy, room: Room, now: float) -> bool:
        """Return whether anybody could serve ``request``, had they room."""
        name = request.pool
        others = [one for one in self._filters(name, policy) if one is not room.filter]
        return bool(self._lookout.look(request, name, self._pickers[name], others, now).kept)

    def explain(self, request: InferenceRequest, now: float) -> Explanation | Refusal:
        """Return how ``request`` would be decided at ``now`` (seconds), and why; nothing is reserved."""
        placed = self._placed(request)
        if isinstance(placed, Refusal):
            return placed
        name = placed.pool
        policy, picker = self._policies[name], self._pickers[name]
        looked = self._lookout.look(placed, name, picker, self._filters(name, policy), now)
        return explain(self._case(placed, policy, looked.candidates), picker)

    def _placed(self, request: InferenceRequest) -> InferenceRequest | Refusal:
        """Return the request with its pool, its adapter and what its answer will probably take, or why it has none."""
        route = self._routes.find(request.model) if request.model else None
        name = request.pool or (route and route.pool)
        if not name and not request.model and len(self._policies) == 1:
            name = next(iter(self._policies))
        if not name:
            return Refusal(RefusalReason.UNKNOWN_MODEL)
        if name not in self._policies:
            return Refusal(RefusalReason.NO_ENDPOINTS)
        if route is not None and route.pool == name:
            is_adapter = route.adapter
        else:  # sent there whatever its model
            is_adapter = self._routes.is_adapter(request.model, name)
        adapter = request.model if is_adapter else request.adapter
        output = self._fleet.expected_output(name, request.max_output_tokens, request.kind)
        return request.placed(name, adapter, output)


def _with_room(chosen: tuple[Filter, ...], room: Room | None) -> tuple[Filter, ...]:
    if room is None:
        return chosen
    # Room is what ``fits`` asks for, and more; what does not fit waits.
    return (*(one for one in chosen if one.name != "fits"), room.filter)
