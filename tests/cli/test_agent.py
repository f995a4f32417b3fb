"""``tidegate agent``: its options. What it does is tested in tests/agent."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import main


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["agent", *arguments])
    return result.exit_code, result.output


def test_the_help_names_every_option() -> None:
    code, text = run("--help")
    assert code == 0
    for option in ("--control", "--node", "--engine", "--certificate", "--key", "--ca", "--xid", "--once"):
        assert option in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing option '--control'"),
        (("--once", "--xid", "79=dead"), "expected NUMBER=CLASS"),
        (("--once", "--engine", "ftp://h"), "expected http://HOST:PORT/PATH"),
        (("--once", "--node", ""), "expected a name"),
        (("--once", "--node", "a b"), "expected a name"),
        (("--once", "--interval", "0"), "0.1<=x<=60"),
        (("--control", "h:1", "--server-name", "x"), "TLS takes all of"),
        (("--control", "h:1", "--ca", "/does/not/exist"), "does not exist"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(arguments: tuple[str, ...], said: str) -> None:
    code, text = run(*arguments)
    assert (code, said in " ".join(text.split())) == (2, True), text


def test_one_half_of_tls_is_refused(tmp_path: Path) -> None:
    pem = tmp_path / "some.pem"
    pem.write_text("")
    code, text = run("--control", "h:1", "--certificate", str(pem), "--key", str(pem))
    assert (code, "'--ca'" in text) == (2, True)
