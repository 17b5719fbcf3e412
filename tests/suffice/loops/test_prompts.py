from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from suffice.errors import DataError
from suffice.loops.models._wire import as_prompt
from suffice.loops.models.prompted import PromptedModel
from suffice.loops.models.prompts import ANSWER_FIRST, CBDR, PROMPTS, SELF_RAG, Prompt, prompt
from suffice.policy.rounds import Passage
from suffice.policy.signals.position import AnswerPosition

texts = st.text(max_size=40)
passages = st.lists(st.builds(Passage, passage_id=texts, title=texts, text=texts), max_size=6)

# A changed text needs a new version: recordings name their prompt by `prompt_id`.
FROZEN = {
    "answer_first@1": "0ac6ad7a7f2d8e6b5cc000b54f154ac9921d21132a123e96beaf8ab5e73aab11",
    "confidence_first@1": "4b72a630bcd563601fed8cfd74caa80dffa788c6a1fe2a9688a4c986aff09391",
    "no_confidence@1": "274c6665c9414fc0c410343402383cfb7bdda58d884f684a62a7084d7578627a",
    "prefilled@1": "75e9499e1d83616ba7aabf95a9a233d8dca9e93a3b1ef3c968e2cd5375247085",
    "step_by_step@1": "7a44a4729b47eb25350102c8ba2112756ac55a357de6d48d1c69518373bcb832",
}
FROZEN_OF_PAPERS = {
    "cbdr@1": "e40d4222f3752b78f4ef052fcf6318e2fcf012e3c163889f6cf9ad59fb1d1dc9",
    "self_rag@1": "7578f9abc7995320d36a7890eb451eaaa83b9d81d9af9c8656623d62f8c45f0e",
}


def text_of(messages) -> str:
    return "".join(message["role"] + message["content"] for message in messages)


@pytest.mark.parametrize("name", sorted(name for name, item in PROMPTS.items() if not item.prefill))
@given(question=texts, shown=passages)
def test_each_round_extends_the_text_of_the_round_before(name, question, shown):
    rounds = [text_of(PROMPTS[name].messages(question, shown[:k])) for k in range(len(shown) + 1)]
    for shorter, longer in pairwise(rounds):
        assert longer.startswith(shorter)
        assert len(longer) > len(shorter)


@given(question=texts, shown=passages)
def test_instructions_are_the_same_at_every_round(question, shown):
    system = {ANSWER_FIRST.messages(question, shown[:k])[0]["content"] for k in range(len(shown) + 1)}
    assert system == {ANSWER_FIRST.system}


def test_closed_book_is_the_question_alone():
    assert ANSWER_FIRST.messages("Who?")[1] == {"role": "user", "content": "Question: Who?"}


def test_passages_are_numbered_and_titled_in_the_order_given():
    shown = [Passage(passage_id="b", title="B", text="Second."), Passage(passage_id="a", title="A", text="First.")]
    assert ANSWER_FIRST.user("Who?", shown) == "Question: Who?\n\nPassage 1: B\nSecond.\n\nPassage 2: A\nFirst."


def test_braces_in_a_passage_are_not_filled_in():
    shown = [Passage(passage_id="1", title="{text}", text="{question} {0} {title}")]
    assert ANSWER_FIRST.user("{text}?", shown) == "Question: {text}?\n\nPassage 1: {text}\n{question} {0} {title}"


def test_a_prefilled_start_follows_everything_else():
    prefilled = Prompt(name="mine", version=1, system="S", prefill="Answer:")
    assert [m["role"] for m in prefilled.messages("Q")] == ["system", "user", "assistant"]
    assert prefilled.messages("Q")[-1]["content"] == "Answer:"


def test_a_changed_text_needs_a_new_version():
    assert {item.prompt_id: item.sha256 for item in PROMPTS.values()} == FROZEN


def test_the_prompts_of_cbdr_are_those_of_its_figure():
    """Figure 5; contexts come before the question, and the whole reply is the answer."""
    assert CBDR.sha256 == FROZEN_OF_PAPERS[CBDR.prompt_id]
    [user] = CBDR.messages("Who wrote it?")
    assert user["content"] == (
        "You need to read the question carefully and answer it based on your own knowledge.\nQuestion: Who wrote it?"
    )
    shown = [Passage(passage_id="1", title="It", text="{question}"), Passage(passage_id="2", title="", text="King.")]
    [user] = CBDR.messages("Who wrote it?", shown)
    assert user["role"] == "user"
    assert user["content"].startswith(
        "You are a rigorous language model. Please answer the question based on the provided"
    )
    assert user["content"].endswith("\nContexts: It\n{question}\n\nKing.\nQuestion: Who wrote it?")
    assert prompt("cbdr") is CBDR
    assert PromptedModel(CBDR, None, None).position == AnswerPosition("whole")


def test_self_rags_models_are_asked_in_the_format_of_their_training():
    """The instruction, and passages at the start of the response (Asai et al., 2024; the authors' run_short_form.py)."""
    shown = [
        Passage(passage_id="1", title="It", text="{text}"),
        Passage(passage_id="2", title="King", text="A writer."),
    ]
    assert as_prompt(SELF_RAG.messages("Who wrote it?")) == "### Instruction:\nWho wrote it?\n\n### Response:\n"
    assert as_prompt(SELF_RAG.messages("Who wrote it?", shown)) == (
        "### Instruction:\nWho wrote it?\n\n### Response:\n[Retrieval]<paragraph>It\n{text}</paragraph>"
        "[Retrieval]<paragraph>King\nA writer.</paragraph>"
    )
    assert SELF_RAG.sha256 == FROZEN_OF_PAPERS[SELF_RAG.prompt_id]
    assert prompt("self_rag@1") is SELF_RAG
    assert PromptedModel(SELF_RAG, None, None).position == AnswerPosition("start")


def test_prompts_read_back_equal_from_json():
    for item in PROMPTS.values():
        assert Prompt.from_dict(json.loads(json.dumps(item.to_dict()))) == item


@pytest.mark.parametrize(
    "values",
    [
        {"name": "x", "version": 1, "system": "s", "colour": "red"},
        {"name": "x", "version": 1},
        {"name": "x", "version": "1", "system": "s"},
        {"name": "x", "version": True, "system": "s"},
        {"name": "x", "version": 1, "system": "s", "asks_confidence": "no"},
        {"name": "x", "version": 1, "system": "s", "prefill": None},
    ],
)
def test_a_prompt_with_wrong_fields_is_refused(values):
    with pytest.raises(DataError):
        Prompt.from_dict(values)


def test_built_in_prompts_are_found_by_name_and_by_id():
    assert prompt("answer_first") is ANSWER_FIRST
    assert prompt("answer_first@1") is ANSWER_FIRST
    with pytest.raises(DataError, match="answer_first"):
        prompt("answer_last")


def test_only_prompts_that_ask_for_a_confidence_say_so():
    asks = {item.name: "Confidence:" in item.system for item in PROMPTS.values()}
    assert asks == {item.name: item.asks_confidence for item in PROMPTS.values()}
