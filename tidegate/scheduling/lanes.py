"""Lanes: parts of a pool that large prompts keep to, so that a prompt of 100,000 tokens does not stall small ones.

An engine prefills prompts in their order; whoever comes behind a large one waits for seconds. A lane is a part of the
endpoints, by a share or by name. It is a preference over any policy, applied after the filters:

- A large prompt goes to its lane where an endpoint has nothing to prefill; else to any other that has not; else it
  waits in its lane.
- A small one leaves out endpoints with much to prefill, and takes those of a lane where nothing is there at all; where
  much is to be prefilled in its own part, it takes whoever has less, lanes included.

A request of a session stays in its own part while little is to be prefilled there: its home must not come and go.

So no endpoint is idle beside a queue, and somebody is left whenever somebody was there. Where most of a large prompt is
cached, it is at home too: what is left to prefill is small.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidegate.fleet.view import EndpointView
from tidegate.scheduling import rendezvous
from tidegate.scheduling.filters import Filter
from tidegate.scheduling.rendezvous import Weighed
from tidegate.scheduling.request import InferenceRequest

NAME = "lanes"
"""The name of the step in an explanation."""

MUCH = 0.25
"""The share of the smallest lane's ``above_tokens`` that is much to prefill before a small prompt. With a fifth of that
the p99 of small prompts was hardly another, with three times as much nearly twice as long (``bench/lanes``)."""

FAILING = 0.5
"""The share of requests that fail of late with which an endpoint is left out; it fades within a minute, and then it is
tried again."""

_KEY = "lanes"


class Lane(NamedTuple):
    """A part of a pool for large prompts.

    Attributes:
        above_tokens: prompts of more tokens keep to it, unless a lane for yet larger ones is there.
        share: how many of the pool's endpoints are in it, 0 to 1; at least one.
        endpoints: the addresses of those in it, in place of a share.
    """

    above_tokens: int
    share: float = 0.0
    endpoints: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Lane":
        """Read ``20000:0.25``: a quarter of the endpoints for prompts of more than 20,000 tokens.

        Raises:
            ValueError: it is not of that form.
        """
        above, _, share = text.partition(":")
        try:
            lane = cls(int(above), float(share))
        except ValueError:
            lane = cls(0)
        if lane.above_tokens < 1 or not 0.0 < lane.share < 1.0:
            raise ValueError(f"{text!r} is no lane; expected ABOVE_TOKENS:SHARE, such as 20000:0.25")
        return lane


def parts(lanes: Sequence[Lane], members: Iterable[Weighed]) -> dict[str, int]:
    """Return the addresses in lanes, each with its lane's number, from 1.

    Shares are taken from the order of the members in rendezvous hashing, the last lane first: when an endpoint comes
    or goes, at most one other moves into each lane or out of it.
    """
    members = list(members)
    found = {address: number for number, lane in enumerate(lanes, 1) for address in lane.endpoints}
    free = [member for member in members if member.address not in found]
    free.sort(key=rendezvous.draw(_KEY), reverse=True)
    taken = 0
    for number in range(len(lanes), 0, -1):
        lane = lanes[number - 1]
        if not lane.endpoints:
            count = max(1, round(lane.share * len(members)))
            found.update((member.address, number) for member in free[taken : taken + count])
            taken += count
    return found


class Lanes:
    """The lanes of one pool, with who is in them."""

    def __init__(self, lanes: Iterable[Lane], known: Mapping[str, int] | None = None) -> None:
        """Begin without members, or with the ``known`` ones, by address (see ``parts``)."""
        self._lanes = tuple(sorted(lanes))
        self._members: Sequence[Weighed] = ()
        self._parts = {} if known is None else known

    def declare(self, members: Sequence[Weighed]) -> None:
        """Divide ``members``, unless they are the same sequence as before."""
        if members is not self._members:
            self._members, self._parts = members, parts(self._lanes, members)

    def part(self, address: str) -> int:
        """Return the number of the lane that an address is in; 0 for none."""
        return self._parts.get(address, 0)

    @property
    def filter(self) -> Filter:
        """The lanes as the last of a pool's filters."""
        return Filter(NAME, self.keep, hard=False)

    def keep(self, request: InferenceRequest, candidates: Sequence[EndpointView]) -> Sequence[EndpointView]:
        """Return the candidates that ``request`` should go to, which are never nobody."""
        tokens, parts, small = request.prompt.tokens, self._parts, self._lanes[0].above_tokens
        # An engine that fails requests at once has nothing to prefill, and is nobody's home.
        candidates = [one for one in candidates if one.failing < FAILING] or candidates
        if tokens <= small:
            most, at_home = small * MUCH, bool(request.session)
            return (
                # Its own part, and whoever is idle; but a session would come and go with that.
                [
                    one
                    for one in candidates
                    if (one.backlog <= most and one.address not in parts) or (one.requests < 1 and not at_home)
                ]
                or [one for one in candidates if one.backlog <= most]
                or [one for one in candidates if one.address not in parts]
                or candidates
            )
        mine = sum(tokens > lane.above_tokens for lane in self._lanes)
        own = [one for one in candidates if parts.get(one.address) == mine or tokens - one.cached_tokens <= small]
        return (
            [one for one in own if _is_free(one)] or [one for one in candidates if _is_free(one)] or own or candidates
        )


def _is_free(endpoint: EndpointView) -> bool:
    """Return whether nothing is to be prefilled there; where nobody is, the reckoning is late."""
    return endpoint.backlog <= 0 or endpoint.requests < 1
