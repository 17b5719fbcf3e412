"""Where the answer stands: in the text, and in tokens of every shape that endpoints return."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from suffice.errors import DataError
from suffice.policy.normalizers import NORMALIZERS
from suffice.policy.rounds import Token
from suffice.policy.session.replies import located_in, read_reply
from suffice.policy.signals import AnswerPosition, Located
from suffice.policy.signals.text import _BYTE_LEVEL, token_bytes
from tests.support.linear import takes_linear_time

MARKER, JSON, START, WHOLE = map(AnswerPosition, ("marker", "json", "start", "whole"))
BOXED, NUMBER, LETTER, CODE = map(AnswerPosition, ("boxed", "last-number", "letter", "code-block"))
FORMS = (BOXED, NUMBER, LETTER, CODE, AnswerPosition("regex", r"(?i)city: (\w+)"), AnswerPosition("json", "a.b"))
BYTE_LEVEL = {byte: character for character, byte in _BYTE_LEVEL.items()}
PAYLOAD = Path(__file__).resolve().parents[2] / "data" / "logprobs" / "debug_response_simple_fact.json"


def spelled(*texts):
    return tuple(Token(text) for text in texts)


def texts_of(located):
    return None if located.answer_tokens is None else [token.text for token in located.answer_tokens]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: Paris", "Paris"),
        ('Answer: " Paris "', "Paris"),
        ("Answer:Paris\nConfidence: 5", "Paris"),
        ("Answer: \n\n Paris \nConfidence: 5", "Paris"),
        ("**Answer:** Paris", "Paris"),
        ("**Answer**: Paris", "Paris"),
        ("*Answer:* Paris", "Paris"),
        ("__Answer:__ Paris", "Paris"),
        ("Answer: **Paris**", "Paris"),
        ("Answer: **Paris**.", "Paris"),
        ("**Answer: Paris**\n**Confidence: 4**", "Paris"),
        ("### Answer: Paris", "Paris"),
        ("Answer:\n- Paris", "Paris"),
        ("Answer:\n```text\nParis\n```", "Paris"),
        ('Answer: "Paris"', "Paris"),
        ('Answer: "Paris".', "Paris"),
        ('Answer: **"Paris"**', "Paris"),
        ("Answer: \u201cParis\u201d", "Paris"),
        ("Answer: `Paris`", "Paris"),
        ("Answer: <Paris>", "Paris"),
        ('Answer: "Paris', "Paris"),
        ('Answer: "Heroes" by Bowie', '"Heroes" by Bowie'),
        ("Answer: 'Tis Pity She's a Whore", "'Tis Pity She's a Whore"),
        ("Answer: *NSYNC", "*NSYNC"),
        ("Answer: M*A*S*H", "M*A*S*H"),
        ("Answer: -5", "-5"),
        ("Answer: Paris Confidence: 5", "Paris"),
        ("Answer: Paris, Confidence - 5", "Paris"),
        ("Answer: Paris (Confidence: high)", "Paris"),
        ("Answer: Paris | **Confidence:** 5", "Paris"),
        ("Answer: Consumer Confidence Index", "Consumer Confidence Index"),
        ("Answer: Paris<|eot_id|>", "Paris"),
        ("Answer: Paris</s>", "Paris"),
        ("Confidence: 4\nAnswer: Paris", "Paris"),
        ("answer: Paris", "Paris"),
        ("FINAL ANSWER : Paris", "Paris"),
        ("Answer\uff1a\u6771\u4eac", "\u6771\u4eac"),
        ("Answer: Answer: Paris", "Paris"),
        ("An answer: no.\nAnswer: Paris", "Paris"),
        ("Answer: Paris\nAnswer: London", "Paris"),
        ("Answer: ...", "..."),
        ("<think>Answer: London</think>\nAnswer: Paris", "Paris"),
        ("Answer: London</think>Answer: Paris", "Paris"),
        ("<|channel|>analysis<|message|>Answer: London<|end|><|channel|>final<|message|>Answer: Paris", "Paris"),
    ],
)
def test_the_marker_finds_the_answer(text, answer):
    located = MARKER.locate(text)
    assert located.answer == answer
    assert text[located.start : located.end] == answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Paris",
        "Answer:",
        "Answer: \n ",
        "Answer: ****",
        'Answer: ""',
        'Answer: "',
        "Answer:\nConfidence: 5",
        "Answer: **Confidence:** 5",
        "Answer: <|eot_id|>",
        "<think>Answer: Paris",
        "Answer: Paris <think> or",
        "<|channel|>analysis<|message|>Answer: London",
        "NoAnswers here",
    ],
)
def test_a_reply_without_an_answer_has_none(text):
    assert MARKER.locate(text, spelled(text)) == Located()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"answer": "Paris", "confidence": 4}', "Paris"),
        ('{"confidence": 4, "answer" : "Paris"}', "Paris"),
        ('Sure!\n```json\n{"answer": "Paris"}\n```', "Paris"),
        ('{"why": {"x": ["answer"]}, "answer": "Paris"}', "Paris"),
        ('{"why": "the \\"answer\\": London", "answer": "Paris"}', "Paris"),
        ('{"answer": " \\n Par\\u00eds "}', "Par\u00eds"),
        ('{"answer": "Paris", "confi', "Paris"),
        ('{"answer": 1979}', "1979"),
        ('{"answer": true}', "true"),
        ('<think>{"answer": "London"}</think>{"answer": "Paris"}', "Paris"),
        ('{"answer": "caf\\ud83d"}', "caf?"),
        ('{"\\x": 1, "answer": "Paris"}', "Paris"),
    ],
)
def test_a_json_field_is_read_whatever_stands_around_it(text, answer):
    located = JSON.locate(text)
    assert located.answer == answer
    assert text[located.start : located.end].strip() == text[located.start : located.end] != ""


@pytest.mark.parametrize(
    "text",
    [
        "Paris",
        "{",
        "{}",
        '{"answer": "Par',
        '{"answer": ""}',
        '{"answer": null}',
        '{"answer": ["Paris"]}',
        '{"answer": {"text": "Paris"}}',
        '{"answer": "\\n"}',
        '{"answer": "\\x"}',
        '{"answer',
        '"answer": "Paris"',
    ],
)
def test_json_without_a_finished_value_has_no_answer(text):
    assert JSON.locate(text) == Located()


def test_a_tool_call_keeps_tags_that_look_like_thinking():
    position = AnswerPosition("tool", "final")
    assert position.locate('{"note": "</think>", "final": "Paris"}').answer == "Paris"
    assert position.locate('{"final": "<think>"}').answer == "<think>"


def test_the_start_of_the_generation_skips_a_repeated_marker():
    assert START.locate(" Paris\nConfidence: 5").answer == "Paris"
    assert START.locate("Answer: Paris").answer == "Paris"
    assert texts_of(START.locate("Paris", spelled(" Par", "is"))) == [" Par", "is"]


def test_a_callable_gives_the_span_itself():
    text = "It is Paris , France"
    tokens = spelled("It", " is", " Paris", " ,", " France")

    def at(*span):
        return AnswerPosition("callable", span=lambda _: span)

    assert texts_of(at(5, 12).locate(text, tokens)) == [" Paris"]
    assert at(5, 12).locate(text).start == 6
    for outside in ((5, 5), (8, 6), (-3, 4), (0, 99), (11, 12)):
        assert at(*outside).locate(text) == Located()
    assert AnswerPosition("callable", span=lambda _: None).locate(text) == Located()


# -- tokens, as real tokenizers and servers shape them --------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens", "answer_tokens"),
    [
        # Llama 3 and GPT-4o: the space belongs to the word.
        ("Answer: Paris\nConfidence: 5", ["Answer", ":", " Paris", "\n", "Confidence", ":", " ", "5"], [" Paris"]),
        # The marker split, and glued to the answer.
        ("Answer:Paris", ["An", "swer", ":Paris"], [":Paris"]),
        ("Answer: Paris", ["Answer", ": P", "aris"], [": P", "aris"]),
        # White space as tokens of its own.
        ("Answer: \n Paris", ["Answer", ":", " ", "\n", " ", "Par", "is"], ["Par", "is"]),
        # Markdown around marker and answer.
        ("**Answer:** Paris", ["**", "Answer", ":**", " Paris"], [" Paris"]),
        ("Answer: **Paris**", ["Answer", ":", " **", "Par", "is", "**"], ["Par", "is"]),
        ('Answer: "Paris".', ["Answer", ":", ' "', "Paris", '".'], ["Paris"]),
        # A special token that the text leaves out, at the end and at the start.
        ("Answer: Paris", ["<|start_header_id|>", "Answer", ":", " Paris", "<|eot_id|>"], [" Paris"]),
        ("Answer: Paris", ["<s>", "Answer", ":", " Paris", "</s>"], [" Paris"]),
        # The server stripped the text, or cut it at a stop string.
        ("Answer: Paris", [" Answer", ":", " Paris", " \n"], [" Paris"]),
        ("Answer: Paris", ["\n\n", "Answer", ":", " Paris", ".\n", "Question"], [" Paris"]),
        ("Answer: Paris.", ["\n\n", "Answer", ":", " Paris", ".\n", "Question"], [" Paris", ".\n"]),
        ("\n Answer: Paris \n", ["Answer", ":", " Paris", "<|im_end|>"], [" Paris"]),
        # GPT-2's alphabet, as local vocabularies spell it.
        (
            "Answer: Z\u00fcrich \u6771\n",
            ["Answer", ":", "\u0120Z", "\u00c3\u00bc", "rich", "\u0120\u00e6\u013f", "\u00b1", "\u010a"],
            ["\u0120Z", "\u00c3\u00bc", "rich", "\u0120\u00e6\u013f", "\u00b1"],
        ),
        # SentencePiece, with and without its space.
        ("Answer: Paris is", ["\u2581Answer", ":", "\u2581Par", "is", "\u2581is"], ["\u2581Par", "is", "\u2581is"]),
        ("Answer: Paris is", ["Answer", ":", "Par", "is", "is"], ["Par", "is", "is"]),
        ("Answer: \u2581", ["Answer", ":", " ", "\u2581"], ["\u2581"]),
        # Byte fallback, spelled three ways.
        (
            "Answer: \u4eac\u90fd",
            ["\u2581Answer", ":", "\u2581", "<0xE4>", "<0xBA>", "<0xAC>", "\u90fd", "<0x0A>"],
            ["<0xE4>", "<0xBA>", "<0xAC>", "\u90fd"],
        ),
        (
            "Answer: \u4eac\u90fd",
            ["Answer", ":", "bytes: \\xe4\\xba", "bytes:\\xac", "\u90fd"],
            ["bytes: \\xe4\\xba", "bytes:\\xac", "\u90fd"],
        ),
        ("Answer: <0xE4>", ["Answer", ":", " <0xE4>"], [" <0xE4>"]),
        (
            "Answer: \u4eac\u90fd\nok",
            ["Answer", ":", " ", "\ufffd", "\ufffd", "\u90fd", "\n", "ok"],
            ["\ufffd", "\ufffd", "\u90fd"],
        ),
        ("Answer: caf\u00e9s", ["Answer", ":", " caf\ufffd", "\ufffds"], [" caf\ufffd", "\ufffds"]),
        ("Answer: \ufffd", ["Answer", ":", " \ufffd"], [" \ufffd"]),
        # Where the full-width colon ends and the answer begins cannot be told: no token, not a guess.
        ("Answer\uff1a\u4eac", ["Answer", "\ufffd", "\ufffd", "\ufffd", "\ufffd"], None),
        ("Answer: ab\u00e9", ["Answer", ":", " ab", "\ufffd", "\ufffd", "\ufffd"], None),
        # "" may be the first token of the character after it.
        ("Answer: \u4eac", ["Answer", ":", " ", "", "\u4eac"], None),
        ("Answer: Paris", ["Answer", ":", "", " Paris"], [" Paris"]),
        # A thinking block that the server removed from the text, not from the tokens.
        (
            "Answer: Paris",
            ["<think>", "Answer", ":", " Paris", " maybe", "</think>", "\n", "Answer", ":", " Paris"],
            [" Paris"],
        ),
        ("Answer: Paris", ["<think>", "Answer", ":", " Paris", "</", "think", ">", "Answer", ": Paris"], [": Paris"]),
        ("<think>a</think>Answer: b", ["<think>", "a", "</think>", "Answer", ":", " b"], [" b"]),
        ("<think>a</think>Answer: b", ["<think>", "a", "</think>", "Answer", ":", " b", "<eos>"], [" b"]),
        # Tokens of another text.
        ("Answer: Paris", ["Answer", ":", " London"], None),
        ("Answer: Paris", ["Answer", ":"], None),
        ("Answer: Paris", ["Answer", ":", " Paris", *["x"] * 9], None),
    ],
)
def test_the_tokens_of_the_answer_are_found_or_none(text, tokens, answer_tokens):
    tokens = spelled(*tokens)
    located = MARKER.locate(text, tokens)
    assert texts_of(located) == answer_tokens
    if answer_tokens is not None:
        # The last such run, where a thinking block holds the same words.
        last = max(i for i, token in enumerate(tokens) if token is located.answer_tokens[0])
        assert tokens[last : last + len(answer_tokens)] == located.answer_tokens


def test_replacement_characters_at_the_end_are_not_a_cut_stop_string():
    tokens = spelled("Answer", ":", " \ufffd", "\ufffd\ufffd", "\ufffd", "\ufffd")
    assert MARKER.locate("Answer: \u6771\u4eac", tokens).answer_tokens == tokens[2:]


def test_the_byte_level_alphabet_is_that_of_real_tokenizers():
    text = "".join(map(chr, range(0x800))) + "\uffff\U0010ffff\U0001f642\u3042"
    pairs = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    assert bytes(_BYTE_LEVEL[character] for piece, _ in pairs for character in piece) == text.encode()
    assert set(_BYTE_LEVEL) == set(pre_tokenizers.ByteLevel.alphabet())


def test_after_a_removed_thinking_block_the_margin_is_not_the_draft_s():
    draft, final = Token(" Paris", -2.0), Token(" Paris", -0.1)
    tokens = (*spelled("Answer", ":"), draft, *spelled("</think>", "Answer", ":"), final)
    assert MARKER.locate("Answer: Paris", tokens).answer_tokens == (final,)


def test_given_bytes_win_over_the_spelling():
    assert token_bytes(Token("\ufffd", raw=b"\xe4\xba")) == b"\xe4\xba"
    raws = [b"Answer:", b" \xe4\xba", b"\xac", b"\xe9\x83\xbd"]
    tokens = tuple(Token(raw.decode(errors="replace"), raw=raw) for raw in raws)
    assert MARKER.locate("Answer: \u4eac\u90fd", tokens).answer_tokens == tokens[1:]
    assert MARKER.locate("Answer: \u4eac\u90fd", (*tokens, Token("<|im_end|>", raw=b""))).answer_tokens == tokens[1:]


def test_a_json_quote_glued_to_the_answer_is_its_first_token():
    tokens = spelled('{"', "answer", '":', ' "Par', "is", '",', ' "confidence": 4}')
    assert texts_of(JSON.locate('{"answer": "Paris", "confidence": 4}', tokens)) == [' "Par', "is"]


def test_no_tokens_give_an_answer_without_tokens():
    assert MARKER.locate("Answer: Paris", None) == Located(answer="Paris", start=8, end=13)
    assert MARKER.locate("Answer: Paris", ()).answer_tokens is None


def test_too_many_readings_of_the_tokens_give_none():
    text = "Answer: " + "\u00e9" * 400
    assert MARKER.locate(text, spelled("Answer", ":", " ", *["\ufffd"] * 600)).answer_tokens is None


def test_a_real_reply_of_gpt_4o_is_located_in_its_tokens():
    content = json.loads(PAYLOAD.read_text(encoding="utf-8"))["output"][0]["content"][0]
    tokens = [Token(item["token"], item["logprob"], raw=bytes(item["bytes"])) for item in content["logprobs"]]
    assert texts_of(START.locate(content["text"], tokens))[0] == "The"
    last_word = AnswerPosition("callable", span=lambda text: (text.rindex(" ") + 1, len(text) - 1))
    assert texts_of(last_word.locate(content["text"], tokens)) == [" Paris"]


CORPUS = [
    "Answer: Paris\nConfidence: 5",
    "Answer: \u6771\u4eac\u90fd",
    "The answer is Z\u00fcrich.",
    "**Answer:** M\u00fcnchen",
] * 3


def byte_level_bpe():
    """Return a tokenizer of GPT-2's and Llama 3's kind."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentencepiece_bpe():
    """Return a tokenizer of Llama 2's, Mistral's and Gemma's kind, with byte fallback."""
    words = [
        "\u2581",
        "A",
        "n",
        "s",
        "w",
        "e",
        "r",
        ":",
        "P",
        "a",
        "i",
        "Z",
        "An",
        "Ans",
        "Answ",
        "Answe",
        "Answer",
        "\u2581P",
        "Pa",
    ]
    vocabulary = {
        word: rank for rank, word in enumerate(["<unk>", *words, *(f"<0x{byte:02X}>" for byte in range(256))])
    }
    merges = [("A", "n"), ("An", "s"), ("Ans", "w"), ("Answ", "e"), ("Answe", "r"), ("\u2581", "P"), ("P", "a")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


@pytest.mark.parametrize("tokenizer", [byte_level_bpe(), sentencepiece_bpe()], ids=["byte-level", "sentencepiece"])
@pytest.mark.parametrize("spelling", ["vocabulary", "decoded"])
@pytest.mark.parametrize(
    "answer",
    ["Paris", " Paris", "**Paris**", "Z\u00fcrich", "\u6771\u4eac\u90fd", " \U0001f642 a", "\n Paris", "\u00e9t\u00e9"],
)
def test_a_real_tokenizer_s_answer_is_found(tokenizer, spelling, answer):
    text = f"Well.\n**Answer:**{answer}\nConfidence: 5"
    encoding = tokenizer.encode(text)
    assert tokenizer.decode(encoding.ids) == text
    pieces_ = encoding.tokens if spelling == "vocabulary" else [tokenizer.decode([i]) for i in encoding.ids]
    tokens = spelled(*pieces_)
    located = MARKER.locate(text, tokens)
    begins = [start <= located.start < end for start, end in encoding.offsets]
    assert located.answer == answer.strip("* \n")
    assert located.answer_tokens[0] is tokens[begins.index(True)]


# -- laws -----------------------------------------------------------------------------------------------------------

WORDS = st.text(alphabet="ab1 \u00e9\u00df\u4eac\U0001f642", min_size=1, max_size=12).filter(str.strip)
REPLIES = st.builds(
    lambda before, answer, after: f"{before}Answer:{answer}{after}",
    st.sampled_from(["", " ", "Let me see.\n", "\u4eac ", "**", "<think>Answer: b</think>"]),
    WORDS,
    st.sampled_from(["", "\n", "\nConfidence: 5", " \u00e9\n\u4eac"]),
)
CUTS = st.lists(st.integers(1, 5), min_size=1, max_size=60)


def pieces(raw, widths):
    parts, position, turn = [], 0, 0
    while position < len(raw):
        parts.append(raw[position : position + widths[turn % len(widths)]])
        position, turn = position + len(parts[-1]), turn + 1
    return parts


def index_of_byte(parts, byte):
    return next(i for i in range(len(parts)) if sum(map(len, parts[: i + 1])) > byte)


def fallback(part):
    try:
        return part.decode()
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in part)


SPELLINGS = {
    "bytes": lambda part: Token(part.decode(errors="replace"), raw=part),
    "byte level": lambda part: Token("".join(BYTE_LEVEL[byte] for byte in part)),
    "byte fallback": lambda part: Token(fallback(part)),
}


@pytest.mark.parametrize(
    ("token", "spelled"),
    [
        (Token(" Oslo"), b" Oslo"),
        (Token("\u0120Oslo"), b" Oslo"),
        (Token("\u2581Oslo"), b" Oslo"),
        (Token("<0xC3>"), b"\xc3"),
        (Token("\u4e16"), "\u4e16".encode()),
        (Token("x", raw=b"y"), b"y"),
    ],
)
def test_a_token_spells_its_bytes_in_every_vocabulary(token, spelled):
    assert token_bytes(token) == spelled


@pytest.mark.parametrize("spelling", SPELLINGS)
@settings(max_examples=50, deadline=None)
@given(text=REPLIES, widths=CUTS)
def test_every_tokenisation_of_a_text_finds_the_same_answer(spelling, text, widths):
    parts = pieces(text.encode(), widths)
    tokens = [SPELLINGS[spelling](part) for part in parts]
    located = MARKER.locate(text, tokens)
    assert located.answer == MARKER.locate(text).answer
    first = index_of_byte(parts, len(text[: located.start].encode()))
    last = index_of_byte(parts, len(text[: located.end].encode()) - 1)
    assert located.answer_tokens == tuple(tokens[first : last + 1])
    assert located.answer_tokens[0] is tokens[first]


@settings(max_examples=75, deadline=None)
@given(text=REPLIES, widths=CUTS, noise=st.data())
def test_damaged_tokens_give_the_right_answer_tokens_or_none(text, widths, noise):
    parts = pieces(text.encode(), widths)
    damages = [noise.draw(st.sampled_from(["none", "replaced", "stripped", "special before"])) for _ in parts]
    tokens, origin = [], []
    for i, (part, damage) in enumerate(zip(parts, damages, strict=True)):
        if damage == "special before":
            tokens.append(Token("<|pad|>"))
            origin.append(-1)
        spelled_part = part.decode(errors="replace") if damage == "replaced" else fallback(part)
        tokens.append(Token(spelled_part.lstrip() if damage == "stripped" else spelled_part))
        origin.append(i)
    located = MARKER.locate(text, tokens)
    if located.answer_tokens is not None:
        expected = index_of_byte(parts, len(text[: located.start].encode()))
        assert located.answer_tokens[0] is tokens[origin.index(expected)]


ANY_TOKENS = st.lists(
    st.builds(Token, st.text(max_size=6), raw=st.none() | st.binary(max_size=4))
    | st.builds(
        Token,
        st.sampled_from(["Answer", ":", " ", "\ufffd", "</think>", '{"', '":', "<0xE4>", "bytes:\\xe4", "\ud83d"]),
    ),
    max_size=8,
)
FRAGMENTS = [
    "Answer:",
    "answer",
    '{"answer": ',
    '"',
    "\\",
    "**",
    "Confidence",
    ": 5",
    "<think>",
    "</think>",
    "\n",
    "\ud83d",
    "\\boxed{",
    "}",
    "-1,",
    "(A)",
    "```",
]
ANY_TEXT = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=8).map("".join)


@settings(max_examples=150, deadline=None)
@given(
    text=ANY_TEXT,
    tokens=ANY_TOKENS,
    position=st.sampled_from([MARKER, JSON, START, WHOLE, AnswerPosition("tool"), *FORMS]),
)
def test_locate_never_raises_and_its_span_is_in_the_text(text, tokens, position):
    located = position.locate(text, tokens)
    if located.answer is None:
        assert located == Located()
        return
    assert 0 <= located.start < located.end <= len(text)
    assert located.answer == located.answer.strip() != ""
    if position.kind not in {"json", "tool"}:
        assert text[located.start : located.end] == located.answer


@settings(deadline=None)
@given(
    fragment=st.sampled_from(
        [
            *(" ", "*", '"', '\\"', "Confidence", "Confidence ", "Answer:", "`", "{", "<", "Answer:*_ "),
            *("\\boxed{", "\\boxed{}", "1", "1,234", "(A", "(A), ", "(A \n", "~~~\n", "answer ", '{"a":', '"b":['),
        ]
    )
)
def test_a_long_reply_takes_linear_time(fragment):
    for position in (MARKER, JSON, START, WHOLE, *FORMS):
        assert takes_linear_time(
            lambda text, position=position: position.locate(text, spelled(text)),
            lambda size: 'Answer: {"' + fragment * (size // len(fragment)),
            n=5_000,
        )


def test_the_whole_text_after_thinking_is_the_answer_of_a_draft():
    text = "<think>Hm.</think>\n\nThe tower.\n\n**Answer:** it is tall.\n"
    located = WHOLE.locate(text, spelled(*(c for c in text)))
    assert located.answer == "The tower.\n\n**Answer:** it is tall."
    assert "".join(token.text for token in located.answer_tokens).strip() == located.answer
    assert WHOLE.locate("<think>Hm.").answer is None
    assert WHOLE.locate(" \n") == Located()
    with pytest.raises(DataError, match="no marker"):
        AnswerPosition("whole", "Answer:")


# -- as a value -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "position",
    [
        *(MARKER, START, JSON, WHOLE, AnswerPosition("tool", "final"), AnswerPosition("marker", "A:"), *FORMS),
        AnswerPosition(form="day-first"),
        AnswerPosition("last-number", form="decimal-comma"),
    ],
)
def test_a_position_survives_json_and_its_words(position):
    assert AnswerPosition.from_dict(json.loads(json.dumps(position.to_dict()))) == position
    assert AnswerPosition.parse(str(position)) == position


@pytest.mark.parametrize(
    "words", ["xml:city", "callable", "whole:x", "regex", "regex:(", "json: ", "thousands:xml:x", "thousands"]
)
def test_words_of_no_position_are_refused(words):
    with pytest.raises(DataError, match="answer position"):
        AnswerPosition.parse(words)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"kind": "marker"},
        {"kind": "marker", "text": "Answer:", "more": 1},
        {"kind": "regex", "text": "("},
        {"kind": "regex", "text": ""},
        {"kind": "boxed", "text": "x"},
        {"kind": ["json"], "text": "x"},
        {"kind": "xpath", "text": "x"},
        {"kind": "xpath", "text": ""},
        {"kind": "callable", "text": ""},
        {"kind": 5, "text": "x"},
        {"kind": "json", "text": None},
        {"kind": "json", "text": " "},
        {"kind": "json", "text": ""},
        {"kind": "whole", "text": "Answer:"},
        {"kind": "whole", "text": "", "form": "roman"},
        {"kind": "whole", "text": "", "form": ["thousands"]},
        {"kind": "whole", "form": "thousands"},
        ["kind", "text"],
    ],
)
def test_a_position_of_another_shape_is_refused(data):
    with pytest.raises(DataError):
        AnswerPosition.from_dict(data)


@pytest.mark.parametrize(
    ("position", "text", "answer"),
    [
        (BOXED, r"So \boxed{1}, no: $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (BOXED, r"\fbox{1} \boxed { \text{B} }", "B"),
        (BOXED, r"\boxed{x = \boxed{5}} and \{", r"x = \boxed{5}"),
        (BOXED, r"\boxed{4} then \boxed{5", "4"),
        (BOXED, r"\boxed{ }", None),
        (BOXED, "<think>\\boxed{1}</think> five", None),
        (NUMBER, "There are 3 of 12, so $1,234.50.", "1,234.50"),
        (NUMBER, "From 3-5 to x=-7, in 2 h2", "2"),
        (NUMBER, "It is 3/4.", "3/4"),
        (NUMBER, "1,2,3 or 1e-3%", "1e-3"),
        (NUMBER, "none", None),
        (LETTER, "A cat is (B), yet the answer is (C).", "C"),
        (LETTER, "**Answer: D**", "D"),
        (LETTER, "I choose option B, not C", "B"),
        (LETTER, "(A) is wrong, so [B]", "B"),
        (LETTER, "B) Paris", "B"),
        (LETTER, " C ", "C"),
        (LETTER, "A cat", None),
        (CODE, "```python\nx = 1\n```\nBetter:\n```\nx = 2\n```\nDone.", "x = 2"),
        (CODE, "~~~\n```\n~~~", "```"),
        (CODE, "```\nx = 1\n```\n```\nx = 2", "x = 1"),
        (CODE, "x = 1", None),
        (AnswerPosition("regex", r"^(\w+)|is (\w+)"), "<think>no</think>Oslo is big", "Oslo"),
        (AnswerPosition("regex", r"(?m)^x|is (\w+)"), "It is Oslo", "Oslo"),
        (AnswerPosition("regex", r"\d+"), "It is 12.", "12"),
        (AnswerPosition("regex", r"is(.*)"), "It is", None),
        (AnswerPosition("regex", r"x"), "It is", None),
        (AnswerPosition("json", "a.b"), '{"b": 1, "a": {"c": {"b": 2}, "d": ["b", 3], "b": "4"}}', "4"),
        (AnswerPosition("json", "a.b"), '{"a": {"c": 1}, "b": 2}', None),
        (AnswerPosition("json", "a.b"), '{"a": {"c": 1', None),
        (AnswerPosition("json", "a.b"), '{"a": {"c', None),
        (AnswerPosition("json", "a.b"), '{"a": 3}', None),
        (AnswerPosition("json", "a.b"), '{"a.b": 3, "a": {"b": 4}}', "3"),
        (AnswerPosition("tool", "a.b"), '{"a": {"b": true}}', "true"),
    ],
)
def test_usual_forms_of_replies_are_read(position, text, answer):
    located = position.locate(text)
    assert located.answer == answer
    assert answer is None or text[located.start : located.end] == answer


@pytest.mark.parametrize(
    ("form", "texts", "answer"),
    [
        ("thousands", ("1 234 km", "1,234 km", "1'234 km"), "1234 km"),
        ("decimal-comma", ("1.234,50 EUR", "1234,50 EUR", "1 234,50 EUR"), "1234.50 EUR"),
        ("day-first", ("3/4/2021", "03.04.2021", "3 April 2021"), "2021-04-03"),
        ("month-first", ("4/3/2021", "04/03/2021", "April 3, 2021"), "2021-04-03"),
        ("no-currency", ("€12.50", "12.50 EUR", "12.50"), "12.50"),
    ],
)
def test_answers_are_read_in_the_form_of_the_position(form, texts, answer):
    position = AnswerPosition("json", "x", form=form)
    replies = [json.dumps({"x": text, "y": 1}, ensure_ascii=False) for text in texts]
    found = [position.locate(reply) for reply in replies]
    assert {item.answer for item in found} == {answer}
    assert [reply[item.start : item.end].strip('"') for reply, item in zip(replies, found, strict=True)] == [*texts]
    assert position.locate('{"x": "Oslo"}').answer == "Oslo"
    assert position.locate('{"y": 1}').answer is None


def test_whole_replies_before_the_marker_are_read_in_its_form():
    position = AnswerPosition(form="decimal-comma")
    seen = []
    for reply in ("<think>2,5?</think> 1.234,5", "Answer: 1234,5", "7,5"):
        seen.append(read_reply(reply, position, seen, index=len(seen) + 1))
    assert [item.answer for item in seen] == ["1234.5", "1234.5", None]
    assert [item.answer for item in located_in([item.text for item in seen], position)] == ["1234.5", "1234.5", None]


def test_an_unknown_form_is_refused():
    with pytest.raises(DataError, match="form"):
        AnswerPosition(form="roman")


def test_a_callable_cannot_be_saved():
    with pytest.raises(DataError, match="saved"):
        AnswerPosition("callable", span=lambda _: None).to_dict()


def test_a_span_function_goes_with_its_kind_only():
    with pytest.raises(DataError, match="span function"):
        AnswerPosition("callable")
    with pytest.raises(DataError, match="span function"):
        AnswerPosition(span=lambda _: None)


@pytest.mark.parametrize("before", ["", "The answer is ", "I thought of B. Answer: ", "The correct options are "])
@pytest.mark.parametrize(
    "said", ["A, C", "A and C", "(A), (C)", "A/B/C", "A, B and D.", "A or B\nConfidence: 4", "**A** & **C**"]
)
def test_letters_of_several_options_are_not_one_letter(before, said):
    answer = LETTER.locate(before + said).answer
    assert answer is None or len({*re.findall("[A-D]", answer)}) > 1
    assert NORMALIZERS["letter"](answer or "") is None


@pytest.mark.parametrize(
    "said", ["B", "(B)", "B) Paris", "B, I think", "B. A dog is another", "B\nA is wrong", "B. Vitamin C."]
)
def test_a_letter_before_other_capitals_is_one_option(said):
    assert LETTER.locate(f"The answer is {said}").answer == "B"
