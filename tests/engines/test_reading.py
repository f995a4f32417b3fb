import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines import pages
from tidegate.engines import dialects
from tidegate.engines.dialect import Dialect, Mean, Ratio, Series, Sum, SumOfProducts
from tidegate.engines.exposition import Page, Sample, parse
from tidegate.engines.reading import read
from tidegate.fleet.load import EngineReport

DIALECT = Dialect(
    metrics_path="/metrics",
    running=(Sum(Series("running")),),
    waiting=(Sum(Series("queue", {"kind": "waiting"})),),
    kv_usage=(Mean(Series("share")), Ratio(Series("used"), Series("size"))),
    kv_capacity_tokens=(SumOfProducts(Series("blocks", {"kind": "number"}), Series("blocks", {"kind": "size"})),),
    generation_tokens_total=(Sum(Series("info", label="tokens")),),
)


def page(text: str) -> Page:
    return parse(text, DIALECT.wanted)


def report(text: str, before: str | None = None) -> EngineReport:
    return read(DIALECT, page(text), None if before is None else page(before))


def test_a_dialect_wants_the_names_of_all_alternatives() -> None:
    assert DIALECT.wanted == {"running", "queue", "share", "used", "size", "blocks", "info"}


def test_an_empty_page_says_nothing() -> None:
    assert report("") == EngineReport()


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e999", "nonsense"])
def test_a_count_that_cannot_be_makes_the_whole_sum_unknown(value: str) -> None:
    assert report(f'running{{rank="0"}} 4\nrunning{{rank="1"}} {value}\n').running is None


def test_sums_that_overflow_are_unknown() -> None:
    assert report('running{rank="0"} 1e308\nrunning{rank="1"} 1e308\n').running is None


def test_only_samples_with_the_right_labels_count() -> None:
    text = 'queue{kind="waiting",rank="0"} 2\nqueue{kind="running",rank="0"} 5\nqueue{kind="waiting",rank="1"} 3\n'
    assert report(text).waiting == 5
    assert report('queue{kind="running"} 5\nqueue 7\n').waiting is None


@pytest.mark.parametrize(
    ("value", "share"),
    [("0", 0), ("1", 1), ("1.0000001", 1), ("-1e-9", 0), ("1.001", 1), ("0.5", 0.5)],
)
def test_a_share_within_rounding_of_its_range_is_clamped(value: str, share: float) -> None:
    assert report(f"share {value}").kv_usage == share


@pytest.mark.parametrize("value", ["1.1", "-0.1", "97", "NaN", "+Inf"])
def test_a_share_beyond_its_range_is_unknown(value: str) -> None:
    assert report(f'share{{rank="0"}} 0.5\nshare{{rank="1"}} {value}\n').kv_usage is None


def test_a_ratio_weighs_the_ranks_by_their_size() -> None:
    text = 'used{r="0"} 10\nused{r="1"} 0\nsize{r="1"} 10\nsize{r="0"} 30\n'
    assert report(text).kv_usage == 0.25


@pytest.mark.parametrize(
    "text",
    [
        "used 1\nsize 0\n",
        "used 2\nsize 1\n",
        'used{r="0"} 1\nsize{r="0"} 2\nsize{r="1"} 2\n',
        'used{r="0"} 1\nsize{r="1"} 2\n',
        "used 1\n",
        "used -1\nsize 2\n",
        "used 1\nsize NaN\n",
    ],
)
def test_a_ratio_that_makes_no_sense_is_unknown(text: str) -> None:
    assert report(text).kv_usage is None


def test_products_are_made_per_rank_before_they_are_added_up() -> None:
    text = """
        blocks{kind="number",r="0"} 10
        blocks{kind="number",r="1"} 20
        blocks{kind="size",r="1"} 3
        blocks{kind="size",r="0"} 2
    """
    assert report(text).kv_capacity_tokens == 80
    assert report(text.replace("} 3", "} -3")).kv_capacity_tokens is None
    assert report(text.replace('kind="size",r="0"', 'kind="size",r="2"')).kv_capacity_tokens is None


def test_a_number_in_a_label_is_read() -> None:
    assert report('info{tokens="5"} 1').generation_tokens_total == 5
    assert report('info{tokens="5"} 1\ninfo{tokens="6.5"} 1').generation_tokens_total == 11.5


@pytest.mark.parametrize("text", ["None", "", "many", "-1", "nan", "inf"])
def test_a_label_that_holds_no_number_is_unknown(text: str) -> None:
    assert report(f'info{{tokens="{text}"}} 1').generation_tokens_total is None


def test_a_rank_that_does_not_know_its_number_makes_the_sum_unknown() -> None:
    assert report('info{r="0",tokens="5"} 1\ninfo{r="1",tokens="None"} 1').generation_tokens_total is None


def test_a_malformed_line_makes_its_figure_unknown_and_no_other() -> None:
    got = report('running{r="0"} 1\nrunning{r="1"\nqueue{kind="waiting"} 2\n')
    assert got.running is None
    assert got.waiting == 2


def test_two_values_for_one_series_make_its_figure_unknown() -> None:
    assert report("running 1\nrunning 2\n").running is None
    assert report("running 1\nrunning 1\n").running == 1


def test_a_rank_that_vanished_makes_the_sum_unknown_for_one_report() -> None:
    both, one = 'running{r="0"} 4\nrunning{r="1"} 5\nshare 0.5\n', 'running{r="0"} 4\nshare 0.5\n'
    assert report(both, before=both).running == 9
    gap = report(one, before=both)
    assert gap.running is None
    assert gap.kv_usage == 0.5
    assert report(one, before=one).running == 4


def test_a_rank_that_joins_is_counted_at_once() -> None:
    assert report('running{r="0"} 4\nrunning{r="1"} 5\n', before='running{r="0"} 4\n').running == 9


def test_another_series_of_the_same_name_that_vanished_is_no_loss() -> None:
    assert report('queue{kind="waiting"} 2', before='queue{kind="waiting"} 1\nqueue{kind="max"} 9').waiting == 2


def test_a_vanished_rank_is_noticed_in_every_figure_of_a_real_engine() -> None:
    vllm = dialects.dialect("vllm")
    before = parse(pages.VLLM_TWO_RANKS, vllm.wanted)
    text = "\n".join(line for line in pages.VLLM_TWO_RANKS.splitlines() if 'engine="1"' not in line)
    assert read(vllm, parse(text, vllm.wanted), before) == EngineReport()


def test_a_renamed_series_is_no_vanished_one() -> None:
    vllm = dialects.dialect("vllm")
    before = parse(pages.VLLM_OLD, vllm.wanted)
    assert read(vllm, parse(pages.VLLM, vllm.wanted), before).kv_usage == 0.5078534031413613


_SAMPLES = st.builds(
    Sample,
    st.sampled_from(sorted(DIALECT.wanted)),
    st.dictionaries(st.sampled_from(["kind", "tokens", "r"]), st.sampled_from(["waiting", "number", "size", "0", "x"])),
    st.floats(),
)
_PAGES = st.builds(
    Page, st.lists(_SAMPLES, max_size=12).map(tuple), st.frozensets(st.sampled_from(sorted(DIALECT.wanted)))
)


@given(_PAGES, st.none() | _PAGES)
def test_whatever_a_page_holds_a_report_is_sane(now: Page, before: Page | None) -> None:
    got = read(DIALECT, now, before)
    values = [getattr(got, name) for name in EngineReport.__dataclass_fields__]
    assert all(value is None or (math.isfinite(value) and value >= 0) for value in values)
    assert got.kv_usage is None or got.kv_usage <= 1
