"""Usual names of columns with tokens, seconds and calls."""

from __future__ import annotations

INPUT_COLUMNS = (
    "prompt_tokens",
    "input_tokens",
    "tokens_in",
    "input_token_count",
    "prompt_token_count",
    "n_prompt_tokens",
)
OUTPUT_COLUMNS = (
    "completion_tokens",
    "output_tokens",
    "tokens_out",
    "output_token_count",
    "candidates_token_count",
    "n_completion_tokens",
    "generated_tokens",
)
CACHED_COLUMNS = ("cached_tokens", "cached_input_tokens", "cached_content_token_count", "prompt_cache_hit_tokens")
CACHE_READ, CACHE_WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
SECONDS = {
    "seconds": 1.0,
    "latency_s": 1.0,
    "latency_seconds": 1.0,
    "duration_s": 1.0,
    "duration_seconds": 1.0,
    "elapsed_s": 1.0,
    "elapsed_seconds": 1.0,
    "time_s": 1.0,
    "latency_ms": 1e-3,
    "duration_ms": 1e-3,
    "elapsed_ms": 1e-3,
    "time_ms": 1e-3,
}
CALLS = ("calls", "n_calls", "num_calls", "llm_calls", "api_calls")
