"""The counter that the request path asks."""

import asyncio
import enum
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from tidegate.tokens import families, vocabulary
from tidegate.tokens.bounded import Tokenizer, count_in_time, encode, recall, work
from tidegate.tokens.cache import CountCache
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.estimate import by_bytes
from tidegate.tokens.slicing import utf8_length

_INLINE: Final = 8_192
"""Work (see ``bounded.work``) that is done on the event loop: 0.3 to 0.6 ms (measured)."""
_LOOKED_UP: Final = 131_072
"""Work that is looked for in the cache on the event loop: 0.2 ms (measured); a chat's history mostly is."""
_PASSED_ON: Final = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)


class Shortfall(enum.Enum):
    """Why an answer rests on the number of bytes alone."""

    COLD = "cold"
    """The counter was not warmed, or was closed."""
    FAILED = "failed"
    """The tokenizer raised an error."""
    SATURATED = "saturated"
    """No thread was free, and enough questions were waiting for one."""
    OVERDUE = "overdue"
    """A thread did not answer in time."""


class CountStats:
    """What a counter has done since it was made."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys((CountSource.EXACT, CountSource.SAMPLED, CountSource.BYTES), 0)
        """Answers, by how they came about."""
        self.shortfalls = dict.fromkeys(Shortfall, 0)
        """Those of them that rest on the number of bytes alone, by the reason."""


T = TypeVar("T")


def _contained(count: Callable[[], T]) -> T | Shortfall:
    """Return what ``count()`` returns; a tokenizer that fails costs the count, and never the request or the thread.

    An error of native code need not be an ``Exception``: a Rust panic is none.
    """
    try:
        return count()
    except _PASSED_ON:
        raise
    except BaseException:  # noqa: BLE001
        return Shortfall.FAILED


class TokenCounter:
    """Counts tokens in bounded time, exactly where the time allows, and always answers.

    A count is never more than the number of UTF-8 bytes. Used from one event loop.
    """

    def __init__(
        self,
        *,
        deadline: float = 0.02,
        patience: float = 0.25,
        threads: int | None = None,
        waiting: int = 16,
        remembered: int = 65_536,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        load: Callable[[str], Callable[[str], int]] = vocabulary.tokenizer,
    ) -> None:
        """Make a counter that knows no vocabulary before ``warm`` is called: until then it answers from the bytes.

        Args:
            deadline: seconds from the question on in which texts are encoded exactly; then the rest is sampled.
            patience: seconds after which a thread is waited for no longer.
            threads: threads that encode; as many as there are processors when ``None``.
            waiting: questions that may wait for a thread.
            remembered: texts whose counts are kept.
            rng: draws samples; the operating system's, which clients cannot predict, when ``None``.
            clock: the time in seconds, monotonic.
            load: returns the function that counts a text's tokens under an encoding.
        """
        self.stats = CountStats()
        self._deadline = deadline
        self._patience = patience
        self._threads = threads or os.cpu_count() or 1
        self._rng = rng or random.SystemRandom()
        self._clock = clock
        self._load = load
        self._cache = CountCache(remembered)
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="tokens")
        self._places = threading.BoundedSemaphore(self._threads + waiting)
        self._tokenizers: dict[str, Tokenizer] = {}
        self._own: dict[str, Tokenizer] = {}

    def warm(self) -> None:
        """Load the vocabularies, and let every thread encode once, because its first time is slow. About a second.

        Raises:
            vocabulary.VocabularyError: a vocabulary is missing.
        """
        tokenizers = {name: Tokenizer(name, self._load(name)) for name in vocabulary.HASHES}
        # They wait for one another, so that each does its part.
        together = threading.Barrier(self._threads)

        def first_time() -> None:
            together.wait(timeout=10)
            for tokenizer in tokenizers.values():
                tokenizer.count("A first sentence, 123 of them.\n")

        for future in [self._executor.submit(first_time) for _ in range(self._threads)]:
            future.result()
        self._tokenizers = tokenizers

    def use(self, tokenizers: Mapping[str, Tokenizer]) -> None:
        """Know ``tokenizers`` from now on, by the names that ``count`` is asked with, and no others besides."""
        self._own = dict(tokenizers)

    def close(self) -> None:
        """End the threads; who still waits for one gets an estimate. Takes as long as the counts under way."""
        self._executor.shutdown(cancel_futures=True)

    async def count(self, model: str, texts: Sequence[str], own: str | None = None) -> TokenCount:
        """Return the tokens of ``texts`` together, as ``model`` would count them; raises nothing but a cancellation.

        Texts that are recalled, or take 8 KB in all, are counted at once. Up to 1 MB a thread encodes them until the
        deadline. What is left, or larger, is sampled. (All of it less for a slow tokenizer.) Where the tokenizer fails
        or no thread is free in time, the number of bytes has to do.

        Args:
            model: the model's name, by which a vocabulary is chosen.
            texts: what to count.
            own: the tokenizer that goes before, if it is among those in ``use``.
        """
        tokenizer = self._own.get(own) if own else None
        count = await self._count(tokenizer or self._tokenizers.get(families.encoding_for(model)), texts)
        if isinstance(count, Shortfall):
            self.stats.shortfalls[count] += 1
            count = TokenCount(by_bytes(texts), CountSource.BYTES)
        self.stats.counts[count.source] += 1
        return count

    async def _count(self, tokenizer: Tokenizer | None, texts: Sequence[str]) -> TokenCount | Shortfall:
        if tokenizer is None:
            return Shortfall.COLD
        until = self._clock() + self._deadline
        recalled = 0
        if work(texts) <= _LOOKED_UP:
            recalled, others = recall(texts, tokenizer, self._cache)
            if not others:
                return TokenCount(recalled, CountSource.EXACT)
            texts = [text for text, _ in others]
            at_once = _INLINE // tokenizer.slowness
            if work(texts) <= at_once and sum(map(utf8_length, texts)) <= at_once:
                return _contained(
                    lambda: TokenCount(recalled + encode(others, tokenizer, self._cache)[0], CountSource.EXACT)
                )
        count = await self._in_a_thread(
            lambda: count_in_time(texts, tokenizer, self._cache, lambda: self._clock() >= until, self._rng)
        )
        return count if isinstance(count, Shortfall) else TokenCount(recalled + count.tokens, count.source)

    async def apart(self, function: Callable[[], T]) -> T | None:
        """Return what ``function`` does, called in a thread that counts; ``None`` where it fails or takes too long."""
        answer = await self._in_a_thread(function)
        return None if isinstance(answer, Shortfall) else answer

    async def _in_a_thread(self, count: Callable[[], T]) -> T | Shortfall:
        if not self._places.acquire(blocking=False):
            return Shortfall.SATURATED
        abandoned = threading.Event()

        def run() -> T | Shortfall:
            try:
                return Shortfall.OVERDUE if abandoned.is_set() else _contained(count)
            finally:
                # Here, and not when the caller stops waiting: until then the question takes up room, or a thread.
                self._places.release()

        try:
            answer = asyncio.wrap_future(self._executor.submit(run))
        except RuntimeError:  # closed
            self._places.release()
            return Shortfall.COLD
        try:
            await asyncio.wait({answer}, timeout=self._patience)
        finally:
            abandoned.set()
        if answer.cancelled():  # by closing
            return Shortfall.COLD
        return answer.result() if answer.done() else Shortfall.OVERDUE
