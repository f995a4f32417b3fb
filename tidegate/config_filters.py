"""The part of the configuration that puts filters of one's own into Envoy, in front of the decision."""

import json
import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from tidegate.config_values import Section
from tidegate.faults import fault, shown

MAX_FILTERS: Final = 16
_TYPE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$"


def _type(text: str) -> str:
    if not re.fullmatch(_TYPE, text, re.ASCII):
        raise fault(f"expected a message such as envoy.extensions.filters.http.lua.v3.Lua, not {shown(text)}")
    return text


def _as_json(value: Any) -> str:
    if not isinstance(value, dict):
        raise fault(f"expected a mapping, not {shown(value)}")
    return json.dumps(value, sort_keys=True)


def _as_it_was(text: str) -> Any:
    return json.loads(text)


MessageType = Annotated[str, AfterValidator(_type), Field(max_length=256, json_schema_extra={"pattern": _TYPE})]
Mapping = Annotated[str, BeforeValidator(_as_json), PlainSerializer(_as_it_was), WithJsonSchema({"type": "object"})]
"""A mapping whatever is in it, held as JSON: sections have hashes."""


class HttpFilter(Section):
    """An HTTP filter. What it must say is Envoy's matter, which refuses the whole listener if it is wrong."""

    name: str = Field(
        min_length=1, max_length=256, description="Its name in Envoy, also the namespace of its metadata."
    )
    type: MessageType = Field(description="The message that configures it: `envoy.extensions.filters.http…`.")
    config: Mapping = Field(description="Its content, as Envoy's documentation has it.")
