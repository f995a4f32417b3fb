"""The list of models that an engine says it holds."""

from typing import Final

import msgspec

MAX_BYTES: Final = 1_048_576
MAX_MODELS: Final = 10_000


class NotAListError(ValueError):
    """What was read is no list of models."""


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_decoder: Final = msgspec.json.Decoder(_Models)


def listed(body: bytes) -> frozenset[str]:
    """Return the names in ``body``, an answer to ``GET /v1/models``.

    Raises:
        NotAListError: it is none.
    """
    try:
        models = _decoder.decode(body).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotAListError from None
    return frozenset(model.id for model in models[:MAX_MODELS])
