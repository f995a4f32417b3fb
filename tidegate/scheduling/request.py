"""A request, as far as a decision needs to know it."""

from typing import NamedTuple

from tidegate.scheduling.subset import Subset
from tidegate.tokens.count import TokenCount


class InferenceRequest(NamedTuple):
    """One request to decide on.

    Attributes:
        id: unique for all time; becomes the id of its reservation.
        api: the name of the API it came by, such as ``chat_completions``.
        model: the model's name as the engine is asked for it, which is as the client wrote it unless a route rewrites
            it; empty when it named none.
        prompt: tokens to prefill, as counted.
        max_output_tokens: the most tokens the client will take; ``None`` when it set no limit.
        stream: whether the answer is streamed.
        pool: the pool that is to serve it, whatever its model; empty when the model says.
        prefix: hashes of the blocks that the prompt begins with, each standing for all before it as well: 64-bit
            numbers. Empty when they were not asked for.
        block_tokens: tokens of one block.
        session: what it has in common with other requests that are best served at one place; empty when nothing.
        adapter: the LoRA adapter it needs, which is then its model's name; empty when none.
        output_tokens: how many tokens the answer will probably have; ``None`` when nobody has said so yet.
        among: it may go only to endpoints that are in all of these.
        route: the route by which it goes where it goes; empty where the models' patterns said.
        fingerprint: the same for the same request sent again; 0 where nobody wants to know.
    """

    id: str
    api: str
    model: str
    prompt: TokenCount
    max_output_tokens: int | None = None
    stream: bool = False
    pool: str = ""
    prefix: tuple[int, ...] = ()
    block_tokens: int = 0
    session: str = ""
    adapter: str = ""
    output_tokens: int | None = None
    among: tuple[Subset, ...] = ()
    route: str = ""
    fingerprint: int = 0

    def placed(self, pool: str, adapter: str, output_tokens: int) -> "InferenceRequest":
        """Return the request with what the decision found out first; written out because that is faster."""
        return InferenceRequest(
            self.id,
            self.api,
            self.model,
            self.prompt,
            self.max_output_tokens,
            self.stream,
            pool,
            self.prefix,
            self.block_tokens,
            self.session,
            adapter,
            output_tokens,
            self.among,
            self.route,
            self.fingerprint,
        )

    @property
    def kind(self) -> str:
        """What requests with answers of about the same length share."""
        return f"{self.model} {self.api}"
