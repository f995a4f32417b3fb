"""What a simulated engine is started with."""

from dataclasses import dataclass
from typing import Literal

from tidegate.simulator.profiles import Profile

MetricsNames = Literal["current", "old"]

DEFAULT_MODEL = "sim-llama-3.1-8b"
DEFAULT_MAX_MODEL_LEN = 32_768
DEFAULT_MAX_QUEUE = 1_024
DEFAULT_MEAN_OUTPUT_TOKENS = 200.0
"""Azure's 2023 conversation trace has 211."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One simulated engine.

    Attributes:
        port: TCP port to listen on; 0 for any free one.
        profile: speed and limits.
        host: IP address to listen on.
        model: the name of its one model.
        max_model_len: longest prompt and answer together, in tokens; ``None`` for 32,768 or what the KV cache holds, if
            that is less.
        max_queue: requests accepted beyond a full batch.
        mean_output_tokens: mean length of an answer that the model ends itself, in tokens.
        speed: by how much it is faster than its profile says.
        seed: where its random draws start.
        metrics_names: ``current`` for the names of vLLM 0.32, ``old`` for those before (``gpu_cache_usage_perc``).
        fail_rate: share of inference requests answered with 500 from the start, 0 to 1.
        hang: accept connections and answer nothing, from the start.
        kv_events_port: TCP port on which KV events are published; ``None`` for nowhere.
        kv_events_replay_port: TCP port on which they are repeated; ``None`` for nowhere.
        kv_events_topic: their topic.

    Raises:
        ValueError: a value is out of its range.
    """

    port: int
    profile: Profile
    host: str = "127.0.0.1"
    model: str = DEFAULT_MODEL
    max_model_len: int | None = None
    max_queue: int = DEFAULT_MAX_QUEUE
    mean_output_tokens: float = DEFAULT_MEAN_OUTPUT_TOKENS
    speed: float = 1.0
    seed: int = 0
    metrics_names: MetricsNames = "current"
    fail_rate: float = 0.0
    hang: bool = False
    kv_events_port: int | None = None
    kv_events_replay_port: int | None = None
    kv_events_topic: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.context_tokens <= self.profile.kv_tokens:
            raise ValueError(
                f"max_model_len is {self.context_tokens}; expected 1 to {self.profile.kv_tokens}, the tokens that "
                f"{self.profile.num_gpu_blocks} blocks of KV cache hold"
            )
        if not (self.speed > 0 and self.mean_output_tokens >= 1 and 0 <= self.fail_rate <= 1):
            raise ValueError("speed must be positive, mean_output_tokens at least 1 and fail_rate from 0 to 1")

    @property
    def context_tokens(self) -> int:
        """Longest prompt and answer together, in tokens."""
        if self.max_model_len is None:
            return min(DEFAULT_MAX_MODEL_LEN, self.profile.kv_tokens)
        return self.max_model_len
