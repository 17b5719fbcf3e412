"""Hidden states: sources beside local models, states on disk, and the command that stores them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays

from suffice.errors import ConfigMismatchError, DataError, ModelError, SchemaError
from suffice.loops.models import EndpointEmbedder
from suffice.loops.models.prompts import Prompt
from suffice.policy.rounds import Cost, Passage
from suffice.recordings import read_recording, write_recording
from suffice_gates.models import EncoderStates, EndpointStates, StateSource, StateWriter, TransformersModel, read_states
from suffice_gates.models.states import State
from suffice_gates.probes.collect import StatePrompt, collect_states
from suffice_reader.minilm import MiniLM
from tests.support.cli_tools import cli, dataset
from tests.support.llamacpp import TEMPLATE, build_model, questions, start_server
from tests.support.local_models import save

pytestmark = [pytest.mark.whole, pytest.mark.filterwarnings("ignore::FutureWarning:transformers")]
PASSAGE = Passage(passage_id="p", title="It", text="King wrote it.")
CHATML = "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{prefill}"


class Source:
    """States that can be told from the text: its length, and a constant; it counts what it reads."""

    def __init__(self, *, name="counted", revision="1", layers=(1, 2), prompts=("qa", "rag"), width=3, fails_at=None):
        self.id, self.revision, self.layers, self.prompts = name, revision, layers, prompts
        self.width, self.fails_at = width, fails_at
        self.read_texts = []

    def fingerprint(self):
        return {"kind": "counted", "id": self.id}

    def read(self, question, passages=()):
        return State(values=self.read_batch([question], [passages])[0], cost=Cost(calls=1))

    def read_batch(self, asked, passages=None):
        for i, question in enumerate(asked):
            if len(self.read_texts) == self.fails_at:
                raise ModelError("the power is out")
            self.read_texts.append((question, tuple(passages[i]) if passages else ()))
        n = max(1, len(self.layers))
        return np.array([np.full((n, self.width), len(q) + 10 * len(p)) for q, p in self.read_texts[-len(asked) :]])


def prompts(n, start=0):
    return [StatePrompt(id=f"q{i}", question="?" * (i + 1)) for i in range(start, n)]


# Sources


def test_every_source_keeps_to_the_seam():
    endpoint = EndpointStates(EndpointEmbedder("m", base_url="http://localhost:1/v1"))
    for source in (Source(), endpoint, EncoderStates(MiniLM())):
        assert isinstance(source, StateSource)
        assert json.loads(json.dumps(source.fingerprint())) == source.fingerprint()


def test_states_of_an_endpoint_equal_those_of_the_same_weights_in_transformers(tmp_path):
    """llama.cpp's own server, pooling by the last token."""
    tiny = build_model(tmp_path / "tiny", taught=False)
    asked = questions(5)
    texts, passages = [q.question for q in asked], [q.passages[:i] for i, q in enumerate(asked)]
    local = TransformersModel(tiny.directory, layers=("last",))
    local.loaded.tokenizer.chat_template = TEMPLATE
    local = TransformersModel(local.loaded, layers=("last",))
    expected = local.read_batch(texts, passages)
    with start_server(tiny, states=True) as server:
        raw = EndpointEmbedder("tiny", base_url=server.url, extra_body={"embd_normalize": -1}, max_chars=5)
        source = EndpointStates(raw, template=CHATML)
        assert source.prompt_text(texts[2], passages[2]) == local.prompt_text(texts[2], passages[2])
        assert np.abs(source.read_batch(texts, passages) - expected).max() < 1e-4
        state = source.read(texts[3], passages[3])
        assert np.abs(state.values - expected[3]).max() < 1e-4
        assert state.resume is None
        assert state.cost.uncached_tokens == local.read(texts[3], passages[3]).cost.uncached_tokens
        usual = EndpointEmbedder("tiny", base_url=server.url)
        scaled = EndpointStates(usual, template=CHATML).read_batch(texts, passages)
        assert np.abs(scaled - expected / np.linalg.norm(expected, axis=-1, keepdims=True)).max() < 1e-5
        raw.close()
        usual.close()


def test_the_template_of_an_endpoint_holds_the_question_and_is_pinned():
    embedder = EndpointEmbedder("m", base_url="http://localhost:1/v1")
    braces = EndpointStates(embedder, template="<{system}|{user}|{prefill}|{other}>")
    prompt = Prompt(name="p", version=1, system="S", question="{question}", prefill="A:")
    named = EndpointStates(embedder, prompt=prompt, template=braces.template)
    assert named.prompt_text("Who is {system}?") == "<S|Who is {system}?|A:|{other}>"
    assert named.fingerprint() != braces.fingerprint()
    with pytest.raises(DataError, match="{user}"):
        EndpointStates(embedder, template="Answer.")


def test_an_endpoint_that_cannot_be_reached_is_an_error_of_the_model():
    source = EndpointStates(EndpointEmbedder("m", base_url="http://127.0.0.1:1/v1", max_retries=0))
    with pytest.raises(ModelError, match="reached"):
        source.read("Who?")
    with pytest.raises(DataError, match="questions is empty"):
        source.read_batch([])
    with pytest.raises(DataError, match="not blank"):
        source.read(" ")


def test_an_encoder_reads_the_question_alone():
    minilm = MiniLM()
    source = EncoderStates(minilm)
    assert (source.id, source.revision, source.layers, source.prompts) == (minilm.id, minilm.revision, (), ("qa",))
    states = source.read_batch(["Who?", "Where?"])
    assert states.shape == (2, 1, 384)
    one = source.read("Where?")
    assert one.resume is None
    assert one.cost.calls == 1
    assert np.allclose(one.values, states[1], atol=1e-6)
    with pytest.raises(DataError, match="only questions"):
        source.read("Who?", [PASSAGE])
    with pytest.raises(DataError, match="only questions"):
        source.read_batch(["Who?", "Where?"], [(), (PASSAGE,)])
    with pytest.raises(DataError, match="not blank"):
        source.read_batch(["Who?", ""])


# On disk


@settings(max_examples=40, deadline=None)
@given(
    states=arrays.arrays(
        np.float32,
        arrays.array_shapes(min_dims=3, max_dims=3, max_side=5),
        elements=st.floats(-(10.0**6), 10.0**6, width=32) | st.sampled_from([np.nan, np.inf, -np.inf]),
    ),
    cut=st.integers(0, 5),
)
def test_what_is_stored_is_read_back_as_float16_holds_it(tmp_path_factory, states, cut):
    folder = tmp_path_factory.mktemp("stored") / "x.states"
    n, layers, _ = states.shape
    ids = [f"q{i}" for i in range(n)]
    writer = StateWriter(folder, {"layers": list(range(layers))})
    for part in (slice(0, cut), slice(cut, None)):
        writer.append(ids[part], states[part])
    stored = read_states(folder)
    largest = float(np.finfo(np.float16).max)
    expected = np.where(np.isfinite(states), np.clip(states, -largest, largest), np.nan).astype(np.float16)
    assert stored.ids == tuple(ids)
    assert stored.values.dtype == np.float16
    assert np.array_equal(stored.values, expected, equal_nan=True)
    assert not np.isinf(stored.values).any()
    assert stored.undefined.tolist() == (~np.isfinite(states)).any(axis=(1, 2)).tolist()
    assert writer.clipped == int((np.isfinite(states) & (np.abs(states) > largest)).sum())
    order = ids[::-1]
    assert np.array_equal(stored.of(order, layer=0), expected[::-1, 0].astype(np.float32), equal_nan=True)


def test_states_are_found_by_question_and_layer(tmp_path):
    collect_states(Source(layers=(4, 8)), prompts(5), tmp_path / "s", chunk=2)
    stored = read_states(tmp_path / "s")
    assert len(stored) == 5
    assert stored.of(["q3", "q0"]).shape == (2, 2, 3)
    assert stored.of(["q3", "q0"], layer=8).tolist() == [[4.0] * 3, [1.0] * 3]
    with pytest.raises(DataError, match="layer 2"):
        stored.of(["q3"], layer=2)
    with pytest.raises(DataError, match="2 questions"):
        stored.of(["x", "q1", "y"])
    one = collect_states(Source(layers=()), prompts(2), tmp_path / "one")
    assert one.stored == 2
    assert read_states(tmp_path / "one").values.shape == (2, 1, 3)
    with pytest.raises(DataError, match="none"):
        read_states(tmp_path / "one").of(["q0"], layer=0)


def test_a_run_that_failed_goes_on_without_reading_anything_twice(tmp_path):
    seen = []
    broken = Source(fails_at=7)
    with pytest.raises(ModelError, match="power"):
        collect_states(broken, prompts(10), tmp_path / "s", chunk=3, on_progress=lambda *p: seen.append(p))
    assert seen == [(0, 10), (3, 10), (6, 10)]
    assert read_states(tmp_path / "s").ids == tuple(f"q{i}" for i in range(6))  # what is there can be read
    again, seen = Source(), []
    done = collect_states(again, prompts(10), tmp_path / "s", chunk=3, on_progress=lambda *p: seen.append(p))
    assert (done.stored, done.read) == (10, 4)
    assert [len(text) for text, _ in again.read_texts] == [7, 8, 9, 10]
    assert seen == [(6, 10), (9, 10), (10, 10)]
    stored = read_states(tmp_path / "s")
    assert stored.ids == tuple(f"q{i}" for i in range(10))
    assert stored.values[:, 0, 0].tolist() == list(range(1, 11))
    more = collect_states(Source(), prompts(12), tmp_path / "s")  # questions that were added later
    assert (more.stored, more.read) == (12, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"name": "other"}, "-> 'other'"), ({"revision": "2"}, "-> '2'"), ({"layers": (1,)}, "layers")],
)
def test_another_model_revision_or_layer_is_refused(tmp_path, change, words):
    collect_states(Source(), prompts(3), tmp_path / "s")
    before = sorted(path.name for path in (tmp_path / "s").iterdir())
    with pytest.raises(ConfigMismatchError, match=words):
        collect_states(Source(**change), prompts(5), tmp_path / "s")
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == before


def test_another_prompt_and_another_text_are_refused(tmp_path):
    collect_states(Source(), prompts(3), tmp_path / "s", about={"passages": 0})
    rag = [StatePrompt(id="q9", question="?", passages=(PASSAGE,))]
    with pytest.raises(ConfigMismatchError, match="-> 'rag'"):
        collect_states(Source(), rag, tmp_path / "s", about={"passages": 0})
    with pytest.raises(ConfigMismatchError, match="about.passages"):
        collect_states(Source(), prompts(3), tmp_path / "s", about={"passages": 3})
    with pytest.raises(ConfigMismatchError, match="'q1'"):
        collect_states(Source(), [StatePrompt(id="q1", question="new?")], tmp_path / "s", about={"passages": 0})
    with pytest.raises(DataError, match="'q8'"):
        collect_states(Source(), [StatePrompt(id="q8", question="?"), *rag], tmp_path / "t")
    with pytest.raises(DataError, match="'rag'"):
        collect_states(Source(prompts=("qa",)), rag, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_prompts_are_told_apart_by_all_that_is_read():
    items = [
        StatePrompt(id="a", question="ab"),
        StatePrompt(id="a", question="a", passages=(Passage(passage_id="1", title="b", text=""),)),
        StatePrompt(id="a", question="a", passages=(Passage(passage_id="1", title="", text="b"),)),
    ]
    assert len({item.digest for item in items}) == 3
    assert StatePrompt(id="x", question="ab").digest == items[0].digest


def test_ids_occur_once_and_there_are_some(tmp_path):
    with pytest.raises(DataError, match="prompts is empty"):
        collect_states(Source(), [], tmp_path / "s")
    with pytest.raises(DataError, match="'q0'"):
        collect_states(Source(), [*prompts(2), *prompts(1)], tmp_path / "s")
    writer = StateWriter(tmp_path / "s", {})
    writer.append(["a"], np.zeros((1, 1, 2)))
    for ids in (["a"], ["b", "b"]):
        with pytest.raises(DataError, match="repeated"):
            writer.append(ids, np.zeros((len(ids), 1, 2)))
    with pytest.raises(DataError, match=r"\(1, 2, 2\)"):
        writer.append(["b"], np.zeros((1, 2, 2)))


def test_two_writers_of_one_folder_do_not_overwrite_each_other(tmp_path):
    first, second = StateWriter(tmp_path / "s", {}), StateWriter(tmp_path / "s", {})
    first.append(["a"], np.ones((1, 1, 2)))
    with pytest.raises(DataError, match="another process"):
        second.append(["b"], np.zeros((1, 1, 2)))
    assert read_states(tmp_path / "s").ids == ("a",)


def test_half_a_shard_left_by_a_kill_plays_no_part(tmp_path):
    collect_states(Source(), prompts(3), tmp_path / "s", chunk=2)
    left = tmp_path / "s" / ".shard-000002.safetensors.123.tmp"
    left.write_bytes(b"half")
    assert len(read_states(tmp_path / "s")) == 3
    collect_states(Source(), prompts(4), tmp_path / "s", chunk=2)
    assert not left.exists()
    assert len(read_states(tmp_path / "s")) == 4


def _cut(path):
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (lambda f: _cut(f / "shard-000001.safetensors"), SchemaError, "is damaged"),
        (lambda f: (f / "shard-000000.safetensors").unlink(), SchemaError, "lacks shard-000000"),
        (lambda f: _cut(f / "states.json"), SchemaError, "is damaged"),
        (lambda f: (f / "states.json").write_text("[]"), SchemaError, "is damaged"),
        (
            lambda f: (f / "states.json").write_text('{"format": "x", "version": 9, "header": {}}'),
            SchemaError,
            "version 9",
        ),
        (lambda f: (f / "states.json").unlink(), DataError, "states.json"),
        (
            lambda f: (f / "shard-000002.safetensors").write_bytes((f / "shard-000001.safetensors").read_bytes()),
            SchemaError,
            "state twice",
        ),
    ],
)
def test_damaged_folders_are_errors_that_say_what_is_wrong(tmp_path, damage, error, words):
    folder = tmp_path / "s"
    collect_states(Source(), prompts(4), folder, chunk=2)
    damage(folder)
    with pytest.raises(error, match=words):
        read_states(folder)


def test_a_path_that_is_no_folder_of_states_is_refused(tmp_path):
    with pytest.raises(DataError, match="exist"):
        read_states(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="a file"):
        StateWriter(tmp_path / "file", {})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    with pytest.raises(DataError, match="states.json"):
        StateWriter(tmp_path / "full", {})
    StateWriter(tmp_path / "empty", {})
    with pytest.raises(DataError, match="no states"):
        read_states(tmp_path / "empty")


KILLED = """
import signal, sys
import numpy as np
from tests.suffice_gates.test_states import Source, prompts
from suffice_gates.probes.collect import collect_states
class Stopping(Source):
    n = 0
    def read_batch(self, asked, passages=None):
        self.n += 1
        if self.n > 20:
            signal.pause()
        return super().read_batch(asked, passages)
collect_states(Stopping(), prompts(400), sys.argv[1], chunk=1)
"""


def test_a_killed_run_loses_at_most_one_shard_and_repeats_nothing(tmp_path):
    folder = tmp_path / "s"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)])
    while len(list(folder.glob("shard-*"))) < 5:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = read_states(folder)
    assert 5 <= len(before) < 400
    again = Source()
    collect_states(again, prompts(400), folder, chunk=64)
    after = read_states(folder)
    assert len(again.read_texts) == 400 - len(before)
    assert after.ids == tuple(f"q{i}" for i in range(400))
    assert after.values[:, 0, 0].tolist() == list(range(1, 401))


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("cli")
    save(made / "model", max_position_embeddings=2048)
    dataset(made / "q.jsonl", n=12)
    return made


def test_states_are_stored_and_the_command_goes_on(folder, tmp_path):
    arguments = (
        "gate",
        "states",
        folder / "q.jsonl",
        "-o",
        tmp_path / "s",
        "--model",
        folder / "model",
        "--set=batch-size=2",
    )
    first = cli(*arguments, "--layers", "middle,last", "--limit", "5", "--json", code=0)
    assert (first.json["layers"], first.json["stored"], first.json["read"]) == ([2, 4], 5, 5)
    again = cli(*arguments, "--layers", "middle,last", "--json")
    assert (again.json["stored"], again.json["read"], again.json["undefined"]) == (12, 7, 0)
    told = cli(*arguments, "--layers", "middle,last")
    assert "12 states of cli" in re.sub(r"cli\d+", "cli", told.words)
    stored = read_states(tmp_path / "s")
    model = TransformersModel(folder / "model", layers=("middle", "last"))
    expected = model.read_batch(
        [json.loads(line)["question"] for line in (folder / "q.jsonl").read_text().splitlines()]
    )
    assert np.abs(stored.values.astype(np.float32) - expected).max() < 0.01
    assert (stored.header["model"], stored.header["revision"]) == (model.id, model.revision)
    assert "another configuration" in cli(*arguments, "--layers", "last").error
    assert "-> 'rag'" in cli(*arguments, "--layers", "middle,last", "--prompt", "rag").error


def test_states_with_passages_are_those_that_the_rounds_would_read(folder, tmp_path):
    def stored(name, data, *more):
        done = cli("gate", "states", data, "-o", tmp_path / name, "--model", folder / "model", "--prompt", "rag", *more)
        assert done.code == 0, done
        return read_states(tmp_path / name)

    recorded = tmp_path / "r.parquet"
    assert cli("record", folder / "q.jsonl", "-o", recorded, "--max-rounds", "3").code == 0
    whole = ("--dataset", folder / "q.jsonl")
    ones = [stored(f"q{k}", folder / "q.jsonl", f"--set=passages={k}") for k in (1, 2)]
    others = [stored(f"r{k}", recorded, f"--set=passages={k}", *whole) for k in (1, 2)]
    for of_questions, of_recording in zip(ones, others, strict=True):
        assert of_questions.ids == of_recording.ids
        assert np.array_equal(of_questions.values, of_recording.values)
    for one, two in pairwise(ones):
        assert not np.array_equal(one.values, two.values)
    qa = ("gate", "states", recorded, "-o", tmp_path / "qa", "--model", folder / "model", "--json")
    assert cli(*qa).json["stored"] == 12
    rag = ("gate", "states", recorded, "-o", tmp_path / "x", "--model", folder / "model", "--prompt", "rag")
    assert "give --dataset" in cli(*rag).error
    dataset(tmp_path / "other.jsonl", n=3)
    assert "--dataset" in cli(*rag, "--dataset", tmp_path / "other.jsonl").error


def test_an_encoder_needs_no_model(folder, tmp_path):
    done = cli("gate", "states", folder / "q.jsonl", "-o", tmp_path / "s", "--encoder", "minilm", "--json")
    assert (done.json["layers"], done.json["stored"], done.json["batch_size"]) == ([], 12, None)
    assert "one vector" in cli("gate", "states", folder / "q.jsonl", "-o", tmp_path / "s", "--encoder", "minilm").words


def test_wrong_arguments_are_told_before_anything_is_written(folder, tmp_path):
    def error(*arguments, data="q.jsonl"):
        return cli("gate", "states", folder / data, "-o", tmp_path / "s", *arguments).error

    assert "name one of --model" in error()
    assert "name one of --model" in error("--model", "x", "--encoder", "minilm")
    assert "--encoder none reads nothing" in error("--encoder", "none")
    assert "unknown layer 'top'" in error("--model", folder / "model", "--layers", "top")
    assert "layer '9' does not exist" in error("--model", folder / "model", "--layers", "2,9")
    assert "unknown prompt 'x'" in error("--model", folder / "model", "--set=instructions=x")
    assert "does not exist" in error("--model", tmp_path / "none")
    assert "reads qa only" in error("--encoder", "minilm", "--prompt", "rag")
    assert not (tmp_path / "s").exists()
    bare = [json.dumps({"id": "q", "question": "Who?"})]
    (folder / "bare.jsonl").write_text("\n".join(bare))
    assert "has no passages of its own" in error("--model", folder / "model", "--prompt", "rag", data="bare.jsonl")


def test_a_recording_without_the_words_of_its_questions_says_so(folder, tmp_path):
    rows = [{"question_id": "q", "round": r, "answer": "x"} for r in (1, 2)]
    write_recording(tmp_path / "r.parquet", rows)
    arguments = ("gate", "states", tmp_path / "r.parquet", "-o", tmp_path / "s", "--encoder", "minilm")
    assert "ids of questions" in cli(*arguments).error
    write_recording(tmp_path / "r.parquet", [row | {"question": None if row["round"] == 1 else "w"} for row in rows])
    assert read_recording(tmp_path / "r.parquet").shape == (1, 2)
    assert "question 'q'" in cli(*arguments).error


def test_the_command_without_torch_says_what_to_install(folder, tmp_path):
    code = (
        "import sys\nsys.modules['torch'] = None\nfrom suffice.cli.main import run\n"
        f"run(['gate', 'states', {str(folder / 'q.jsonl')!r}, '-o', {str(tmp_path / 's')!r}, *sys.argv[1:]])"
    )

    def done(*arguments):
        environment = {**os.environ, "PYTHONWARNINGS": "error"}
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, env=environment
        )

    assert "suffice-gates[torch]" in done("--model", str(folder / "model")).stderr
    assert done("--encoder", "minilm").returncode == 0
