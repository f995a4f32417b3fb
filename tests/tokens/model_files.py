"""A small ``tokenizer.json``, made for the tests."""

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}", "hello")]
"""``hello`` is one token, and so is a space and ``hello``; everything else is a token per byte."""


def small() -> Tokenizer:
    """Return a byte-level BPE tokenizer of 261 tokens and a special one."""
    pieces = [*pre_tokenizers.ByteLevel.alphabet(), *(first + second for first, second in MERGES)]
    tokenizer = Tokenizer(models.BPE(vocab={piece: number for number, piece in enumerate(pieces)}, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


def write(path: Path, tokenizer: Tokenizer | None = None) -> Path:
    """Write ``tokenizer``, or else ``small()``, to ``path``, and return that."""
    (tokenizer or small()).save(str(path))
    return path
