"""The beginning of a prompt as a chain of hashes, by which the like of it is found again.

The texts of a request are laid end to end and cut into blocks of ``BLOCK_BYTES``; each block's hash covers all before
it too. It is the clients' text that is hashed and not the engine's tokens, which nobody here may know in time: a block
stands for about as many tokens as its share of the text. Engines drop cached blocks at another granularity, so a match
says what is probably cached. Where the engine tells what it caches (see ``tidegate.engines.kv_events``), the prompt's
token ids are worked out in spite of what that costs, and the blocks are the engine's own.

A key, or several, goes into the first hash: prompts of other models, tools or, where asked for, tenants have nothing in
common.
"""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

BLOCK_BYTES = 512
"""Bytes of UTF-8 that a block has: about 128 tokens of English."""

MAX_BLOCKS = 1024
"""The most blocks that are hashed, half a megabyte, or 131,072 tokens as in the Go endpoint picker. 4 kB take 20 us,
and more than half a megabyte takes 2 ms (measured)."""

SEPARATOR = "\x00"
"""Between two texts, so that where one ends is part of what is hashed."""


class Prefix(NamedTuple):
    """A prompt's beginning.

    Attributes:
        hashes: 64-bit numbers, one for each block; only whole blocks have one.
        block_tokens: tokens that a block stands for.
    """

    hashes: tuple[int, ...] = ()
    block_tokens: int = 0


NONE = Prefix()


def of_texts(texts: Sequence[str], tokens: int, keys: Iterable[str] = ()) -> Prefix:
    """Return the beginning of a prompt that has these texts and so many tokens.

    Args:
        texts: in the order of the prompt.
        tokens: of the whole prompt, which are taken to be spread evenly over it.
        keys: what the prompt shares with all that can be like it: the model, the tools, the tenant.
    """
    characters = sum(map(len, texts)) + len(texts)
    beginning = _beginning(texts, MAX_BLOCKS * BLOCK_BYTES)
    data = beginning.encode("utf-8", "surrogatepass")
    if len(data) < BLOCK_BYTES or tokens <= 0:
        return NONE
    # What lies behind is taken to have as many bytes for each character; encoding it would cost more than the hashes.
    size = len(data) * characters / len(beginning)
    return Prefix(chain(root(keys), data, BLOCK_BYTES), max(1, round(tokens * BLOCK_BYTES / size)))


def of_token_ids(ids: Sequence[int], block_tokens: int, keys: Iterable[str] = ()) -> Prefix:
    """Return the beginning of a prompt that is given as token ids, in the engine's own blocks of ``block_tokens``."""
    try:
        hashes = chain_ids(root(keys), ids, block_tokens)
    except OverflowError:  # not what an engine takes for an id
        return NONE
    return Prefix(hashes, block_tokens) if hashes else NONE


def _beginning(texts: Sequence[str], most: int) -> str:
    """Return at most ``most`` characters of the texts, one after the other."""
    ends = list(accumulate(map(len, texts)))
    last = bisect_left(ends, most)
    whole = SEPARATOR.join(texts[:last])
    if last == len(texts):
        return whole + SEPARATOR
    return (whole + SEPARATOR if last else "") + texts[last][: most - len(whole)]


def root(keys: Iterable[str]) -> int:
    """Return what the first hash of a chain stands on."""
    text = "".join(f"{key}{SEPARATOR}" for key in keys)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def chain(above: int, data: bytes, block: int) -> tuple[int, ...]:
    """Return a hash for each of the first whole blocks of ``block`` bytes, the first of which follows ``above``."""
    digest = above.to_bytes(8, "big")
    hashes = []
    for end in range(block, min(len(data), MAX_BLOCKS * block) + 1, block):
        digest = hashlib.blake2b(digest + data[end - block : end], digest_size=8).digest()
        hashes.append(int.from_bytes(digest, "big"))
    return tuple(hashes)


def chain_ids(above: int, ids: Sequence[int], block_tokens: int) -> tuple[int, ...]:
    """Return a hash for each of the first whole blocks of ``block_tokens`` token ids, likewise.

    Raises:
        OverflowError: one of them is below zero or has more than 32 bits.
    """
    blocks = min(len(ids) // block_tokens, MAX_BLOCKS)
    return chain(above, array("I", ids[: blocks * block_tokens]).tobytes(), 4 * block_tokens)
