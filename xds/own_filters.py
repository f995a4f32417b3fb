"""Filters that the configuration puts in front of the decision."""

import json
from typing import Final

from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager import v3 as hcm
from envoy_data_plane.google.protobuf import Any, Struct

from tidegate.config import Config

TYPE_URLS: Final = "type.googleapis.com/"

TYPED_STRUCT: Final = f"{TYPE_URLS}xds.type.v3.TypedStruct"
"""A message as a mapping and the name of its type, of which Envoy makes the message itself: we know few of its types.
``string type_url = 1; google.protobuf.Struct value = 2``."""


def own_filters(config: Config) -> list[hcm.HttpFilter]:
    """Return the filters, in order."""
    return [
        hcm.HttpFilter(name=one.name, typed_config=_typed_struct(one.type, one.config))
        for one in config.listener.filters
    ]


def _typed_struct(message: str, content: str) -> Any:
    fields = ((1, f"{TYPE_URLS}{message}".encode()), (2, bytes(Struct.from_dict(json.loads(content)))))
    value = b"".join(bytes([number << 3 | 2]) + _length(len(field)) + field for number, field in fields)
    return Any(type_url=TYPED_STRUCT, value=value)


def _length(number: int) -> bytes:
    """Return ``number`` as protobuf writes lengths."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])
