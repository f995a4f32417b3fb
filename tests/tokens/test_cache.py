"""The cache of counts."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.tokens.cache import CountCache


def test_a_count_is_found_again_under_the_same_encoding_alone() -> None:
    cache = CountCache(10)
    cache.put(cache.key("o200k_base", "text"), 7)
    assert cache.get(cache.key("o200k_base", "text")) == 7
    assert cache.get(cache.key("cl100k_base", "text")) is None
    assert cache.get(cache.key("o200k_base", "text ")) is None


def test_a_count_of_zero_is_a_count() -> None:
    cache = CountCache(1)
    cache.put(b"k", 0)
    assert cache.get(b"k") == 0


def test_the_least_recently_used_count_is_forgotten() -> None:
    cache = CountCache(2)
    cache.put(b"a", 1)
    cache.put(b"b", 2)
    cache.get(b"a")
    cache.put(b"c", 3)
    assert [cache.get(key) for key in (b"a", b"b", b"c")] == [1, None, 3]


def test_a_cache_of_no_entries_keeps_nothing() -> None:
    cache = CountCache(0)
    cache.put(b"a", 1)
    assert (len(cache), cache.get(b"a")) == (0, None)


@given(st.integers(0, 5), st.lists(st.tuples(st.binary(max_size=1), st.integers(0, 9))))
def test_the_cache_never_holds_more_than_its_bound_and_never_a_stale_count(
    entries: int, puts: list[tuple[bytes, int]]
) -> None:
    cache = CountCache(entries)
    truth: dict[bytes, int] = {}
    for key, count in puts:
        cache.put(key, count)
        truth[key] = count
        assert len(cache) <= entries
    for key, count in truth.items():
        assert cache.get(key) in (None, count)


@given(st.text(st.characters(exclude_categories=())))
def test_every_text_has_a_key_of_sixteen_bytes(text: str) -> None:
    assert len(CountCache.key("cl100k_base", text)) == 16
