"""The sections of the configuration that say where Envoy finds out who asks: tokens, certificates, other filters.

What Envoy has found it hands on as *attributes*, which are expressions in CEL. Unlike headers, no client can set them.
"""

import json
import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, model_validator

from tidegate import addresses, regular_file
from tidegate.config_values import CHECKED, AbsolutePath, Section
from tidegate.faults import fault, shown

MAX_JWKS_BYTES: Final = 1_048_576

JWT_FILTER: Final = "envoy.filters.http.jwt_authn"
PAYLOAD: Final = "payload"
"""Envoy's filter that verifies tokens, by whose name it leaves what they say in metadata; and under which key."""

Certificate = Literal["uri_san", "dns_san", "subject"]

_OF_CERTIFICATE: Final = {name: f"connection.{name}_peer_certificate" for name in ("uri_san", "dns_san", "subject")}
_KEY = r"^[^'\\\x00-\x1f\x7f]{1,256}$"


def _key(text: str) -> str:
    if not re.fullmatch(_KEY, text):
        raise fault(f"expected 1 to 256 characters, none of them a quote or a backslash, not {shown(text)}")
    return text


def _uri(text: str) -> str:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    sound = bool(host) and port != 0 and not (parts.username or parts.fragment)
    plain = parts.scheme == "http" and addresses.is_address(host) and addresses.is_loopback(host)
    if not sound or not (parts.scheme == "https" or plain) or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise fault(f"expected a URL that begins with https:// (http:// on a loopback address), not {shown(text)}")
    return text


Key = Annotated[str, AfterValidator(_key), Field(json_schema_extra={"pattern": _KEY})]
Uri = Annotated[str, AfterValidator(_uri), Field(max_length=2048)]


class Jwt(Section):
    """JSON Web Tokens in `Authorization: Bearer`, which Envoy verifies. Where a token is not valid, nobody asks."""

    issuer: str = Field(min_length=1, max_length=1024, description="Who must have issued a token: its claim `iss`.")
    audiences: tuple[str, ...] = Field(
        (), description="Whom it must be meant for (`aud`): one of these, or anybody by default."
    )
    jwks_file: AbsolutePath | None = Field(
        None,
        description="Absolute path of the issuer's public keys (a JSON Web Key Set); read when the configuration is.",
    )
    jwks_uri: Uri | None = Field(
        None, description="Where Envoy fetches them instead, at its start and every ten minutes: `https://…`."
    )
    jwks_ca: AbsolutePath = Field(
        "/etc/ssl/certs/ca-certificates.crt",
        description="Absolute path, on Envoy's machine, of the authorities (PEM) that may have signed that server's "
        "certificate.",
    )
    claim: Key = Field("sub", description="The claim, a text, that says who asks: a tenant's name or identity.")
    _keys: str = PrivateAttr("")

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> "Jwt":
        if (self.jwks_file is None) == (self.jwks_uri is None):
            raise fault("expected either jwks_file or jwks_uri")
        if self.jwks_file is not None and info.context != CHECKED:
            self._keys = _key_set(self.jwks_file)
        return self

    @property
    def keys(self) -> str:
        """The issuer's keys as they were read, JSON; empty where Envoy fetches them."""
        return self._keys


def _key_set(path: str) -> str:
    try:
        text = regular_file.read(path, MAX_JWKS_BYTES)
        said = json.loads(text)
    except OSError as error:
        raise fault(f"expected a JSON Web Key Set; {shown(path)} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        said = None
    keys = said.get("keys") if isinstance(said, dict) and len(text) <= MAX_JWKS_BYTES else None
    # Envoy would refuse the whole listener.
    if not (isinstance(keys, list) and keys and all(isinstance(key, dict) and "kty" in key for key in keys)):
        raise fault(f"expected a JSON Web Key Set, a mapping with a list of keys, in {shown(path)}")
    return text.decode()


class Metadata(Section):
    """Where another filter of Envoy's leaves who asks."""

    namespace: Key = Field(description="The namespace of the dynamic metadata, often the filter's name.")
    path: tuple[Key, ...] = Field(min_length=1, max_length=8, description="The keys that lead to a text in it.")


def attributes(metadata: Metadata | None, jwt: Jwt | None, certificate: Certificate | None) -> tuple[str, ...]:
    """Return the attributes that say who asks; what an earlier one says counts for more."""
    found = []
    if metadata is not None:
        found.append(_of_metadata(metadata.namespace, *metadata.path))
    if jwt is not None:
        found.append(_of_metadata(JWT_FILTER, PAYLOAD, jwt.claim))
    if certificate is not None:
        found.append(_OF_CERTIFICATE[certificate])
    return tuple(found)


def _of_metadata(namespace: str, *path: str) -> str:
    return f"metadata.filter_metadata['{namespace}']" + "".join(f"['{key}']" for key in path)
