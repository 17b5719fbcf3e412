"""The memory that training a reranker takes: counted from its shape, and measured in what a pass keeps."""

from __future__ import annotations

import weakref
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from suffice.errors import DataError, ModelError
from suffice_gates.training import step_time
from suffice_gates.training.memory import GIB, MOST_OF, parts_of_batch, pass_memory, training_memory
from suffice_gates.training.reranker import RerankerSettings, train_reranker
from suffice_gates.training.reranker_trainer import changed_settings, in_parts, more_parts
from tests.suffice_gates.support.tiny_reranker import overlap_preferences, tiny_cross_encoder

pytestmark = pytest.mark.usefixtures("no_collecting")

LARGE = SimpleNamespace(num_hidden_layers=24, hidden_size=1024, intermediate_size=4096, model_type="xlm-roberta")
"""The shape of bge-reranker-v2-m3, 568 million weights."""

SHORT = RerankerSettings(learning_rate=3e-3, epochs=1, batch=8, evaluations=2)


def kept_by_a_pass(kind, *, pairs, tokens, half, checkpointing):
    """Return the bytes of all tensors that one pass keeps for the backward pass, weights left out."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=100,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=tokens + 8,
        num_labels=1,
        attention_probs_dropout_prob=0.0,  # with it, a processor keeps the attention matrices, which a GPU does not
        use_cache=False,
    )
    network = transformers.AutoModelForSequenceClassification.from_config(config, attn_implementation="sdpa").train()
    if checkpointing:
        network.gradient_checkpointing_enable({"use_reentrant": False})
    weights = {weight.untyped_storage().data_ptr() for weight in network.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # held, so that no other takes its place
        return tensor

    ids = torch.randint(5, 90, (pairs, tokens))
    mask = torch.ones_like(ids)
    mask[0, -2:] = 0
    precision = torch.autocast("cpu", dtype=torch.bfloat16, enabled=half)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), precision:
        network(input_ids=ids, attention_mask=mask)
    return sum(size for size, _ in kept.values()), config


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["XLMRoberta", "Bert"])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_estimate_is_what_a_pass_keeps(kind, half, checkpointing):
    """Of two sizes the difference: what does not grow with the pairs is not activations."""
    sizes = [
        kept_by_a_pass(kind, pairs=pairs, tokens=40, half=half, checkpointing=checkpointing)[0] for pairs in (4, 12)
    ]
    config = kept_by_a_pass(kind, pairs=2, tokens=40, half=half, checkpointing=checkpointing)[1]
    estimate = training_memory(config, 10**6, 40, half=half, checkpointing=checkpointing)
    measured = (sizes[1] - sizes[0]) / 8
    assert measured == pytest.approx(estimate.pair, rel=0.15 if checkpointing else 0.03)
    assert (estimate.whole_layer > 0) == checkpointing


def test_the_published_size_fits_a_gpu_of_24_gib_in_parts_only():
    half = training_memory(LARGE, 568_000_000, 128 + 512 + 4)
    assert half.states / GIB == pytest.approx(9.5, abs=0.1)
    assert half.total(192) / GIB > 100
    parts = parts_of_batch(half, 32, 6, 24.0)
    assert 1 < parts < 32
    assert half.total(32 // parts * 6) <= MOST_OF * 24 * GIB < half.total(64 // parts * 6)
    assert training_memory(LARGE, 568_000_000, 200).pair * 192 / GIB == pytest.approx(39, abs=1)
    checkpointed = training_memory(LARGE, 568_000_000, 644, checkpointing=True)
    assert checkpointed.total(192) < half.total(192) / 4


def test_a_gated_layer_keeps_more_and_an_unknown_shape_is_unknown():
    gated = SimpleNamespace(**{**vars(LARGE), "model_type": "qwen3"})
    assert training_memory(gated, 10, 100).pair > training_memory(LARGE, 10, 100).pair
    assert training_memory(SimpleNamespace(hidden_size=8), 10, 100) is None
    with pytest.raises(DataError, match="GiB above 0"):
        parts_of_batch(training_memory(LARGE, 10, 100), 8, 6, 0.0)


@pytest.mark.parametrize(
    ("changes", "parts", "said"),
    [
        ({}, 16, "2 of 32 rows at a time"),
        ({"memory": 80.0}, 4, "8 of 32 rows"),
        ({"memory": 8.0}, 32, "more than 90% of 8 GiB"),
        ({"accumulate": 1}, 1, "checkpointing=true"),
        ({"in_batch": 4}, 1, "more than 90%"),
        ({"in_batch": 4, "accumulate": 8}, 8, "rows"),
    ],
)
def test_a_batch_is_cut_by_default_as_the_memory_demands(changes, parts, said):
    settings, notes = in_parts(RerankerSettings(**changes), training_memory(LARGE, 568_000_000, 644))
    assert settings.accumulate == parts
    assert said in " ".join(notes)


def test_an_unknown_memory_is_said():
    settings, notes = in_parts(RerankerSettings(), None)
    assert settings.accumulate == 1
    assert "is unknown" in notes[0]


def test_after_a_lack_of_memory_the_parts_are_half_as_large():
    assert [more_parts(RerankerSettings(batch=12, accumulate=parts)) for parts in (1, 2, 4, 6, 12)] == [
        2,
        4,
        12,
        12,
        None,
    ]
    assert more_parts(RerankerSettings(in_batch=2)) is None


def test_settings_that_only_save_memory_do_not_change_what_is_learned():
    old = asdict(RerankerSettings(accumulate=4, memory=80.0, checkpointing=True))
    assert changed_settings(old, RerankerSettings()) == []
    for name in ("accumulate", "memory", "checkpointing"):  # as older releases stored them
        old.pop(name)
    assert changed_settings({**old, "accumulate": 1}, RerankerSettings()) == []
    assert changed_settings(old, RerankerSettings(batch=16)) == ["batch: 32 -> 16"]
    in_batch = asdict(RerankerSettings(in_batch=2, accumulate=4))
    assert changed_settings(in_batch, RerankerSettings(in_batch=2)) == ["accumulate: 4 -> 1"]


@pytest.mark.whole
def test_where_memory_runs_out_the_batch_is_halved_and_training_goes_on(tmp_path, monkeypatch, caplog):
    import torch

    from suffice_gates.training import reranker

    base, data = tiny_cross_encoder(tmp_path / "base"), overlap_preferences(24, seed=3)
    steps, make = [], reranker.make_trainer

    def scarce(*arguments, **options):
        trainer = make(*arguments, **options)
        step = trainer.training_step

        def limited(model, inputs, *more, **settings):
            rows = len(next(iter(inputs.values())))
            steps.append(rows)
            if rows > 2 and trainer.state.global_step > 2:  # after the first checkpoint
                raise torch.OutOfMemoryError("CUDA out of memory")
            return step(model, inputs, *more, **settings)

        trainer.training_step = limited
        return trainer

    options = {"settings": replace(SHORT, accumulate=1), "device": "cpu"}
    whole = train_reranker(base, data, tmp_path / "whole", **options)
    monkeypatch.setattr(reranker, "make_trainer", scarce)
    run = train_reranker(base, data, tmp_path / "scarce", **options)
    assert (run.steps, run.accumulate) == (whole.steps, 4)
    assert {8, 4, 2} <= set(steps)
    assert [note for note in run.notes if note.startswith("memory ran out, so each batch is cut into")]
    assert "cut into 4 parts instead of 2" in caplog.text
    monkeypatch.setattr(reranker, "more_parts", lambda _: None)
    with pytest.raises(ModelError, match="does not suffice"):
        train_reranker(base, data, tmp_path / "none", **options)


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")
def test_layers_that_are_computed_again_learn_the_same(tmp_path):
    from tests.suffice_gates.test_reranker import same, weights

    base, data = tiny_cross_encoder(tmp_path / "base", dropout=0.1), overlap_preferences(8, seed=3)
    for name in ("kept", "again"):
        settings = replace(SHORT, checkpointing=name == "again")
        train_reranker(base, data, tmp_path / name, settings=settings, device="cpu")
    assert same(weights(tmp_path / "kept"), weights(tmp_path / "again"))


# Passes without a gradient, and the duration of a step


def highest_in_a_pass(kind, *, prompts, tokens, keeps):
    """Return the most bytes that are alive at once in a pass, weights left out."""
    import torch
    import transformers
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter

    config = getattr(transformers, f"{kind}Config")(
        vocab_size=200,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=256,
        **({} if kind == "Bert" else {"num_key_value_heads": 2}),
    )
    of = "AutoModelForSequenceClassification" if kind == "Bert" else "AutoModelForCausalLM"
    network = getattr(transformers, of).from_config(config).eval()
    known = {part.untyped_storage().data_ptr() for part in (*network.parameters(), *network.buffers())}

    class Alive(TorchDispatchMode):
        """Adds up the storages that exist."""

        sizes, highest = {}, 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for tensor in tree_iter(result):
                if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in known:
                    storage = tensor.untyped_storage()
                    if storage._cdata not in self.sizes:
                        self.sizes[storage._cdata] = storage.nbytes()
                        weakref.finalize(storage, self.sizes.pop, storage._cdata, None)
            self.highest = max(self.highest, sum(self.sizes.values()))
            return result

    body = network if keeps or kind == "Bert" else network.base_model
    more = {} if kind == "Bert" else {"use_cache": keeps}
    ids = torch.randint(5, 190, (prompts, tokens))
    with torch.no_grad(), Alive() as alive:
        kept = body(
            input_ids=ids, attention_mask=torch.ones_like(ids), **more, **({"logits_to_keep": 1} if keeps else {})
        )
    del kept
    return alive.highest, config


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "keeps"), [("Llama", False), ("Llama", True), ("Qwen2", True), ("Bert", False)])
def test_the_memory_of_a_pass_is_what_is_alive_in_it(kind, keeps):
    for prompts, tokens in ((8, 64), (16, 100)):
        highest, config = highest_in_a_pass(kind, prompts=prompts, tokens=tokens, keeps=keeps)
        estimate = pass_memory(config, prompts=prompts, tokens=tokens, new_tokens=int(keeps), size=4)
        assert estimate == pytest.approx(highest, rel=0.05)


def test_keys_and_values_grow_with_the_reply_and_unknown_shapes_are_unknown():
    shape = SimpleNamespace(num_hidden_layers=2, hidden_size=8, intermediate_size=16, num_attention_heads=2)
    sizes = [pass_memory(shape, prompts=3, tokens=10, new_tokens=new, size=2) for new in (1, 5)]
    assert sizes[1] - sizes[0] == 3 * 2 * 2 * 8 * 4 * 2
    assert pass_memory(SimpleNamespace(hidden_size=8), prompts=1, tokens=1) is None


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")
def test_the_duration_of_a_step_is_measured_and_leaves_nothing(tmp_path, monkeypatch):
    import torch

    base, data = tiny_cross_encoder(tmp_path / "base"), overlap_preferences(3, seed=3)
    made, make = [], step_time.make_trainer

    def scarce(encoder, preferences, dev, settings, folder, **options):
        made.append((settings.accumulate, folder))
        trainer = make(encoder, preferences, dev, settings, folder, **options)
        step = trainer.training_step

        def limited(model, inputs, *more, **named):
            if len(next(iter(inputs.values()))) > 4:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return step(model, inputs, *more, **named)

        trainer.training_step = limited
        return trainer

    monkeypatch.setattr(step_time, "make_trainer", scarce)
    n, seconds = step_time.time_steps(str(base), data, SHORT, device="cpu")
    assert (n, [parts for parts, _ in made]) == (2, [1, 2])
    assert seconds > 0
    assert not any(folder.exists() for _, folder in made)
    monkeypatch.setattr(step_time, "more_parts", lambda _: None)
    with pytest.raises(ModelError, match="does not suffice"):
        step_time.time_steps(str(base), data, SHORT, device="cpu")
