"""The TypeScript package decides as this library does, or refuses the policy."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import unicodedata
from collections import Counter
from functools import cache

import pytest

from suffice import Policy
from suffice.errors import SufficeError
from suffice.policy.normalizers import NORMALIZERS
from suffice.policy.signals import ABSTAIN_PATTERNS, SIGNALS, abstained_by
from tests.support.files import ROOT, held, made, mutated
from tests.support.javascript import (
    CHOICES,
    NUMBERS,
    SELECTORS,
    TEXTS,
    a_policy,
    a_rule,
    a_trajectory,
    decided_by_node,
    decided_here,
    named_texts,
    node,
)

pytestmark = pytest.mark.whole

PACKAGE = ROOT / "packages" / "suffice-js"


def cases(n: int, seed: int) -> list[dict]:
    """Return random trajectories: every named rule in turn, and as many random rules."""
    rng = random.Random(seed)
    named = named_texts()
    rules = [named[place // 2 % len(named)] if place % 2 else a_rule(rng, rng.randint(0, 3)) for place in range(n)]
    return [a_trajectory(rng, a_policy(rng, rule)) for rule in rules]


def close(one: dict, other: dict) -> bool:
    """Return whether signals are equal but for the rounding of logarithms and exponentials."""
    return one.keys() == other.keys() and all(
        (value is None) == (other[name] is None)
        and (value is None or math.isclose(value, other[name], rel_tol=1e-12, abs_tol=1e-13))
        for name, value in one.items()
    )


def test_node_decides_every_random_trajectory_as_python_does():
    drawn = cases(800, 42)
    seen = Counter()
    for case, theirs in zip(drawn, decided_by_node(drawn), strict=True):
        ours = decided_here(case)
        told = (case["policy"]["rule"], case["policy"]["selector"], case)
        assert ours["refused"] is theirs["refused"] is None, (ours, theirs, told)
        assert [ours[name] for name in ("rule", "selector", "errors")] == [
            theirs[name] for name in ("rule", "selector", "errors")
        ], told
        assert close(ours["decision"].pop("signals"), theirs["decision"].pop("signals")), told
        assert ours["decision"] == theirs["decision"], told
        seen[ours["decision"]["reason"]] += 1
        seen["errors"] += bool(ours["errors"])
    assert all(seen[reason] > 30 for reason in ("rule", "max_rounds", "exhausted", "failed", "errors")), seen


def test_node_refuses_every_policy_that_python_refuses():
    rng = random.Random(5)
    whole = [value for kind, value in (*made(), *held()) if kind == "policy"]
    drawn = [mutated(rng.choice([whole[0], rng.choice(whole)]), rng) for _ in range(1200)]
    everything = sorted(set(SIGNALS) | {"my_quality"})
    told = decided_by_node([{"policy": value, "given": everything} for value in (*whole, *drawn)])
    seen = Counter()
    for value, theirs in zip((*whole, *drawn), told, strict=True):
        try:
            Policy.from_dict(value)
            ours = None
        except SufficeError as error:
            ours = type(error).__name__
        assert ours is None or theirs["refused"], (ours, value)
        assert ours or theirs["refused"] in (None, "UnsupportedError"), (theirs, value)
        seen[ours is None, theirs["refused"]] += 1
    assert seen[False, "SchemaError"] > 400
    assert seen[True, None] > 120, seen


WORDS = (
    *("answer_stable", "p_correct", "round", "x", "tasr", "fixed_k", "esc", "patience", "times", "k_of", "first_of", "never", "rasc", "semantic"),
    *("max_p_correct", "best", "my_score", "majority_of_samples", "ranked", "votes", "sum_x", "not", "and", "or", "in", "True", "lambda"),
    *("1", "2", "0.5", ".5", "1.", "1e3", "1_0", "05", "0", "1e999", "3", "2.0", "-1", "12345678901234567890", "1e-7", "1e16", "0.1", "=", "\n", "\t"),
    *("(", "(", "(", ")", ")", ")", ",", ",", ">", ">=", "<", "<=", "==", "!=", "+", "-", "*", "**", "/", "&", "|", "~", "%", "[", "]", ":", ".", "'", "@"),
)  # fmt: skip


def a_text(rng: random.Random) -> str:
    """Return a text that is a rule but for a few words."""
    words = re.findall(
        r"[\w.]+|[<>]=?|\S", rng.choice((a_rule(rng, 2), rng.choice(named_texts()), rng.choice(SELECTORS)))
    )
    for _ in range(rng.randint(0, 2)):
        place = rng.randrange(len(words) + 1)
        words[place : place + rng.randint(0, 1)] = rng.choices(WORDS, k=rng.randint(0, 2))
    return rng.choice(("", " ")).join(words) if rng.random() < 0.3 else " ".join(words)


def test_node_reads_the_texts_of_rules_and_selectors_as_python_does():
    rng = random.Random(11)
    texts = [a_text(rng) for _ in range(3000)]
    plain = Policy(rule="answer_stable").to_dict()
    values = [{**plain, field: text} for text in texts for field in ("rule", "selector")]
    given = sorted(set(SIGNALS) | {"my_quality"})
    read = 0
    for value, theirs in zip(
        values, decided_by_node([{"policy": value, "given": given} for value in values]), strict=True
    ):
        try:
            policy = Policy.from_dict(value)
            ours = (None, str(policy.rule), str(policy.selector))
        except SufficeError:
            ours = ("refused",)
        if theirs["refused"]:
            assert ours[0] == "refused" or theirs["refused"] == "UnsupportedError", (value, ours, theirs)
        else:
            assert ours == (None, theirs["rule"], theirs["selector"]), (value, ours, theirs)
            read += 1
    assert read > 400


def test_the_lines_of_the_page_run_in_node(tmp_path):
    page = (ROOT / "docs" / "how-to" / "javascript.md").read_text("utf-8")
    (lines,) = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
    (tmp_path / "loop.mjs").write_text(lines)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "suffice-js").symlink_to(PACKAGE)
    Policy(rule="answer_stable | (calls >= 9)").save(tmp_path / "policy.json")
    done = subprocess.run([node(), "loop.mjs"], cwd=tmp_path, capture_output=True, check=True, text=True)
    assert done.stdout == "the Tempest. 3 rule\n"


def test_the_package_is_published_with_types_and_without_dependencies():
    package = json.loads((PACKAGE / "package.json").read_text())
    assert "dependencies" not in package
    assert package["engines"] == {"node": ">=20"}
    assert (PACKAGE / package["exports"]["."]["default"]).is_file()
    assert package["exports"]["."]["types"] == package["types"]
    assert package["scripts"]["prepack"] == "npm run build", "types are built where the package is packed"
    assert {*package["files"]} == {"src", "types"}
    assert (PACKAGE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    imports = {
        name
        for path in (PACKAGE / "src").glob("*.js")
        for name in re.findall(r'from "([^"]+)"', path.read_text("utf-8"))
    }
    assert all(name.startswith("./") for name in imports)


PIECES = (
    *("1", "2", "0", "12", "1,000", "1.5", ".5", "5.", "$", "€", "%", "\\%", " ", "  ", "-", "+", "=", "/", "x", "X", "*", "^", "10", "e3", "E-2", "!", ":", ";", ","),
    *("km", "kg", "m", "K", "k", "bn", "USD", "dollars", "dozen", "million", "thou\u017fand", "\u0131", "\u212a", "and", "or", "\\boxed{", "}", "{", "(", ")", "["),
    *("]", "\\times", "\\cdot", "½", "⅔", "٣", "\uff15", "\U0001d7dd", "\u2212", "\u2013", "a", "the", "an", "The", "A", "(B)", "b)", "C.", "yes", "No", "true", "_"),
    *("unknown", "not", "mentioned", "i", "don\u2019t", "know", "\u00a0", "\x1c", "\x85", "\ufeff", "π", "√", ">", "<", "≤", "±", "'", '"', "`", "…", "\0", "minus", "negative"),
)  # fmt: skip


@cache
def random_texts(n: int, seed: int) -> list[str]:
    """Return texts of numbers, words and signs, and of any characters that all releases of Unicode have."""
    rng = random.Random(seed)
    # Of the 90,000 letters without case one in fifty, as no reading tells two of them apart.
    known = [
        chr(code)
        for code in range(0x30000)
        if (kind := unicodedata.ucd_3_2_0.category(chr(code))) not in ("Cn", "Cs", "Co")
        and (kind != "Lo" or unicodedata.normalize("NFKD", chr(code)) != chr(code) or code % 50 == 0)
    ]
    made = ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 8))) for _ in range(n)]
    mixed = ["".join(rng.choice((*PIECES[:60], rng.choice(known))) for _ in range(rng.randint(1, 6))) for _ in range(n)]
    long = [text * 300 for text in ("5", "a ", "x5 ", "1 and ", "😀")]
    return [*(text for text in (*TEXTS, *NUMBERS, *CHOICES) if text is not None), *known, *made, *mixed, *long]


@pytest.mark.parametrize("name", ["qa", "exact", "number", "percent", "boolean", "letter", "abstained"])
def test_node_reads_every_text_as_python_does(name):
    texts = random_texts(2_000, 7)
    ours = map(abstained_by(ABSTAIN_PATTERNS) if name == "abstained" else NORMALIZERS[name], texts)
    ours = [None if isinstance(key, float) and math.isnan(key) else key for key in ours]
    (theirs,) = decided_by_node([{"normalizer": name, "texts": texts}])
    wrong = [(text, one, other) for text, one, other in zip(texts, ours, theirs, strict=True) if one != other]
    assert not wrong, (len(wrong), wrong[:20])
