"""What findings come to, one after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.checks.asked import check
from tidegate.config_checks import Check
from tidegate.engines.check import Finding, Found, Standing
from tidegate.engines.tally import Tally, seen_whole
from tidegate.fleet.evidence import Evidence, Verdict

HTTP = check(name="http", interval_seconds=2.0, timeout_seconds=4.0, fall=3, rise=2)
GOOD, BAD, LATE = (
    Found(Finding.PASSED),
    Found(Finding.FAILED, "status", "status 503"),
    Found(Finding.TIMED_OUT, "timeout"),
)


class Counted:
    """A tally, asked every two seconds."""

    def __init__(self, settings: Check = HTTP) -> None:
        self.tally, self.settings, self.now, self.said = Tally(), settings, 0.0, list[Evidence]()

    def take(self, *found: Found) -> Verdict:
        for one in found:
            self.now += 2.0
            if evidence := self.tally.take(one, self.settings, self.now):
                self.said.append(evidence)
        return self.tally.verdict


def test_so_many_failures_in_a_row_fail_and_so_many_passes_make_up_for_them() -> None:
    counted = Counted()
    assert counted.take(GOOD) is Verdict.SOUND
    assert counted.take(BAD, BAD) is Verdict.SOUND
    assert counted.take(BAD) is Verdict.FAILED
    assert counted.said[-1] == Evidence("http", Verdict.FAILED, ("http_status",), "status 503", 10.0)
    assert counted.take(GOOD) is Verdict.FAILED
    assert counted.take(GOOD) is Verdict.SOUND
    assert counted.take(BAD, BAD, GOOD, BAD, BAD, LATE) is Verdict.FAILED
    assert counted.said[-1].reasons == ("http_timeout",)


def test_a_first_failure_is_none_and_a_first_pass_is_one() -> None:
    assert Counted().take(BAD, BAD) is Verdict.UNKNOWN
    assert Counted().take(BAD, GOOD) is Verdict.SOUND


@pytest.mark.parametrize("finding", [Finding.BUSY, Finding.SKIPPED, Finding.UNKNOWN, Finding.FAULT])
def test_what_says_nothing_changes_nothing_and_is_not_said(finding: Finding) -> None:
    counted = Counted()
    counted.take(BAD, BAD)
    said = len(counted.said)
    assert counted.take(*[Found(finding)] * 50) is Verdict.UNKNOWN
    assert len(counted.said) == said
    assert counted.take(BAD) is Verdict.FAILED


def test_a_pass_that_is_hollow_takes_the_good_word_back_and_gives_none() -> None:
    hollow = Found(Finding.HOLLOW, "no_progress")
    counted = Counted()
    assert counted.take(GOOD, hollow) is Verdict.UNKNOWN
    assert counted.said[-1].verdict is Verdict.UNKNOWN
    assert counted.take(BAD, BAD, BAD, GOOD, hollow, GOOD) is Verdict.FAILED, "two in a row"


def test_what_was_said_is_said_again_before_it_lapses_and_no_more_often() -> None:
    counted = Counted()
    counted.take(*[GOOD] * 100)
    assert 20 <= len(counted.said) <= 51
    counted.said.clear()
    counted.take(*[BAD] * 100)
    assert {evidence.verdict for evidence in counted.said[1:]} == {Verdict.FAILED}
    assert len(counted.said) <= 51


def test_a_late_answer_of_an_engine_whose_requests_progress_is_busy() -> None:
    moving = Standing(inflight=4, moved=True, counted=True)
    assert seen_whole(LATE, moving, HTTP).finding is Finding.BUSY
    assert seen_whole(LATE, moving._replace(moved=False), HTTP) is LATE
    assert seen_whole(BAD, moving, HTTP) is BAD


def test_an_answer_of_an_engine_whose_requests_stand_still_is_hollow() -> None:
    still = Standing(inflight=4, still_seconds=31.0, counted=True)
    assert seen_whole(GOOD, still, HTTP).finding is Finding.HOLLOW
    for other in (
        still._replace(inflight=0),
        still._replace(still_seconds=29.0),
        still._replace(counted=False),
        still._replace(prefill_seconds=2.0),
    ):
        assert seen_whole(GOOD, other, HTTP) is GOOD


@given(st.lists(st.sampled_from(Finding).map(Found), max_size=60), st.integers(1, 4), st.integers(1, 4))
def test_a_verdict_never_turns_on_fewer_findings_than_asked_for(found: list[Found], fall: int, rise: int) -> None:
    counted = Counted(check(name="http", fall=fall, rise=rise))
    for at, one in enumerate(found):
        before, after = counted.tally.verdict, counted.take(one)
        if after is Verdict.FAILED and before is not Verdict.FAILED:
            told = [each.finding for each in found[: at + 1] if each.finding in {*_TELLING}]
            assert Finding.PASSED not in told[-fall:]
        if before is Verdict.FAILED and after is Verdict.SOUND:
            told = [each.finding for each in found[: at + 1] if each.finding in {*_TELLING}]
            assert set(told[-rise:]) == {Finding.PASSED}


_TELLING = (Finding.PASSED, Finding.FAILED, Finding.TIMED_OUT, Finding.HOLLOW)
