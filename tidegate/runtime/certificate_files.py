"""Certificates on files, followed: what is in force of each, and what of it is in the way of something newer.

What is in the files is compared, not their times, so that a link that is swapped (as Kubernetes does) counts. It has to
stand still from one look to the next, so that half a file is not judged, and a certificate is not taken with the key of
the one before. What cannot be used leaves the last good in force.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tidegate import pem
from tidegate.pem import Authorities, CertificateError, Identity
from tidegate.telemetry.log import event

logger = logging.getLogger("tidegate.certificates")

WARNING_SECONDS: Final = 14 * 86_400.0
WARNING_SHARE: Final = 0.2
"""Their end is near when less than both is left of them: a certificate for a day has another idea of soon."""

Content = tuple[bytes, ...] | str
"""What is in the files of one source, or why they cannot be read."""


class Source(NamedTuple):
    """One certificate with its key, or the authorities of one file.

    Attributes:
        name: the key in the configuration that says where it is.
        files: the certificate and the key, or the authorities alone.
        secret: the name under which Envoy is sent it; empty where it is not.
    """

    name: str
    files: tuple[str, ...]
    secret: str = ""


class Standing(NamedTuple):
    """How it stands with one source.

    Attributes:
        name: as in ``Source``.
        ends: when what is in force ends (seconds since 1970); ``None`` when nothing is.
        refused: why what is in the files now is not; empty when it is.
    """

    name: str
    ends: float | None
    refused: str


class Followed:
    """One source, and what is in force of it."""

    def __init__(self, source: Source, now: float) -> None:
        """Read the files; ``now`` is the time (seconds since 1970)."""
        self.source = source
        self.value: Identity | Authorities | None = None
        self.refused = ""
        self._said = ""
        self._judged: Content | None = None
        self._seen: Content | None = None
        self._judge(content(source), now)

    def look(self, found: Content, now: float) -> bool:
        """Take in what is ``found`` in the files now; return whether something else is in force than before."""
        stands_still, self._seen = found == self._seen, found
        if found == self._judged or not (stands_still or self.value is None):
            return False
        before, refused = self.value, self.refused
        self._judge(found, now)
        if self.value == before:
            if refused and not self.refused:
                said = "certificates can be used again, and are those in force"
                event(logger, said, name=self.source.name, serial=self._serial())
            return False
        event(logger, "certificates are taken over", name=self.source.name, serial=self._serial())
        return True

    def warn(self, now: float) -> None:
        """Say once that the end of what is in force is near, and once that it has come."""
        if self.value is None:
            return
        begins, ends = self.value.validity
        soon = min(WARNING_SECONDS, WARNING_SHARE * (ends - begins))
        state = f"over {ends}" if ends <= now else f"near {ends}" if ends - now < soon else ""
        if state and state != self._said:
            hours, over = round((ends - now) / 3600, 1), ends <= now
            level = logging.ERROR if over else logging.WARNING
            said = "a certificate has expired" if over else "a certificate expires soon"
            event(logger, said, level=level, name=self.source.name, serial=self._serial(), hours_left=hours)
        self._said = state

    def standing(self) -> Standing:
        """Return how it stands."""
        return Standing(self.source.name, None if self.value is None else self.value.validity.ends, self.refused)

    def _judge(self, found: Content, now: float) -> None:
        self._judged = self._seen = found
        try:
            value = self._parsed(found, now)
        except CertificateError as error:
            self.refused = str(error)
            said = "certificates are not taken over, the last good ones go on"
            event(logger, said, level=logging.ERROR, name=self.source.name, reason=self.refused)
            return
        self.value, self.refused = value, ""

    def _parsed(self, found: Content, now: float) -> Identity | Authorities:
        if isinstance(found, str):
            raise CertificateError(found)
        files = self.source.files
        value: Identity | Authorities
        if len(found) == 1:
            value = pem.parsed_authorities(found[0], files[0], now)
        else:
            value = pem.parsed_identity(found[0], found[1], files[0], files[1])
        # One that is over is better than nothing: whoever comes is told why.
        if self.value is not None and value.validity.ends <= now < self.value.validity.ends:
            raise CertificateError(f"{files[0]} has expired")
        return value

    def _serial(self) -> str | None:
        return self.value.serial if isinstance(self.value, Identity) else None


class CertificateFiles:
    """All that are followed."""

    def __init__(self) -> None:
        self._followed: dict[Source, Followed] = {}

    def __iter__(self) -> Iterator[Followed]:
        return iter(self._followed.values())

    def follow(self, sources: Iterable[Source], now: float) -> None:
        """Follow exactly ``sources``; those that are new are read now."""
        before = self._followed
        self._followed = {source: before.get(source) or Followed(source, now) for source in sources}

    def contents(self) -> Sequence[tuple[Source, Content]]:
        """Read all files. May be called in a thread of its own."""
        return [(source, content(source)) for source in tuple(self._followed)]

    def look(self, contents: Iterable[tuple[Source, Content]], now: float) -> list[Source]:
        """Take in ``contents``; return the sources of which something else is in force than before."""
        changed = []
        for source, found in contents:
            followed = self._followed.get(source)
            if followed is not None and followed.look(found, now):
                changed.append(source)
        for followed in self:
            followed.warn(now)
        return changed


def content(source: Source) -> Content:
    """Return what is in the files of ``source``."""
    try:
        return tuple(pem.read(path) for path in source.files)
    except CertificateError as error:
        return str(error)
