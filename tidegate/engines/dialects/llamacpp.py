"""llama.cpp's server, started with ``--metrics``. Its series bear no labels.

``prompt_tokens_total`` leaves out tokens that were found in the cache. KV usage was dropped by newer builds.
"""

from tidegate.engines.dialect import Dialect, Mean, Series, Sum

DIALECT = Dialect(
    metrics_path="/metrics",
    running=(Sum(Series("llamacpp:requests_processing")),),
    waiting=(Sum(Series("llamacpp:requests_deferred")),),
    kv_usage=(Mean(Series("llamacpp:kv_cache_usage_ratio")),),
    prompt_tokens_total=(Sum(Series("llamacpp:prompt_tokens_total")),),
    generation_tokens_total=(Sum(Series("llamacpp:tokens_predicted_total")),),
)
