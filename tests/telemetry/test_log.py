"""Log lines: one for each event, whatever the values hold."""

import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.telemetry.log import MAX_VALUE, JsonFormatter, LogfmtFormatter, event, setup

logger = logging.getLogger("tidegate.test")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def record(message: str = "said", /, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("tidegate.test", logging.INFO, __file__, 1, message, (), None)
    made.created = 1_700_000_000.25
    made.__dict__["fields"] = fields
    return made


def test_an_event_is_one_line_of_logfmt() -> None:
    line = LogfmtFormatter().format(
        record("endpoint ejected", endpoint="[fd00::7]:80", failures=3, age=0.5, report=None)
    )
    assert line == (
        "ts=2023-11-14T22:13:20.250Z level=info logger=tidegate.test "
        'msg="endpoint ejected" endpoint=[fd00::7]:80 failures=3 age=0.5 report=-'
    )


def test_an_event_is_one_json_object() -> None:
    line = JsonFormatter().format(record("endpoint ejected", failures=3, up=False, report=None))
    assert json.loads(line) == {
        "ts": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "logger": "tidegate.test",
        "msg": "endpoint ejected",
        "failures": 3,
        "up": False,
        "report": None,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("two\nlines", r'"two\nlines"'),
        ("\x1b[2J", r'"\u001b[2J"'),
        ('a" level=error', r'"a\" level=error"'),
        ("back\\slash", r'"back\\slash"'),
        ("a=b", '"a=b"'),
        ("", '""'),
        ("-", '"-"'),
        ("\x7f\x85\u2028\u202e\ud800", r'"\u007f\u0085\u2028\u202e\ud800"'),
        ("größe", '"größe"'),
        ("{0.__class__}", "{0.__class__}"),
        ("%n", "%n"),
    ],
)
def test_hostile_text_is_escaped(value: str, expected: str) -> None:
    assert LogfmtFormatter().format(record(value=value)).endswith(f" value={expected}")


def test_a_number_that_json_does_not_know_becomes_text() -> None:
    line = JsonFormatter().format(record(value=float("nan"), other=float("inf")))
    assert json.loads(line, parse_constant=pytest.fail)["value"] == "nan"


def test_a_field_cannot_pose_as_one_of_the_lines_own() -> None:
    line = json.loads(JsonFormatter().format(record(**{"level": "error", "a b\n": 1})))
    assert (line["level"], line["level_"], line["a_b_"]) == ("info", "error", 1)


def test_a_long_value_is_cut() -> None:
    line = json.loads(JsonFormatter().format(record(value="x" * (MAX_VALUE + 5))))
    assert line["value"] == "x" * MAX_VALUE + "…"


@given(st.text(st.characters(codec=None)), st.dictionaries(st.text(st.characters(codec=None)), st.text() | st.floats()))
def test_whatever_is_logged_is_one_line_that_prints(message: str, fields: dict[str, object]) -> None:
    made = record(message)
    made.__dict__["fields"] = fields
    as_json = JsonFormatter().format(made)
    assert as_json.isascii()
    assert json.loads(as_json, parse_constant=pytest.fail)["msg"] == message
    for line in (as_json, LogfmtFormatter().format(made)):
        assert line.isprintable()


def test_the_process_logs_to_standard_error_from_the_level_up(capsys: pytest.CaptureFixture[str]) -> None:
    setup("text", "warning")
    event(logger, "not this")
    event(logger, "but this", level=logging.WARNING, pool="default")
    logging.getLogger("somebody").error("and %s", "this\n")
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.endswith('level=warning logger=tidegate.test msg="but this" pool=default')
    assert second.endswith(r'level=error logger=somebody msg="and this\n"')


def test_setting_up_twice_does_not_log_twice(capsys: pytest.CaptureFixture[str]) -> None:
    setup("text", "info")
    setup("json", "info")
    event(logger, "once")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["msg"] == "once"


def test_an_error_is_told_on_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    setup("json", "info")
    try:
        int("bad\nvalue")
    except ValueError as error:
        event(logger, "failed", level=logging.ERROR, error=error)
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert told["error"].startswith("ValueError: invalid literal")
    assert "test_an_error_is_told_on_the_same_line" in told["traceback"]
