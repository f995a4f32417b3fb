"""Hugging Face's Text Generation Inference. It reports neither KV usage nor token counters."""

from tidegate.engines.dialect import Dialect, Series, Sum

DIALECT = Dialect(
    metrics_path="/metrics",
    running=(Sum(Series("tgi_batch_current_size")),),
    waiting=(Sum(Series("tgi_queue_size")),),
)
