"""The beginnings of prompts in the blocks of engines that tell what they cache.

Such a block is told by its token ids, so the prompt's have to be known: from the request itself, or by the model's own
tokenizer and chat template. Where they are not, or not in time, nothing of the prompt counts as cached.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from extproc.body import Chat, ParsedBody
from tidegate.config import Config
from tidegate.scheduling.routing import Route
from tidegate.telemetry.log import event
from tidegate.tokens import chat_template, prefix
from tidegate.tokens.bounded import Tokenizer
from tidegate.tokens.chat_template import ChatTemplateError, Layout
from tidegate.tokens.counter import TokenCounter
from tidegate.tokens.prefix import MAX_BLOCKS, Prefix

CHARACTERS_PER_TOKEN: Final = 6
"""As much of a text is encoded for each token that can matter; English has four and a half."""

logger = logging.getLogger("tidegate.tokens")


class Cut(NamedTuple):
    """How the engines of a pool cut prompts into blocks.

    Attributes:
        block_size: tokens of a block.
        tokenizer: the file of the model's tokenizer; ``None`` where there is none.
    """

    block_size: int
    tokenizer: str | None


class TokenPrefixes:
    """Works out which blocks of its engine a prompt begins with."""

    def __init__(
        self,
        route_of: Callable[[str], Route | None],
        counter: TokenCounter,
        tokenizer_of: Callable[[str], Tokenizer | None],
    ) -> None:
        """Encode in the threads of ``counter``.

        ``route_of`` says which pool serves a model, and whether that is an adapter; ``tokenizer_of`` knows the
        tokenizers that were loaded, by their files.
        """
        self._route_of = route_of
        self._counter = counter
        self._tokenizer_of = tokenizer_of
        self._cuts: dict[str, Cut] = {}
        self._layouts: dict[str, Layout | None] = {}

    def __bool__(self) -> bool:
        """Return whether there is any such pool."""
        return bool(self._cuts)

    def configure(self, config: Config) -> None:
        """Work for the pools of ``config`` from now on; chat templates are read anew."""
        self._layouts = {}
        self._cuts = {
            pool.name: Cut(pool.kv_events.block_size, pool.tokenizer)
            for pool in config.pools
            if pool.kv_events is not None
        }

    async def beginning(self, parsed: ParsedBody, pool: str) -> Prefix | None:
        """Return the beginning of a request's prompt; ``None`` where its pool's engines do not tell what they cache.

        It is empty where the engine's tokens cannot be known. Raises nothing.
        """
        route = self._route_of(parsed.model) if parsed.model else None
        cut = self._cuts.get(pool or (route.pool if route else ""))
        if cut is None:
            return None
        adapter = parsed.model if route is not None and route.adapter else ""
        keys = (adapter, parsed.salt) if parsed.salt else (adapter,)
        given = parsed.given
        if isinstance(given, list):
            return prefix.of_token_ids(given, cut.block_size, keys)
        file = cut.tokenizer
        tokenizer = None if file is None else self._tokenizer_of(file)
        if given is None or file is None or tokenizer is None:
            return prefix.NONE
        ids = await self._counter.apart(lambda: self._ids(given, file, tokenizer, cut.block_size))
        return prefix.of_token_ids(ids or (), cut.block_size, keys)

    def _ids(self, given: str | Chat, file: str, tokenizer: Tokenizer, block_size: int) -> Sequence[int]:
        """Return the ids of as much of a prompt as can matter; raises anything."""
        most = CHARACTERS_PER_TOKEN * MAX_BLOCKS * block_size
        plain = isinstance(given, str)
        text = given if isinstance(given, str) else self._laid_out(given, file)
        ids = tokenizer.ids(text[:most], plain)
        # The last ones before a cut may be others than the engine's, and a special token may follow there.
        return ids if len(text) <= most else ids[:-block_size]

    def _laid_out(self, chat: Chat, file: str) -> str:
        if file not in self._layouts:
            self._layouts[file] = self._layout(file)
        layout = self._layouts[file]
        if layout is None:
            return ""
        tools: Any = msgspec.json.decode(chat.tools) if chat.tools else None
        options = chat.options if isinstance(chat.options, dict) else {}
        return layout(chat.messages, tools or (), options)

    @staticmethod
    def _layout(file: str) -> Layout | None:
        try:
            return chat_template.load(Path(file))
        except ChatTemplateError as error:
            event(logger, "no chat template", level=logging.WARNING, file=file, reason=str(error))
            return None
