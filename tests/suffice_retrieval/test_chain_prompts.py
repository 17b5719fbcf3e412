"""Few-shot prompts of papers from a file: what is sent, what is recorded, what is refused."""

from __future__ import annotations

import json

import pytest

from suffice import Passage, read_recording
from suffice.errors import DataError
from suffice.loops.models._wire import as_prompt
from suffice_retrieval.methods import CHAIN_OF_THOUGHT, SELF_ASK, IRCoT, parse_method, read_chain_prompt
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint, prompt_of

SOURCE = "a repository, prompts/some_codex.txt, commit 68f617e"
EXAMPLES = (
    '# METADATA: {"qid": "1"}\nQ: Who is old?\nA: Ann is old. So the answer is: Ann.\n\n\n'
    '# METADATA: {"qid": "2"}\nQ: Who is young?\nA: Ben is young. So the answer is: Ben.\n'
)
WITHOUT_METADATA = "Q: Who is old?\nA: Ann is old. So the answer is: Ann.\n\n\nQ: Who is young?\nA: Ben is young. So the answer is: Ben.\n\n\n"
SHOWN = (
    Passage(passage_id="1", title="Cid", text="Cid is tall."),
    Passage(passage_id="2", title="Dan", text="Dan is not."),
)


def written(folder, text, **options):
    lines = {"source": SOURCE, "system": "", "question": "Q: {question}", "passages-first": True, "continues": True}
    lines |= {"passage": "Wikipedia Title: {title}\n{text}\n\n", "chain": "\nA: {chain}"} | options
    (folder / "authors.txt").write_text(text)
    body = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items() if value is not None)
    (folder / "ircot_paper.toml").write_text(body + 'examples-file = "authors.txt"\n')
    return folder / "ircot_paper.toml"


def test_the_examples_of_a_paper_are_sent_as_its_program_sends_them(tmp_path):
    method = parse_method(f"ircot(k=2, prompt={str(written(tmp_path, EXAMPLES))!r})")
    user, assistant = method.prompt.continuing("Who is tall?", SHOWN, "Cid is tall.")
    evidence = "Wikipedia Title: Cid\nCid is tall.\n\nWikipedia Title: Dan\nDan is not.\n\n"
    assert user == {"role": "user", "content": f"{WITHOUT_METADATA}{evidence}Q: Who is tall?"}
    assert assistant == {"role": "assistant", "content": "A: Cid is tall."}
    assert as_prompt([user, assistant]).endswith("Q: Who is tall?\n\nA: Cid is tall.")
    (begun,) = [m["content"] for m in method.prompt.continuing("Who?", (), "") if m["role"] == "assistant"]
    assert begun == "A:"


def test_a_prompt_without_continuation_is_one_message_after_the_instructions(tmp_path):
    path = written(tmp_path, EXAMPLES, continues=False, system=None)
    system, user = read_chain_prompt(path, CHAIN_OF_THOUGHT).continuing("Who is tall?", (), "Cid is.")
    assert system["content"] == CHAIN_OF_THOUGHT.system
    assert user["content"] == f"{WITHOUT_METADATA}Q: Who is tall?\nA: Cid is."


def test_what_a_file_leaves_out_is_that_of_the_method(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('version = 3\nsystem = "Think."\n')
    prompt = parse_method(f"self_ask(prompt={str(path)!r})").prompt
    assert (prompt.prompt_id, prompt.chain, prompt.source) == ("mine@3", SELF_ASK.chain, "")
    assert prompt.continuing("Q?", (), "x")[1] == SELF_ASK.continuing("Q?", (), "x")[1]


def test_prompts_without_examples_keep_their_hash():
    """Caches and recordings of earlier releases name it."""
    assert CHAIN_OF_THOUGHT.sha256 == "748061d2b049d47a9e409c5c2593a18f54cdc8a78ad408d72a3cd82def5c6be1"
    assert SELF_ASK.sha256 == "885ca1710fbf9ddc70fef89c9d49d0d42a7173091715d4ca39a35cef093cd9ea"
    assert str(IRCoT()) == "ircot(k=6, most=15)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('examples = "Q: a"\n', "has examples"),
        ('examples = "Q: a"\nsource = " "\n', "has examples"),
        ("temperature = 1\n", "unknown key"),
        ("passages-first = 1\n", "of type bool"),
        ("examples-file = 'missing.txt'\nsource = 's'\n", "cannot be read"),
        ("name = \n", "cannot be read"),
    ],
)
def test_a_prompt_that_says_too_little_or_too_much_is_refused(text, message, tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        parse_method(f"flare(prompt={str(path)!r})")
    with pytest.raises(DataError, match="cannot be read"):
        parse_method("flare(prompt='nowhere.toml')")
    with pytest.raises(DataError, match="of type str"):
        parse_method("flare(prompt=3)")


def test_a_recording_names_the_source_of_the_examples(tmp_path):
    paragraphs = [{"title": item.title, "text": item.text} for item in SHOWN]
    line = {"question": "Who is tall?", "answers": ["Cid"], "paragraphs": paragraphs}
    (tmp_path / "q.jsonl").write_text(json.dumps(line))
    path = written(tmp_path, EXAMPLES, continues=False)

    def reply(body):
        return "So the answer is: Cid." if "\nA:" in prompt_of(body) else "Answer: Cid"

    with Endpoint(reply) as endpoint:
        asked = ("record", tmp_path / "q.jsonl", "-o", tmp_path / "r.parquet", "--loop", f"ircot(prompt={str(path)!r})")
        cli(*asked, "--model", "m", "--base-url", endpoint.url, "--max-rounds", "2", code=0)
        chains = [request.prompt for request in endpoint.requests if "\nA:" in request.prompt]
    assert chains
    assert all(WITHOUT_METADATA in prompt for prompt in chains)
    recording = read_recording(tmp_path / "r.parquet")
    method = recording.metadata["config"]["method"]
    assert method["prompt_source"] == SOURCE
    assert method["prompt_id"] == "ircot_paper@1"
    assert recording.table.column("method").to_pylist()[0] == "ircot(k=6, most=15, prompt='ircot_paper@1')"
