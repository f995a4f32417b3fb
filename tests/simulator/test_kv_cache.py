"""The KV cache: blocks are held, shared, remembered and reused."""

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.simulator.kv_cache import KVCache


def _take(cache: KVCache, fresh: int) -> list[int]:
    blocks = cache.take(fresh)
    assert blocks is not None
    return blocks


def test_an_unused_cache_is_all_free() -> None:
    cache = KVCache(4)
    assert (cache.free_blocks, cache.usage) == (4, 0.0)


def test_held_blocks_count_as_used_until_they_are_released() -> None:
    cache = KVCache(4)
    blocks = _take(cache, 3)
    assert len(set(blocks)) == 3
    assert cache.usage == pytest.approx(0.75)
    cache.release(blocks)
    assert cache.usage == 0.0


def test_too_many_blocks_are_not_given_and_nothing_changes() -> None:
    cache = KVCache(4)
    _take(cache, 2)
    assert cache.take(3) is None
    assert cache.free_blocks == 2


def test_a_match_is_the_longest_run_from_the_first_key() -> None:
    cache = KVCache(4)
    blocks = _take(cache, 3)
    for block, key in zip(blocks, "abc", strict=True):
        cache.publish(block, key)
    assert cache.match("abx") == blocks[:2]
    assert cache.match("abc") == blocks
    assert cache.match("bc") == blocks[1:], "each key stands for all that precedes it"
    assert cache.match("xbc") == []


def test_released_blocks_are_still_found_and_can_be_held_again() -> None:
    cache = KVCache(4)
    (block,) = _take(cache, 1)
    cache.publish(block, "a")
    cache.release([block])
    assert cache.match("a") == [block]
    cache.hold([block])
    assert cache.free_blocks == 3


def test_a_shared_block_is_free_only_when_the_last_holder_releases_it() -> None:
    cache = KVCache(2)
    blocks = _take(cache, 1)
    cache.hold(blocks)
    cache.release(blocks)
    assert cache.free_blocks == 1
    cache.release(blocks)
    assert cache.free_blocks == 2


def test_the_least_recently_used_content_is_forgotten_first() -> None:
    cache = KVCache(2)
    old, new = _take(cache, 2)
    cache.publish(old, "old")
    cache.publish(new, "new")
    cache.release([old])
    cache.release([new])
    _take(cache, 1)
    assert cache.match(["old"]) == []
    assert cache.match(["new"]) == [new]


def test_the_end_of_a_prefix_is_forgotten_before_its_beginning() -> None:
    cache = KVCache(2)
    blocks = _take(cache, 2)
    cache.publish(blocks[0], "a")
    cache.publish(blocks[1], "ab")
    cache.release(blocks)
    _take(cache, 1)
    assert cache.match(["a", "ab"]) == blocks[:1]


def test_of_two_blocks_with_one_content_the_first_is_found() -> None:
    cache = KVCache(3)
    first, second = _take(cache, 2)
    cache.publish(first, "a")
    cache.publish(second, "a")
    assert cache.match("a") == [first]
    cache.release([second])
    _take(cache, 2)
    assert cache.match("a") == [first], "reusing the unnamed twin forgets nothing"


def test_reused_free_blocks_leave_less_room_for_fresh_ones() -> None:
    cache = KVCache(2)
    (block,) = _take(cache, 1)
    cache.publish(block, "a")
    cache.release([block])
    assert cache.fits([block], 1)
    assert not cache.fits([block], 2)
    cache.hold([block])
    assert cache.fits([block], 1), "held already, it takes no room from the free ones"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=60))
def test_blocks_are_conserved_whatever_is_taken_and_released(actions: list[tuple[int, int]]) -> None:
    cache = KVCache(8)
    held: list[list[int]] = []
    for fresh, which in actions:
        if fresh:
            keys = [(which, at) for at in range(fresh)]
            reused = cache.match(keys)
            if cache.fits(reused, fresh - len(reused)):
                cache.hold(reused)
                blocks = [*reused, *_take(cache, fresh - len(reused))]
                for block, key in zip(blocks, keys, strict=True):
                    cache.publish(block, key)
                held.append(blocks)
        elif held:
            cache.release(held.pop(which % len(held)))
        distinct = {block for blocks in held for block in blocks}
        assert cache.free_blocks + len(distinct) == cache.num_blocks


class Heard(list[tuple[str, object]]):
    def stored(self, key: Hashable) -> None:
        self.append(("stored", key))

    def removed(self, key: Hashable) -> None:
        self.append(("removed", key))

    def cleared(self) -> None:
        self.append(("cleared", None))


def test_a_listener_is_told_what_can_be_found_and_what_no_longer() -> None:
    cache = KVCache(2)
    cache.listener = heard = Heard()
    blocks = cache.take(2)
    assert blocks is not None
    cache.publish(blocks[0], "a")
    cache.publish(blocks[1], "b")
    cache.publish(blocks[1], "b")
    assert heard == [("stored", "a"), ("stored", "b")]
    assert not cache.clear()
    cache.release(blocks)
    cache.take(1)
    assert heard[2:] == [("removed", "b")]


def test_a_cleared_cache_finds_nothing() -> None:
    cache = KVCache(2)
    cache.listener = heard = Heard()
    blocks = cache.take(1)
    assert blocks is not None
    cache.publish(blocks[0], "a")
    cache.release(blocks)
    assert cache.clear()
    assert cache.match(["a"]) == []
    assert heard[1:] == [("cleared", None)]
    assert cache.take(2) is not None
    assert len(heard) == 2
