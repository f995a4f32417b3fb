"""What one endpoint is working on by our own account, and what the requests that ended there teach of its speed.

We see a request's start at once, and the moment of its first token only when it has ended. So how much of the prompts
sent there still waits for prefill is reckoned: what was sent, less what an engine of its pace has done since; and set
right by each report, which says how many requests wait.
"""

import math
from typing import NamedTuple

from tidegate.fleet.gpu import Pace
from tidegate.fleet.ledger import Inflight, Reservation
from tidegate.fleet.rates import STALE_SECONDS, Rates

CLEAR_OUTPUT_TOKENS = 32.0
"""An answer of so many tokens tells of the time between tokens with half of the weight that a long one has."""

CLEAR_PREFILL_SECONDS = 0.02
"""A prefill of so many seconds tells of the rate with half of the weight: less is lost in steps and transit."""

FAILURE_SHARE = 0.2
"""How far one ended request moves the share of failures."""

FAILURE_SECONDS = 30.0
"""Seconds in which a share of failures fades to a third, when nothing is sent there: it may have recovered."""

BUSY_SECONDS = 20.0
"""Over how many seconds, about, the share of time spent on prefill is taken."""


TRIED_ONCE_IN = 100
"""Requests to a pool, for each of the others, before one that got none of them is tried: so all tries together are at
most one request in a hundred."""

MOST_FOREIGN = 1e5
"""No engine holds more requests: a larger figure is nonsense, and would spoil sums for good."""


class Load(NamedTuple):
    """How many requests are at an endpoint, and how many tokens of context they have, a mean over their lives."""

    requests: float
    context: float


def load(inflight: Inflight, foreign: float, tokens_each: float) -> Load:
    """Return the load of our ``inflight`` requests and ``foreign`` ones of others, of ``tokens_each`` tokens.

    A request begins with its prompt and ends with prompt and answer: half of its answer is there on average.
    """
    foreign = min(foreign, MOST_FOREIGN)
    own = (inflight.prompt_tokens + inflight.tokens) / 2
    return Load(inflight.requests + foreign, own + foreign * tokens_each)


class _Start(NamedTuple):
    """What was the case when a request was sent.

    Attributes:
        at: when, in seconds.
        prompts_before: prompt tokens that had to be prefilled before its own.
        prompt: tokens of its own to prefill.
        step: seconds of a step without prefill.
        crowded: it may have had to wait for room in the batch or the KV cache.
        requests, context: integrals of the load over time until then.
        prefilled: prompt tokens ever sent until then, its own included.
    """

    at: float
    prompts_before: float
    prompt: float
    step: float
    crowded: bool
    requests: float
    context: float
    prefilled: float


class Work:
    """The account of one endpoint.

    Attributes:
        rates: how fast it is.
        sent_at: when a request was last sent there, in seconds, and ``sent_number``, which of its pool that was.
        trusted_from: what was sent there until then, in seconds, teaches nothing of its speed: it was away meanwhile.
    """

    __slots__ = (
        "_asked",
        "_at",
        "_backlog",
        "_busy",
        "_context",
        "_each",
        "_failed_at",
        "_failing",
        "_prefilled",
        "_requests",
        "_starts",
        "_step",
        "rates",
        "sent_at",
        "sent_number",
        "trusted_from",
    )

    def __init__(self, prior: Pace) -> None:
        """Begin idle, with what ``prior`` says of its speed."""
        self.rates = Rates(prior)
        self._starts: dict[str, _Start] = {}
        self._at = 0.0
        self._asked = (0.0, 0.0)
        self._backlog = 0.0
        self._busy = 0.0
        self._step = prior.step_seconds
        self._each = prior.prompt_token(self._step)
        self._requests = self._context = self._prefilled = 0.0
        self._failing, self._failed_at = 0.0, 0.0
        self.sent_at = self.trusted_from = -math.inf
        self.sent_number = 0

    # -- what readers see

    def standing(self, now: float) -> tuple[float, float, float]:
        """Return how it stands at ``now`` (seconds); before what was heard last, as then.

        In this order: prompt tokens sent there and not prefilled yet; the share of its time, 0 to 1, that the prompts
        of the last seconds took; the share of requests, 0 to 1, that failed there of late.
        """
        backlog, busy, failing = self._backlog, self._busy, self._failing
        if backlog:
            left = backlog - max(0.0, now - self._at) / self._each
            backlog = max(0.0, left)
        if busy:
            busy = min(1.0, busy * math.exp(min(0.0, self._at - now) / BUSY_SECONDS))
        if failing:
            failing *= math.exp(min(0.0, self._failed_at - now) / FAILURE_SECONDS)
        return backlog, busy, failing

    def pace(self, now: float, number: int, others: int) -> Pace:
        """Return how fast to take it for at ``now`` (seconds), when its pool was sent ``number`` requests so far.

        What was learned long ago, by time and by what its ``others`` got since, is in doubt. Then it is as fast as it
        may be, for one request: who is thought slow gets none, and could never show otherwise.
        """
        if now - self.sent_at < STALE_SECONDS or number - self.sent_number < TRIED_ONCE_IN * others:
            return self.rates.pace
        return self.rates.hoped

    def pending(self, tokens: float, seconds: float) -> float:
        """Return how many of so many prompt ``tokens`` are left to prefill after so many ``seconds``."""
        return max(0.0, tokens - seconds / self._each)

    # -- what happens

    def started(
        self, reservation: Reservation, before: Load, capacity_used: float, now: float, number: int = 0
    ) -> None:
        """Take in that ``reservation`` was sent there at ``now``.

        Args:
            reservation: the request.
            before: the load without it.
            capacity_used: tokens that the requests there without it may come to hold.
            now: seconds.
            number: which of its pool's it is.
        """
        self._advance(before, now)
        self.sent_at, self.sent_number = now, number
        pace = self.rates.pace
        prompt = float(
            reservation.prompt_tokens if reservation.uncached_tokens is None else reservation.uncached_tokens
        )
        self._prefilled += prompt
        self._busy += prompt * pace.prefill_seconds / BUSY_SECONDS
        self._starts[reservation.id] = _Start(
            now,
            self._backlog,
            prompt,
            self._step,
            capacity_used + reservation.tokens > pace.kv_tokens or before.requests >= pace.max_batch,
            self._requests,
            self._context,
            self._prefilled,
        )
        self._backlog += prompt

    def ended(
        self,
        reservation_id: str,
        before: Load,
        now: float,
        *,
        ttft: float | None,
        duration: float | None,
        output_tokens: int | None,
        prefilled: int | None,
        failed: bool,
    ) -> None:
        """Take in that a request ended at ``now``, and learn from it.

        Args:
            reservation_id: which.
            before: the load with it.
            now: seconds.
            ttft: seconds from the delivery to the first token; ``None`` is unknown.
            duration: seconds from the delivery to the last byte, likewise.
            output_tokens: tokens it generated, likewise.
            prefilled: tokens of its prompt that were not cached, likewise.
            failed: the endpoint failed it. That teaches nothing of its speed: errors come fast.
        """
        self._advance(before, now)
        start = self._starts.pop(reservation_id, None)
        if start is None:
            return
        answered = ttft is not None or output_tokens is not None
        if failed or answered:
            share = self.standing(now)[2]
            self._failing, self._failed_at = share + FAILURE_SHARE * (failed - share), now
        if failed or start.at <= self.trusted_from:
            return
        if prefilled is not None:
            start = start._replace(prompt=float(max(0, prefilled)))
        if ttft is not None and 0.0 < ttft < math.inf:
            self._learn_prefill(start, ttft, now)
        if duration is not None and output_tokens and 0.0 < duration < math.inf:
            self._learn_decode(start, ttft, duration, output_tokens, now)

    def asked(self, now: float) -> None:
        """Take in that the engine is asked for its load at ``now``: what is sent from then on is not in its answer."""
        self._asked = now, self._prefilled

    def reported(self, waiting: float, before: Load, now: float, others: float = 0.0) -> None:
        """Take in at ``now`` that ``waiting`` requests waited when it was asked; ``before`` is the load.

        Of those, prompts of ``others`` tokens are accounted for elsewhere (see ``Others``).

        An error in the pace adds up in what is reckoned to wait, for as long as the endpoint is busy; this ends it.
        """
        self._advance(before, now)
        pace, prompts = self.rates.pace, [start.prompt for start in self._starts.values()]
        if not prompts or before.context >= pace.kv_tokens or before.requests >= pace.max_batch:
            return  # they wait for room, which is another matter
        asked_at, sent = self._asked
        since = self._prefilled - sent
        waited = min(waiting, MOST_FOREIGN) * sum(prompts) / len(prompts)
        done = max(0.0, now - asked_at) / self._each
        # Besides those that wait, one may be in the midst of its prefill.
        most = waited + since + max(prompts) + pace.step_tokens
        self._backlog = min(max(self._backlog, waited - others + since - done), most)

    def lost(self, reservation_id: str) -> None:
        """Forget a request of whose end nothing is known."""
        self._starts.pop(reservation_id, None)

    def distrust(self, now: float) -> None:
        """Learn no speed from what was sent until ``now`` (seconds): it failed or was silent, and all there waited."""
        self.trusted_from = now

    def came_back(self, now: float) -> None:
        """Take in that it gets requests again at ``now``, having been ejected: how it is has to be seen anew.

        What failed there before has had its consequence; a small share of failures still would keep all away for long.
        """
        self.distrust(now)
        self._failing = 0.0
        self.rates.forget()

    def restarted(self) -> None:
        """Take in that the engine is another process now: it has no backlog, and what was learned is in doubt."""
        self._backlog = 0.0
        self._starts.clear()
        self.rates.doubt()

    def _advance(self, during: Load, now: float) -> None:
        """Bring the account up to ``now``; ``during`` was the load since the last time."""
        requests, context = during
        passed = now - self._at
        if passed > 0.0:
            self._backlog, self._busy, _ = self.standing(now)
            self._requests += requests * passed
            self._context += context * passed
            self._at = now
        # Requests beyond the batch or the KV cache wait, and do not slow down the others' steps.
        pace = self.rates.pace
        self._step = pace.step(min(requests, pace.max_batch), min(context, pace.kv_tokens))
        self._each = pace.prompt_token(self._step)

    def _learn_prefill(self, start: _Start, ttft: float, now: float) -> None:
        if start.crowded:
            return
        pace = self.rates.pace
        # Prompts that come behind it share its last step, and its token comes when that ends.
        behind = (self._prefilled - start.prefilled) * min(1.0, ttft / max(ttft, now - start.at))
        shared = min(behind, pace.step_tokens) / 4
        each, tokens = pace.prompt_token(start.step), start.prompts_before + start.prompt + shared
        # The step under way when it came, half of it on average, and the one that made the first token.
        steps = 1.5 * start.step
        if tokens <= 0:
            return
        own = start.prompt * each
        # What was before it in the queue is reckoned, its own prompt is known: the one teaches less than the other.
        weight = (start.prompt / tokens) ** 2 * own / (own + CLEAR_PREFILL_SECONDS)
        self.rates.prefilled(max(ttft - steps, 0.1 * ttft) / (tokens * each), weight, now)

    def _learn_decode(self, start: _Start, ttft: float | None, duration: float, output_tokens: int, now: float) -> None:
        pace, steps = self.rates.pace, output_tokens - 1
        if ttft is None:
            if start.crowded:
                return
            ttft = (start.prompts_before + start.prompt) * pace.prompt_token(start.step) + start.step
        decoding, lived = duration - ttft, now - start.at
        if steps < 1 or decoding <= 0 or lived <= 0:
            return
        requests, context = (self._requests - start.requests) / lived, (self._context - start.context) / lived
        expected = steps * pace.step(min(requests, pace.max_batch), min(context, pace.kv_tokens))
        # The prompts that came since, and those that were before it, were prefilled between its tokens or before them.
        others = (self._prefilled - start.prefilled) * min(1.0, decoding / lived) * pace.prefill_seconds
        clear = expected / (expected + others)
        weight = clear * clear * steps / (steps + CLEAR_OUTPUT_TOKENS) * decoding / duration
        self.rates.decoded(max(decoding - others, 0.1 * decoding) / expected, weight, now)
