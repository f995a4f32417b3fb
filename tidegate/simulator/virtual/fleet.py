"""The endpoints of a simulated fleet."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.fleet.endpoint import EndpointSpec
from tidegate.simulator.profiles import PROFILES, Profile
from tidegate.simulator.virtual.engine import DEFAULT_MAX_MODEL_LEN, VirtualEngine

PORT = 8000


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """Endpoints, by the profile of each.

    Attributes:
        profiles: one for each endpoint.
        max_model_len: longest prompt and answer together, in tokens; an engine whose KV cache is smaller takes less.
        max_queue: requests that an engine accepts beyond a full batch.
    """

    profiles: tuple[Profile, ...]
    max_model_len: int = DEFAULT_MAX_MODEL_LEN
    max_queue: int = 1_024

    def __post_init__(self) -> None:
        if not self.profiles:
            raise ValueError("a fleet needs an endpoint")

    @classmethod
    def of(cls, counts: Iterable[tuple[str, int]]) -> "FleetSpec":
        """Return a fleet of so many endpoints of each profile's name.

        Raises:
            ValueError: there is no such profile, or no endpoint at all.
        """
        profiles: list[Profile] = []
        for name, count in counts:
            if name not in PROFILES:
                raise ValueError(f"no profile {name!r}; expected one of {', '.join(PROFILES)}")
            if count < 1:
                raise ValueError(f"{count} endpoints of {name}; expected 1 or more")
            profiles += [PROFILES[name]] * count
        return cls(tuple(profiles))

    @classmethod
    def parse(cls, text: str) -> "FleetSpec":
        """Read ``h100:4,a100:12``.

        Raises:
            ValueError: it is not of that form, with what was expected.
        """
        counts = []
        for part in text.split(","):
            name, _, count = part.strip().partition(":")
            if not (count or "1").isascii() or not (count or "1").isdigit():
                raise ValueError(f"{part!r} in the fleet; expected PROFILE:COUNT, such as h100:4")
            counts.append((name, int(count or "1")))
        return cls.of(counts)

    def __str__(self) -> str:
        """Return the fleet as ``parse`` reads it."""
        return ",".join(f"{name}:{count}" for name, count in Counter(one.name for one in self.profiles).items())

    def resized(self, count: int) -> "FleetSpec":
        """Return a fleet of ``count`` endpoints in which the profiles have the shares that they have here."""
        have = len(self.profiles)
        chosen = tuple(self.profiles[at * have // count if count < have else at % have] for at in range(count))
        return FleetSpec(chosen, self.max_model_len, self.max_queue)

    def endpoints(self) -> tuple[EndpointSpec, ...]:
        """Return the endpoints as an operator would declare them, without weights."""
        return tuple(EndpointSpec(address(at), gpu=profile.name) for at, profile in enumerate(self.profiles))

    def engine(self, at: int) -> VirtualEngine:
        """Return a fresh engine for endpoint number ``at``."""
        return VirtualEngine(self.profiles[at], self.max_model_len, self.max_queue)


def address(at: int) -> str:
    """Return the address of endpoint number ``at``."""
    return f"10.{at >> 16 & 255}.{at >> 8 & 255}.{at & 255}:{PORT}"
