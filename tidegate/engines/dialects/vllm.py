"""vLLM. Names of 0.32, with the ones that older releases used behind them.

Every series but the information ones bears ``engine`` (the data-parallel rank) and ``model_name``. Gauges describe the
last engine step; KV usage does not count cached blocks that no request refers to.
"""

from tidegate.engines.dialect import Dialect, Mean, Names, Newest, Series, Sum, SumOfProducts

_CACHE = "vllm:cache_config_info"
_LORA = "vllm:lora_requests_info"

DIALECT = Dialect(
    metrics_path="/metrics",
    running=(Sum(Series("vllm:num_requests_running")),),
    waiting=(Sum(Series("vllm:num_requests_waiting")),),
    kv_usage=(Mean(Series("vllm:kv_cache_usage_perc")), Mean(Series("vllm:gpu_cache_usage_perc"))),
    kv_capacity_tokens=(
        SumOfProducts(Series(_CACHE, label="block_size"), Series(_CACHE, label="num_gpu_blocks")),
        Sum(Series(_CACHE, label="kv_cache_size_tokens")),
    ),
    prompt_tokens_total=(Sum(Series("vllm:prompt_tokens_total")),),
    generation_tokens_total=(Sum(Series("vllm:generation_tokens_total")),),
    started_at=(Sum(Series("process_start_time_seconds")),),
    max_adapters=(Newest(Series(_LORA, label="max_lora")),),
    running_adapters=(Names(Series(_LORA, label="running_lora_adapters")),),
    waiting_adapters=(Names(Series(_LORA, label="waiting_lora_adapters")),),
)
