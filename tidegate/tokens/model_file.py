"""A model's own ``tokenizer.json``, read by Hugging Face's tokenizers, which is an optional dependency."""

import hashlib
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tidegate import regular_file
from tidegate.tokens.bounded import Tokenizer

MAX_BYTES: Final = 268_435_456
"""Largest file that is read; those of today's models have 1 to 35 MB."""

SLOWNESS: Final = 4
"""How many times as long as tiktoken it takes for a text: 3 to 4 MB a second against 10 to 24 (measured)."""

_INSTALL: Final = "install tidegate[tokenizers]"
_PASSED_ON: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)


class ModelFileError(Exception):
    """A ``tokenizer.json`` cannot be used; the message says why, or what to install."""


def load(path: Path) -> Tokenizer:
    """Return the tokenizer in the file at ``path``. Takes 20 ms to a second and, for large vocabularies, 240 MB.

    What it counts is the text alone, without the special tokens that begin or end a prompt. A special token that is
    written out in the text counts as one, as it does in the engine.

    Raises:
        ModelFileError: see there.
    """
    # One text at a time leaves nothing to do in parallel, and it warns of forks once it has had threads of its own.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        library = importlib.import_module("tokenizers")
    except ImportError as error:
        raise ModelFileError(f"the package tokenizers, which reads it, is missing; {_INSTALL}") from error
    data = _read(path)
    try:
        tokenizer = library.Tokenizer.from_str(data.decode())
        # Files made for training or for embeddings often say both, and would make every count the same.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        _ids(tokenizer, "A first sentence, 123 of them.\n")
    except _PASSED_ON:
        raise
    except BaseException as error:  # its native code may panic, which is no Exception
        raise ModelFileError("it is no tokenizer.json that the package tokenizers understands") from error
    # The name stands in the cache's keys, so it changes with the contents.
    return Tokenizer(
        hashlib.sha256(data).hexdigest()[:16],
        lambda text: len(_ids(tokenizer, text)),
        SLOWNESS,
        lambda text, special: _ids(tokenizer, text, special=special),
    )


def _read(path: Path) -> bytes:
    try:
        data = regular_file.read(path, MAX_BYTES)
    except OSError as error:
        raise ModelFileError(f"it cannot be read ({error.strerror})") from error
    if len(data) > MAX_BYTES:
        raise ModelFileError(f"it is larger than {MAX_BYTES} bytes")
    return data


def _ids(tokenizer: Any, text: str, *, special: bool = False) -> Sequence[int]:
    clean = text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
    # Never encode(): that one keeps the interpreter to itself until it is done.
    (encoding,) = tokenizer.encode_batch_fast([clean], add_special_tokens=special)
    ids: Sequence[int] = encoding.ids
    return ids
