"""Certificates that are followed: what is in force when files change, and what is said of it."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.authority import Authority
from tidegate.runtime.certificate_files import CertificateFiles, Followed, Source, content

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
AT = NOW.timestamp()


class Scene:
    """One certificate on files, and who follows it."""

    def __init__(self, folder: Path, days: float = 90, lifetime: float = 100) -> None:
        self.authority = Authority(folder)
        self.certificate, self.key = self.authority.issue_until("a", NOW - (lifetime - days) * DAY, NOW + days * DAY)
        self.source = Source("listener.tls.certificate", (str(self.certificate), str(self.key)), "s")
        self.followed = Followed(self.source, AT)

    def renew(self, days: float = 90) -> None:
        self.authority.issue_until("a", NOW - 100 * DAY, NOW + days * DAY)

    def look(self, at: float = AT) -> bool:
        return self.followed.look(content(self.source), at)

    def settle(self, at: float = AT) -> bool:
        return self.look(at) | self.look(at)

    def serial(self) -> str | None:
        return getattr(self.followed.value, "serial", None)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_changes_is_taken_over_once_it_stands_still(scene: Scene) -> None:
    first = scene.serial()
    assert first
    assert not scene.settle()
    scene.renew()
    assert not scene.look()
    scene.renew()
    assert not scene.look()
    assert scene.serial() == first
    assert scene.look()
    assert scene.serial() != first
    assert not scene.settle()


def test_a_key_alone_is_not_taken_over_and_the_pair_is_when_it_is_whole(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    first, old = scene.serial(), scene.certificate.read_bytes()
    scene.renew()
    new = scene.certificate.read_bytes()
    scene.certificate.write_bytes(old)
    assert not scene.settle()
    assert not scene.settle()
    assert scene.serial() == first
    assert "the key is not the certificate's" in scene.followed.standing().refused
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    scene.certificate.write_bytes(new)
    assert scene.settle()
    assert scene.followed.standing().refused == ""


def test_what_was_good_and_comes_back_is_no_news(scene: Scene) -> None:
    good = scene.key.read_bytes()
    scene.key.unlink()
    assert not scene.settle()
    assert "cannot be read" in scene.followed.standing().refused
    scene.key.write_bytes(good)
    assert not scene.settle()
    assert scene.followed.standing().refused == ""


def test_one_that_is_over_is_not_taken_over_in_place_of_one_that_is_not(scene: Scene) -> None:
    first = scene.serial()
    scene.renew(days=-1)
    assert not scene.settle()
    assert (scene.serial(), scene.followed.standing().refused.endswith("has expired")) == (first, True)


def test_one_that_is_over_is_better_than_none(tmp_path: Path) -> None:
    scene = Scene(tmp_path, days=-1)
    assert scene.serial()
    assert scene.followed.standing() == ("listener.tls.certificate", (NOW - DAY).timestamp(), "")
    scene.renew(days=-0.5)
    assert scene.settle()


def test_files_that_come_later_are_taken_at_once(tmp_path: Path) -> None:
    source = Source("pools.a.tls.ca", (str(tmp_path / "later.pem"),), "s")
    followed = Followed(source, AT)
    assert (followed.value, followed.standing().ends) == (None, None)
    Authority(tmp_path, "later")
    assert followed.look(content(source), AT)


@pytest.mark.parametrize(
    ("days", "lifetime", "level"),
    [(90, 100, None), (15, 1000, None), (13, 1000, "WARNING"), (0.9, 1, None), (0.1, 1, "WARNING"), (-1, 10, "ERROR")],
)
def test_it_is_said_once_that_an_end_is_near(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: float, lifetime: float, level: str | None
) -> None:
    followed = Scene(tmp_path, days, lifetime).followed
    followed.warn(AT)
    followed.warn(AT)
    assert [record.levelname for record in caplog.records] == ([level] if level else [])


def test_the_end_itself_is_said_too(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for days in (80, 85, 91, 92):
        scene.followed.warn((NOW + days * DAY).timestamp())
    assert [record.getMessage() for record in caplog.records] == [
        "a certificate expires soon",
        "a certificate has expired",
    ]


def test_what_is_no_longer_named_is_no_longer_followed(scene: Scene) -> None:
    files = CertificateFiles()
    files.follow([scene.source], AT)
    kept = next(iter(files))
    files.follow([scene.source, Source("x", (str(scene.certificate),))], AT)
    assert [followed.source.name for followed in files] == ["listener.tls.certificate", "x"]
    assert next(iter(files)) is kept
    contents = files.contents()
    files.follow([], AT)
    assert files.look(contents, AT) == []
    assert files.contents() == []


def test_what_was_spoilt_and_is_put_back_as_it_was_is_said_to_be_well(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    good = scene.certificate.read_bytes()
    scene.certificate.write_bytes(b"nothing of the kind")
    scene.settle()
    scene.certificate.write_bytes(good)
    assert not scene.settle(), "nothing else is in force than before"
    assert scene.followed.standing().refused == ""
    assert [record.getMessage() for record in caplog.records] == [
        "certificates are not taken over, the last good ones go on",
        "certificates can be used again, and are those in force",
    ]
