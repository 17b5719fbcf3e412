"""Features of a question's text, which a gate can read without calling the model.

Source of the idea: Marina et al. (2025), "LLM-Independent Adaptive RAG: Let the Question Speak for Itself".  Some of
their features need external data (popularity, graphs); those in this module need only the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from suffice.policy.rounds import Floats

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_DIGIT_RUN = re.compile(r"\d+(?:[.,]\d+)*")
_YEAR = re.compile(r"\b1\d{3}\b|\b20\d{2}\b")
_CHAIN = frozenset({"of", "that", "which", "who", "whose", "where", "by", "for"})
_WH = ("who", "what", "which", "when", "where", "why", "how")
_POLAR = frozenset({"is", "are", "was", "were", "do", "does", "did", "has", "have", "had", "can", "could", "will"})
_COMPARING = frozenset(
    {"both", "same", "either", "between", "first", "earlier", "later", "older", "younger", "more", "less", "most"}
    | {"least", "longer", "larger", "taller", "higher", "smaller", "shorter"}
)

FEATURES = (
    "words",
    "letters_per_word",
    "longest_word",
    "names",
    "names_share",
    "numbers",
    "has_year",
    "quotes",
    "links",
    "possessives",
    "commas",
    "comparing",
    "has_or",
    "polar",
    *(f"asks_{word}" for word in _WH),
    "asks_how_many",
)
"""Names of the columns of `question_features`."""


def question_features(questions: Sequence[str]) -> Floats:
    """Return one row for each question, shape ``(n, len(FEATURES))``, all finite; zeros for a text without words.

    >>> features = question_features(["Who is older, Annie Morton or Terry Richardson?"])
    >>> row = dict(zip(FEATURES, features[0].tolist(), strict=True))
    >>> row["names"], row["comparing"], row["has_or"], row["asks_who"]
    (2.0, 1.0, 1.0, 1.0)
    """
    rows = [_features(text) for text in questions]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(FEATURES))


def _features(text: str) -> list[float]:
    words = _WORD.findall(text)
    if not words:
        return [0.0] * len(FEATURES)
    lower = [word.lower() for word in words]
    lengths = [len(word) for word in words]
    capital = [word[0].isupper() for word in words]
    capital[0] = False  # skip the first word: it has a capital in any case
    names = sum(here and not before for here, before in zip(capital, [False, *capital], strict=False))
    wh = next((word for word in lower if word in _WH), "")
    return [
        float(len(words)),
        sum(lengths) / len(words),
        float(max(lengths)),
        float(names),
        sum(capital) / len(words),
        float(len(_DIGIT_RUN.findall(text))),
        float(bool(_YEAR.search(text))),
        float(text.count('"') // 2 + text.count("\u201c")),
        float(sum(word in _CHAIN for word in lower)),
        float(sum(word.endswith(("'s", "\u2019s")) for word in lower)),
        float(text.count(",")),
        float(any(word in _COMPARING for word in lower)),
        float("or" in lower),
        float(lower[0] in _POLAR),
        *(float(wh == word) for word in _WH),
        float("how many" in " ".join(lower)),
    ]
