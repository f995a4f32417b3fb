"""Which requests are suspected of killing engines, and which are held."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.fleet.quarantine import MAX_HELD, MAX_SUSPECTS, MEMORY_SECONDS, Quarantine, Suspects


def test_a_second_death_is_one_too_many() -> None:
    suspects = Suspects()
    assert not suspects.died(7, ["a"], 0.0)
    assert not suspects.died(8, ["a"], 1.0)
    assert suspects.died(7, ["b"], 2.0)
    assert suspects.died(9, ["a", "b"], 2.0)


def test_one_engine_that_dies_again_and_again_says_nothing_of_the_request() -> None:
    suspects = Suspects()
    assert not suspects.died(7, ["a", "a"], 0.0)
    assert not suspects.died(7, ["a"], 1.0)
    assert suspects.died(7, ["a", "b"], 2.0)


def test_who_was_served_begins_anew() -> None:
    suspects = Suspects()
    suspects.died(7, ["a"], 0.0)
    suspects.served(7)
    suspects.served(8)
    assert not suspects
    assert not suspects.died(7, ["b"], 1.0)


def test_a_death_long_ago_is_forgotten() -> None:
    suspects = Suspects()
    suspects.died(7, ["a"], 0.0)
    assert not suspects.died(7, ["b"], MEMORY_SECONDS + 1)
    assert suspects.died(7, ["c"], MEMORY_SECONDS + 2)


def test_what_is_held_is_let_go_in_time() -> None:
    quarantine = Quarantine()
    assert not quarantine
    quarantine.hold(7, 10.0)
    quarantine.hold(8, 20.0)
    assert quarantine.holds(7, 9.9)
    assert not quarantine.holds(9, 0.0)
    assert (quarantine.held(9.9), quarantine.held(10.0)) == (2, 1)
    assert not quarantine.holds(7, 10.0)
    assert quarantine.holds(8, 10.0)
    assert not quarantine.holds(8, 20.0)
    assert not quarantine


def test_both_are_bounded() -> None:
    suspects, quarantine = Suspects(), Quarantine()
    for number in range(MAX_SUSPECTS + 10):
        suspects.died(number, ["a"], 0.0)
        quarantine.hold(number, 1.0)
    assert len(suspects) == MAX_SUSPECTS
    assert quarantine.held(0.0) == MAX_HELD
    assert quarantine.holds(MAX_SUSPECTS + 9, 0.0)
    assert not quarantine.holds(0, 0.0)


EVENTS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["died", "served"]), st.floats(0, 400)), max_size=30)


@given(EVENTS)
def test_nobody_is_held_for_fewer_than_two_deaths_since_it_was_served(events: list[tuple[int, str, float]]) -> None:
    suspects, deaths, now = Suspects(), dict.fromkeys(range(1, 4), 0), 0.0
    for fingerprint, what, after in events:
        now += after
        if what == "served":
            suspects.served(fingerprint)
            deaths[fingerprint] = 0
        else:
            deaths[fingerprint] += 1
            if suspects.died(fingerprint, [f"engine {deaths[fingerprint]}"], now):
                assert deaths[fingerprint] >= 2
                deaths[fingerprint] = 0
