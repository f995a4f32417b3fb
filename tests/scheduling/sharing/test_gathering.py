"""When a store that was away, or lost everything, can be believed."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.scheduling.sharing.gathering import GATHER_SECONDS, TELL_SECONDS, Gathering


def joined(replicas: int = 3, now: float = 0.0) -> Gathering:
    gathering = Gathering()
    assert gathering.heard("a", 1000.0, replicas, replicas, now)
    return gathering


def to_be_told(gathering: Gathering) -> bool:
    return gathering.is_gathered


def test_nothing_is_believed_before_it_was_heard() -> None:
    assert not Gathering().is_whole(1e9)
    assert Gathering().replicas == 0


def test_who_comes_late_believes_at_once() -> None:
    gathering = joined()
    assert gathering.is_whole(0.0)
    assert gathering.replicas == 3


def test_who_comes_as_it_begins_waits_for_the_others() -> None:
    gathering = Gathering()
    assert gathering.heard("a", 0.5, 1, 1, 10.0)
    assert not gathering.heard("a", 1.0, 1, 0, 10.5)
    assert not gathering.is_whole(10.5)
    assert not gathering.heard("a", 2.6, 1, 0, 10.0 + GATHER_SECONDS - 0.49)
    assert gathering.is_whole(10.0 + GATHER_SECONDS - 0.49)


def test_a_store_that_lost_everything_is_told_once_all_are_back_and_believed_once_all_have_told() -> None:
    gathering = joined()
    assert gathering.heard("b", 0.0, 1, 1, 5.0)
    assert not to_be_told(gathering)
    assert not gathering.heard("b", 0.3, 2, 2, 5.3)
    assert not to_be_told(gathering)
    assert not gathering.heard("b", 0.6, 3, 3, 5.6)
    assert to_be_told(gathering)
    assert not gathering.is_whole(5.6 + TELL_SECONDS - 0.01)
    assert gathering.is_whole(5.6 + TELL_SECONDS)
    assert gathering.replicas == 3


def test_who_does_not_come_back_is_not_awaited_for_ever() -> None:
    gathering = joined()
    gathering.heard("b", 0.0, 1, 1, 5.0)
    assert gathering.replicas == 3, "limits are divided as before"
    assert not gathering.heard("b", 1.0, 1, 1, 6.0)
    assert not to_be_told(gathering)
    assert not gathering.heard("b", GATHER_SECONDS, 1, 1, 5.0 + GATHER_SECONDS)
    assert to_be_told(gathering)
    assert gathering.is_whole(5.0 + GATHER_SECONDS + TELL_SECONDS)
    assert gathering.replicas == 1


def test_a_store_that_was_away_is_told_once_all_are_back() -> None:
    gathering = joined()
    gathering.lost(3.0)
    gathering.lost(9.0)
    assert not gathering.is_whole(1e9)
    assert not gathering.heard("a", 1010.0, 1, 1, 10.0)
    assert not to_be_told(gathering)
    assert not gathering.heard("a", 1010.5, 3, 3, 10.5)
    assert to_be_told(gathering)
    assert not gathering.is_whole(10.5)
    assert gathering.is_whole(10.5 + TELL_SECONDS)


def test_a_moments_absence_costs_no_more_than_that_moment() -> None:
    gathering = joined()
    gathering.lost(10.0)
    gathering.heard("a", 1010.0, 3, 3, 10.1)
    assert to_be_told(gathering)
    assert not gathering.is_whole(10.15)
    assert gathering.is_whole(10.21)


EVENTS = st.one_of(st.none(), st.tuples(st.sampled_from("abc"), st.floats(0, 20), st.integers(1, 5), st.integers(1, 5)))


@given(st.lists(st.tuples(EVENTS, st.floats(0.001, 3.0))))
def test_whatever_happens_it_is_believed_some_seconds_after_it_was_heard(
    events: list[tuple[tuple[str, float, int, int] | None, float]],
) -> None:
    gathering, now, heard = Gathering(), 0.0, False
    for event, pause in events:
        now += pause
        if event is None:
            gathering.lost(now)
            heard = False
        else:
            before = gathering.replicas
            epoch, age, replicas, here = event
            gathering.heard(epoch, age, max(replicas, here), here, now)
            heard = True
            assert gathering.epoch == epoch
            assert gathering.replicas >= before or to_be_told(gathering)
            assert to_be_told(gathering) or not gathering.is_whole(now)
    if heard:
        now += GATHER_SECONDS
        gathering.heard(gathering.epoch, 1.0, 1, 1, now)
    assert gathering.is_whole(now + TELL_SECONDS) == heard
