"""By what a session is known: a header, a cookie or a field of the body, as the configuration names them.

What a client names its session may be a secret: it is hashed before it leaves this module. Whatever is not understood
names no session, and the request goes where one without a session goes.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from extproc.body import ParsedBody

HEADER: Final = "x-session-id"
"""As other routers name it (llm-d's endpoint picker, vLLM's router)."""

COOKIES: Final = "cookie"

Parse = Callable[[bytes], ParsedBody]


def hashed(name: str) -> str:
    """Return what stands for a session of this name; empty for an empty one."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() if name else ""


def of_cookies(header: str, name: str) -> str:
    """Return the value of the cookie ``name`` in a header ``cookie``, as RFC 6265 writes it; empty when there is none.

    Of several the first one counts, as for most servers: a browser puts that of the longest path first.
    """
    for pair in header.split(";"):
        key, _, value = pair.partition("=")
        if key.strip(" \t") == name:
            return value.strip(" \t").removeprefix('"').removesuffix('"')
    return ""


class SessionKeys(NamedTuple):
    """Where to look for a session's name, in this order; empty: not there.

    Attributes:
        header: a header's name, in lower case.
        cookie: a cookie's name.
        field: a field of a JSON body; dots lead into objects, as in ``metadata.user_id``.
    """

    header: str = HEADER
    cookie: str = ""
    field: str = ""

    def of_headers(self, headers: Mapping[str, str]) -> str:
        """Return what stands for the session that the headers name; empty when they name none."""
        name = headers.get(self.header, "")
        if not name and self.cookie and (cookies := headers.get(COOKIES)):
            name = of_cookies(cookies, self.cookie)
        return hashed(name) if name else ""

    def reading(self, parse: Parse) -> Parse:
        """Return ``parse``, which also takes the session out of the body if it may be there."""
        field = self.field
        if not field:
            return parse

        def read(body: bytes) -> ParsedBody:
            return parse(body)._replace(session=of_body(body, field))

        return read


def of_body(body: bytes, field: str) -> str:
    """Return what stands for the session that ``field`` of a JSON body names; empty when none is, or not with a text.

    Of a field that is given twice the last one counts: nothing but the choice of an endpoint hangs on it.
    """
    path = tuple(field.split("."))
    decoder = _decoders.get(path)
    if decoder is None:
        decoder = _decoders[path] = msgspec.json.Decoder(_shape(path))
    try:
        found: Any = decoder.decode(body)
        for _ in path:
            found = found.it
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        return ""
    return hashed(found) if found else ""


def _shape(path: tuple[str, ...]) -> Any:
    """Return the type of an object that has a text at ``path``; the rest of it is passed over unread."""
    inner: Any = str
    for name in reversed(path):
        inner = msgspec.defstruct("At", [("it", inner | None, msgspec.field(default=None, name=name))])
    return inner


_decoders: dict[tuple[str, ...], msgspec.json.Decoder[Any]] = {}
"""One for each path that was ever configured."""
