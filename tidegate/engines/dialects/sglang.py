"""SGLang, started with ``--enable-metrics``. Names of 0.5.23.

By default one tensor-parallel rank per data-parallel rank reports, so the sums count each request once; with
``--enable-metrics-for-all-schedulers`` they would count it once per rank.
"""

from tidegate.engines.dialect import Dialect, Mean, Series, Sum, SumOfProducts

_CACHE = "sglang:cache_config_info"
"""Absent from 0.5.23; the Gateway API's endpoint picker asks for it."""

DIALECT = Dialect(
    metrics_path="/metrics",
    running=(Sum(Series("sglang:num_running_reqs")),),
    waiting=(Sum(Series("sglang:num_queue_reqs")),),
    kv_usage=(Mean(Series("sglang:token_usage")),),
    kv_capacity_tokens=(
        SumOfProducts(Series("sglang:page_size"), Series("sglang:num_pages")),
        SumOfProducts(Series(_CACHE, label="page_size"), Series(_CACHE, label="num_pages")),
        Sum(Series("sglang:max_total_num_tokens")),
    ),
    prompt_tokens_total=(Sum(Series("sglang:prompt_tokens_total")),),
    generation_tokens_total=(Sum(Series("sglang:generation_tokens_total")),),
)
