"""Who may serve a request: the pool's endpoints as they are now, less those that the filters leave out."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidegate.fleet.breaker import Circuit
from tidegate.fleet.prefix_match import NO_MATCH, PrefixMatch
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.filters import ROOM, Filter, Screened, Step, chain, screen
from tidegate.scheduling.pickers import PickerContract, by_turns
from tidegate.scheduling.quota import Quota
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng
from tidegate.scheduling.shortlist import CANDIDATES, WARM, Shortlisting, drawn

NOBODY = Screened((), doubtful=True)


class Looked(NamedTuple):
    """Who was looked at.

    Attributes:
        candidates: as they were found; all of the pool, or its shortlist.
        kept: those that the filters left; empty when nobody can serve the request.
        turned: the candidates and those whose turn it was not; empty where nobody was kept to a share.
    """

    candidates: Sequence[EndpointView]
    kept: Sequence[EndpointView]
    turned: Sequence[EndpointView] = ()


class Lookout:
    """Finds the candidates for one request after the other."""

    def __init__(self, fleet: Fleet, rng: Rng) -> None:
        """Look at ``fleet``; ``rng`` draws the shortlists."""
        self._fleet = fleet
        self._rng = rng
        self._quotas: dict[str, Quota] = {}

    def look(
        self,
        request: InferenceRequest,
        pool: str,
        picker: PickerContract,
        filters: Sequence[Filter],
        now: float,
        steps: list[Step] | None = None,
    ) -> Looked:
        """Return who may serve ``request`` in ``pool`` at ``now`` (seconds); what filters did is added to ``steps``.

        Of a large pool a shortlist is looked at, and all of it where the filters do not agree with the shortlist.
        """
        fleet = self._fleet
        quota = None if fleet.is_well(pool) or not by_turns(picker) else self._quotas.setdefault(pool, Quota())
        match = fleet.cached(pool, request.prefix) if request.prefix else NO_MATCH
        cached = match.tokens(request.block_tokens, request.prompt.tokens)
        if len(fleet.members(pool)) > CANDIDATES and not request.among:
            places = self._shortlist(request, pool, picker, match)
            turned = fleet.view(pool, now, places, cached).endpoints
            tried: list[Step] = []
            seen, screened = _screened(request, turned, filters, quota, None if steps is None else tried)
            if not screened.doubtful:
                if steps is not None:
                    steps += tried
                return Looked(seen, screened.kept, () if quota is None else turned)
        everybody = _allowed(request, fleet.view(pool, now, None, cached).endpoints)
        allowed, screened = _screened(request, everybody, filters, quota, steps)
        return Looked(allowed, screened.kept, () if quota is None else everybody)

    def decided(self, pool: str, turned: Sequence[EndpointView], pick: str) -> None:
        """Take note that of ``turned``, as a look at ``pool`` returned them, ``pick`` was chosen."""
        self._quotas[pool].decided(turned, pick)

    def keep(self, pools: Iterable[str]) -> None:
        """Forget what is remembered of all pools but these."""
        self._quotas = {pool: self._quotas[pool] for pool in pools if pool in self._quotas}

    def _shortlist(
        self, request: InferenceRequest, pool: str, picker: PickerContract, match: PrefixMatch
    ) -> Sequence[int]:
        members = self._fleet.members(pool)
        if isinstance(picker, Shortlisting):
            return picker.shortlist(request, members, self._rng)
        places = drawn(len(members), self._rng)
        if match.groups:
            warm = (self._fleet.place(pool, address) for address in match.best(WARM, self._rng.random()))
            places = list(dict.fromkeys([*places, *(place for place in warm if place is not None)]))
        return places


def _screened(
    request: InferenceRequest,
    candidates: Sequence[EndpointView],
    filters: Sequence[Filter],
    quota: Quota | None,
    steps: list[Step] | None,
) -> tuple[Sequence[EndpointView], Screened]:
    """Return which of ``candidates`` were looked at, and what ``filters`` left of them.

    Whose turn it is not is left out of those alone that could serve the request: else a filter would find nobody, and
    be passed over, or the request refused, where the one that it is for has less than its whole share. Room is asked
    for last: what finds none waits for it, and for its turn.
    """
    if quota is None:
        return candidates, screen(request, candidates, filters, steps) if candidates else NOBODY
    able = screen(request, candidates, [one for one in filters if one.name != ROOM], steps)
    turned = quota.keep(able.kept)
    waiting = {one.address for one in able.kept} - {one.address for one in turned}
    seen = [one for one in candidates if one.address not in waiting]
    screened = screen(request, turned, [one for one in filters if one.name == ROOM], steps)
    return seen, Screened(screened.kept, able.doubtful or screened.doubtful)


def _allowed(request: InferenceRequest, candidates: Sequence[EndpointView]) -> Sequence[EndpointView]:
    """Keep to the endpoints that the request may go to. Nobody passes over this: it is not a preference."""
    if not request.among:
        return candidates
    return [endpoint for endpoint in candidates if all(endpoint.address in subset for subset in request.among)]


def named(
    request: InferenceRequest, ranked: Sequence[EndpointView], looked: Looked, destinations: int
) -> Sequence[EndpointView]:
    """Return the first ``destinations`` of ``ranked``, filled up with live ones that were left out as a pick.

    A retry at an endpoint that is full beats none at all. One whose breaker is half open is a pick, and no fallback: it
    would be tried by more requests than one.
    """
    if any(endpoint.circuit for endpoint in ranked[1:]):
        sound = [endpoint for endpoint in ranked[1:] if endpoint.circuit is Circuit.CLOSED]
        ranked = [ranked[0], *sound] if sound or ranked[0].circuit <= Circuit.HALF_OPEN else ranked
    short = destinations - len(ranked)
    if short <= 0 or len(ranked) == len(looked.candidates):
        return ranked[:destinations]
    left_out = [endpoint for endpoint in looked.candidates if endpoint not in ranked]
    able: Sequence[EndpointView] = [endpoint for endpoint in left_out if endpoint.circuit is Circuit.CLOSED]
    for reachable in chain(("reachable",)):
        able = reachable.keep(request, able)
    return [*ranked, *sorted(able, key=lambda endpoint: endpoint.requests / endpoint.weight)[:short]]
