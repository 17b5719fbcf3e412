"""Write the golden values of the HotpotQA answer scorer: `tests/data/hotpot_scorer_golden.json`.

    python scripts/make_scorer_golden.py

The scorer below follows the definition of the published one (hotpotqa/hotpot, hotpot_evaluate_v1.py) step by step, and
on purpose shares nothing with `suffice.policy.metrics`: no import, no tables, another way to count.  It was compared with
the published program on every pair in this file; they agree.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "hotpot_scorer_golden.json"

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

PAIRS = [
    # yes, no, noanswer: all or nothing
    *((a, g) for a in ("yes", "no", "noanswer", "Yes.", "NO!", "yes it is", "no answer") for g in ("yes", "no")),
    *((a, "noanswer") for a in ("noanswer", "NoAnswer.", "yes", "", "no answer", "the noanswer")),
    ("noanswer", "noanswer given"),
    ("noanswer noanswer", "noanswer"),
    ("the yes", "yes"),
    ("yes yes", "yes"),
    ("yes", "yes yes"),
    ("Yes, the", "yes"),
    ("no", "no one"),
    ("not", "no"),
    ("yesno", "yes no"),
    # empty, and empty after normalisation
    ("", ""),
    ("", "a"),
    ("the", ""),
    ("The", "an"),
    ("The The", "The The"),
    ("The The", "Soul Mining"),
    ("...", "!?"),
    ("   ", "\t\n"),
    ("", "Paris"),
    ("Paris", ""),
    ("A", "a"),
    ("the a an", "an a the"),
    ("\u2014", "-"),
    # articles
    ("The Tempest", "Tempest"),
    ("Tempest, the", "the tempest"),
    ("a man an island", "man island"),
    ("Theatre", "the atre"),
    ("another day", "an other day"),
    ("Anthe", "the"),
    ("A.", "a"),
    ("A.B.", "ab"),
    ("a b", "b"),
    ("THE BEATLES", "the beatles"),
    ("La La Land", "la land"),
    ("Vitamin A", "Vitamin"),
    ("the_cat", "cat"),
    ("an\u00a0apple", "apple"),
    # punctuation goes before articles
    ("the-cat", "cat"),
    ("the-cat", "thecat"),
    ("the - cat", "cat"),
    ("the,cat", "the cat"),
    ("o'the'hill", "othehill"),
    ("'the' hill", "hill"),
    ("a/b", "b"),
    ("A-ha", "aha"),
    ("A-ha", "ha"),
    ("a-the-b", "atheb"),
    ("(the) end", "end"),
    ("U.S.A.", "USA"),
    ("U.S.A.", "U S A"),
    ("rock & roll", "rock roll"),
    ("rock'n'roll", "rock n roll"),
    ("AC/DC", "ACDC"),
    ("AC/DC", "AC DC"),
    ('"Heroes"', "Heroes"),
    ("\u201cHeroes\u201d", "Heroes"),
    ("it\u2019s", "its"),
    ("it's", "its"),
    ("self-portrait", "self portrait"),
    ("self\u2013portrait", "self-portrait"),
    ("1998-1999", "19981999"),
    ("1998\u20131999", "1998-1999"),
    ("@home", "home"),
    ("C++", "C"),
    ("C#", "C"),
    ("$100", "100"),
    ("\u00a3100", "100"),
    ("50%", "50"),
    ("what?!", "what"),
    ("back\\slash", "backslash"),
    ("{curly}", "curly"),
    ("~tilde^", "tilde"),
    ("snake_case", "snakecase"),
    # numbers and dates
    ("1,000", "1000"),
    ("1.5", "15"),
    ("3.14", "3,14"),
    ("-5", "5"),
    ("1979", "1979"),
    ("in 1979", "1979"),
    ("27 June 1441", "June 27, 1441"),
    ("June 27 1441", "June 27, 1441"),
    ("7 000 000", "7,000,000"),
    ("seven", "7"),
    ("1st", "1"),
    ("1/2", "12"),
    ("\u00bd", "1/2"),
    ("\u0663", "3"),
    ("007", "7"),
    ("10 10", "10"),
    ("1e3", "1E3"),
    # unicode
    ("Bj\u00f6rk", "Bjork"),
    ("BJ\u00d6RK", "bj\u00f6rk"),
    ("Beyonc\u00e9", "Beyonce\u0301"),
    ("\u0130stanbul", "istanbul"),
    ("Stra\u00dfe", "STRASSE"),
    ("\u6771\u4eac", "\u6771\u4eac"),
    ("\u6771\u4eac \u5927\u962a", "\u5927\u962a"),
    ("\u6771\u4eac\u3002", "\u6771\u4eac"),
    ("\u041c\u043e\u0441\u043a\u0432\u0430", "\u043c\u043e\u0441\u043a\u0432\u0430"),
    ("\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2", "\u03c3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2"),
    ("na\u00efve caf\u00e9", "caf\u00e9 na\u00efve"),
    ("\u00bfQu\u00e9?", "qu\u00e9"),
    ("\u2026end", "end"),
    ("\U0001f600 smile", "smile"),
    ("non\u00a0breaking", "non breaking"),
    ("zero\u200bwidth", "zerowidth"),
    ("thin\u2009space", "thin space"),
    ("line\u2028break", "line break"),
    ("\ufeffBOM", "BOM"),
    ("\uff21", "a"),
    ("l\u2019a", "la"),
    ("\u00e0 the gate", "\u00e0 gate"),
    # repeated words and order
    ("new york new york", "new york"),
    ("new york", "new york new york"),
    ("york new", "new york"),
    ("b b b c", "b c c c"),
    ("x y z", "p q r"),
    ("x", "x y z w"),
    ("x y z w", "x"),
    ("Robert Erskine Childers", "Robert Childers"),
    ("Robert Erskine Childers DSC", "Robert Erskine"),
    ("British", "an American"),
    ("1979 film The Tempest", "The Tempest"),
    ("Derek Jarman's The Tempest", "The Tempest by Derek Jarman"),
    ("  spaced   out ", "spaced out"),
    ("tab\tand\nnewline", "tab and newline"),
    ("MiXeD CaSe", "mixed case"),
    ("not mentioned", "unknown"),
]
"""Hand-made pairs of (answer, gold)."""

VOCABULARY = (
    "the a an The A yes no Tempest tempest film 1979 1,979 Derek Jarman's jarman New-York new york U.S. us Bj\u00f6rk "
    'caf\u00e9 \u6771\u4eac - ... & (band) "quoted" 3.5 of and noanswer the-cat cat'
)


def normalise(text: str) -> str:
    """Lower-case, then drop punctuation, then blank out articles, then squeeze white space."""
    lowered = text.lower()
    bare = "".join(character for character in lowered if character not in PUNCTUATION)
    without_articles = re.sub(r"\b(?:an|a|the)\b", " ", bare)
    return " ".join(without_articles.split())


def score(answer: str, gold: str) -> tuple[float, float]:
    """Return exact match and F1 as the published scorer defines them."""
    answer, gold = normalise(answer), normalise(gold)
    exact = 1.0 if answer == gold else 0.0
    for closed in ("yes", "no", "noanswer"):
        if closed in (answer, gold) and answer != gold:
            return exact, 0.0
    left = gold.split()
    common = 0
    for word in answer.split():
        if word in left:
            left.remove(word)
            common += 1
    if common == 0:
        return exact, 0.0  # two empty answers match exactly and have F1 0
    precision = common / len(answer.split())
    recall = common / len(gold.split())
    return exact, 2 * precision * recall / (precision + recall)


def drawn(n: int, seed: int) -> list[tuple[str, str]]:
    """Return random pairs over a vocabulary of awkward words."""
    rng = random.Random(seed)  # noqa: S311 - test data
    vocabulary = VOCABULARY.split()

    def phrase() -> str:
        return " ".join(rng.choices(vocabulary, k=rng.randint(0, 6)))

    pairs = []
    for _ in range(n):
        gold = phrase()
        # Half of the answers are the gold answer with its words shuffled, so that they overlap.
        shuffled = gold.split() + rng.choices(vocabulary, k=rng.randint(0, 2))
        rng.shuffle(shuffled)
        pairs.append((" ".join(shuffled) if rng.random() < 0.5 else phrase(), gold))  # noqa: PLR2004 - a fair coin
    return pairs


def main() -> int:
    """Write the file."""
    pairs = list(dict.fromkeys([*PAIRS, *drawn(150, seed=20180926)]))
    rows = []
    for answer, gold in pairs:
        exact, f1 = score(answer, gold)
        rows.append(json.dumps({"answer": answer, "gold": gold, "em": exact, "f1": f1}))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
    sys.stdout.write(f"{len(rows)} pairs\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
