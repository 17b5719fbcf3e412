"""Forward passes of a transformers model: states of the last prompt token, and generation that continues a pass."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.errors import ModelError
from suffice_gates.models._transformers_loading import LoadedModel
from suffice_gates.models.states import States

Choose = Callable[[Any], Any]
"""Maps log-probabilities, shape ``(n, vocabulary)``, to token ids, shape ``(n,)``."""

_CACHES = ("cache", "past_key_values")
"""Names of the cache in the output and the arguments of a pass: since transformers 5.24, and before."""


@dataclass(slots=True)
class Prefill:
    """The result of a pass over prompts, from which generation can continue.

    Attributes:
        states: States of the last prompt tokens, shape ``(n, n_layers, width)``.
        logits: Logits of the first generated token of each prompt, shape ``(n, vocabulary)``.
        cache: Keys and values of the prompts; generation writes into it.
        cache_name: The name of the argument for the cache.
        mask: 1 for tokens of the prompt, 0 for padding on its left, shape ``(n, longest)``.
    """

    states: States
    logits: Any
    cache: Any
    cache_name: str
    mask: Any


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """One generated token.

    Attributes:
        token: Its id.
        logprob: Its log-probability, nats.
        top: `(id, log-probability)` of the most likely tokens at this position, best first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class _EnoughError(Exception):
    """Raised to end a pass once the highest requested layer has been read."""


def last_states(model: LoadedModel, ids: Sequence[Sequence[int]], layers: Sequence[int]) -> States:
    """Return the states of the last tokens from one batched pass with right padding.

    The pass computes no logits, keeps no keys and values, and skips the layers above the highest requested one.

    Args:
        model: The model.
        ids: The tokens of each prompt, at least one.
        layers: Indices as in transformers' `hidden_states`: 0 is the embedding.

    Returns:
        Shape ``(len(ids), len(layers), width)``.
    """
    import torch

    last = torch.tensor([len(row) - 1 for row in ids])
    return _states_at(model, ids, layers, last)


def position_states(model: LoadedModel, ids: Sequence[int], layers: Sequence[int], positions: Sequence[int]) -> States:
    """Return the states of several tokens of one prompt, from one pass (as in `last_states`).

    Args:
        model: The model.
        ids: The tokens of the prompt.
        layers: Indices as in transformers' `hidden_states`: 0 is the embedding.
        positions: Positions in `ids`, at least one.

    Returns:
        Shape ``(len(positions), len(layers), width)``.
    """
    import torch

    return _states_at(model, [ids], layers, torch.tensor(list(positions)))


def _states_at(model: LoadedModel, ids: Sequence[Sequence[int]], layers: Sequence[int], places: Any) -> States:
    """Return the states of one token of each prompt, or of several tokens of a single prompt."""
    import torch

    body = _body(model)
    tokens, mask = _padded(model, ids, side="right")
    # Padding on the right leaves every prompt at positions 0, 1, ..., as when it is read alone.
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
    places = places.to(tokens.device)
    with torch.inference_mode(), model.lock, _reading_layers(model, layers, places, stop=True) as readings:
        with contextlib.suppress(_EnoughError):
            inputs = {"input_ids": tokens, "attention_mask": mask, "position_ids": positions, "use_cache": False}
            readings.finish(body(**_accepted(body, inputs)))
        return readings.array()


def prefill(model: LoadedModel, ids: Sequence[Sequence[int]], layers: Sequence[int]) -> Prefill:
    """Run a pass that generation can continue, over prompts padded on the left so that all end at the same position.

    Args:
        model: The model.
        ids: The tokens of each prompt, at least one.
        layers: Layers whose states are kept; empty if only an answer is needed.
    """
    import torch

    network = model.network
    tokens, mask = _padded(model, ids, side="left")
    last = torch.full((len(ids),), tokens.shape[1] - 1, device=tokens.device)
    inputs = {
        "input_ids": tokens,
        "attention_mask": mask,
        # Positions count tokens without the padding on the left, so that a batch does not change a prompt's states.
        "position_ids": (mask.cumsum(-1) - 1).clamp(min=0),
        "use_cache": True,
        "logits_to_keep": 1,
    }
    with torch.inference_mode(), model.lock, _reading_layers(model, layers, last, stop=False) as readings:
        output = network(**_accepted(network, inputs))
        kept = {name: output[name] for name in _CACHES if _has_keys(output.get(name))}
        if not (accepted := _accepted(network, kept)):
            raise ModelError(
                f"{model.id!r} ({type(network).__name__}) keeps no keys and values, so generation cannot continue its pass: "
                "use it behind an endpoint, or read only its states with read_batch"
            )
        name, cache = next(iter(accepted.items()))
        return Prefill(states=readings.array(), logits=output.logits[:, -1], cache=cache, cache_name=name, mask=mask)


def _has_keys(cache: Any) -> bool:
    """Return whether a cache contains keys.

    State-space models keep only states, which further padding would corrupt.
    """
    layers = getattr(cache, "layers", None)
    return cache is not None and (layers is None or any(hasattr(layer, "keys") for layer in layers))


def greedy(logprobs: Any) -> Any:
    """Return the most likely token of each row, shape ``(n,)``."""
    return logprobs.argmax(-1)


def sampling_at(temperature: float, rng: np.random.Generator) -> Choose:
    """Return a function that samples tokens at a temperature.

    Args:
        temperature: Above 0; 1 samples from the model's own probabilities.
        rng: Random numbers, the same on every device.
    """
    import torch

    def choose(logprobs: Any) -> Any:
        # Gumbel-max: the argmax of log-probabilities plus Gumbel noise is a draw from their softmax.
        noise = torch.from_numpy(rng.gumbel(size=tuple(logprobs.shape)))
        return (logprobs.double().cpu() / temperature + noise).argmax(-1)

    return choose


def generate(
    model: LoadedModel,
    start: Prefill,
    *,
    max_tokens: int,
    ends: frozenset[int],
    n_top: int,
    choose: Choose = greedy,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> list[list[GeneratedToken]]:
    """Continue a pass with generation; the tokens of the prompts are not processed again.

    Args:
        model: The model.
        start: The pass; its cache is used up.
        max_tokens: Largest number of tokens to generate.
        ends: Tokens that end a reply; included as its last step.
        n_top: Number of most likely tokens to return at each position.
        choose: Selects the next token of each prompt.
        is_cancelled: Called before each token; if it returns True, the generation ends.

    Returns:
        The steps of each prompt, in order.
    """
    import torch

    replies: list[list[GeneratedToken]] = [[] for _ in range(len(start.mask))]
    open_rows = set(range(len(replies)))
    logits, mask = start.logits, start.mask
    with torch.inference_mode():
        for position in range(max_tokens):
            logprobs = torch.log_softmax(logits.float(), dim=-1)
            chosen = choose(logprobs).to(logprobs.device)
            _append_steps(replies, open_rows, chosen, logprobs, n_top)
            open_rows -= {row for row in open_rows if replies[row][-1].token in ends}
            if not open_rows or position + 1 == max_tokens or is_cancelled():
                break
            mask = torch.cat([mask, mask.new_ones((len(mask), 1))], dim=-1)
            inputs = {
                "input_ids": chosen[:, None],
                "attention_mask": mask,
                "position_ids": mask.sum(-1, keepdim=True) - 1,
                start.cache_name: start.cache,
                "use_cache": True,
            }
            with model.lock:
                logits = model.network(**_accepted(model.network, inputs)).logits[:, -1]
    return replies


def _append_steps(replies: list[list[GeneratedToken]], rows: set[int], chosen: Any, logprobs: Any, n_top: int) -> None:
    """Append one step to each unfinished reply."""
    logprobs_chosen = logprobs.gather(-1, chosen[:, None])[:, 0].tolist()
    top = logprobs.topk(min(n_top, logprobs.shape[-1]), dim=-1)
    values, top_ids, tokens = top.values.tolist(), top.indices.tolist(), chosen.tolist()
    for row in rows:
        best = tuple(zip(top_ids[row], values[row], strict=True))
        replies[row].append(GeneratedToken(tokens[row], logprobs_chosen[row], best))


def _padded(model: LoadedModel, ids: Sequence[Sequence[int]], *, side: str) -> tuple[Any, Any]:
    """Return token ids and mask, each of shape ``(len(ids), longest)``."""
    import torch

    filler = model.tokenizer.pad_token_id or 0  # masked, so any token will do
    longest = max(len(row) for row in ids)
    tokens = torch.full((len(ids), longest), filler, dtype=torch.long)
    mask = torch.zeros((len(ids), longest), dtype=torch.long)
    for number, row in enumerate(ids):
        span = slice(0, len(row)) if side == "right" else slice(longest - len(row), longest)
        tokens[number, span] = torch.tensor(row, dtype=torch.long)
        mask[number, span] = 1
    device = model.network.get_input_embeddings().weight.device
    return tokens.to(device), mask.to(device)


def _accepted(module: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return only the inputs that the module's forward pass accepts.

    Some architectures take no positions or no `logits_to_keep`.
    """
    known = inspect.signature(module.forward).parameters
    if "input_ids" not in known:  # a wrapper that passes on all arguments
        return inputs
    return {name: value for name, value in inputs.items() if name in known}


class _Readings:
    """States of the last tokens at some layers, collected during a pass."""

    def __init__(self, model: LoadedModel, layers: Sequence[int], last: Any) -> None:
        self._model, self._layers, self._last = model, layers, last
        self._states: dict[int, Any] = {}

    def take(self, layer: int, hidden: Any) -> None:
        """Keep the states of the last tokens.

        `hidden` contains the states of all tokens, shape ``(n, length, width)``.
        """
        import torch

        if not torch.is_tensor(hidden) or hidden.dim() != 3:  # noqa: PLR2004 - prompts, tokens, width
            raise ModelError(
                f"layer {layer} of {self._model.id!r} returned no hidden states of the shape (prompts, tokens, width)"
            )
        # A model may be spread over devices, so each layer's states are read where they are.
        rows = torch.arange(len(hidden), device=hidden.device)
        self._states[layer] = hidden[rows, self._last.to(hidden.device)].float()

    def finish(self, output: Any) -> None:
        """Keep the states after the last layer, if requested."""
        if self._model.n_layers in self._layers and self._model.n_layers not in self._states:
            self.take(self._model.n_layers, getattr(output, "last_hidden_state", None))

    def array(self) -> States:
        """Return the collected states, shape ``(n, n_layers, width)``."""
        if not self._layers:
            return np.zeros((len(self._last), 0, 0), dtype=np.float32)
        missing = [layer for layer in self._layers if layer not in self._states]
        if missing:
            raise ModelError(
                f"{self._model.id!r} returned no hidden states of layer {missing[0]}: its architecture "
                f"({type(self._model.network).__name__}) is not supported. Use another model, or EncoderStates"
            )
        by_layer = [self._states[layer].cpu().numpy() for layer in self._layers]
        states: States = np.stack(by_layer, axis=1).astype(np.float32, copy=False)
        return states


@contextlib.contextmanager
def _reading_layers(model: LoadedModel, layers: Sequence[int], last: Any, *, stop: bool) -> Iterator[_Readings]:
    """Read layers during a pass.

    `hidden_states[k]` is the input of layer k; the last element of `hidden_states` is the output of the model.

    With `stop` the pass ends once the highest requested layer has been read.
    """
    readings = _Readings(model, layers, last)
    stack = _layer_stack(model) if layers else []
    highest = max(layers, default=0)

    def reader(layer: int) -> Callable[..., None]:
        def take(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            readings.take(layer, args[0] if args else kwargs.get("hidden_states"))
            if stop and layer == highest:
                raise _EnoughError

        return take

    hooks = [
        stack[layer].register_forward_pre_hook(reader(layer), with_kwargs=True)
        for layer in set(layers)
        if layer < len(stack)
    ]
    if model.n_layers in layers and not stop:
        hooks.append(_body(model).register_forward_hook(lambda _module, _args, output: readings.finish(output)))
    try:
        yield readings
    finally:
        for hook in hooks:
            hook.remove()


def _body(model: LoadedModel) -> Any:
    """Return the network without its language-model head."""
    network = model.network
    decoder = network.get_decoder() if hasattr(network, "get_decoder") else None
    return network.base_model if decoder is None or decoder is network else decoder


def _layer_stack(model: LoadedModel) -> Any:
    """Return the layers of the text model in order."""
    import torch

    for module in _body(model).modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == model.n_layers:
            return module
    raise ModelError(
        f"the layers of {model.id!r} ({type(model.network).__name__}) were not found, so its hidden states cannot be read. "
        "Use another model, or EncoderStates"
    )
