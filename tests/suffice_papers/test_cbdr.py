"""CBDR from end to end on the tiny model, and the arithmetic of what speaks against the published figures."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binomtest

from suffice.common.tables import render
from suffice.errors import ConfigMismatchError, DataError, ModelError
from suffice.evaluation.statistics import Resampling, holm
from suffice.loops.models.prompts import PREFILLED
from suffice.loops.retrieval import PoolBM25, load_questions
from suffice.policy.metrics import METRICS
from suffice_gates.models import read_states
from suffice_gates.models.transformers_model import TransformersModel
from suffice_gates.probes import Probe
from suffice_gates.training.probe import ProbeSettings
from suffice_gates.training.reranker_trainer import RerankerSettings
from suffice_papers.cbdr.cbdr_tables import paper_cbdr, published_cbdr
from suffice_papers.cbdr.names import ALIGNED, RETRIEVER
from suffice_papers.cbdr.plan import CbdrSettings, divide
from suffice_papers.cbdr.run import run_cbdr
from suffice_papers.cbdr.tiny_reranker import write_tiny_reranker
from tests.suffice_gates.support.tiny_reranker import without_a_head
from tests.support.cli_tools import cli

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
]

SETTINGS = CbdrSettings(
    epochs=(5, 15),
    probe=ProbeSettings(hidden=(32,), dropout=0.1, lr=1e-3, patience=None),
    label="em",
    candidates=6,
    betas=(0.3, 0.6, 0.9, 1.0),
    reranker=RerankerSettings(batch=8, learning_rate=1e-3),
    resampling=Resampling(n_resamples=200, seed=0),
)


@pytest.fixture(scope="module")
def files(tiny_model, tmp_path_factory):
    """A fifth of the questions of each split, drawn once."""
    folder, rng = tmp_path_factory.mktemp("questions"), np.random.default_rng(0)
    for name in ("tune.jsonl", "eval.jsonl"):
        lines = (tiny_model / name).read_text("utf-8").splitlines(keepends=True)
        kept = sorted(rng.permutation(len(lines))[: len(lines) // 5])
        (folder / name).write_text("".join(lines[i] for i in kept), "utf-8")
    return [folder / "tune.jsonl", folder / "eval.jsonl"]


@pytest.fixture(scope="module")
def questions(files):
    return [question for path in files for question in load_questions(path)]


@pytest.fixture(scope="module")
def target(tiny_model):
    return TransformersModel(tiny_model, layers=("middle", "last"), prompt=PREFILLED, max_tokens=8, batch_size=64)


@pytest.fixture(scope="module")
def reranker(tiny_model, tmp_path_factory):
    return write_tiny_reranker(tmp_path_factory.mktemp("reranker") / "untrained", tiny_model)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("cbdr")


@pytest.fixture(scope="module")
def run(questions, target, reranker, work, no_model_cards):
    return run_cbdr(questions, target, reranker, work, settings=SETTINGS)


class Untouched(TransformersModel):
    """A model that may say what it is, and nothing else."""

    def _refuse(self, *_args, **_kwargs):
        raise AssertionError("the model was asked although everything had been computed")

    answers = read_batch = read = _refuse


def test_no_question_is_in_two_parts(questions):
    parts = divide(questions, SETTINGS)
    sets = [parts.probe.train, parts.probe.dev, parts.probe.test, {q.question_id for q in parts.prefer}]
    assert sum(map(len, sets)) == len(set().union(*sets)) == len(questions)
    assert parts.probe.test == {q.question_id for q in parts.test}


def test_parts_have_the_given_numbers_of_questions(questions):
    few = list({question.question: question for question in questions}.values())
    parts = divide(few, replace(SETTINGS, test_size=30, prefer_size=50))
    assert (len(parts.test), len(parts.prefer)) == (30, 50)
    probe = parts.probe.train | parts.probe.dev
    assert len(probe) == len(few) - 80
    assert not probe & {question.question_id for question in (*parts.test, *parts.prefer)}
    twice = [*few, *(replace(question, question_id=f"again {question.question_id}") for question in few)]
    parts = divide(twice, replace(SETTINGS, test_size=31, prefer_size=50))
    texts = [{question.question for question in part} for part in (parts.test, parts.prefer)]
    assert (len(parts.test), not texts[0] & texts[1]) == (32, True)
    with pytest.raises(DataError, match="smaller sizes"):
        divide(few, replace(SETTINGS, test_size=30, prefer_size=len(few)))
    with pytest.raises(DataError, match="or neither"):
        replace(SETTINGS, test_size=30)


def test_a_question_keeps_its_part_when_others_are_added(questions):
    few, many = divide(questions[:150], SETTINGS), divide(questions, SETTINGS)
    for name in ("train", "dev", "test"):
        assert getattr(few.probe, name) <= getattr(many.probe, name)


def test_accuracy_is_that_of_the_answers_from_the_first_passages(run, questions, target, work):
    (journal,) = (work / "answers").glob(f"{ALIGNED}_top-1.journal")
    assert journal.is_file()
    test = divide(questions, SETTINGS).test
    order = _aligned_order(run, test)
    replies = [target.answer(q.question, passages[:1]) for q, passages in zip(test, order, strict=True)]
    expected = np.mean([METRICS["em"](r.answer, q.answers) for r, q in zip(replies, test, strict=True)])
    assert run.accuracy[ALIGNED, 1][0] == pytest.approx(expected)


def _aligned_order(run, test):
    from suffice_gates.rerank import CrossEncoderScorer

    scorer = CrossEncoderScorer(run.reranker)
    found = []
    for question in test:
        scores = scorer.scores(question.question, question.passages)
        found.append([question.passages[i] for i in np.argsort([-score for score in scores], kind="stable")])
    return found


def test_the_gate_retrieves_where_the_probe_is_not_above_beta(run, questions, target, work):
    test = divide(questions, SETTINGS).test
    layer, epochs = run.best
    probe = Probe.load(work / "probes" / f"layer-{layer}-epochs-{epochs}")
    row = target.layers.index(layer)
    known = probe.predict(target.read_batch([q.question for q in test])[:, row])
    direct = [
        METRICS["em"](r.answer, q.answers)
        for r, q in zip(target.answers([q.question for q in test]), test, strict=True)
    ]
    shown = [p for p in run.gates[1] if p.label.endswith(f"layer {layer}, {epochs} epochs")]
    assert [p.beta for p in shown] == [0.3, 0.6, 0.9, 1.0]
    for point in shown:
        assert point.retrieval_rate == pytest.approx(np.mean(known <= point.beta))
    assert shown[-1].retrieval_rate == 1.0  # beta = 1 always retrieves
    assert run.gates[1][0].metrics["em"] == pytest.approx(np.mean(direct))


def test_steps_between_betas_add_up_to_the_difference_in_right_answers(run):
    layer, epochs = run.best
    n = run.parts["test"]
    for depth, steps in run.changes.items():
        points = {p.beta: p for p in run.gates[depth] if p.label.endswith(f"layer {layer}, {epochs} epochs")}
        for step in steps:
            gained = round(n * (points[step.high].metrics["em"] - points[step.low].metrics["em"]))
            assert len(step.gained) - len(step.lost) == gained


def test_every_layer_and_number_of_epochs_is_reported(run, target):
    assert set(run.probes) == {(layer, epochs) for layer in target.layers for epochs in SETTINGS.epochs}
    labels = [p.label for p in run.gates[3]]
    assert labels[0] == "never retrieve"
    assert [p.kind for p in run.gates[3][1:17]] == ["gate"] * 16
    orders = ["always retrieve", f"always retrieve, {RETRIEVER}", "always retrieve, untrained"]
    assert labels[-4:] == [*orders, "perfect gate"]


def test_a_random_gate_stands_beside_every_threshold_of_the_best_probe(run):
    layer, epochs = run.best
    for points in run.gates.values():
        own = {p.retrieval_rate for p in points if p.label.endswith(f"layer {layer}, {epochs} epochs")}
        blind = {p.retrieval_rate: p for p in points if p.kind == "random"}
        assert set(blind) == {rate for rate in own if 0 < rate < 1} != set()
        never, always = (next(p for p in points if p.kind == kind).metrics["em"] for kind in ("never", "always"))
        for rate, point in blind.items():
            assert point.metrics["em"] == pytest.approx((1 - rate) * never + rate * always)


def test_the_retrievers_own_order_is_answered_from_and_judged(run, questions, target):
    """Its accuracy is that of BM25's first passages, and here it undoes what the gate seems to gain."""
    test = divide(questions, SETTINGS).test
    for depth in SETTINGS.depths:
        given = [PoolBM25().rank(q.question, pool=q.passages, k=depth) for q in test]
        replies = target.answers([q.question for q in test], given)
        expected = np.mean([METRICS["em"](r.answer, q.answers) for r, q in zip(replies, test, strict=True)])
        assert run.accuracy[RETRIEVER, depth][0] == pytest.approx(expected)
        beside = next(p for p in run.gates[depth] if p.label == f"always retrieve, {RETRIEVER}")
        assert beside.metrics["em"] == pytest.approx(expected)
        assert beside.against_always["em"].delta == pytest.approx(expected - run.accuracy[ALIGNED, depth][0])
    points = run.gates[1]
    never, always = (next(p for p in points if p.kind == kind).metrics["em"] for kind in ("never", "always"))
    assert run.accuracy[RETRIEVER, 1][0] > always + 0.3
    best = max((p for p in points if p.kind == "gate"), key=lambda p: (p.metrics["em"], -p.retrieval_rate))
    quality = best.metrics["em"]
    needed = [(quality - never) / (run.accuracy[o, 1][0] - never) for o in (RETRIEVER, "untrained", ALIGNED)]
    blind = 0.0 if never >= quality else min(rate for rate in needed if 0 <= rate <= 1)
    assert best.label_blind_rate == pytest.approx(blind, abs=1e-9)
    (note,) = (n for n in table_of(run, "Table 3").notes if n.startswith("top-1, the best of 16 gates"))
    assert best.headline("em") in note
    assert note.endswith(f"always retrieve, {RETRIEVER} has em {100 * run.accuracy[RETRIEVER, 1][0]:.1f}")


def table_of(run, name):
    tables = paper_cbdr(run, model="tiny", reranker="untrained", data="world").tables()
    return next(table for table in tables if table.title.startswith(name))


def test_the_sweep_is_drawn_for_the_best_probe_at_every_threshold(run, tmp_path):
    paper = paper_cbdr(run, model="tiny", reranker="untrained", data="world")
    assert [path.name for path in paper.write_figures(tmp_path)] == [
        f"{name}-top{depth}.svg" for depth in run.gates for name in ("figure8", "section5.4")
    ]
    for depth, figure in zip(run.gates, paper.figures[::2], strict=True):
        gates = [
            p
            for p in run.gates[depth]
            if p.kind == "gate" and p.label.endswith("layer {}, {} epochs".format(*run.best))
        ]
        drawn = [(row["beta"], row["quality"], row["rate"]) for row in figure.spec["data"]["values"]]
        assert drawn == [(p.beta, 100 * p.metrics["em"], 100 * p.retrieval_rate) for p in gates]
        theirs = [layer for layer in figure.spec["layer"] if layer["mark"].get("shape") == "diamond"]
        if depth == 1:
            assert {"beta": 0.9, "percent": pytest.approx(60.6), "what": "published, accuracy"} in theirs[0]["data"][
                "values"
            ]
        assert len(theirs) == (depth in {1, 3})


def test_p_values_are_adjusted_over_everything_that_was_tried(run):
    gates = [p.against_always["em"] for points in run.gates.values() for p in points if p.kind == "gate"]
    assert len(gates) == 2 * 4 * 4
    assert [g.p_holm for g in gates] == pytest.approx(holm([g.p for g in gates]).tolist())
    assert all(g.p_holm == 1 for g, p in zip(gates, (p for ps in run.gates.values() for p in ps if p.kind == "gate"), strict=True) if p.beta == 1)  # fmt: skip
    assert any("by Holm over the 32 gates tried" in note for note in table_of(run, "Table 3").notes)


def test_the_note_says_whose_thresholds_they_are(run):
    told = " ".join(table_of(run, "Table 3").notes)
    assert "the thresholds were given (0.3, 0.6, 0.9, 1) and are not the paper's (0.9, 0.95, 0.98, 1)" in told
    papers = replace(run, settings=replace(run.settings, betas=CbdrSettings().betas))
    assert any("the thresholds are the paper's" in note for note in table_of(papers, "Table 3").notes)


def test_costs_are_those_of_the_order_and_of_the_gate(run):
    found = table_of(run, "Table 3")
    names = [column.name for column in found.columns]
    shown = {row[0]: dict(zip(names, row, strict=True)) for row in found.rows if row[1] == "measured"}
    train = run.preferences["train"]
    labels = run.parts["probe, train"] + run.parts["probe, dev"]
    kinds = (
        "online: passes to decide",
        "online: passages scored",
        "offline: passes for preferences",
        "offline: labels",
    )

    def costs(label):
        return tuple(shown[label][kind] for kind in kinds)

    assert costs("never retrieve") == (0, 0, 0, 0)
    assert costs("always retrieve") == (0, SETTINGS.candidates, train.questions + train.candidates, labels)
    assert costs(f"always retrieve, {RETRIEVER}") == (0, 0, 0, 0)
    assert costs("always retrieve, untrained") == (0, SETTINGS.candidates, 0, 0)
    gate = next(p for p in run.gates[1] if p.kind == "gate" and 0 < p.retrieval_rate < 1)
    online = pytest.approx(gate.retrieval_rate * SETTINGS.candidates)
    assert costs(gate.label) == (1, online, train.questions + train.candidates, labels)


def test_the_reranker_and_the_steps_use_the_best_probe_on_dev(run):
    on_dev = {at: max(c.dev_auroc for c in found.candidates) for at, found in run.probes.items()}
    assert len(set(on_dev.values())) > 1
    assert on_dev[run.best] == max(on_dev.values())


class Counting(Untouched):
    """A model that may read and answer, and counts for how many questions it did."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.n_read, self.n_answered = 0, 0

    def read_batch(self, questions, passages=None):
        self.n_read += len(questions)
        return TransformersModel.read_batch(self, questions, passages)

    def answers(self, questions, passages=None):
        self.n_answered += len(questions)
        return TransformersModel.answers(self, questions, passages)


def test_a_second_run_generates_nothing_and_reads_each_question_once(run, questions, target, reranker, work):
    again = Counting(target.loaded, layers=("middle", "last"), prompt=PREFILLED, max_tokens=8, batch_size=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("suffice_gates.rerank.CrossEncoderScorer.scores", Untouched._refuse)
        found = run_cbdr(questions, again, reranker, work, settings=SETTINGS)
    assert found.accuracy == run.accuracy
    assert found.ranking == run.ranking
    assert found.shift == run.shift
    for depth, points in found.gates.items():
        assert [(p.label, p.retrieval_rate, p.metrics) for p in points] == [
            (p.label, p.retrieval_rate, p.metrics) for p in run.gates[depth]
        ]
    assert (again.n_answered, again.n_read) == (0, 3 * run.parts["test"])  # both prompts of the check, and the gate


def test_the_check_of_both_prompts_is_sampled(run, questions, target, reranker, work):
    # Of another number than the command's check below, whose answers may be kept already.
    again = Counting(target.loaded, layers=("middle", "last"), prompt=PREFILLED, max_tokens=8, batch_size=64)
    found = run_cbdr(questions, again, reranker, work, settings=replace(SETTINGS, shift=30))
    assert (found.shift.qa.n, found.shift.rag.n, again.n_answered) == (30, 30, 30)
    assert found.accuracy == run.accuracy


def test_questions_of_the_reranker_are_not_answered_without_passages(run, questions, work):
    parts = divide(questions, SETTINGS)
    asked = {question.question_id for question in parts.asked(questions)}
    assert asked == parts.probe.train | parts.probe.dev | parts.probe.test
    assert set(read_states(work / "qa").ids) == asked


def test_another_configuration_does_not_go_on_in_the_same_folder(run, questions, target, reranker, work):
    with pytest.raises(ConfigMismatchError, match="another configuration"):
        run_cbdr(questions[:250], target, reranker, work, settings=SETTINGS)


def test_a_missing_reranker_is_reported_before_the_model_is_asked(questions, target, tmp_path):
    untouched = Untouched(target.loaded, layers=("last",), prompt=PREFILLED)
    with pytest.raises(ModelError, match="loaded"):
        run_cbdr(questions, untouched, tmp_path / "none", tmp_path / "work", settings=SETTINGS)


def test_an_untrained_encoder_is_reported_before_the_model_is_asked(questions, target, reranker, tmp_path):
    untouched = Untouched(target.loaded, layers=("last",), prompt=PREFILLED)
    other = without_a_head(tmp_path / "bare")
    with pytest.raises(ModelError, match="BertModel"):
        run_cbdr(questions, untouched, reranker, tmp_path / "work", others=[str(other)], settings=SETTINGS)


def test_a_reranker_trained_otherwise_is_not_taken_for_this_one(run, questions, target, reranker, work):
    other = replace(SETTINGS, reranker=replace(SETTINGS.reranker, learning_rate=1e-4))
    with pytest.raises(ConfigMismatchError, match="learning_rate"):
        run_cbdr(questions, target, reranker, work, settings=other)


def test_the_tables_stand_beside_the_published_ones(run):
    tables = paper_cbdr(run, model="tiny", reranker="untrained", data="world").tables()
    titles = [table.title.split(":")[0] for table in tables]
    assert [t for t in titles if t.startswith("Table")] == ["Table 1", "Table 2", "Table 3"]
    text = render(tables, "md")
    for figure in ("91.20", "66.90", "92.9", "| 0.98 to 1.00 | 2 | 11 |"):
        assert figure in text
    assert "| untrained | measured |" in text
    assert "| aligned | measured |" in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"epochs": ()}, "depths and betas"),
        ({"depths": (1, 9)}, "1 to 6"),
        ({"label": "f1"}, "label rule"),
        ({"test": 1.0}, "strictly"),
        ({"prefer": 0.0}, "strictly"),
        ({"shift": 0}, "1 or more"),
    ],
)
def test_settings_out_of_range_are_refused(questions, target, tmp_path, changes, told):
    with pytest.raises(DataError, match=told):
        run_cbdr(questions, target, "unread", tmp_path, settings=replace(SETTINGS, **changes))


def test_a_repeated_id_is_refused(questions):
    with pytest.raises(DataError, match="occurs twice"):
        divide([*questions, questions[0]], SETTINGS)


def test_the_command_prints_the_tables_as_json(run, files, tiny_model, reranker, work):
    words = ["--model", tiny_model, f"--set=reranker={reranker}", "--work", work, "--set=instructions=prefilled"]
    words += ["--data", files[0], "--data", files[1], "--set=label=em"]
    words += ["--set=candidates=6", "--set=epochs=5,15", "--set=hidden=32", "--set=dropout=0.1", "--set=lr=1e-3"]
    words += [
        "--set=shift=40",
        "--set=test-share=0.25",
        "--set=prefer-share=0.4",
        "--set=accumulate=2",
        "--set=checkpointing=true",
    ]
    words += ["--set=betas=0.3,0.6,0.9,1", "--set=reranker-lr=1e-3", "--set=reranker-batch=8", "--set=max-tokens=8"]
    done = cli("paper", "cbdr", *map(str, words), "--set=resamples=200", "--json", code=0)
    tables = {table["title"].split(":")[0]: table for table in done.json["tables"]}
    measured = [row for row in tables["Table 2"]["rows"] if row["figures"] == "measured"]
    assert [row["reranker"] for row in measured] == [RETRIEVER, "untrained", ALIGNED]
    assert measured[2]["top-1"]["value"] == pytest.approx(run.accuracy[ALIGNED, 1][0])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set=epochs=many"], "epochs is 'many'"),
        (["--set=top=1.5"], "allowed are whole numbers"),
        (["--set=instructions=none"], "unknown prompt 'none'; choose one of answer_first, "),
        (["--format", "xml"], "allowed: table"),
    ],
)
def test_wrong_options_are_told(tiny_model, tmp_path, words, told):
    data = tiny_model / "eval.jsonl"
    done = cli("paper", "cbdr", "--model", str(tiny_model), "--data", str(data), "--work", str(tmp_path), *words)
    assert told in " ".join(done.error.replace("│", " ").split())


class TestPublishedFigures:
    """The arithmetic behind the flags."""

    tables = published_cbdr().tables

    def test_the_gain_is_mostly_the_rerankers(self):
        unaligned = self.tables["table2"]["Llama3-8B-Instruct, bge-reranker-v2-m3"][3]
        always, best = (self.tables["table3"][f"CBDR beta={beta}"][2] for beta in ("1.00", "0.98"))
        assert best - unaligned == pytest.approx(0.056)
        assert always - unaligned == pytest.approx(0.047)
        assert best - always == pytest.approx(0.009)

    def test_transitions_mean_a_thousand_questions(self):
        top3 = [self.tables["table3"][f"CBDR beta={beta}"][2] for beta in ("0.95", "0.98", "1.00")]
        for (gained, lost), (before, after) in zip(self.tables["transitions"].values(), pairwise(top3), strict=True):
            assert (gained - lost) / (after - before) == pytest.approx(1000)

    def test_the_sign_test_of_the_best_threshold(self):
        assert binomtest(2, 13).pvalue == pytest.approx(0.022, abs=5e-4)

    def test_the_other_model_gains_as_much_on_hotpotqa(self):
        rows = self.tables["table2"]
        gains = [
            rows[f"{m}, bge-reranker-v2-m3-ft"][0] - rows[f"{m}, bge-reranker-v2-m3"][0]
            for m in ("Qwen2.5-7B-Instruct", "Llama3-8B-Instruct")
        ]
        assert gains == pytest.approx([0.015, 0.014])

    def test_other_rerankers_do_better_with_the_target_model(self):
        rows = {name: row for name, row in self.tables["table2"].items() if name.startswith("Llama3")}
        ours = rows["Llama3-8B-Instruct, bge-reranker-v2-m3-ft"]
        assert max(rows, key=lambda name: rows[name][3]).endswith("Qwen3-Reranker-8B")
        assert sorted((row[0] for row in rows.values()), reverse=True)[2] == ours[0]

    def test_passes_of_the_preference_data(self):
        assert (7622 + 1216) * 8 == 70_704
        assert (7622 + 1216) * 9 == 79_542

    def test_no_two_methods_are_compared_at_one_rate(self):
        rates = {name: row[0] for name, row in self.tables["table3"].items()}
        of = {
            kind: [rate for name, rate in rates.items() if name.startswith(kind)]
            for kind in ("DRAGIN", "CtrlA", "CBDR")
        }
        assert max(of["DRAGIN"]) < min(of["CtrlA"]) < max(of["CtrlA"]) < min(of["CBDR"])

    def test_every_flag_names_a_table_or_a_part(self):
        places = {place for flag in published_cbdr().flags for place in flag.places}
        assert places == {*self.tables, "probe", "transfer"}
