"""The source ``file``: a list of endpoints, YAML or JSON, in a file that is watched."""

import asyncio
import hashlib
import json
from pathlib import Path

from pydantic import Field, ValidationError

from tidegate import strict_yaml
from tidegate.config import MAX_FILE_BYTES, read
from tidegate.config_discovery import FileSource
from tidegate.config_endpoint import Endpoint
from tidegate.config_values import Engine, Section
from tidegate.discovery.contract import MAX_ENDPOINTS, Failed, Found, Reset, Tell, waited
from tidegate.discovery.static import specified
from tidegate.faults import lines

POLL_SECONDS = 0.5
"""Pause between two looks at the file. Its bytes are compared, not its times: a Kubernetes ConfigMap swaps a link."""

PASS_SECONDS = 30.0
"""How often a file that does not change is said again, which is what its age is told by."""


class _Listed(Endpoint):
    engine: Engine | None = Field(None, description="The dialect of its metrics; by default its pool's.")


class _Listing(Section):
    endpoints: tuple[_Listed, ...] = Field(max_length=MAX_ENDPOINTS, description="All there are.")


class Unusable(Exception):  # noqa: N818  it says what the text is
    """A text is no list of endpoints; the message says why, in one line."""


def parse(text: bytes) -> Reset:
    """Return what ``text`` says: a list of endpoints, or a mapping with the key ``endpoints``.

    Raises:
        Unusable: it is something else.
    """
    if len(text) > MAX_FILE_BYTES:
        raise Unusable(f"too large; expected at most {MAX_FILE_BYTES} bytes")
    try:
        data = strict_yaml.read(text)
    except strict_yaml.NotYaml as error:
        raise Unusable(f"not valid YAML: {error.problem} (line {error.line})") from None
    # A file cut to nothing while it is written anew says nothing; a list that is empty is written [].
    if data is None:
        raise Unusable("empty; expected a list of endpoints, [] for none")
    try:
        listing = _Listing.model_validate_json(json.dumps({"endpoints": data} if isinstance(data, list) else data))
    except ValidationError as error:
        raise Unusable("; ".join(lines(error, _Listing)[:3])) from None
    found: dict[str, Found] = {}
    for listed in listing.endpoints:
        if listed.address in found:
            raise Unusable(f"{listed.address} is given twice; expected each endpoint once")
        found[listed.address] = Found(specified(listed), listed.engine or "")
    return Reset(found)


class Watched:
    """What a file says, judged once its bytes have stood still for one look; the first one is judged at once."""

    def __init__(self) -> None:
        self._seen: bytes | None = None
        self._judged: bytes | None = None

    def look(self, text: bytes, *, again: bool) -> Reset | Failed | None:
        """Return what ``text`` says, ``None`` when it is as it was and need not be said ``again``, or not still yet."""
        digest = hashlib.sha256(text).digest()
        still = self._seen is None or digest == self._seen
        self._seen = digest
        if not still or (digest == self._judged and not again):
            return None
        self._judged = digest
        try:
            return parse(text)
        except Unusable as error:
            return Failed(str(error))

    def failed(self) -> None:
        """Take note that it could not be read: whatever comes back is judged."""
        self._judged = None


class File:
    """Follows the file of ``settings``."""

    def __init__(self, settings: FileSource) -> None:
        self._path = Path(settings.path)

    async def run(self, tell: Tell, asked: asyncio.Event) -> None:
        """Tell what the file says, again whenever it changes."""
        clock = asyncio.get_running_loop().time
        watched = Watched()
        told_at, again, unreadable = clock(), False, ""
        while True:
            try:
                text = await asyncio.to_thread(read, self._path)
            except OSError as error:
                watched.failed()
                reason = f"cannot be read ({error.strerror})"
                if reason != unreadable or again:
                    tell(Failed(reason))
                unreadable = reason
            else:
                unreadable = ""
                # In a thread: ten thousand endpoints take a while to parse.
                if news := await asyncio.to_thread(watched.look, text, again=again):
                    told_at = clock()
                    tell(news)
            again = await waited(asked, POLL_SECONDS) or clock() - told_at >= PASS_SECONDS
