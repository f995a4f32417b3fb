"""What ``POST /fault`` understands."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.simulator.faults import SOUND, FaultError, Faults, change


def test_named_faults_change_and_the_others_stay() -> None:
    assert change(Faults(slow=3.0), b'{"fail_rate": 0.5}') == (Faults(slow=3.0, fail_rate=0.5), False)


def test_reset_clears_all_and_then_sets_what_is_named() -> None:
    faults = Faults(hang=True, unhealthy=True)
    assert change(faults, b'{"reset": true}') == (SOUND, False)
    assert change(faults, b'{"reset": true, "freeze": true}') == (Faults(freeze=True), False)


def test_die_is_told_apart() -> None:
    assert change(SOUND, b'{"die": true}') == (SOUND, True)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "truncated"),
        (b"[]", "expected a JSON object"),
        (b'{"slow": 0}', "slow"),
        (b'{"fail_rate": 1.5}', "fail_rate"),
        (b'{"fail_rate": "x"}', "fail_rate"),
        (b'{"hang": 1}', "hang"),
        (b'{"explode": true}', "explode"),
    ],
)
def test_what_is_not_understood_is_named_with_what_was_expected(body: bytes, expected: str) -> None:
    with pytest.raises(FaultError) as raised:
        change(SOUND, body)
    message = str(raised.value)
    assert expected in message
    assert "expected a JSON object with any of fail_rate, slow, hang" in message


@given(st.binary())
def test_any_body_is_understood_or_refused(body: bytes) -> None:
    with contextlib.suppress(FaultError):
        assert change(SOUND, body) is not None


def test_faults_are_described_in_one_line() -> None:
    assert SOUND.describe() == "none"
    assert Faults(slow=2.0, freeze=True).describe() == "slow=2.0 freeze=True"
