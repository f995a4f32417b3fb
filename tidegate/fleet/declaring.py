"""What becomes of pools and endpoints when they are declared anew: those that stay keep what is known of them."""

from collections.abc import Iterable, Mapping, Sequence

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import PoolsDeclared
from tidegate.fleet.kin import Kin
from tidegate.fleet.member import Member, PoolState
from tidegate.fleet.prefix_index import MAX_BLOCKS
from tidegate.fleet.weighing import BREAKER


def declared(
    event: PoolsDeclared, pools: Mapping[str, PoolState], endpoints: Mapping[str, Member], now: float
) -> tuple[dict[str, PoolState], dict[str, Member]]:
    """Return the pools and endpoints that there are after ``event``, of which ``pools`` and ``endpoints`` were before.

    An endpoint that joins others at ``now`` (seconds) has to show that it is ready, and begins with a small share then.
    A pool that is new begins as it is: nobody is there who could bear the load meanwhile.
    """
    after = {spec.name: pools.get(spec.name) or PoolState(spec) for spec in event.pools}
    known = {name for name, pool in after.items() if pool.members}
    found: dict[str, Member] = {}
    most = MAX_BLOCKS // max(1, sum(len(spec.endpoints) for spec in event.pools))
    for spec in event.pools:
        pool = after[spec.name]
        pool.prefixes.admit((endpoint.address for endpoint in spec.endpoints), most)
        for endpoint in spec.endpoints:
            member = endpoints.get(endpoint.address)
            if member is None:
                member = Member(endpoint, pool.prefixes)
                member.condition.join(spec.health, now, others=spec.name in known)
            _declare(member, endpoint, spec, pool, now)
            found[endpoint.address] = member
        pool.spec, pool.health.rules = spec, spec.health
        pool.places = {endpoint.address: place for place, endpoint in enumerate(spec.endpoints)}
        pool.members = tuple(found[endpoint.address] for endpoint in spec.endpoints)
    homes = {address: name for name, pool in after.items() for address in pool.places}
    for name, pool in after.items():
        pool.judged = tuple(member for member in pool.members if homes[member.spec.address] == name)
        related(pool.judged)
    return after, found


def related(members: Iterable[Member]) -> None:
    """Have those of ``members`` that are declared alike learn from one another."""
    members = tuple(members)

    def of(alike: Sequence[Member]) -> None:
        def changed(place: int) -> None:
            alike[place].shown = None

        Kin([member.work.rates for member in alike], changed, rivals=len(alike) < len(members))

    kin: dict[tuple[object, ...], list[Member]] = {}
    for member in members:
        spec = member.spec
        kin.setdefault((spec.gpu, spec.weight, spec.role, spec.models), []).append(member)
    for of_a_kind in kin.values():
        of(of_a_kind)


def _declare(member: Member, endpoint: EndpointSpec, spec: PoolSpec, pool: PoolState, now: float) -> None:
    member.declare(endpoint, pool.prefixes, told=spec.told)
    member.condition.drain(draining=endpoint.drain, now=now)
    if spec.breaker is None:
        member.breaker = None
        member.condition.forget(BREAKER, now)
