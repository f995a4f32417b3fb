"""A decision as one line of JSON, and back.

A line holds figures and names, never a prompt: what was hashed of it is left out too, because the candidates already
say what they have of it in their caches.
"""

from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

import msgspec

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.explain import Case
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.request import InferenceRequest

VERSION = 1
"""Of the format; a line of another is not read."""

Tuple = TypeVar("Tuple", bound=NamedTuple)

MAX_LINE_BYTES = 4_194_304
"""The longest line that is read: a case of 10,000 candidates has about 4 MB."""


class MalformedRecordError(Exception):
    """A line is not a decision record."""


def encode(case: Case, decided_at: float) -> bytes:
    """Return ``case`` as a line, with its end; ``decided_at`` is in Unix seconds."""
    record = {
        "version": VERSION,
        "id": case.request.id,
        "decided_at": decided_at,
        "addresses": case.addresses,
        "policy": asdict(case.policy),
        "request": case.request._replace(prefix=())._asdict(),
        "members": case.members,
        "draws": case.draws,
        "parts": case.parts,
        "candidates": [endpoint._asdict() for endpoint in case.candidates],
    }
    return msgspec.json.encode(record) + b"\n"


def decode(line: bytes) -> Case:
    """Return the case that ``line`` tells of.

    Fields that are not known, which a later release wrote, are passed over.

    Raises:
        MalformedRecordError: it tells of none.
    """
    if len(line) > MAX_LINE_BYTES:
        raise MalformedRecordError("the line is too long")
    try:
        record = msgspec.json.decode(line, type=dict[str, Any])
        if record.get("version") != VERSION:
            raise MalformedRecordError(f"expected a record of version {VERSION}")
        return Case(
            _made(InferenceRequest, record["request"]),
            msgspec.convert(record["policy"], Policy),
            msgspec.convert(record["members"], int),
            tuple(_made(EndpointView, fields) for fields in record["candidates"]),
            msgspec.convert(record["draws"], tuple[float, ...]),
            msgspec.convert(record["addresses"], tuple[str, ...]),
            msgspec.convert(record.get("parts", ()), tuple[int, ...]),
        )
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedRecordError(f"not a decision record: {error}") from None


def _made(kind: type[Tuple], fields: dict[str, Any]) -> Tuple:
    """Return what these are the fields of; one that is not given, by an earlier release, is unknown."""
    unknown = kind._field_defaults
    return msgspec.convert([fields[name] if name in fields else unknown[name] for name in kind._fields], kind)
