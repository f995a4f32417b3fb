"""What is no file is an error at once, wherever a path of an operator's is read. A test that fails here would hang."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.authority import Authority
from tests.telemetry.test_decision_log import case
from tidegate import certificates, config, pem, regular_file
from tidegate.certificates import Files, Newest
from tidegate.config_identity import Jwt
from tidegate.discovery import http
from tidegate.runtime import kept
from tidegate.runtime.certificate_files import CertificateFiles, Source
from tidegate.sharing.errors import LinkError
from tidegate.sharing.link import Link
from tidegate.sharing.place import Place
from tidegate.telemetry.decision_log import DecisionLog
from tidegate.tokens import model_file


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Return a link to a pipe that nobody writes into."""
    os.mkfifo(tmp_path / "pipe")
    link = tmp_path / "link"
    link.symlink_to("pipe")
    return link


def test_a_file_is_read_through_links_and_no_further_than_its_bound(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    link = tmp_path / "link"
    link.symlink_to("file")
    assert regular_file.read(link) == b"abcdef"
    assert regular_file.read(str(link), 4) == b"abcde"


def test_a_pipe_a_device_a_folder_and_a_socket_are_no_files(pipe: Path, tmp_path: Path) -> None:
    bound = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(bound))
        for path in (pipe, Path("/dev/zero"), tmp_path, bound):
            before = len([*Path("/proc/self/fd").iterdir()])
            with pytest.raises(OSError, match=r"not a regular file|Is a directory|No such device"):
                regular_file.read(path)
            assert len([*Path("/proc/self/fd").iterdir()]) == before


READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "configuration": (config.load, config.ConfigError),
    "key set": (lambda path: Jwt(issuer="i", jwks_file=str(path)), ValueError),
    "certificate": (lambda path: pem.read(str(path)), pem.CertificateError),
    "context": (lambda path: certificates.client_context(str(path), None, None, ()), pem.CertificateError),
    "token": (lambda path: http.secret(str(path)), OSError),
    "kept": (kept.read, OSError),
    "tokenizer": (model_file.load, model_file.ModelFileError),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_refused_by_whatever_reads(reader: str, pipe: Path) -> None:
    read, raised = READERS[reader]
    with pytest.raises(raised):
        read(pipe)


async def test_authorities_that_are_a_pipe_are_refused_before_they_are_asked_with(pipe: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        await http.session(str(pipe))


@pytest.mark.parametrize("place", [{"password_file": ""}, {"ca": ""}], ids=["password", "authorities"])
async def test_a_connection_to_redis_with_a_pipe_for_a_secret_is_not_made(pipe: Path, place: dict[str, str]) -> None:
    settings = dict.fromkeys(place, str(pipe))
    link = Link(Place("127.0.0.1", 9, 0, tls="ca" in place, **settings), (), 1.0)
    with pytest.raises(LinkError, match="not a regular file"):
        await link.open()


def test_decisions_are_not_written_into_a_pipe(pipe: Path) -> None:
    log = DecisionLog(pipe, 1_000_000)
    log.record(case("q"))
    log.flush()
    assert log.dropped == 1


def test_certificates_that_become_pipes_leave_the_last_ones_in_force_until_good_ones_come(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("a")
    newest = Newest(Files(str(certificate), str(key), str(authority.certificate)))
    followed = CertificateFiles()
    followed.follow([Source("a", (str(certificate), str(key)))], 0.0)
    first = newest.context
    (only,) = followed
    for path in (certificate, key):
        path.unlink()
        os.mkfifo(path)
    assert not newest.look()
    for _ in range(2):
        assert not followed.look(followed.contents(), 0.0)
    assert newest.context is first
    assert "not a regular file" in only.refused
    for path in (certificate, key):
        path.unlink()
    authority.issue("a")
    assert newest.look()
    assert [bool(followed.look(followed.contents(), 0.0)) for _ in range(2)] == [False, True]
    assert only.refused == ""
