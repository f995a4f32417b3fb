"""What pydantic found wrong with a file, said to whoever wrote the file: key by key, and what was expected."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MAX_LINES = 50
MAX_SHOWN = 60
"""Characters of a value that are shown."""

_OWN = "tidegate"
_EXPECTED: Mapping[str, str] = {
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "string_type": "expected text",
    "tuple_type": "expected a list",
    "too_short": "expected at least {min_length} in the list",
    "string_too_short": "expected at least {min_length} characters",
    "string_too_long": "expected at most {max_length} characters",
    "greater_than_equal": "expected at least {ge}",
    "greater_than": "expected more than {gt}",
    "less_than_equal": "expected at most {le}",
    "literal_error": "expected one of {expected}",
}
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}", re.ASCII)


def fault(message: str) -> PydanticCustomError:
    """Return an error for a validator to raise; ``message`` says what was expected, and what was found instead.

    A validator of a whole section may say several things, each in a line of its own that begins with the key.
    """
    return PydanticCustomError(_OWN, "{message}", {"message": message})


def shown(value: Any) -> str:
    """Return ``value`` as a file would have it, cut where it is long."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def lines(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return a line for each fault in a file that is read as ``model``, ``MAX_LINES`` at the most."""
    faults = error.errors()
    # A list with a bad item is also reported as too short; the item's own fault says it better.
    inner = {found["loc"][:depth] for found in faults for depth in range(len(found["loc"]))}
    said = [
        line
        for found in faults
        if not found["loc"] or found["loc"] not in inner
        for line in _say(found, model).splitlines()
    ]
    more = len(said) - MAX_LINES
    return [*said[:MAX_LINES], f"and {more} more"] if more > 0 else said


def _say(found: "ErrorDetails", model: type[BaseModel]) -> str:
    path = _path(found["loc"])
    kind = found["type"]
    if kind == "extra_forbidden":
        return f"{path}: unknown key; expected one of {', '.join(_model_at(found['loc'][:-1], model).model_fields)}"
    if kind == "missing":
        return f"{path}: missing; this key is required"
    if kind == _OWN:
        return f"{path}: {found['msg']}" if path else found["msg"]
    if kind == "model_type":
        expected = f"expected a mapping with the keys {', '.join(_model_at(found['loc'], model).model_fields)}"
    elif kind in _EXPECTED:
        expected = _EXPECTED[kind].format_map({key: _number(value) for key, value in found.get("ctx", {}).items()})
    else:
        expected = found["msg"][:1].lower() + found["msg"][1:]
    message = f"{expected}, not {shown(found['input'])}"
    return f"{path}: {message}" if path else message


def _path(parts: Iterable[int | str]) -> str:
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            path += f".{part}"
        else:
            path += f"[{shown(part)}]"
    return path.removeprefix(".")


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _model_at(path: Sequence[int | str], model: type[BaseModel]) -> type[BaseModel]:
    """Return what stands at ``path`` in a file that is read as ``model``."""
    for part in path:
        if isinstance(part, str):
            annotation = model.model_fields[part].annotation
            model = cast("type[BaseModel]", (get_args(annotation) or (annotation,))[0])
    return model
