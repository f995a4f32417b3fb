"""By what a request is known again."""

from hypothesis import given
from hypothesis import strategies as st

from extproc.fingerprint import WHOLE_BYTES, fingerprint


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_bodies_have_the_same_fingerprint_if_they_are_the_same(one: bytes, other: bytes) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)
    assert 0 < fingerprint(one) < 2**64


def test_it_is_the_same_in_every_process() -> None:
    assert fingerprint(b"hello") == 0xA7B6EDA801E5347D


def test_of_a_large_body_its_length_and_both_its_ends_count() -> None:
    large = b"a" * WHOLE_BYTES + b"b" * WHOLE_BYTES
    others = [large + b"b", b"x" + large[1:], large[:-1] + b"x"]
    assert len({fingerprint(body) for body in (large, *others)}) == 4
