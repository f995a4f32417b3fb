"""TensorRT-LLM: trtllm-serve first, then the names of Triton's TensorRT-LLM backend.

trtllm-serve's ``/metrics`` is JSON; the Prometheus page has a path of its own, and exists only with
``return_perf_metrics``. Older backends lack the series for waiting requests and for the fraction in use.
"""

from tidegate.engines.dialect import Dialect, Mean, Ratio, Series, Sum, SumOfProducts


def _requests(kind: str) -> Series:
    return Series("nv_trt_llm_request_metrics", {"request_type": kind})


def _blocks(kind: str) -> Series:
    return Series("nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": kind})


DIALECT = Dialect(
    metrics_path="/prometheus/metrics",
    running=(Sum(Series("trtllm_num_requests_running")), Sum(_requests("scheduled"))),
    waiting=(Sum(Series("trtllm_num_requests_waiting")), Sum(_requests("waiting"))),
    kv_usage=(
        Mean(Series("trtllm_kv_cache_utilization")),
        Mean(_blocks("fraction")),
        Ratio(_blocks("used"), _blocks("max")),
    ),
    kv_capacity_tokens=(
        SumOfProducts(Series("trtllm_kv_cache_tokens_per_block"), Series("trtllm_kv_cache_max_blocks")),
        SumOfProducts(_blocks("tokens_per"), _blocks("max")),
    ),
)
