"""Giving a model back the name that the client knows, in an answer on its way, whatever the pieces that it comes in.

The name is replaced where it stands as the value of a member ``model``, written as engines write it. Inside texts a
quotation mark has a backslash before it, so nothing that a model says is taken for a member.
"""

import json


class Restored:
    """One answer, in which the engine's name of a model becomes the one that was asked for."""

    __slots__ = ("_new", "_old", "_rest")

    def __init__(self, engine: str, asked: str) -> None:
        """Put ``asked`` in the place of ``engine``."""
        self._old = [b'"model"%s%s' % (gap, json.dumps(engine).encode()) for gap in (b":", b": ", b" : ", b" :")]
        self._new = b'"model":' + json.dumps(asked).encode()
        self._rest = b""

    def feed(self, piece: bytes, *, end: bool) -> bytes:
        """Return what of the answer can go on, now that ``piece`` has come, and all of it at its ``end``.

        What may be the beginning of the name is kept for the next one: fewer bytes than a name has.
        """
        data = self._rest + piece
        kept = len(data) if end else self._kept_from(data)
        ready, self._rest = data[:kept], data[kept:]
        for old in self._old:
            ready = ready.replace(old, self._new)
        return ready

    def _kept_from(self, data: bytes) -> int:
        """Return where the first member begins that has not come whole; the length where there is none."""
        at = data.find(b'"', max(0, len(data) - max(map(len, self._old)) + 1))
        while at >= 0:
            tail = data[at:]
            if any(old.startswith(tail) for old in self._old):
                return at
            at = data.find(b'"', at + 1)
        return len(data)
