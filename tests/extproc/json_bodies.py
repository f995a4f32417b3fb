"""Bodies for property tests: arbitrary bytes, arbitrary JSON, and requests with a field or two gone wrong."""

import json
from typing import Any

from hypothesis import strategies as st

from extproc.body import ParsedBody
from extproc.errors import ApiError

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    # Unpaired surrogates included: Python's parser takes them, and so do the engines.
    st.text(st.characters(codec=None), max_size=8),
    st.sampled_from(["100", "", "m", "text", "image_url", 0, -1, 1e999, 2**70]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["role", "content", "name", "type", "text", "tool_calls", "function", "arguments", "data"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


def requests(*fields: str) -> st.SearchStrategy[bytes]:
    """Return bodies with some of ``fields``, each with a plausible or an arbitrary value, or no JSON at all."""
    plausible = st.sampled_from(
        ["m", "hello", ["hello"], [1, 2], [[1], [2, 3]], 5, [{"role": "user", "content": "hi"}]]
    )
    objects = st.fixed_dictionaries({}, optional={field: st.one_of(plausible, values) for field in fields})
    return st.one_of(st.binary(max_size=64), objects.map(_written), values.map(_written), st.text().map(str.encode))


def _written(value: Any) -> bytes:
    return json.dumps(value).encode()


PYTHON_WORDS = ("<class", "NoneType", "dict", "`str`", "`int`", "`object`", "Traceback", "msgspec", "0x")


def is_sound(parsed: ParsedBody | ApiError, *, named: bool = True) -> bool:
    """Whether a parse's outcome is one of the two that are allowed, and within its bounds.

    ``named`` says whether a model must be.
    """
    if isinstance(parsed, ApiError):
        clean = not any(word in parsed.message for word in PYTHON_WORDS)
        return parsed.status == 400 and clean and bool(parsed.body())
    limit = parsed.max_output_tokens
    for text in (parsed.model, *parsed.texts):
        text.encode()
    return (
        int(named) <= len(parsed.model) <= 256
        and parsed.known_tokens >= 0
        and parsed.overhead_tokens >= 0
        and (limit is None or 0 <= limit <= 10_000_000)
        and parsed.choices >= 1
    )
