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
``others``         what those already there lose: each waits while its prompt is prefilled, and their steps grow by it
                   for as long as both are there
``risk``           what failures there cost on average: a failed request has to be done again elsewhere
=================  ====================================================================================================
"""

from typing import NamedTuple

from tidegate.fleet.view import EndpointView

MOST_BUSY = 0.9
MOST_FAILING = 0.98
"""Shares are bounded below 1, where a cost would be infinite and no longer tell bad from worse."""

FAILURE_SECONDS = 5.0
"""What a failed attempt costs beyond doing it again: it is noticed late, or the client sees it."""

NEVER_FITS = 1e6
"""Seconds for what an endpoint can never take: more than any wait, and still comparable."""


class Cost(NamedTuple):
    """The expected cost of one request on one endpoint, in seconds; the parts are explained above."""

    wait: float
    prefill: float
    decode: float
    others: float
    risk: float

    @property
    def ttft(self) -> float:
        """Seconds until the first token."""
        return self.wait + self.prefill

    @property
    def total(self) -> float:
        """What is to be minimised."""
        return self.wait + self.prefill + self.decode + self.others + self.risk


def cost(endpoint: EndpointView, prompt_tokens: int, output_tokens: int) -> Cost:
    """Return what a request of ``prompt_tokens`` tokens costs on ``endpoint`` that answers with ``output_tokens``."""
    pace, there = endpoint.pace, endpoint.requests
    uncached = max(0, prompt_tokens - endpoint.cached_tokens)
    need = prompt_tokens + output_tokens
    batch = min(there, pace.max_batch)
    context = min(endpoint.context, pace.kv_tokens)
    step = pace.step(batch, context)
    each = pace.prompt_token(step)

    prefill = uncached * each + step
    grown = pace.sequence_seconds + pace.context_seconds * (prompt_tokens + output_tokens / 2)
    stretch = 1.0 / (1.0 - min(MOST_BUSY, endpoint.busy))
    decode = output_tokens * (step + grown) * stretch

    # Room comes as requests end, in the time that one stays.
    stays = output_tokens * step * stretch
    overfull = max(0.0, (endpoint.tokens + need) / pace.kv_tokens - 1.0, (there + 1.0) / pace.max_batch - 1.0)
    wait = endpoint.backlog * each + step / 2 + overfull * stays
    if need > pace.kv_tokens:
        wait += NEVER_FITS

    # Each of them is taken to have half of such an answer before it.
    others = batch * (uncached * pace.prefill_seconds + grown * output_tokens / 2)

    failing = min(MOST_FAILING, endpoint.failing)
    spent = wait + prefill + decode
    risk = failing / (1.0 - failing) * (spent + FAILURE_SECONDS)
    return Cost(wait, prefill, decode, others, risk)
