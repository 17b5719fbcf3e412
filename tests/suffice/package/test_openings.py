"""A docstring's first line says what a thing does or is: none opens with a question word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

OPENINGS = ("What", "Which", "How", "Whether", "Where", "Who")
BEGUN = re.compile(rf"""["'][\s,:;.?]*(?:{"|".join(OPENINGS)})\b""")
"""A text that opens so, docstring or not: few modules have one, and only those are parsed."""


def openings(text: str) -> Iterator[str]:
    """Yield the first line of each docstring of a module that opens with a question word."""
    for node in ast.walk(ast.parse(text)) if BEGUN.search(text) else ():
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(node) or "").split("\n", 1)[0]
            if first.split(" ", 1)[0].strip(",:;.?") in OPENINGS:
                yield first


def test_no_docstring_opens_with_a_question_word():
    paths = [path for folder in ("src", "packages") for path in sorted((ROOT / folder).rglob("*.py"))]
    wrong = [f"{path.relative_to(ROOT)}: {line}" for path in paths for line in openings(path.read_text("utf-8"))]
    assert wrong == []


@pytest.mark.parametrize("word", OPENINGS)
def test_each_opening_is_seen_in_modules_classes_and_methods(word):
    text = f'"{word} a."\nclass A:\n    "{word}, b."\n    async def f(self):\n        "{word} c."\n'
    assert [*openings(text)] == [f"{word} a.", f"{word}, b.", f"{word} c."]


def test_words_that_begin_alike_pass():
    assert [*openings('"Return what it is."\ndef f():\n    "Whatever comes."\n')] == []
