"""What stands for tokens in a simulated engine: four bytes each, whatever they say.

A text of n bytes (UTF-8) has ceil(n / 4) tokens, a list of token ids as many as it has ids. A chat is laid out after
Llama 3's template: one token begins it, four name the role of each message, one ends each message, and four name the
role that the answer is to have. Tools and tool calls count as the JSON text they came as; images and other parts that
are no text count nothing.

The answer's tokens are words of three letters with a space: four bytes, too. So a client that sends an answer back in
its next turn sends the very tokens that the engine generated, and finds their blocks in the prefix cache.
"""

import hashlib
import json
import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.scheduling.rng import Rng
from tidegate.simulator.profiles import BLOCK_SIZE

TOKEN_BYTES = 4
_BEGIN = b"<|b>"
_END = b"<|e>"
_TEXT = (
    " the cat ran out and saw its old dog sit far off one hot day but she did not see him"
    " try for our big red bus who can say why you may now use two new tin box lid"
    " yet ask any man how ice met sun oak elm ash fir bay sea fog dew air sky"
)
_SPREAD = 0.7
"""Standard deviation of the logarithm of an answer's length: of answers with a mean of 200 tokens, one in 1,800 is
shorter than 16 and one in 250 longer than 1,000."""


def _tokens(text: str) -> bytes:
    data = text.encode(errors="surrogatepass")
    return data.ljust(-(-len(data) // TOKEN_BYTES) * TOKEN_BYTES, b"\0")


def _header(role: str) -> bytes:
    return b"<|" + role.encode(errors="surrogatepass")[:12].ljust(12, b"|") + b"|>"


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    calls = [json.dumps(message["tool_calls"])] if message.get("tool_calls") else []
    return "".join(text for text in [*texts, *calls] if isinstance(text, str))


def chat_prompt(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> bytes:
    """Return the tokens of a chat, ``TOKEN_BYTES`` bytes each, up to the point where the answer begins."""
    parts = [_BEGIN]
    if tools:
        parts += [_header("system"), _tokens(json.dumps(tools)), _END]
    for message in messages:
        parts += [_header(str(message.get("role"))), _tokens(_content(message)), _END]
    return b"".join([*parts, _header("assistant")])


def plain_prompt(prompt: str | Sequence[int]) -> bytes:
    """Return the tokens of a text or of a list of token ids, ``TOKEN_BYTES`` bytes each."""
    if isinstance(prompt, str):
        return _tokens(prompt)
    return array("I", (token & 0xFFFF_FFFF for token in prompt)).tobytes()


class Answer:
    """The text that a simulated engine generates: ordinary words in an order that its prompt decides."""

    __slots__ = ("_start", "ends", "tokens")

    def __init__(self, prompt: bytes, choice: int, tokens: int, ends: bool) -> None:
        """Choose the words.

        Args:
            prompt: tokens of the prompt; the same prompt gets the same answer.
            choice: which of several answers to this prompt.
            tokens: how many it has.
            ends: the last one is the token that ends the message, which has no text.
        """
        self._start = hashlib.blake2b(prompt, digest_size=2).digest()[0] + 7 * choice
        self.tokens = tokens
        self.ends = ends

    def word(self, at: int) -> str:
        """Return the text of token number ``at``, from 0."""
        if self.ends and at == self.tokens - 1:
            return ""
        start = (self._start + at) * TOKEN_BYTES % len(_TEXT)
        return _TEXT[start : start + TOKEN_BYTES]

    def text(self) -> str:
        """Return the whole text."""
        return "".join(map(self.word, range(self.tokens)))

    def encoded(self) -> bytes:
        """Return its tokens, ``TOKEN_BYTES`` bytes each."""
        return self.text().encode() + (_END if self.ends and self.tokens else b"")


class ToldBlock(bytes):
    """The key of a block that also says what is in it, for an engine that tells what it caches.

    Attributes:
        parent: the key of the block before; empty for none.
        tokens: those of the block.
    """

    parent: bytes
    tokens: bytes


def block_keys(tokens: bytes, *, told: bool = False) -> list[bytes]:
    """Return the key of each full block of ``tokens``: a hash of the block and of the key before it.

    Where they are ``told``, each is a ``ToldBlock``.
    """
    size = BLOCK_SIZE * TOKEN_BYTES
    keys: list[bytes] = []
    key = b""
    for start in range(0, len(tokens) - size + 1, size):
        block, parent = tokens[start : start + size], key
        key = hashlib.blake2b(parent + block, digest_size=16).digest()
        if told:
            key = ToldBlock(key)
            key.parent, key.tokens = parent, block
        keys.append(key)
    return keys


def draw_output_tokens(mean: float, rng: Rng) -> int:
    """Draw how many tokens an answer has before the model ends it: lognormal with ``mean``, 1 or more."""
    # Box and Muller: a standard normal number from two uniform ones.
    normal = math.sqrt(-2.0 * math.log(1.0 - rng.random())) * math.cos(2.0 * math.pi * rng.random())
    return max(1, round(mean * math.exp(_SPREAD * normal - _SPREAD**2 / 2)))
