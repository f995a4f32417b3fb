"""Keeps endpoints that get less than their share to it, whatever the policy of their pool goes by.

Policies that read weights or speeds see it in these. Others, such as ``round_robin``, would not. So whoever has a share
below one is only looked at when it is its turn: each decision earns it its part of a request, and a request that goes
there costs one.
"""

from collections.abc import Iterable, Sequence

from tidegate.fleet.view import EndpointView

SAVED = 2.0
"""Requests that an endpoint can save up, when others were chosen although it was its turn; and owe, where nobody else
could serve them."""


class Quota:
    """The turns of one pool's endpoints."""

    def __init__(self) -> None:
        self._earned: dict[str, float] = {}

    def keep(self, candidates: Sequence[EndpointView]) -> Sequence[EndpointView]:
        """Return the candidates that have their whole share or whose turn it is; all where that would be nobody."""
        earned = self._earned
        return [one for one in candidates if one.share >= 1.0 or earned.get(one.address, 0.0) >= 1.0] or candidates

    def decided(self, candidates: Iterable[EndpointView], pick: str) -> None:
        """Take note that one of ``candidates``, those of a share below one included, was picked."""
        inside = [one for one in candidates if not one.ejected]
        total = sum(one.weight for one in inside)
        limited = [one for one in inside if one.share < 1.0]
        earned = self._earned
        # Whoever has its whole share again, or is gone, has nothing to save.
        self._earned = {
            one.address: max(
                -SAVED, min(SAVED, earned.get(one.address, 0.0) + one.weight / total) - (one.address == pick)
            )
            for one in limited
        }
