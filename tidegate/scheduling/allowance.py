"""What callers may still use: taken before a request goes anywhere, and set right once it is over.

Whatever becomes of a request, what it took is settled or given back exactly once, by its id: the first who says how it
ended counts.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tidegate.scheduling.budget import Budgets, Cost, Exceeded, Left, Limit, Unit, Window
from tidegate.scheduling.budget_image import BudgetsImage
from tidegate.scheduling.caller import Caller
from tidegate.scheduling.request import InferenceRequest

REQUESTS_ORDER = (Unit.REQUESTS,)
TOKENS_ORDER = (Unit.TOKENS, Unit.INPUT_TOKENS, Unit.OUTPUT_TOKENS)


class Standing(NamedTuple):
    """How a caller stands with the limits that a client is told of: of requests and of tokens, a minute.

    Attributes:
        requests: the limit of requests that is nearest to its end, ``None`` where there is none.
        tokens: likewise.
    """

    requests: Left | None
    tokens: Left | None


class Ask(NamedTuple):
    """What a request asks of the limits.

    Attributes:
        id: the request's.
        tenant: whose it is.
        scopes: whose limits it counts against.
        cost: what it will probably take.
    """

    id: str
    tenant: str
    scopes: tuple[str, ...]
    cost: Cost

    @classmethod
    def of(cls, request: InferenceRequest, caller: Caller, output_tokens: int) -> "Ask":
        """Return what ``request`` asks that comes from ``caller`` and will have an answer of ``output_tokens``."""
        scopes = caller.scopes_for(request.model)
        return cls(request.id, caller.tenant, scopes, Cost(request.prompt.tokens, output_tokens))


class Answer(NamedTuple):
    """What it is answered.

    Attributes:
        exceeded: the limit in the way; ``None`` where all was taken.
        standing: how its caller stands after that.
    """

    exceeded: Exceeded | None
    standing: Standing


class Settled(NamedTuple):
    """What a request came to.

    Attributes:
        tenant: whose it was.
        used: what it used.
    """

    tenant: str
    used: Cost


class AllowanceImage(NamedTuple):
    """What is kept over a restart.

    Attributes:
        budgets: what was used, and taken.
        tenants: whose requests those are that took something, by the request's id.
    """

    budgets: BudgetsImage = BudgetsImage()
    tenants: tuple[tuple[str, str], ...] = ()


class Allowance:
    """All limits of all callers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Go by ``clock``, in seconds since the epoch."""
        self._clock = clock
        self._budgets = Budgets()
        self._scopes: tuple[str, ...] = ()
        self._tenants: dict[str, str] = {}

    def __len__(self) -> int:
        """Return how many requests hold something."""
        return len(self._budgets)

    def configure(self, limits: Mapping[str, Sequence[Limit]]) -> None:
        """Take over the limits by scope."""
        self._budgets.configure(limits, self._clock())
        self._scopes = tuple(limits)

    def reserve(self, ask: Ask) -> Exceeded | None:
        """Take what is asked for from all limits, or from none; return the one in the way.

        Raises:
            ValueError: the request holds something already.
        """
        exceeded = self._budgets.reserve(ask.id, ask.scopes, ask.cost, self._clock())
        if exceeded is None:
            self._tenants[ask.id] = ask.tenant
        return exceeded

    def settle(self, request_id: str, input_tokens: int | None, output_tokens: int | None) -> Settled | None:
        """Correct what a request took by what it used, in tokens; what is unknown was what was expected.

        Returns:
            What it came to; ``None`` where it held nothing (any more).
        """
        held = self._budgets.holds(request_id)
        if held is None:
            return None
        used = Cost(
            held.input_tokens if input_tokens is None else input_tokens,
            held.output_tokens if output_tokens is None else output_tokens,
        )
        self._budgets.settle(request_id, used, self._clock())
        return Settled(self._tenants.pop(request_id), used)

    def release(self, request_id: str) -> bool:
        """Give back all that a request took, which was not served; return whether it held anything."""
        self._tenants.pop(request_id, None)
        return self._budgets.release(request_id, self._clock())

    def image(self) -> AllowanceImage:
        """Return what is to be kept over a restart."""
        budgets = self._budgets.image()
        return AllowanceImage(budgets, tuple((one.id, self._tenants[one.id]) for one in budgets.held))

    def restore(self, image: AllowanceImage) -> None:
        """Begin with what was kept, as far as there are such limits.

        Raises:
            ValueError: something was taken already.
        """
        self._budgets.restore(image.budgets, self._clock())
        self._tenants = {one: tenant for one, tenant in image.tenants if self._budgets.holds(one) is not None}

    def standing(self, scopes: Iterable[str]) -> Standing:
        """Return how a caller stands whose requests count against the limits of ``scopes``."""
        now = self._clock()
        return standing(one for scope in scopes for one in self._budgets.left(scope, now))

    def left(self) -> dict[str, list[Left]]:
        """Return what is left of every limit, by scope."""
        now = self._clock()
        return {scope: self._budgets.left(scope, now) for scope in self._scopes}


def standing(left: Iterable[Left]) -> Standing:
    """Return how a caller stands of whose limits that is left."""
    of_a_minute = [one for one in left if one.limit.window is Window.MINUTE]
    return Standing(_nearest(of_a_minute, REQUESTS_ORDER), _nearest(of_a_minute, TOKENS_ORDER))


def _nearest(left: Sequence[Left], units: Sequence[Unit]) -> Left | None:
    """Return what is nearest to its end, by share."""
    counted = [one for one in left if one.limit.unit in units]
    return min(counted, key=lambda one: (one.amount / one.limit.capacity, units.index(one.limit.unit)), default=None)


def whole_seconds(wait: float) -> int:
    """Return after how many whole seconds ``wait`` is over for certain, 1 at the least.

    A millisecond is added for what the clocks' own rounding takes from a bucket.
    """
    return max(1, math.ceil(wait + 0.001))
