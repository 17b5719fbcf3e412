"""Docstrings open with what a thing is or does, and the list of those that do not may only become shorter."""

from __future__ import annotations

from collections import Counter

import pytest
from scripts.openings import OPENINGS, ROOT, complaints, found, listed, opened

LONGEST = 42
"""The names in the list when it was made; lower it with the list, never raise it."""


def test_no_docstring_opens_with_a_riddle_beyond_the_list():
    assert complaints([*found(ROOT)], listed()) == []


def test_the_list_only_becomes_shorter():
    assert listed().total() <= LONGEST


@pytest.mark.parametrize("word", OPENINGS)
def test_each_opening_is_seen_in_modules_classes_and_methods(word):
    text = f'"{word} a."\nclass A:\n    "{word}, b."\n    async def f(self):\n        "{word} c."\n'
    assert [name for name, _ in opened(text, "m")] == ["module m", "A", "A.f"]


def test_other_openings_and_words_that_begin_alike_pass():
    assert [*opened('"Return what it is."\ndef f():\n    "Whatever comes."\n', "m")] == []


def test_functions_inside_functions_and_branches_are_seen():
    text = 'if True:\n    def f():\n        def g():\n            "How so."\n'
    assert [name for name, _ in opened(text, "m")] == ["f.g"]


def test_one_more_of_a_listed_name_shows():
    docstrings = [("A", "a.py: A: What a."), ("A", "b.py: A: What b.")]
    assert len(complaints(docstrings, Counter({"A": 1}))) == 2
    assert complaints(docstrings, Counter({"A": 2})) == []


def test_a_name_that_needs_the_list_no_more_shows():
    assert "take it out" in complaints([], Counter({"A": 1}))[0]
