"""Training of Probing-RAG's probers on the states of a model's own replies, one for each layer (Baek et al., 2025)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.statistics import hash_places
from suffice.policy.rounds import Mask
from suffice.policy.seen import Seen
from suffice_gates.models.reply_states import ReplyStates
from suffice_gates.models.states import prompt_id
from suffice_gates.probes import LabelRule, Probe, ProbeCard, is_right, pinned_of
from suffice_gates.probes.collect import StatePrompt
from suffice_gates.training.examples import Examples
from suffice_gates.training.probe import ProbeSettings, logistic_probe, train_probe

PROBER = ProbeSettings(hidden=(64,), dropout=0.0, lr=1e-3, batch_size=32, epochs=50, balanced=False)
"""A network with one hidden layer, as in the paper; width and learning rate are our choice."""

_DEV = 0.25


def fit_reply_probes(
    source: ReplyStates,
    prompts: Sequence[StatePrompt],
    golds: Mapping[str, Sequence[str]],
    *,
    rule: LabelRule | str = "em",
    settings: ProbeSettings | None = None,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[Probe, ...]:
    """Answer tune questions, label each reply by whether its answer is right, and fit a probe for each layer.

    The same probes are fitted on prompts with and without passages, because a loop has both.  All prompts of one
    question have its id, and all are used either for the fit or for early stopping.

    Args:
        source: The states of the model's replies.
        prompts: Prompts to answer: for each question, one prompt for each round that is used, with the passages of that
            round.
        golds: Gold answers by question id.
        rule: The rule by which an answer is right.
        settings: Settings of a network (`PROBER` has the paper's shape); None for a logistic regression, without torch.
        seed: Seed of a network.
        on_progress: Called after each prompt with the number of prompts read and the number of all prompts.

    Returns:
        One probe for each of the source's layers; their cards contain hashes of the questions.

    Raises:
        DataError: There are no prompts or gold answers, or the replies of a set are all right or all wrong.
        ModelError: The model failed.
    """
    if not prompts:
        raise DataError("prompts is empty: give the questions that the probes are to be fitted on")
    parsed = LabelRule.parse(rule) if isinstance(rule, str) else rule
    labels, states = [], []
    replies = source.model.answers([prompt.question for prompt in prompts], [prompt.passages for prompt in prompts])
    for number, (prompt, reply) in enumerate(zip(prompts, replies, strict=True), start=1):
        labels.append(is_right(reply.answer, golds.get(prompt.id, ()), parsed))
        states.append(source.of_text(prompt.question, reply.text, prompt.passages)[0])
        if on_progress is not None:
            on_progress(number, len(prompts))
    known = np.array(labels, dtype=np.float64)
    values = np.stack(states)
    usable: Mask = np.asarray(np.isfinite(known) & np.isfinite(values).all(axis=(1, 2)), dtype=np.bool_)
    if not usable.any():
        raise DataError("no prompt has both a usable gold answer and a reply with tokens")
    ids = np.array([prompt.id for prompt in prompts], dtype=object)[usable].tolist()
    is_dev: Mask = np.asarray(hash_places(ids) < _DEV, dtype=np.bool_)
    seen = Seen.of(ids, [prompt.question for prompt, use in zip(prompts, usable.tolist(), strict=True) if use])
    card = ProbeCard(
        model=source.id,
        revision=source.revision,
        layer=None,
        prompts=tuple(dict.fromkeys(prompt_id(prompt.passages) for prompt in prompts)),
        pinned=pinned_of(source.fingerprint()),
        provenance={"rule": str(parsed), "prompts_read": int(usable.sum()), **seen.to_dict()},
    )
    probes = []
    for row, layer in enumerate(source.layers):
        every = Examples(ids=tuple(ids), states=values[usable][:, row], labels=known[usable])
        train, dev = every.take(~is_dev), every.take(is_dev)
        own = replace(card, layer=layer)
        fitted = (
            logistic_probe(train, dev, own, balanced=False)
            if settings is None
            else train_probe(train, dev, own, settings=settings, seed=seed)
        )
        probes.append(fitted.probe)
    return tuple(probes)
