"""Short ways to write down pools and reservations."""

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import PoolsDeclared
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import EndpointView

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


def pool(*addresses: str, name: str = "default", weights: dict[str, int] | None = None) -> PoolSpec:
    """Return a pool that serves every model."""
    members = tuple(EndpointSpec(address, (weights or {}).get(address, 1)) for address in addresses)
    return PoolSpec(name, "vllm", ("*",), members)


def fleet_of(*pools: PoolSpec, lease_seconds: float = 45.0) -> Fleet:
    """Return a fleet with these pools, declared at second 0."""
    fleet = Fleet(lease_seconds)
    fleet.apply(PoolsDeclared(pools), 0.0)
    return fleet


def reservation(
    id: str = "r1",  # noqa: A002
    *,
    address: str = A,
    pool: str = "default",
    prompt: int = 100,
    output: int = 50,
    at: float = 0.0,
) -> Reservation:
    """Return a reservation with small, telling numbers."""
    return Reservation(id, pool, address, prompt, output, at)


def seen(fleet: Fleet, address: str, now: float) -> EndpointView:
    """Return the endpoint as readers see it."""
    return next(endpoint for view in fleet.views(now) for endpoint in view.endpoints if endpoint.address == address)
