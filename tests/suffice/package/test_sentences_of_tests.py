"""A test is named by a short sentence, and a test of an error holds the type and a key word, not the sentence."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
MOST_WORDS_OF_A_NAME = 12
MOST_WORDS_OF_A_MATCH = 3


LONG = re.compile(rf"def test(?:_[^\W_]*){{{MOST_WORDS_OF_A_NAME + 1},}}\(")
SHORT = re.compile(r"""match=r?f?(["'])((?:\\.|(?!\1)[^\\\n])*)\1(?!\s*[\w"'])""")


@cache
def texts():
    return {str(path.relative_to(TESTS)): path.read_text("utf-8") for path in TESTS.rglob("*.py")}


def may_have_long_matches(text):
    """Return whether to parse a module: one of its patterns is long, or is anything but a single literal."""
    literals = [found[2] for found in SHORT.finditer(text)]
    return text.count("match=") > len(literals) or any(
        len(literal.replace(".*", " ").split()) > MOST_WORDS_OF_A_MATCH for literal in literals
    )


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def long_names(tree):
    names = [function.name for function in functions(tree) if function.name.startswith("test_")]
    return [name for name in names if len(name.removeprefix("test_").split("_")) > MOST_WORDS_OF_A_NAME]


def parametrised(function, name):
    """Yield the values of an argument in the decorators that parametrise a test."""
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call) or not ast.unparse(decorator.func).endswith("parametrize"):
            continue
        names, values = decorator.args[:2]
        if isinstance(names, ast.Tuple) and isinstance(values, ast.List | ast.Tuple):
            places = [place for place, item in enumerate(names.elts) if ast.unparse(item) == repr(name)]
            rows = [row.args if isinstance(row, ast.Call) else getattr(row, "elts", ()) for row in values.elts]
            yield from (row[place] for place in places for row in rows if len(row) > place)


def words(text):
    """Count the words of a pattern; a value put into an f-string is one."""
    if isinstance(text, ast.JoinedStr):
        pattern = "".join(str(part.value) if isinstance(part, ast.Constant) else "value" for part in text.values)
    else:
        pattern = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
    return len(pattern.replace(".*", " ").split())


def long_matches(tree):
    for function in functions(tree):
        keywords = [item for node in ast.walk(function) if isinstance(node, ast.Call) for item in node.keywords]
        for value in [item.value for item in keywords if item.arg == "match"]:
            texts = parametrised(function, value.id) if isinstance(value, ast.Name) else [value]
            yield from (f"line {text.lineno}" for text in texts if words(text) > MOST_WORDS_OF_A_MATCH)


def complaints(check, may_fail):
    """Return what is wrong by file; to parse all of them takes seconds."""
    wrong = {path: [*check(ast.parse(text))] for path, text in texts().items() if may_fail(text)}
    return {path: found for path, found in wrong.items() if found}


def test_a_name_has_at_most_twelve_words():
    assert complaints(long_names, LONG.search) == {}


def test_a_match_has_at_most_three_words():
    assert complaints(long_matches, may_have_long_matches) == {}


def test_a_longer_name_is_seen_in_classes_and_coroutines():
    name = "test_" + "_".join("abcdefghijklm")
    text = f"class A:\n    async def {name}(self): ...\ndef {name[:-2]}(): ..."
    assert long_names(ast.parse(text)) == [name]
    assert LONG.findall(text) == [f"def {name}("]


@pytest.mark.parametrize("match", ["'the whole sentence again'", "f'no {kind} of {name}'", "'one.*two.*three.*four'"])
def test_a_matched_sentence_is_seen_in_the_call_or_its_parameters(match):
    text = f"def test_a():\n    with pytest.raises(E, match={match}):\n        pass"
    assert may_have_long_matches(text)
    assert [*long_matches(ast.parse(text))] == ["line 2"]
    decorator = f"@pytest.mark.parametrize(('a', 'says'), [(1, 'word'), pytest.param(2, {match})])"
    text = f"{decorator}\ndef test_a(a, says):\n    pytest.raises(E, f, match=says)"
    assert may_have_long_matches(text)
    assert [*long_matches(ast.parse(text))] == ["line 1"]
