"""What a request costs on an endpoint, in seconds: its own time there, and the time it takes from others.

The model is that of an engine with continuous batching (``Pace``): steps that decode for every request in the batch and
prefill chunks of prompts in their order; a batch and a KV cache of bounded size, before which requests wait.

=================  ====================================================================================================
part               what
=================  ====================================================================================================
``wait``           until prefill begins: the prompts before it, and room in the batch and the KV cache where they are
                   full: the share by which they would be overfull, times the time a request stays there
``prefill``        its prompt tokens that are not cached, and the step that makes the first token
``decode``         its answer, a step of the batch with it in it for each token, stretched by the prompts that come
                   meanwhile
``others``         what those already there lose: each waits while its prompt is prefilled, and their steps grow by it
                   for as long as both are there
``later``          what it takes from those who come after it: they find its prompt before them, the more of them the
                   busier the endpoint is with prompts
``cache``          what is computed here although another endpoint has it: it takes the room of what others would have
                   found, and the next of its like are spread over one more place
``queue``          what a long wait costs beyond itself: the square of it, for one long wait is worse than ten short
                   ones, and where a queue is long the next ones will wait too
``risk``           what failures there cost on average: a failed request has to be done again elsewhere
=================  ====================================================================================================
"""

# ruff: noqa: FURB136, PLR1730 - a call of min costs more than the rest of its line
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from tidegate.fleet.view import EndpointView

WAIT_WEIGHT = 20.0
"""How much a second of waiting counts, where one of decoding counts once: a reader waits for the first token, and reads
the rest as it comes."""

QUEUE_SECONDS = 0.25
"""The ``queue`` that a wait costs is its square, divided by this."""

LATER_WEIGHT = 3.0
"""How many of those who come later a second of prefill delays, for each ``busy / (1 - busy)``: so many wait on average
where arrivals are random (M/M/1)."""

CACHE_WEIGHT = 10.0
"""How much a second of prefill counts as ``cache``: the second that the candidates need on average, so that what is
missing in a cache weighs the same for a slow endpoint and for a fast one, and nothing where nobody has anything."""

MOST_BUSY = 0.9
MOST_FAILING = 0.98
"""Shares are bounded below 1, where a cost would be infinite and no longer tell bad from worse."""

FAILURE_SECONDS = 5.0
"""What a failed attempt costs beyond doing it again, counted as a wait: it is noticed late, or the client sees it."""

NEVER_FITS = 1e6
"""Seconds for what an endpoint can never take: more than any wait, and still comparable."""


_READ = itemgetter(
    *map(
        EndpointView._fields.index,
        ("pace", "requests", "tokens", "context", "backlog", "busy", "failing", "cached_tokens"),
    )
)
"""Reads what is needed of an endpoint, in half the time that the names would take."""


class Cost(NamedTuple):
    """The expected cost of one request on one endpoint, in seconds; the parts are explained above.

    Attributes:
        total: what is to be minimised: the sum of the parts, ``wait`` with its weight.
    """

    total: float
    wait: float
    prefill: float
    decode: float
    others: float
    later: float
    cache: float
    queue: float
    risk: float

    @property
    def ttft(self) -> float:
        """Seconds until the first token."""
        return self.wait + self.prefill


Parts = tuple[float, float, float, float, float, float, float, float, float]
"""The fields of ``Cost`` as a plain tuple."""


def cost(endpoint: EndpointView, prompt_tokens: int, output_tokens: int) -> Cost:
    """Return what ``costs`` says of ``endpoint`` alone."""
    return Cost(*costs((endpoint,), prompt_tokens, output_tokens)[0])


def costs(endpoints: Sequence[EndpointView], prompt_tokens: int, output_tokens: int) -> list[Parts]:
    """Return what a request of ``prompt_tokens`` tokens that is answered with ``output_tokens`` costs on each endpoint.

    Returns:
        The fields of ``Cost`` for each of ``endpoints``: this is asked of every candidate of every decision.

    Written as one loop without calls for that reason; ``Pace`` says what its figures mean.
    """
    need, halfway, half = prompt_tokens + output_tokens, prompt_tokens + output_tokens / 2, output_tokens / 2
    missing = CACHE_WEIGHT * sum([endpoint.pace[0] for endpoint in endpoints]) / max(1, len(endpoints))
    found = []
    for pace, there, tokens, context, backlog, busy, failing, cached in map(_READ, endpoints):
        prefill_seconds, step_seconds, sequence_seconds, context_seconds, step_tokens, max_batch, kv_tokens = pace
        batch = there if there < max_batch else max_batch
        held = context if context < kv_tokens else kv_tokens
        step = step_seconds + batch * sequence_seconds + held * context_seconds
        each = prefill_seconds + step / step_tokens
        uncached = prompt_tokens - cached
        if uncached < 0:
            uncached = 0

        prefill = uncached * each + step
        grown = sequence_seconds + context_seconds * halfway
        stretch = 1.0 / (1.0 - (busy if busy < MOST_BUSY else MOST_BUSY))
        decode = output_tokens * (step + grown) * stretch

        wait = backlog * each + step / 2
        full, crowd = (tokens + need) / kv_tokens, (there + 1.0) / max_batch
        if full > 1.0 or crowd > 1.0:
            # Room comes as requests end, in the time that one stays.
            wait += (max(crowd, full) - 1.0) * output_tokens * step * stretch
            if need > kv_tokens:
                wait += NEVER_FITS

        # Each of those there is taken to have half of such an answer before it.
        own = uncached * prefill_seconds
        others = batch * (own + grown * half)
        later = LATER_WEIGHT * own * (stretch - 1.0)
        cache = missing * uncached
        queue = wait * wait / QUEUE_SECONDS

        risk = 0.0
        if failing > 0.0:
            share = min(MOST_FAILING, failing)
            risk = share / (1.0 - share) * (WAIT_WEIGHT * (wait + FAILURE_SECONDS) + prefill + decode)
        total = WAIT_WEIGHT * wait + prefill + decode + others + later + cache + queue + risk
        found.append((total, wait, prefill, decode, others, later, cache, queue, risk))
    return found
