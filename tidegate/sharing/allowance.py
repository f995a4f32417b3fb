"""What callers may still use, where replicas share it: asked of Redis, or of this replica's own share.

Whatever becomes of a request, what it took is settled or given back exactly once, by its id: the first replica that
says how it ended counts, and that may be another one than let it in.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tidegate.scheduling.allowance import Answer, Ask, Settled, standing
from tidegate.scheduling.budget import Cost, Exceeded, Left, Limit
from tidegate.scheduling.sharing import usage
from tidegate.scheduling.sharing.share import Account, Held, Share
from tidegate.sharing import contracts, operations
from tidegate.sharing.contracts import Link, Telling, Times
from tidegate.sharing.courier import Courier
from tidegate.sharing.names import Names
from tidegate.sharing.operations import Named, ReplyError

MOST_TOLD: Final = 100
MOST_RENEWED: Final = 500
MOST_LOOKED_AT: Final = 500
"""Requests and accounts in one call: a few milliseconds of Redis's time (measured)."""

ROUNDS: Final = 3
"""How often a lease is renewed in its time."""


class Observer(contracts.Observer, Protocol):
    """Who counts. No method raises."""

    def decided_alone(self) -> None:
        """A request was let in, or not, by this replica's share."""
        ...


class State(NamedTuple):
    """How it stands with Redis.

    Attributes:
        is_shared: whether limits are shared through it now; otherwise, each replica keeps its share of them.
        reason: why they are not, in few words.
        replicas: how many replicas it last heard of; 0 before it said.
        parts: by how many limits are divided while it cannot be asked.
    """

    is_shared: bool
    reason: str
    replicas: int
    parts: int


class _Known(NamedTuple):
    """What of a request is known besides what it holds."""

    tenant: str
    doubtful: bool


class SharedAllowance:
    """All limits of all callers, shared among replicas.

    Attributes:
        names: what things are called in Redis.
    """

    def __init__(
        self,
        connect: Callable[[], Link],
        times: Times,
        names: Names,
        observer: Observer,
        wall: Callable[[], float],
        *,
        replicas: int = 1,
    ) -> None:
        """Reach Redis by ``connect``, where things are called by ``names``; there are ``replicas`` at least."""
        self._share = Share(replicas)
        self._least = replicas
        self.names = names
        self._observer = observer
        self._courier = Courier(connect, times, self, observer, wall)
        self._lease = times.lease
        self._requests: dict[str, _Known] = {}
        self._scopes: tuple[str, ...] = ()
        self._seen: dict[Account, tuple[float, float]] = {}
        self._number = 0
        self._renewing: deque[str] = deque()
        self._renew_at = 0.0
        self._looking: deque[Account] = deque()

    def __len__(self) -> int:
        """Return how many requests hold something here."""
        return len(self._share)

    async def run(self) -> None:
        """Talk to Redis until cancelled."""
        await self._courier.run()

    def state(self) -> State:
        """Return how it stands with Redis."""
        return State(self._courier.can_be_asked, self._courier.reason, self._courier.replicas, self._share.parts)

    def regularly(self, seconds: float, ask: Callable[[], Iterable[Telling]]) -> None:
        """Have Redis told and asked besides, every so many ``seconds``, what ``ask`` yields (see ``Courier``)."""
        self._courier.regularly(seconds, ask)

    def configure(self, limits: Mapping[str, Sequence[Limit]]) -> None:
        """Take over the limits by scope."""
        self._share.configure(limits, self._courier.now())
        self._scopes = tuple(limits)
        self._seen = {account: self._seen[account] for account in self._share.every() if account in self._seen}
        self._looking.clear()

    # -- requests

    async def take(self, ask: Ask) -> Answer:
        """Take what is asked for from all limits, or from none; wait no longer than a call to Redis may take.

        Raises:
            ValueError: the request holds something already.
        """
        accounts = self._share.accounts(ask.scopes)
        doubtful = False
        if accounts and self._courier.can_be_asked:
            name = self.names.request(ask.id)
            ticket = self._courier.ask(operations.reserve(name, ask.cost, map(self._named, accounts)))
            try:
                result = await ticket.answer
            except asyncio.CancelledError:
                if ticket.sent:
                    self._courier.say(operations.release(name))
                raise
            try:
                if result is not None:
                    return self._answered(ask, accounts, *operations.reserved(result))
            except ReplyError:
                pass
            doubtful = ticket.sent
        return self._alone(ask, accounts, doubtful=doubtful)

    def _answered(self, ask: Ask, accounts: Sequence[Account], granted: bool, used: Sequence[float]) -> Answer:
        """Take over what Redis said of a request: whether it may, and how much is used of each account after that."""
        now = self._courier.now()
        if len(used) != len(accounts):
            raise ReplyError("figures of other accounts than asked for")
        for account, amount in zip(accounts, used, strict=True):
            self._seen[account] = (amount, now)
        left = [usage.left(account.limit, amount, now) for account, amount in zip(accounts, used, strict=True)]
        if granted:
            self._share.granted(ask.id, accounts, ask.cost, now)
            self._requests[ask.id] = _Known(ask.tenant, doubtful=False)
        self._share.seen(accounts, used, now)
        if granted:
            return Answer(None, standing(left))
        return Answer(_worst(ask.cost, accounts, used, now), standing(left))

    def _alone(self, ask: Ask, accounts: Sequence[Account], *, doubtful: bool) -> Answer:
        """Let a request take from this replica's share; ``doubtful`` if it may hold something in Redis, too."""
        now = self._courier.now()
        exceeded = self._share.reserve(ask.id, accounts, ask.cost, now)
        if exceeded is None:
            self._requests[ask.id] = _Known(ask.tenant, doubtful)
        elif doubtful:
            self._courier.say(operations.release(self.names.request(ask.id)))
        if accounts:
            self._observer.decided_alone()
        return Answer(exceeded, standing([self._share.left(account, now) for account in accounts]))

    def progressed(self, request_id: str) -> None:
        """Renew the lease of a request that another replica let in, which may be no more; ours are renewed anyway."""
        if self._scopes and self._share.holds(request_id) is None:
            self._courier.say(operations.renew([self.names.request(request_id)]))

    def settle(self, request_id: str, input_tokens: int | None, output_tokens: int | None) -> Settled | None:
        """Correct what a request took by what it used, in tokens; what is unknown was what was expected.

        Returns:
            What it came to; ``None`` where it held nothing here, but perhaps where another replica let it in.
        """
        held = self._share.holds(request_id)
        if held is None:
            if self._scopes:
                self._courier.say(operations.settle(self.names.request(request_id), input_tokens, output_tokens))
            return None
        used = Cost(
            held.cost.input_tokens if input_tokens is None else input_tokens,
            held.cost.output_tokens if output_tokens is None else output_tokens,
        )
        self._share.settle(request_id, used, self._courier.now())
        known = self._requests.pop(request_id)
        if held.accounts and held.shared:
            self._courier.say(operations.settle(self.names.request(request_id), *used))
        elif known.doubtful:
            self._courier.say(operations.release(self.names.request(request_id)))
        return Settled(known.tenant, used)

    def release(self, request_id: str) -> bool:
        """Give back all that a request took, which was not served; return whether it held anything here."""
        held = self._share.settle(request_id, None, self._courier.now())
        if held is None:
            return False
        known = self._requests.pop(request_id)
        if held.accounts and (held.shared or known.doubtful):
            self._courier.say(operations.release(self.names.request(request_id)))
        return True

    # -- what one sees

    def left(self) -> dict[str, list[Left]]:
        """Return what is left of every limit, by scope; while Redis cannot be asked, of this replica's share."""
        now, shared = self._courier.now(), self._courier.can_be_asked
        return {
            scope: [self._left(account, now, shared=shared) for account in self._share.accounts((scope,))]
            for scope in self._scopes
        }

    def _left(self, account: Account, now: float, *, shared: bool) -> Left:
        if not shared or account not in self._seen:
            return self._share.left(account, now)
        used, since = self._seen[account]
        return usage.left(account.limit, usage.after(account.limit, used, since, now), now)

    # -- what Redis is told: ``Clerk``

    def forgotten(self) -> None:
        """Tell Redis everything again."""
        self._divide()
        self._seen.clear()
        self._share.forgotten(self._courier.now())

    @property
    def has_news(self) -> bool:
        """Whether there is more to be told at once."""
        return self._share.has_untold or bool(self._renewing)

    def news(self) -> Iterator[Telling]:
        """Yield what was used, and is held, without Redis's knowledge; and leases to be renewed."""
        self._divide()
        debts, untold = self._share.owed(MOST_TOLD, self._courier.now()), self._share.untold(MOST_TOLD)
        if debts or untold:
            self._number += 1
            told = [(self._named(account), amount) for account, amount in debts]
            yield operations.tell(self._number, told, map(self._told, untold)), None
        if self._renewing:
            some = [self._renewing.popleft() for _ in range(min(MOST_RENEWED, len(self._renewing)))]
            names = {self.names.request(request_id): request_id for request_id in some}
            yield operations.renew(list(names)), lambda gone: self._given_back(gone, names)

    def _divide(self) -> None:
        self._share.parts = max(self._least, self._courier.replicas)

    def _told(self, untold: tuple[str, Held]) -> tuple[str, Cost, Sequence[Named]]:
        request_id, held = untold
        return self.names.request(request_id), held.cost, [self._named(account) for account in held.accounts]

    def beat(self) -> Iterator[Telling]:
        """Yield some accounts to be looked at; begin to renew leases when that is due."""
        now = time.monotonic()
        if not self._renewing and now >= self._renew_at:
            self._renewing.extend(self._share.shared())
            self._renew_at = now + self._lease / ROUNDS
        if not self._looking:
            self._looking.extend(self._share.every())
        if self._looking:
            accounts = [self._looking.popleft() for _ in range(min(MOST_LOOKED_AT, len(self._looking)))]
            yield operations.look(map(self._named, accounts)), lambda used: self._looked(accounts, used)

    def _given_back(self, gone: str, names: Mapping[str, str]) -> None:
        lost = [names[name] for name in gone.split() if name in names]
        self._share.given_back(lost, self._courier.now())

    def _looked(self, accounts: Sequence[Account], result: str) -> None:
        now = self._courier.now()
        try:
            used = operations.looked(result)
        except ReplyError:
            return  # what is known stays what was seen before
        if len(used) == len(accounts):
            self._seen |= {account: (amount, now) for account, amount in zip(accounts, used, strict=True)}
            if self._courier.can_be_asked:  # before that, Redis knows of a part of what is used
                self._share.seen(accounts, used, now)

    def _named(self, account: Account) -> Named:
        return self.names.account(account.scope, account.limit.name), account.limit


def _worst(cost: Cost, accounts: Sequence[Account], used: Sequence[float], now: float) -> Exceeded:
    """Return what is longest in the way of a request that Redis refused."""
    found = [
        usage.exceeded(account.scope, account.limit, amount, cost.of(account.limit.unit), now)
        for account, amount in zip(accounts, used, strict=True)
    ]
    worst = max((one for one in found if one is not None), key=lambda one: one.wait_seconds, default=None)
    if worst is None:
        # Refused by less than figures are told with: it fits in a moment.
        fullest, _ = max(zip(accounts, used, strict=True), key=lambda one: one[1] / one[0].limit.capacity)
        return Exceeded(fullest.scope, fullest.limit, cost.of(fullest.limit.unit), 0.0)
    return worst
