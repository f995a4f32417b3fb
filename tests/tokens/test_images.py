"""Images, as the models' documentation counts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.tokens.images import Patches, Tiles, rule_for, tokens


@pytest.mark.parametrize(
    ("model", "small", "usual", "wide", "huge"),
    [
        ("gpt-4o", 255, 765, 1_105, 1_105),
        ("openai/gpt-4.1", 255, 765, 1_105, 1_105),
        ("gpt-5", 210, 630, 910, 910),
        ("gpt-5.1", 210, 630, 910, 910),
        ("o3", 225, 675, 975, 975),
        ("gpt-4o-mini", 8_500, 25_501, 36_835, 36_835),
    ],
)
def test_tiles_are_as_in_the_documentation(model: str, small: int, usual: int, wide: int, huge: int) -> None:
    sizes = ((512, 512), (1024, 1024), (1920, 1080), (4096, 8192))

    assert [tokens(model, size) for size in sizes] == [small, usual, wide, huge]
    assert tokens(model, None) == usual


@pytest.mark.parametrize(
    ("model", "usual"),
    [
        ("gpt-4.1-mini", 1_659),
        ("gpt-5-mini", 1_229),
        ("gpt-5.5", 1_229),
        ("gpt-5-nano", 1_536),
        ("claude-3-5-sonnet", 1_369),
        ("claude-opus-5", 1_369),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 1_369),
        ("llava-1.5-7b", 576),
        ("unknown", 765),
        ("", 765),
    ],
)
def test_patches_are_counted_for_those_that_have_them(model: str, usual: int) -> None:
    assert tokens(model, (1024, 1024)) == usual


def test_few_details_cost_the_base_alone() -> None:
    assert tokens("gpt-4o", (4096, 4096), low=True) == 85
    assert tokens("gpt-4.1-mini", (1024, 1024), low=True) == 1_659


def test_a_later_claude_sees_more_of_a_large_image() -> None:
    assert (tokens("claude-opus-4-1", (1920, 1080)), tokens("claude-opus-4-7", (1920, 1080))) == (1_568, 2_691)


@given(st.text(), st.integers(1, 65_536), st.integers(1, 65_536))
def test_every_image_of_every_model_counts_for_something_bounded(model: str, width: int, height: int) -> None:
    assert isinstance(rule_for(model), Tiles | Patches)
    assert 1 <= tokens(model, (width, height)) <= 50_000
