"""Certificates in a folder as Kubernetes mounts them: links into one that is swapped whole."""

import itertools
from pathlib import Path

from tests.authority import Authority
from tidegate import pem


class Volume:
    """A mounted secret with ``tls.crt``, ``tls.key`` and ``ca.crt``."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.certificate, self.key, self.ca = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self._folder, self._authority = folder, authority
        self._versions = itertools.count(1)
        folder.mkdir()
        for path in (self.certificate, self.key, self.ca):
            path.symlink_to(Path("..data", path.name))
        self.serial = self.renew()

    def renew(self, **spoiled: bytes) -> str:
        """Swap in a new certificate, or what is ``spoiled`` in place of a part of it; return its serial number."""
        version = self._folder / f"..{next(self._versions)}"
        version.mkdir()
        certificate, key = self._authority.issue(f"issued-{self._folder.name}")
        content = {
            "crt": certificate.read_bytes(),
            "key": key.read_bytes(),
            "ca": self._authority.certificate.read_bytes(),
            **spoiled,
        }
        for path, part in ((self.certificate, "crt"), (self.key, "key"), (self.ca, "ca")):
            (version / path.name).write_bytes(content[part])
        swapped = self._folder / "..new"
        swapped.symlink_to(version.name)
        swapped.rename(self._folder / "..data")
        if not spoiled:
            self.serial = pem.identity(str(self.certificate), str(self.key)).serial
        return self.serial
