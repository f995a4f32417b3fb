"""Label values stay few and harmless."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.telemetry.labels import MAX_LENGTH, OTHER, Configured, Folded, clean


def test_the_first_values_are_admitted_and_the_rest_folded() -> None:
    label = Folded(2)
    assert [label(value) for value in ("a", "b", "c", "a", "b", "d")] == ["a", "b", OTHER, "a", "b", OTHER]


def test_expected_values_are_admitted_even_when_the_table_is_full() -> None:
    label = Folded(1)
    label("a")
    label.expect(["b", "c"])
    assert [label(value) for value in ("b", "c", "d", "a")] == ["b", "c", OTHER, "a"]


def test_a_value_that_is_not_to_be_admitted_takes_no_place() -> None:
    label = Folded(1)
    assert label("a", admit=False) == OTHER
    assert label("b") == "b"
    assert label("b", admit=False) == "b"


def test_an_unknown_value_is_filed_under_other_and_takes_no_place() -> None:
    label = Folded(1)
    assert label("") == OTHER
    assert label("a") == "a"


def test_values_that_are_cut_to_the_same_text_share_one_place() -> None:
    label = Folded(1)
    assert label("x" * 1000) == label("x" * 2000) == "x" * MAX_LENGTH


def test_characters_that_do_not_print_are_replaced() -> None:
    assert clean("a\nb\x1b[2J\ud800c") == "a\ufffdb\ufffd[2J\ufffdc"
    assert clean("Llama-3.1/größe") == "Llama-3.1/größe"


def test_only_configured_values_are_admitted_and_replacing_says_which_are_gone() -> None:
    label = Configured()
    assert label("a") == OTHER
    assert label.replace(["a", "b"]) == frozenset()
    assert [label("a"), label("c")] == ["a", OTHER]
    assert label.replace(["b", "c"]) == {"a"}
    assert [label("a"), label("c")] == [OTHER, "c"]


@given(st.lists(st.text(st.characters(codec=None), max_size=200), max_size=30), st.integers(0, 5))
def test_whatever_comes_the_labels_are_bounded_short_and_encodable(values: list[str], limit: int) -> None:
    label = Folded(limit)
    labels = {label(value) for value in values}
    assert len(labels - {OTHER}) <= limit
    assert all(len(value.encode()) <= 4 * MAX_LENGTH and value.isprintable() for value in labels)
