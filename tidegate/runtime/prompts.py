"""A prompt's tokens: its texts, what the chat template adds, and what engines' own counts have taught."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

from tidegate.config import Config
from tidegate.runtime.figures import Figures
from tidegate.telemetry.log import event
from tidegate.tokens import model_file
from tidegate.tokens.bounded import Tokenizer
from tidegate.tokens.correction import Corrections
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.counter import TokenCounter
from tidegate.tokens.families import prior
from tidegate.tokens.prompt import Prompt
from tidegate.tokens.templates import added_tokens, template_for

logger = logging.getLogger("tidegate.tokens")

_NO_TEXT = TokenCount(0, CountSource.EXACT)


class PromptCounter:
    """Counts prompts for the pool that will serve them."""

    def __init__(
        self,
        counter: TokenCounter,
        corrections: Corrections,
        figures: Figures,
        pool_of: Callable[[str], str | None],
    ) -> None:
        """Count texts with ``counter`` and correct by ``corrections``.

        ``pool_of`` says which pool serves a model; ``figures`` takes what is counted about counting.
        """
        self._counter = counter
        self._corrections = corrections
        self._figures = figures
        self._pool_of = pool_of
        self._files: dict[str, str] = {}
        self._loaded = dict[str, Tokenizer]()

    async def load(self, config: Config) -> None:
        """Read the tokenizers that ``config`` names; those of the configuration in force stay. Raises nothing."""
        for file in {pool.tokenizer for pool in config.pools if pool.tokenizer}:
            try:
                self._loaded[file] = await asyncio.to_thread(model_file.load, Path(file))
            except model_file.ModelFileError as error:
                # It was in order when the configuration was checked.
                event(logger, "tokenizer lost", level=logging.ERROR, file=file, reason=str(error))
        self._counter.use(self._loaded)

    def configure(self, config: Config) -> None:
        """Count for the pools of ``config`` from now on, with the tokenizers that were loaded."""
        self._files = {pool.name: pool.tokenizer for pool in config.pools if pool.tokenizer}
        wanted = set(self._files.values())
        self._loaded = {file: tokenizer for file, tokenizer in self._loaded.items() if file in wanted}
        self._counter.use(self._loaded)
        self._corrections.keep(pool.name for pool in config.pools)

    def tokenizer(self, file: str) -> Tokenizer | None:
        """Return the tokenizer in ``file``, of those that were loaded."""
        return self._loaded.get(file)

    async def count(self, model: str, prompt: Prompt, pool: str = "") -> TokenCount:
        """Count the tokens of ``prompt`` as ``model`` would, in bounded time; raises nothing but a cancellation.

        ``pool`` is the one that will serve it; empty where the model says which it is.
        """
        pool = pool or self._pool_of(model) or ""
        file = self._files.get(pool)
        counted = await self._count_texts(model, prompt.texts, file) if prompt.texts else _NO_TEXT
        # What is learned is learned of the product, and so is only how far the prior is off.
        tokens = counted.tokens if file else math.ceil(counted.tokens * prior(model))
        if prompt.conversation is not None:
            tokens = max(0, tokens + added_tokens(template_for(model), prompt.conversation))
        if not prompt.texts or counted.source is CountSource.BYTES:
            return TokenCount(tokens + prompt.other_tokens, counted.source)
        uncorrected = None if prompt.other_tokens else tokens
        ratio = self._corrections.ratio(pool, model)
        if ratio is None:
            return TokenCount(tokens + prompt.other_tokens, counted.source, uncorrected)
        return TokenCount(round(tokens * ratio) + prompt.other_tokens, CountSource.LEARNED, uncorrected)

    async def _count_texts(self, model: str, texts: tuple[str, ...], file: str | None) -> TokenCount:
        began = time.monotonic()
        count = await self._counter.count(model, texts, file)
        self._figures.tokens_counted(count.source.value, time.monotonic() - began)
        return count
