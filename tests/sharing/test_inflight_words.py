"""What replicas tell each other of what is in flight, as text."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.fleet.others import Others
from tidegate.sharing import inflight
from tidegate.sharing.names import Names

FIGURES = st.integers(0, 2**30)
OTHERS = st.builds(Others, FIGURES, FIGURES, FIGURES, FIGURES)
TOLD = st.dictionaries(st.sampled_from([f"10.0.0.{number}:8000" for number in range(9)]), OTHERS)


def name(address: str) -> bytes:
    return hashlib.sha256(address.encode()).digest()[:8]


def words(*told: dict[str, Others]) -> str:
    """Return what Redis gives to whom nothing of ``told`` is."""
    return " ".join(str(inflight.tell(one.items(), name)[1]) for one in told if one)


@given(st.lists(TOLD, max_size=4))
def test_what_all_others_told_is_added_up(told: list[dict[str, Others]]) -> None:
    addresses = {address for one in told for address in one}
    nothing = Others(0, 0, 0, 0)
    expected = {
        name(address): Others(*map(sum, zip(*(one.get(address, nothing) for one in told), strict=True)))
        for address in addresses
    }
    assert inflight.others(words(*told)) == expected


@given(st.text(max_size=200) | st.binary(max_size=100).map(lambda some: base64.b64encode(some).decode()))
def test_what_cannot_be_read_is_not_known_and_takes_nothing_else_with_it(gibberish: str) -> None:
    one = {"10.0.0.1:8000": Others(1, 2, 3, 4)}
    found = inflight.others(f"{gibberish} {words(one)} {gibberish}")
    assert name("10.0.0.1:8000") in found


def test_figures_that_no_engine_has_stay_within_what_can_be_written() -> None:
    odd = {"10.0.0.1:8000": Others(-5, 2**40, 7, 2**32)}
    assert inflight.others(words(odd)) == {name("10.0.0.1:8000"): Others(0, 2**32 - 1, 7, 2**32 - 1)}


def test_of_too_many_endpoints_those_are_told_that_bear_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "MOST_ENDPOINTS", 3)
    many = {f"10.0.0.{number}:8000": Others(1, 0, tokens, 0) for number, tokens in enumerate((5, 1, 9, 3, 7))}
    found = inflight.others(words(many))
    assert sorted(others.tokens for others in found.values()) == [5, 7, 9]


def test_the_most_that_is_told_is_within_what_one_reads() -> None:
    many = [(f"10.0.{number // 256}.{number % 256}:8000", Others(1, 1, 1, 1)) for number in range(9_000)]
    operation, told, *_ = inflight.tell(many, name)
    assert operation == "inflight"
    assert len(str(told)) <= inflight.MOST_CHARACTERS // 2


def test_endpoints_have_names_of_their_own_under_each_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Names("salt"), Names("other")
    addresses = [f"10.0.0.{number}:8000" for number in range(100)]
    assert len({*map(one.endpoint, addresses), *map(other.endpoint, addresses)}) == 200
    assert one.endpoint(addresses[0]) == Names("salt").endpoint(addresses[0])
    assert one.endpoint("x").hex() not in one.request("x")
    monkeypatch.setattr("tidegate.sharing.names.MOST_REMEMBERED", 3)
    assert [one.endpoint(address) for address in addresses] == [Names("salt").endpoint(one) for one in addresses]
