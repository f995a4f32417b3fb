"""Counting as much as the time allows: recalled, then encoded slice by slice, then sampled."""

import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tidegate.tokens.cache import CountCache
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.estimate import by_sample
from tidegate.tokens.slicing import LIMIT, slices

LARGE: Final = 1_048_576
"""Work (see ``work``) beyond which encoding everything is not tried: it would miss any deadline of a request."""
_TEXT_WORK: Final = 64
"""Starting on a text takes about as long as encoding this many bytes of it (measured)."""
_REMEMBERED: Final = 32
"""Characters from which on a text is remembered: a shorter one is encoded about as fast as it is looked up."""


def no_ids(text: str, special: bool) -> Sequence[int]:  # noqa: ARG001
    """Return the ids that are known: none."""
    return ()


class Tokenizer(NamedTuple):
    """What counts tokens, and how fast.

    Attributes:
        name: its name in the cache's keys, at most 16 characters of ASCII.
        count: counts a text's tokens; may raise anything.
        slowness: how many times as long as tiktoken it takes. It is given so much less to do at a time, and samples
            are so much smaller, which keeps all bounds in time.
        ids: returns a text's token ids, with those around it that begin or end a prompt where asked; may raise
            anything. Only a model's own has any.
    """

    name: str
    count: Callable[[str], int]
    slowness: int = 1
    ids: Callable[[str, bool], Sequence[int]] = no_ids


class Uncounted(NamedTuple):
    """A text to encode, and the key to remember its count under, if any."""

    text: str
    key: bytes | None


def work(texts: Sequence[str]) -> int:
    """Return what encoding ``texts`` takes at least, as a number of bytes; in constant time for each of them."""
    return sum(map(len, texts)) + _TEXT_WORK * len(texts)


def never() -> bool:
    """Say that there is time left."""
    return False


def recall(
    texts: Sequence[str], tokenizer: Tokenizer, cache: CountCache, expired: Callable[[], bool] = never
) -> tuple[int, list[Uncounted]]:
    """Return the tokens of the texts that are in the cache, and the other texts."""
    tokens = 0
    others: list[Uncounted] = []
    for text in texts:
        if not _REMEMBERED <= len(text) <= LARGE or expired():
            others.append(Uncounted(text, None))
            continue
        key = cache.key(tokenizer.name, text)
        count = cache.get(key)
        if count is None:
            others.append(Uncounted(text, key))
        else:
            tokens += count
    return tokens, others


def encode(
    texts: Sequence[Uncounted], tokenizer: Tokenizer, cache: CountCache, expired: Callable[[], bool] = never
) -> tuple[int, list[str]]:
    """Return the tokens of as many texts as there is time for, and what remains; remember what was counted."""
    tokens = 0
    for number, (text, key) in enumerate(texts):
        of_text = done = 0
        for piece in slices(text, LIMIT // tokenizer.slowness):
            if expired():
                return tokens + of_text, [text[done:], *(other.text for other in texts[number + 1 :])]
            of_text += tokenizer.count(piece)
            done += len(piece)
        if key is not None:
            cache.put(key, of_text)
        tokens += of_text
    return tokens, []


def count_in_time(
    texts: Sequence[str], tokenizer: Tokenizer, cache: CountCache, expired: Callable[[], bool], rng: random.Random
) -> TokenCount:
    """Count ``texts`` exactly until ``expired()``, which is asked between slices, and the rest from a sample.

    It may be late by what one slice takes and then the sample: 5 ms and 20 ms, 45 ms at worst.

    Raises:
        BaseException: anything that the tokenizer raises.
    """
    recalled, others = recall(texts, tokenizer, cache, expired)
    rest = [text for text, _ in others]
    encoded = 0
    if work(rest) <= LARGE // tokenizer.slowness:
        encoded, rest = encode(others, tokenizer, cache, expired)
    if not rest:
        return TokenCount(recalled + encoded, CountSource.EXACT)
    sampled = by_sample(rest, tokenizer.count, rng, tokenizer.slowness)
    return TokenCount(recalled + encoded + sampled, CountSource.SAMPLED)
