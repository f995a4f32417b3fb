import logging
import os
from pathlib import Path

import pytest

from tests.authority import Authority
from tidegate.certificates import Files, Newest, server_context
from tidegate.pem import CertificateError


@pytest.fixture
def files(tmp_path: Path) -> Files:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    return Files(str(certificate), str(key), str(authority.certificate))


def test_a_context_asks_for_certificates_and_speaks_h2_alone(files: Files) -> None:
    context = server_context(files)
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert [one["subject"] for one in context.get_ca_certs()]


@pytest.mark.parametrize("spoiled", range(3))
def test_a_file_that_is_missing_is_named(files: Files, spoiled: int) -> None:
    Path(files[spoiled]).unlink()
    with pytest.raises(CertificateError, match=r"cannot be read \(No such file"):
        server_context(files)


@pytest.mark.parametrize("spoiled", range(3))
def test_a_file_that_is_not_pem_is_named(files: Files, spoiled: int) -> None:
    Path(files[spoiled]).write_text("nothing\n")
    with pytest.raises(CertificateError, match=Path(files[spoiled]).name):
        server_context(files)


def test_a_key_of_another_certificate_is_refused(files: Files, tmp_path: Path) -> None:
    _, other = Authority(tmp_path, "other").issue("other-server")
    with pytest.raises(CertificateError, match="the key is not the certificate's"):
        server_context(files._replace(key=str(other)))


def test_a_key_with_a_passphrase_is_refused_and_not_asked_for(files: Files) -> None:
    from cryptography.hazmat.primitives import serialization as pem  # noqa: PLC0415

    key = pem.load_pem_private_key(Path(files.key).read_bytes(), None)
    secret = pem.BestAvailableEncryption(b"secret")
    Path(files.key).write_bytes(key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, secret))
    with pytest.raises(CertificateError, match="no key without a passphrase"):
        server_context(files)


def test_files_that_change_are_taken_over_at_the_next_look(files: Files, tmp_path: Path) -> None:
    newest = Newest(files)
    first = newest.context, newest.pem
    assert not newest.look()
    Authority(tmp_path).issue("server")
    _later(files)
    assert newest.look()
    assert newest.context is not first[0]
    assert newest.pem.certificate == Path(files.certificate).read_bytes() != first[1].certificate
    assert not newest.look()


def test_files_that_cannot_be_used_leave_the_last_ones_in_force_and_are_one_line(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    newest = Newest(files)
    context = newest.context
    Path(files.key).write_text("half a fi")
    assert not newest.look()
    assert not newest.look()
    assert newest.context is context
    Path(files.certificate).unlink()
    assert not newest.look()
    assert newest.context is context
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


def _later(files: Files) -> None:
    for path in files:
        os.utime(path, ns=(2 * 10**18, 2 * 10**18))
