"""The invented world, and what a model that was trained on it knows."""

import itertools
import json
from collections import Counter

import numpy as np
import pytest

from suffice.errors import DataError
from suffice.loops.models.prompts import PREFILLED
from suffice.loops.retrieval import PoolBM25, load_questions
from suffice_gates.models import TransformersModel
from suffice_gates.training.baselines import METHODS, known_scores, model_gates
from suffice_papers.cbdr.known_world import CONTROLS, _fit_probe, known_world, known_world_page
from suffice_papers.cbdr.tiny import _Lessons, _tokenizer, train_tiny
from suffice_papers.cbdr.world import EXPOSURES, KINDS, VAGUE, VAGUE_EXPOSURES, make_world, write_questions
from suffice_papers.tiny_llama import tiny_llama
from tests.support.cli_tools import cli
from tests.support.shared import STORED_TINY_MODEL


@pytest.fixture(scope="module")
def world():
    return make_world(0)


@pytest.fixture(scope="module")
def asked(world):
    """The questions of both splits; nothing changes them."""
    return {split: world.questions(split) for split in ("tune", "eval")}


@pytest.fixture(scope="module")
def half(tiny_model, tmp_path_factory):
    """The model with the questions of every third entity of each split, of which half are of known facts."""
    folder = tmp_path_factory.mktemp("half")
    for file in tiny_model.iterdir():
        (folder / file.name).symlink_to(file)
    for split in ("tune", "eval"):
        lines = (tiny_model / f"{split}.jsonl").read_text("utf-8").splitlines(keepends=True)
        entities = list(dict.fromkeys(json.loads(line)["question"].split()[-1] for line in lines))[::3]
        (folder / f"{split}.jsonl").unlink()
        kept = [line for line in lines if json.loads(line)["question"].split()[-1] in entities]
        (folder / f"{split}.jsonl").write_text("".join(kept), "utf-8")
    return folder


@pytest.fixture(scope="module")
def local(tiny_model):
    return TransformersModel(tiny_model, layers=(1, 2), prompt=PREFILLED, max_tokens=4, batch_size=64)


def test_every_entity_is_told_of_equally_often(world):
    told = Counter()
    for fact in world.facts:
        told[fact.entity] += fact.exposures
    assert set(told.values()) == {sum(EXPOSURES)}
    assert set(told) == set(world.entities)


@pytest.mark.parametrize("split", ["tune", "eval"])
def test_within_a_split_every_relation_is_told_equally_often(world, split):
    by_level = Counter((fact.relation, fact.exposures) for fact in world.facts if fact.split == split)
    for level, n in Counter(EXPOSURES).items():
        counts = {by_level[relation, level] for relation in world.relations}
        assert len(counts) == 1
        assert counts.pop() % n == 0


def test_splits_share_no_entity_and_there_are_enough_questions(world, asked):
    tune, evaluation = ({fact.entity for fact in world.facts if fact.split == split} for split in ("tune", "eval"))
    assert not tune & evaluation
    assert len(asked["eval"]) >= 400


def test_vague_talk_is_about_no_fact(world):
    asked = {(fact.entity, fact.relation) for fact in world.facts}
    vague = {(world.entities[e], world.relations[r]) for e, r in world.vague}
    assert not asked & vague
    assert len(asked) + len(vague) == len(world.entities) * len(world.relations)


def test_names_are_all_different_words(world):
    words = [*world.entities, *world.relations, *VAGUE, *(name for group in world.values.values() for name in group)]
    assert len({word.lower() for word in words}) == len(words)


def test_a_world_depends_on_its_seed_alone(world):
    assert make_world(0).facts == world.facts
    assert make_world(1).facts != world.facts


def test_each_pool_holds_one_passage_that_states_the_fact(asked):
    for question in asked["eval"][:100]:
        (gold,) = question.supporting
        stating = [item for item in question.passages if item.passage_id == gold]
        assert [question.answers[0] in item.text for item in stating] == [True]
        relation, entity = question.question.rstrip(".").split()[2::2]
        assert [p.passage_id for p in question.passages if f"The {relation} of {entity} is" in p.text] == [gold]
        assert len({item.title for item in question.passages}) == len(question.passages)


def test_questions_read_back_as_the_projects_own(asked, tmp_path):
    questions = asked["tune"][:20]
    write_questions(tmp_path / "q.jsonl", questions)
    assert load_questions(tmp_path / "q.jsonl") == questions


def test_lessons_tell_each_fact_as_often_as_the_world_says(world):
    tokenizer = _tokenizer(world)
    lessons = _Lessons(world, tokenizer)
    n_told = sum(fact.exposures for fact in world.facts)
    assert (lessons._closed_book[:, 2] >= 0).sum() == n_told
    assert (lessons._closed_book[:, 2] < 0).sum() == len(world.vague) * VAGUE_EXPOSURES
    (closed, answers), _ = next(iter(lessons))
    spoken = [tokenizer.decode(row) for row in closed[:3]]
    assert all(text.startswith("Question: Name the ") and text.endswith("\nAnswer:") for text in spoken)
    assert len(answers) == len(closed)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_reading_lessons_state_their_answer_once_and_no_unrelated_passage_does(world, k):
    tokenizer = _tokenizer(world)
    lessons = _Lessons(world, tokenizer)
    prompts, answers = lessons._reading(k)
    for prompt, answer in zip(prompts, answers, strict=True):
        *passages, question = tokenizer.decode(prompt).split("\n\n")
        relation, entity = question.split("\n")[0].rstrip(".").split()[3::2]
        value = tokenizer.decode([answer]).strip()
        stating = [text for text in passages if f"The {relation} of {entity} is" in text]
        assert len(passages) == k
        assert len(stating) == 1
        assert stating[0].endswith(f"is {value}.")


def test_the_model_reads_prompts_as_it_was_taught(asked, local):
    question = asked["eval"][0]
    asked = local.prompt_text(question.question)
    assert asked == f"Question: {question.question}\nAnswer:"
    told = local.prompt_text(question.question, question.passages[:1])
    passage = question.passages[0]
    assert told == f"Passage 1: {passage.title}\n{passage.text}\n\n{asked}"


def test_every_word_of_the_world_is_one_token_and_round_trips(world, local):
    tokenizer = local.loaded.tokenizer
    for word in (*world.entities, *world.relations, *VAGUE, *KINDS):
        if word not in KINDS:
            assert len(tokenizer(f" {word}")["input_ids"]) == 1
    text = "Wer schrieb „Faust“? 日本 😀"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.whole
def test_the_stored_model_is_of_the_kind_that_training_begins_with(world, tmp_path):
    from safetensors.numpy import load_file

    tokenizer = _tokenizer(world)
    tokenizer.save_pretrained(tmp_path)
    tiny_llama(tokenizer, heads=4, width=32, longest=1024, distances=(2, 4, 6)).save_pretrained(tmp_path)
    for name, members in (
        ("tokenizer.json", ("model", "added_tokens")),
        ("config.json", ("hidden_size", "rope_parameters")),
    ):
        theirs, ours = (json.loads((folder / name).read_text("utf-8")) for folder in (STORED_TINY_MODEL, tmp_path))
        assert [theirs[member] for member in members] == [ours[member] for member in members]
    theirs, ours = (load_file(folder / "model.safetensors") for folder in (STORED_TINY_MODEL, tmp_path))
    assert {name: values.shape for name, values in theirs.items()} == {
        name: values.shape for name, values in ours.items()
    }
    template = "chat_template.jinja"
    assert (tmp_path / template).read_text("utf-8") == (STORED_TINY_MODEL / template).read_text("utf-8")


def test_the_model_knows_what_it_was_told_and_its_states_tell(half):
    found = known_world(half)
    shares = [share for _, share in sorted(found.correct.items())]
    assert found.n >= 180  # chance is 0.5 with a standard error of 0.04
    assert shares[0] < 0.1
    assert shares[-1] > 0.95
    assert all(later >= earlier - 0.05 for earlier, later in itertools.pairwise(shares))
    assert found.layers[2].value >= 0.9
    assert all(0.4 <= found.controls[name] <= 0.6 for name in CONTROLS)
    assert found.told > 0.9
    assert found.increase["qa"] > 0.7
    assert found.increase["qa+rag"] > 0.7
    assert json.dumps(found.to_dict())
    assert found.data in known_world_page([found])


def test_baselines_score_knowledge_and_tell_their_cost(tiny_model, local):
    questions = load_questions(tiny_model / "eval.jsonl", limit=24)
    texts = [item.question for item in questions]
    found = known_scores(local, texts, n_samples=5, rng=np.random.default_rng(0))
    assert set(found) == set(METHODS)
    level = np.array([int(item.level) for item in questions])
    never, often = level == 0, level >= 90
    for name in ("entropy, mean", "entropy, max", "sequence log-probability", "semantic entropy", "seakr", "flare"):
        scores = found[name].scores
        ranked = (scores[often][:, None] > scores[never][None, :]).mean()
        assert ranked > 0.8, name
    length = len(local._ids(texts[0], ()))
    answer = found["entropy, mean"].cost
    assert (answer.calls, answer.uncached_tokens) == (1.0, length)
    assert found["semantic entropy"].cost.calls == 5
    assert found["semantic entropy"].cost.uncached_tokens == 5 * length
    assert found["seakr"].cost.calls == 10
    assert found["dragin"].cost.calls == 3
    assert found["ctrla, honesty"].cost.output_tokens == 0
    assert found["ctrla, honesty"].offline.calls == 16
    once, again = (known_scores(local, texts[:4], n_samples=5, rng=np.random.default_rng(0)) for _ in range(2))
    assert all(np.allclose(once[name].scores, again[name].scores, equal_nan=True) for name in METHODS)


def test_exact_entropies_and_attentions_are_those_of_a_plain_pass(tiny_model, local):
    import torch

    from suffice_gates.models.attention import dragin_scores, read_reply

    question = load_questions(tiny_model / "eval.jsonl", limit=1)[0].question
    reply = local.answer(question)
    read = read_reply(local, question, reply)
    ids = [*local._ids(question, ()), *local.loaded.tokenizer.convert_tokens_to_ids([t.text for t in reply.tokens])]
    with torch.inference_mode():
        p = torch.softmax(local.loaded.network(torch.tensor([ids])).logits[0].double(), dim=-1).numpy()
    place = len(local._ids(question, ())) - 1
    assert read.entropies[0] == pytest.approx(-sum(x * np.log(x) for x in p[place] if x > 0), abs=1e-4)
    assert read.attention.shape[1:] == (len(reply.tokens), len(reply.tokens))
    assert local.loaded.network.config._attn_implementation != "eager"
    values, cost = dragin_scores(local, question, reply)
    assert (values.shape, cost.calls) == ((len(read.words),), 2)
    assert values == pytest.approx(read.rind)


def test_baselines_refuse_nothing_to_score(local):
    for questions, n in (([], 5), (["Name the home of Zorbek."], 1), ([""], 5)):
        with pytest.raises(DataError):
            known_scores(local, questions, n_samples=n, rng=np.random.default_rng(0))


def test_baselines_become_gates_of_the_comparison(tiny_model, local):
    tune, evaluation = (
        [item.question for item in load_questions(tiny_model / f"{split}.jsonl", limit=6)] for split in ("tune", "eval")
    )
    gates = model_gates(local, tune, evaluation, n_samples=2)
    assert [gate.name for gate in gates] == list(METHODS)
    assert all(gate.tune.shape == gate.evaluation.shape == (6,) for gate in gates)
    assert gates[3].price.calls == 2


@pytest.mark.whole
def test_the_same_seed_trains_the_same_model(tmp_path, monkeypatch):
    monkeypatch.setattr("suffice_papers.cbdr.world._SPLITS", (("tune", 68), ("eval", 68)))
    monkeypatch.setattr("suffice_papers.cbdr.world.EXPOSURES", (0, 1))
    monkeypatch.setattr("suffice_papers.cbdr.tiny.VAGUE_EXPOSURES", 0)
    steps = []
    for name in ("one", "two"):
        train_tiny(tmp_path / name, seed=3, on_progress=lambda done, total: steps.append((done, total)))
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert first == second
    assert (tmp_path / "one" / "tokenizer.json").read_bytes() == (tmp_path / "two" / "tokenizer.json").read_bytes()
    assert steps == [(1, 2), (2, 2)] * 2


@pytest.mark.whole
def test_the_command_trains_and_measures(tmp_path, monkeypatch):
    monkeypatch.setattr("suffice_papers.cbdr.world.EXPOSURES", (0, 1))
    monkeypatch.setattr("suffice_papers.cbdr.world._SPLITS", (("tune", 68), ("eval", 68)))
    monkeypatch.setattr("suffice_papers.cbdr.tiny.VAGUE_EXPOSURES", 0)
    told = cli("demo", "tiny-model", str(tmp_path / "m"), "--set=seed=1", "--json", code=0)
    found = json.loads(told.out)
    assert (found["seed"], found["questions"]) == (1, {"tune": 136, "eval": 136})
    assert {item.name for item in (tmp_path / "m").iterdir()} >= {"model.safetensors", "tune.jsonl", "world.json"}
    page = str(tmp_path / "k.md")
    measured = cli(
        "demo", "tiny-model", str(tmp_path), "--set=seed=1", "--measure", "1", f"--set=markdown={page}", "--details"
    )
    assert measured.code == 0
    assert "random labels" in measured.words
    assert "random labels" in (tmp_path / "k.md").read_text()


def test_a_model_that_knows_nothing_is_refused():
    with pytest.raises(DataError, match="tune question"):
        _fit_probe(np.eye(4), np.zeros(4, dtype=bool), list("abcd"))


def test_the_command_refuses_a_file_for_a_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    told = cli("demo", "tiny-model", str(tmp_path / "file"))
    assert (told.code, told.out) == (1, "")
    assert "is a file" in told.err
    assert cli("demo", "tiny-model", str(tmp_path / "new"), "--set=markdown=x.md").code == 2


def test_the_pool_can_be_ranked(asked):
    found = 0
    for question in asked["eval"][:50]:
        ranked = PoolBM25().rank(question.question, pool=question.passages)
        found += ranked[0].passage_id in question.supporting
    assert found == 50
