"""Mathematical expressions: golden classes, what cannot be read, and texts that no parser should be asked to evaluate."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import threading

import pytest

from suffice import Policy, Round, import_recording
from suffice.errors import DataError, MissingExtraError
from suffice.policy.comparisons import guess_normalizer
from suffice.policy.expressions import client, expression_key
from suffice.policy.expressions.parser import key_of
from suffice.policy.normalizers import NORMALIZERS

SAME = [
    [r"\frac{1}{2}", "0.5", ".5", "1/2", r"$\frac12$", r"\dfrac{2}{4}", r"\boxed{\frac{1}{2}}", "x = 0.50"],
    [r"2\sqrt{2}", r"\sqrt{8}", r"$\sqrt 2 + \sqrt 2$", r"\frac{4}{\sqrt{2}}"],
    ["(1,2)", "(1, 2)", r"\left(1, \frac{4}{2}\right)", "1<x<2"],
    ["[1,2)", r"$\left[1, 2\right)$", r"1 \le x < 2"],
    [r"\{1,2\}", "1,2", "2, 1", r"\{2,1,1\}", "$1$ and $2$"],
    [
        "5",
        r"5\text{ cm}",
        "5 cm",
        r"5\,\mathrm{m}^2",
        "5.0",
        "The answer is $5$.",
        r"So it is \boxed{5}, as we said.",
        r"\$5",
        "5%",
        r"5\%",
    ],
    ["1234", "1,234", r"1{,}234", "1.234e3"],
    ["x^2+2x+1", "(x+1)^2", "(1+x)(x + 1)", r"\frac{(x+1)^3}{x+1}"],
    [r"\sin^2 x + \cos^2 x", "1", r"\frac{x}{x}"],
    ["2x+y=4", "4x + 2y = 8", "y+2x-4=0", "4-2x-y=0"],
    ["x>3", "3<x", r"(3,\infty)", "2x > 6"],
    ["x+y>1", "1 < y + x", "2x+2y > 2"],
    ["3+4i", "4i+3"],
    [r"1+\sqrt 2", r"\sqrt{3+2\sqrt2}"],
    [r"0.\overline{3}", "1/3", r"\frac13"],
    [r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1.0\\4/2\end{pmatrix}"],
    ["Evelyn", r"\text{Evelyn}", r"$\text{evelyn}$", "evelyn."],
    ["No", "no", r"\text{no}"],
    ["C", "(C)", r"\text{(C)}"],
    [r"(-\infty,1)\cup(2,3]", r"(2,3]\cup(-\infty,1)"],
    [r"12_8", "12_{8}"],
    [r"10\frac{1}{2}", "10.5", r"\frac{21}{2}"],
    [r"\infty", r"+\infty"],
    [r"x \ne 2", r"2x \ne 4"],
]
"""Texts of one line mean the same, and those of two lines do not."""

APART = [
    "0.333",
    "1/3",
    "2.828",
    r"\sqrt 8",
    "[1,2]",
    "(1,2)",
    "{1,2}",
    "1",
    "12",
    "12_8",
    "x",
    "y",
    "-x",
    "x+1=0",
    "x+1>0",
    r"\left|x\right|",
    r"-\infty",
]


@pytest.mark.parametrize("texts", SAME, ids=lambda texts: texts[0])
def test_expressions_with_the_same_meaning_have_one_key(texts):
    keys = {text: key_of(text) for text in texts}
    assert None not in keys.values()
    assert len(set(keys.values())) == 1, keys


def test_expressions_with_other_meanings_have_other_keys():
    keys = [key_of(texts[0]) for texts in SAME]
    assert len(set(keys)) == len(SAME)
    keys = [key_of(text) for text in APART]
    assert len(set(keys)) == len(APART)


@pytest.mark.parametrize("text", [r"\frac{1}{0}", "", "?", "$$", r"\frac{1}{", "(" * 20])
def test_what_is_no_expression_has_no_key(text):
    assert key_of(text) is None


@pytest.fixture(scope="module")
def parser():
    """A parser with other hashes than those of this process."""
    parser = client._Parser()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2")
        parser.key("1")
    yield parser
    parser.stop()


@pytest.mark.whole
def test_keys_are_equal_in_all_processes_threads_and_orders(parser):
    texts = [text for texts in SAME[::3] for text in texts[:2]]
    here = [key_of(text) for text in texts]
    asked: list[list[str | None]] = []
    threads = [threading.Thread(target=lambda: asked.append([parser.key(text) for text in texts])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    backwards = [parser.key(text) for text in reversed(texts)][::-1]
    assert asked == [here, here]
    assert backwards == here


@pytest.mark.whole
def test_a_text_that_cannot_be_evaluated_costs_bounded_time(caplog):
    parser = client._Parser(seconds=0.8)
    assert parser.key(r"$\int_0^{\infty} \frac{\sin(x^2) e^{-x}}{x^5+x+1} dx$") is None
    assert "took too much time or memory" in caplog.text
    assert parser.key(r"\frac{2}{4}") == "1/2"  # a new process
    parser.stop()
    parser.stop()


ENDLESS = [
    "2^{9^{9^9}}",
    "9^{9^{9^{9}}}",
    "2^{9^{9^9}} + x",
    r"\frac{1}{9^{9^9}}",
    r"\frac{19^{9^9}}{9}",
    "x^{10^{10}}",
    r"\sqrt{2^{9^{9^9}}}",
    "e^{9^{9^9}}",
    "2^{100000}",
    "100000000!",
    "3!!!!!",
    r"\binom{1000000000}{500000000}",
    r"\sum_{i=1}^{10^{9}} i^i",
    r"\prod_{k=1}^{1000000} (k+1)",
]
"""Texts that no machine should evaluate."""


@pytest.mark.whole
def test_what_is_too_large_is_compared_by_its_text_and_never_evaluated(parser, caplog):
    keys = [parser.key(f"${text}$") for text in ENDLESS]
    spaced = [parser.key(rf"$ {text.replace('^', ' ^ ')} $.") for text in ENDLESS]
    assert all(key is not None and key.startswith("text ") for key in keys), keys
    assert spaced == keys
    assert len(set(keys)) == len(keys)
    assert caplog.text == ""  # no process was ended, so no key depends on the speed of a machine


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("$2^{9^{9^9}}$", "text 2^{9^{9^9}}"),
        ("$2^{20000}$.", "text 2^{20000}"),
        (r"$\left( 3 ^ {20000} \right) \cdot \pi$", r"text (3^{20000})\cdot\pi"),
        ("$ 2001! $", "text 2001!"),
        (r"$\binom{10000}{5000}$", r"text \binom{10000}{5000}"),
        (r"$\sum_{k=1}^{2000} \sqrt{k}$", r"text \sum_{k=1}^{2000}\sqrt{k}"),
        (r"$\prod_{k=1}^{2000} k$", r"text \prod_{k=1}^{2000}k"),
    ],
)
def test_the_text_of_what_is_too_large_is_its_key(text, key):
    assert key_of(text) == key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("2^{2^{2^2}}", "65536"),
        ("2^{-3}", "1/8"),
        (r"\frac{2^{12000}}{2^{11999}}", "2"),
        ("5!!", None),
        (r"\binom{1000000}{2}", "499999500000"),
        (r"\binom{1000000}{999998}", "499999500000"),
        (r"\sum_{k=1}^{100000} k", "5000050000"),
        (r"\sum_{k=1}^{900} \frac{1}{k(k+1)}", "900/901"),
        (r"\prod_{k=2}^{900} (1-\frac{1}{k^2})", "901/1800"),
        ("0^{10^9}", "0"),
        ("1^{9^{9}}", "1"),
        ("(-1)^{9^{9}}", "-1"),
    ],
)
def test_what_is_small_in_the_end_keeps_its_value(text, key):
    assert key_of(f"${text}$") == (key or key_of("$120!$"))


def test_a_long_text_is_not_an_expression_but_its_final_box_is(monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr(client._PARSER, "key", lambda text: asked.append(text) or "key")
    assert expression_key("1+" * 600 + "1") is None
    assert expression_key(" ") is None
    assert expression_key("We add. " * 200 + r"So \boxed{3}.") == "key"
    assert asked == [r"\boxed{3}."]


def test_without_the_parser_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(client, "is_available", lambda: False)
    monkeypatch.setattr("suffice.policy.expressions.is_available", lambda: False)
    monkeypatch.setattr("suffice.policy.comparisons.is_available", lambda: False)
    monkeypatch.setattr("suffice.importers.comparing.is_available", lambda: False)
    lines = [json.dumps({"id": f"q{q}", "gold": r"\frac{1}{2}", "answers": ["0.5", "2"]}) for q in range(2)]
    (tmp_path / "s.jsonl").write_text("\n".join(lines), "utf-8")
    notes = import_recording(tmp_path / "s.jsonl", out=tmp_path / "s.parquet", samples=True).notes
    assert any("gold answers look like LaTeX" in note and "'.[math]'" in note for note in notes)
    with pytest.raises(MissingExtraError, match=r"\.\[math\]"):
        NORMALIZERS["math"](r"\frac{7}{9}")
    assert guess_normalizer([r"\frac{1}{2}", "x"]) == "exact"  # in question answering x^2 is x2


@pytest.mark.whole
def test_a_parser_that_does_not_start_says_so(monkeypatch):
    parser = client._Parser()
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(DataError, match="start"):
        parser.key("5")


@pytest.mark.whole
def test_votes_count_expressions_by_their_value():
    answers = [r"\frac{1}{2}", "2", "0.5", "?", r"$\frac{3}{6}$"]
    rounds = [Round(index=r, answer=text) for r, text in enumerate(answers, 1)]
    policy = Policy(rule="lead(2)", selector="majority_of_samples", normalizer="math", max_rounds=5)
    decision = policy.decide(rounds)
    assert (decision.stop_round, decision.answer) == (5, r"$\frac{3}{6}$")
    for order in itertools.permutations(range(4)):  # whatever the order, the same are the same
        stops = policy.decide([Round(index=r, answer=answers[place]) for r, place in enumerate((*order, 4), 1)])
        assert stops.signals["vote_lead"] == 2
    assert guess_normalizer([r"\frac{1}{2}", "3", r"\text{even}"]) == "math"
    assert guess_normalizer([r"\frac{1}{2}", "?"]) == "qa"
    assert guess_normalizer([r"\frac{1}{2}"] * 19 + ["?"]) == "math"
