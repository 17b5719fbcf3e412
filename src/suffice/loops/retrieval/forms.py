"""Recognise the forms of published question sets by their fields, and convert them to the fields of `load_questions`.

No library can replace this module.  `datasets` returns the rows as published.  ir_datasets 0.6 has gold answers for only two of
these eleven forms (Natural Questions and TriviaQA in DPR's form), and reads them only from its own downloads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from suffice.errors import DataError
from suffice.loops.retrieval.fields import (
    PublishedRow,
    distinct,
    list_field,
    literal,
    object_of,
    objects_of,
    pairs_of,
    text_field,
    texts_of,
)

_WIKI_TYPES = frozenset({"compositional", "comparison", "inference", "bridge_comparison"})
_BOX_START = re.compile(r"\\(?:boxed|fbox)\s*(?=[{\w$\\.-])")
_LAST_LINE = re.compile(r"(?:^|\n)\s*####\s*(\S.*?)\s*$")
_FEVER_LABELS = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")
_CLAIM = (
    "Does Wikipedia support or refute the following claim, or is there not enough information? Answer SUPPORTS, REFUTES "
    "or NOT ENOUGH INFO. Claim: {claim}"
)
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-COLON-": ":"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form in which a question set is published.

    Attributes:
        licence: The set's licence, as stated by its authors or its page; empty if unknown.
        convert: Converts a row to the fields of `load_questions`; its second argument is the row's place, for messages.
    """

    title: str
    licence: str
    home: str
    recognises: Callable[[Mapping[str, Any]], bool]
    convert: Callable[[PublishedRow, str], PublishedRow]


def forms_of(row: Mapping[str, Any]) -> list[str]:
    """Return the names of the forms that a row may have; empty if the row already has the fields of `load_questions`."""
    return [name for name, form in QUESTION_FORMS.items() if form.recognises(row)]


def converted(row: PublishedRow, where: str) -> PublishedRow:
    """Convert a row to the fields of `load_questions`; the fields of the row show its form.

    Raises:
        DataError: The row has the fields of several forms, or a field has an invalid value.
    """
    names = forms_of(row)
    if len(names) > 1:
        raise DataError(f"{where}: this may be {' or '.join(names)}: use  suffice convert --as {names[0]}")
    return QUESTION_FORMS[names[0]].convert(row, where) if names else row


def _without(record: Mapping[str, Any], *names: str) -> PublishedRow:
    return {name: value for name, value in record.items() if name not in names}


def _is_hotpot(row: Mapping[str, Any]) -> bool:
    return isinstance(literal(row.get("context")), list | dict) and "contexts" not in row and not _is_wiki(row)


def _is_wiki(row: Mapping[str, Any]) -> bool:
    is_multihop = isinstance(literal(row.get("context")), list | dict) and "contexts" not in row
    return is_multihop and ("evidences" in row or (row.get("type") in _WIKI_TYPES and "level" not in row))


def _hotpot(record: PublishedRow, where: str) -> PublishedRow:
    """Convert HotpotQA's form, which 2WikiMultiHopQA shares; test sets have neither answers nor supporting facts."""
    titles = [title for title, _ in pairs_of(record, "supporting_facts", where, ("sent_id",))]
    paragraphs = []
    for title, sentences in pairs_of(record, "context", where, ("sentences", "content")):
        if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
            raise DataError(f"{where}: context of {title!r} is {sentences!r:.80}; expected a list of sentences")
        # HotpotQA's sentences start with a blank, 2WikiMultiHopQA's do not.
        text = "".join(s if i == 0 or s[:1].isspace() else f" {s}" for i, s in enumerate(sentences)).strip()
        paragraphs.append({"title": title, "text": text, "is_supporting": title in titles})
    return {
        **_without(record, "context", "supporting_facts", "evidences", "evidences_id", "answer_id", "entity_ids"),
        "paragraphs": paragraphs,
        "supporting_titles": [*dict.fromkeys(titles)],
    }


def _is_musique(row: Mapping[str, Any]) -> bool:
    listed = literal(row.get("paragraphs"))
    first = next(iter(listed), None) if isinstance(listed, list) else listed
    return isinstance(first, dict) and "paragraph_text" in first


def _musique(record: PublishedRow, where: str) -> PublishedRow:
    """Convert MuSiQue; a question that its paragraphs cannot answer has no gold answer."""
    paragraphs = [
        {
            "title": item.get("title"),
            "text": item.get("paragraph_text"),
            "is_supporting": item.get("is_supporting", False),
        }
        for item in objects_of(record, "paragraphs", where)
    ]
    answers = [text_field(record, "answer", where), *texts_of(record, "answer_aliases", where)]
    hops = re.match(r"\dhop\d?", str(record.get("id", "")))
    return {
        **_without(record, "answer", "answer_aliases", "answerable", "question_decomposition"),
        "answers": [] if record.get("answerable") is False else distinct(answers),
        "type": record.get("type") or (hops[0] if hops else None),
        "paragraphs": paragraphs,
    }


def _nq_open(record: PublishedRow, where: str) -> PublishedRow:
    return {**_without(record, "answer"), "answers": texts_of(record, "answer", where)}


_CONTEXTS = ("positive_ctxs", "hard_negative_ctxs", "negative_ctxs", "positive_passages", "negative_passages")
_GOLD_CONTEXTS = ("positive_ctxs", "positive_passages")


def _dpr(record: PublishedRow, where: str) -> PublishedRow:
    """Convert the form of DPR or Tevatron, with positive and negative passages or a retriever's passages in `ctxs`."""
    paragraphs = []
    for key in ("ctxs", *_CONTEXTS):
        for item in objects_of(record, key, where):
            gold = key in _GOLD_CONTEXTS or item.get("isgold") is True
            paragraphs.append({"title": item.get("title"), "text": item.get("text"), "is_supporting": gold})
    rest = _without(record, "answers", "ctxs", *_CONTEXTS, "dataset", "nq_annotated_gold", "query", "query_id")
    named = {"id": record["query_id"], "question": record.get("query")} if "query_id" in record else {}
    return {**rest, **named, "answers": texts_of(record, "answers", where), "paragraphs": paragraphs}


def _is_dpr(row: Mapping[str, Any]) -> bool:
    return "answers" in row and any(isinstance(row.get(key), list) for key in ("ctxs", *_GOLD_CONTEXTS))


_TRIVIA_FIELDS = (
    *("answer", "entity_pages", "search_results", "question_source", "domain", "split", "verified_eval", "version"),
    *("question_verified_eval_attempt", "question_part_of_verified_eval"),
)


def _triviaqa(record: PublishedRow, where: str) -> PublishedRow:
    """Convert TriviaQA with the field names of the hub or the authors; Wikipedia articles and web pages are the passages."""
    record = {_snake(name): value for name, value in record.items()}
    answer = object_of(literal(record.get("answer")) or {}, f"{where}, answer", "value and aliases")
    answer = {_snake(name): value for name, value in answer.items()}
    aliases = texts_of(answer, "aliases", where) or texts_of(answer, "normalized_aliases", where)
    value = answer.get("value")
    golds = distinct([value if isinstance(value, str) and value != "<unk>" else None, *aliases])
    paragraphs = []
    for key, text in (("entity_pages", "wiki_context"), ("search_results", "search_context")):
        pages = (item for item in objects_of(record, key, where) if str(item.get(text) or "").strip())
        paragraphs += [{"title": item.get("title"), "text": item[text]} for item in pages]
    return {**_without(record, *_TRIVIA_FIELDS), "answers": golds, "paragraphs": paragraphs}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _is_triviaqa(row: Mapping[str, Any]) -> bool:
    answer = literal(row.get("answer", row.get("Answer")))
    names = {_snake(name) for name in answer} if isinstance(answer, dict) else set()
    return bool(names & {"aliases", "normalized_aliases"}) or {"QuestionId", "QuestionSource"} <= row.keys()


def _popqa(record: PublishedRow, where: str) -> PublishedRow:
    return {
        "id": record.get("id"),
        "question": record["question"],
        "answers": texts_of(record, "possible_answers", where),
        "type": record.get("prop"),
        "supporting_titles": distinct([record.get("s_wiki_title")]),
    }


def _fever(record: PublishedRow, where: str) -> PublishedRow:
    """Convert FEVER, where evidence for a claim is stored as lists of lists (authors) or as columns (hub)."""
    claim = text_field(record, "claim", where, required=True) or ""
    label = record.get("label") or None
    if label is not None and label not in _FEVER_LABELS:
        raise DataError(f"{where}: label is {label!r:.40}; expected one of {', '.join(_FEVER_LABELS)}")
    parts = [
        part for group in list_field(record, "evidence", where) for part in (group if isinstance(group, list) else [])
    ]
    pages = [part[2] for part in parts if isinstance(part, list) and len(part) > 2]  # noqa: PLR2004 - the third is the page
    pages = [*pages, *texts_of(record, "evidence_wiki_url", where)]
    return {
        "id": record.get("id"),
        "question": _CLAIM.format(claim=claim.strip()),
        "answers": [] if label is None else [label],
        "type": label,
        "supporting_titles": distinct(map(_page_title, filter(None, pages))),
    }


def _is_fever(row: Mapping[str, Any]) -> bool:
    known = row.keys() & {"label", "evidence", "evidence_wiki_url"}
    return "claim" in row and "question" not in row and bool(known)


def _page_title(page: str) -> str:
    for code, sign in _BRACKETS.items():
        page = page.replace(code, sign)
    return page.replace("_", " ")


def _gsm8k(record: PublishedRow, where: str) -> PublishedRow:
    """Convert GSM8K: the number after the last #### is the answer; the text before it is a solution."""
    match = _LAST_LINE.search(text_field(record, "answer", where, required=True) or "")
    if match is None:
        raise DataError(f"{where}: answer has no last line  #### NUMBER")
    return {**_without(record, "answer"), "answers": [re.sub(r"(?<=\d),(?=\d)", "", match[1])]}


def _math(record: PublishedRow, where: str) -> PublishedRow:
    """Convert MATH: the answer is the content of the solution's last box, unless the row has an `answer`."""
    given = text_field(record, "answer", where)
    answer = given or _last_boxed(text_field(record, "solution", where, required=True) or "")
    if not answer:
        raise DataError(f"{where}: solution has no \\boxed{{...}} that ends")
    level = record.get("level")
    return {
        **_without(record, "problem", "solution", "answer", "subject", "unique_id"),
        "id": record.get("id", record.get("unique_id")),
        "question": text_field(record, "problem", where, required=True),
        "answers": [answer],
        "type": record.get("type", record.get("subject")),
        "level": f"Level {level}" if isinstance(level, int) else level,
    }


def _last_boxed(solution: str) -> str:
    r"""Return the content of the last box, which may contain braces; empty if there is no box or no closing brace.

    >>> _last_boxed(r"so \boxed{1}, no, \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    boxes = [*_BOX_START.finditer(solution)]
    if not boxes:
        return ""
    rest = solution[boxes[-1].end() :]
    if not rest.startswith("{"):
        return rest[0] if not rest.startswith("\\") else ""
    depth = 0
    for place, (before, sign) in enumerate(zip(" " + rest, rest, strict=False)):
        if before != "\\":  # \{ is a brace of the answer
            depth += (sign == "{") - (sign == "}")
        if not depth:
            return rest[1:place].strip()
    return ""


def _scenario(record: PublishedRow, where: str) -> PublishedRow:
    """Convert a scenario of Semantic Early-Stopping; contexts have no titles, and the gold contexts are unknown."""
    texts = list_field(record, "contexts", where)
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"{where}: contexts is {texts!r:.80}; expected a list of texts")
    meta = {} if record.get("meta") is None else object_of(record["meta"], f"{where}, meta", "type and level")
    labels = {name: value for name, value in meta.items() if name in ("type", "level")}
    return {**_without(record, "contexts", "meta"), **labels, "paragraphs": [{"text": text} for text in texts]}


QUESTION_FORMS: Mapping[str, Form] = {
    "hotpotqa": Form(
        title="HotpotQA",
        licence="CC BY-SA 4.0",
        home="https://hotpotqa.github.io",
        recognises=_is_hotpot,
        convert=_hotpot,
    ),
    "2wiki": Form(
        title="2WikiMultiHopQA",
        licence="Apache-2.0; paragraphs of Wikipedia, CC BY-SA",
        home="https://github.com/Alab-NII/2wikimultihop",
        recognises=_is_wiki,
        convert=_hotpot,
    ),
    "musique": Form(
        title="MuSiQue",
        licence="CC BY 4.0; paragraphs of Wikipedia, CC BY-SA",
        home="https://github.com/StonyBrookNLP/musique",
        recognises=_is_musique,
        convert=_musique,
    ),
    "nq_open": Form(
        title="NQ-Open",
        licence="CC BY-SA 3.0",
        home="https://github.com/google-research-datasets/natural-questions",
        recognises=lambda row: {*row} == {"question", "answer"} and isinstance(literal(row["answer"]), list),
        convert=_nq_open,
    ),
    "dpr": Form(
        title="questions of DPR",
        licence="",
        home="https://github.com/facebookresearch/DPR",
        recognises=_is_dpr,
        convert=_dpr,
    ),
    "triviaqa": Form(
        title="TriviaQA",
        licence="",
        home="https://nlp.cs.washington.edu/triviaqa",
        recognises=_is_triviaqa,
        convert=_triviaqa,
    ),
    "popqa": Form(
        title="PopQA",
        licence="",
        home="https://github.com/AlexTMallen/adaptive-retrieval",
        recognises=lambda row: {"question", "possible_answers", "prop"} <= row.keys(),
        convert=_popqa,
    ),
    "fever": Form(
        title="FEVER",
        licence="CC BY-SA 3.0 and GPL 3.0",
        home="https://fever.ai",
        recognises=_is_fever,
        convert=_fever,
    ),
    "gsm8k": Form(
        title="GSM8K",
        licence="MIT",
        home="https://github.com/openai/grade-school-math",
        recognises=lambda row: isinstance(row.get("answer"), str) and _LAST_LINE.search(row["answer"]) is not None,
        convert=_gsm8k,
    ),
    "math": Form(
        title="MATH",
        licence="MIT",
        home="https://github.com/hendrycks/math",
        recognises=lambda row: {"problem", "solution"} <= row.keys() and "question" not in row,
        convert=_math,
    ),
    "scenarios": Form(
        title="scenarios of Semantic Early-Stopping",
        licence="",
        home="",
        recognises=lambda row: "contexts" in row,
        convert=_scenario,
    ),
}
"""The forms by the name that `suffice convert --as` takes."""
