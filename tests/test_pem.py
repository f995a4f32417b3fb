"""What is in PEM files, and what is said where it cannot be used."""

import contextlib
import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.authority import Authority
from tidegate import pem
from tidegate.pem import CertificateError

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
UNENDED = b"-----BEGIN X509 CRL-----\nAAAA\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def same_key(one: bytes, other: bytes) -> bool:
    """Tell whether two texts hold the same key, in whichever form."""
    form = serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return load_pem_private_key(one, None).private_bytes(*form) == load_pem_private_key(other, None).private_bytes(
        *form
    )


def test_a_pair_is_read_with_its_validity_and_its_serial_number(authority: Authority) -> None:
    certificate, key = authority.issue_until("a", NOW - DAY, NOW + DAY)
    found = pem.identity(str(certificate), str(key))
    assert found.certificate == certificate.read_bytes()
    assert same_key(found.key, key.read_bytes())
    assert found.validity == ((NOW - DAY).timestamp(), (NOW + DAY).timestamp())
    assert found.validity.holds(NOW.timestamp())
    assert not found.validity.holds((NOW + 2 * DAY).timestamp())
    assert int(found.serial, 16) > 0


def test_a_chain_ends_with_the_first_of_it(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue_until("a", NOW - DAY, NOW + 3 * DAY)
    above, _ = authority.issue_until("b", NOW - DAY, NOW + DAY)
    chain = tmp_path / "chain.pem"
    chain.write_bytes(certificate.read_bytes() + above.read_bytes())
    assert pem.identity(str(chain), str(key)).validity.ends == (NOW + DAY).timestamp()


def test_of_authorities_the_first_to_end_counts_of_those_that_have_not(authority: Authority, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    parts = [authority.issue_until(str(days), NOW - 9 * DAY, NOW + days * DAY)[0] for days in (-1, 5, 2)]
    bundle.write_bytes(b"# ours\n" + b"".join(part.read_bytes() for part in parts))
    assert pem.authorities(str(bundle)).validity.ends == (NOW + 2 * DAY).timestamp()
    later = (NOW + 9 * DAY).timestamp()
    assert pem.authorities(str(bundle), later).validity.ends == (NOW + 5 * DAY).timestamp()


def test_a_key_is_printed_with_nothing_that_holds_it(authority: Authority) -> None:
    certificate, key = authority.issue("a")
    secret = key.read_text().splitlines()[1]
    assert secret not in repr(pem.identity(str(certificate), str(key)))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda certificate, _: certificate.write_text("nothing"), "there is no certificate"),
        (lambda certificate, _: certificate.write_bytes(certificate.read_bytes()[:-80]), "without its end"),
        (lambda certificate, _: certificate.write_bytes(certificate.read_bytes() + UNENDED), "without its end"),
        (lambda certificate, _: certificate.write_bytes(UNENDED + certificate.read_bytes()), "without its end"),
        (lambda _, key: key.write_bytes(key.read_bytes() + UNENDED), "without its end"),
        (lambda certificate, _: certificate.write_bytes(certificate.read_bytes() * 2000), "is too large"),
        (lambda certificate, _: certificate.unlink(), r"cannot be read \(No such file"),
        (lambda _, key: key.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n"), "no key without a passphrase"),
        (lambda _, key: (key.unlink(), key.mkdir()), r"cannot be read \(Is a directory"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(
    authority: Authority, spoil: Callable[[Path, Path], object], said: str
) -> None:
    certificate, key = authority.issue("a")
    spoil(certificate, key)
    with pytest.raises(CertificateError, match=said) as caught:
        pem.identity(str(certificate), str(key))
    assert str(certificate) in str(caught.value) or str(key) in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(0, 900), byte=st.binary(min_size=0, max_size=3))
def test_whatever_is_in_the_files_is_used_or_refused(authority: Authority, at: int, byte: bytes) -> None:
    certificate, key = authority.issue("a")
    for path in (certificate, key):
        content = path.read_bytes()
        path.write_bytes(content[:at] + byte + content[at + 1 :])
        with contextlib.suppress(CertificateError):
            assert same_key(pem.identity(str(certificate), str(key)).key, key.read_bytes())
        path.write_bytes(content)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(data=st.data())
def test_of_a_file_with_anything_else_in_it_certificates_alone_are_passed_on(
    authority: Authority, data: st.DataObject
) -> None:
    certificate, key = authority.issue("a")
    chain, secret = certificate.read_bytes(), key.read_bytes()
    others = st.sampled_from([secret, b"# a comment\n", b"subject=CN = a\n", b"\n", _revoked_nothing()])
    around = [data.draw(st.lists(others, max_size=3)) for _ in range(2)]
    certificate.write_bytes(b"".join([*around[0], chain, *around[1]]))
    found = pem.identity(str(certificate), str(key))
    assert found.certificate == chain
    trusted = pem.authorities(str(certificate)).pem
    assert trusted.count(b"BEGIN CERTIFICATE") == chain.count(b"BEGIN CERTIFICATE")
    assert trusted.count(b"BEGIN X509 CRL") == (around[0] + around[1]).count(_revoked_nothing())
    for passed_on in (found.certificate, trusted):
        assert b"PRIVATE" not in passed_on
        assert secret.splitlines()[1] not in passed_on


def test_one_file_may_be_given_for_both(authority: Authority) -> None:
    certificate, key = authority.issue("a")
    chain, secret = certificate.read_bytes(), key.read_bytes()
    certificate.write_bytes(chain + secret)
    found = pem.identity(str(certificate), str(certificate))
    assert found.certificate == chain
    assert same_key(found.key, secret)


def test_a_list_of_revoked_certificates_that_is_broken_is_refused(authority: Authority) -> None:
    with authority.certificate.open("ab") as file:
        file.write(b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")
    with pytest.raises(CertificateError, match="broken list of revoked"):
        pem.authorities(str(authority.certificate))


@functools.cache
def _revoked_nothing() -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
    made = x509.CertificateRevocationListBuilder().issuer_name(name).last_update(NOW).next_update(NOW + DAY)
    return made.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
