"""Turn records with rounds in a list, or in numbered columns, into one row for each question and round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suffice.common.tables import counted, cut_list
from suffice.errors import DataError, SchemaError, UnsettledError
from suffice.importers.answers.answer_or_gold import is_of_passages
from suffice.importers.files.records import ROUND_LISTS, Record, column_names
from suffice.importers.rows.trees import PARENTS
from suffice.importers.shapes.dialogues import (
    are_prompts,
    has_grades,
    has_replies,
    is_dialogue_list,
    other_roles,
    refuse_several_questions,
    said_in,
    shared_opening,
    without_examples,
)
from suffice.importers.shapes.fields import flat, names_rounds, one_run_each
from suffice.importers.shapes.shape import (
    Pair,
    Shape,
    counter_from_0,
    counter_of,
    flat_record,
    in_counted_order,
    outer_names,
    round_rows,
    without_rounds,
)
from suffice.importers.shapes.wide_tables import rows_of_answers, widened
from suffice.importers.words.choices import Choices, of_columns
from suffice.importers.words.names import (
    ANSWERS,
    FEEDBACK,
    GOLDS,
    LABELS,
    MODELS,
    MONEY,
    OUTCOME_NAMES,
    OWN_SIGNALS,
    QUESTIONS,
    REPLIES,
    SYNONYMS,
    WEAK_REPLIES,
    last_name,
    plain_name,
    round_numbers,
    single_name,
)
from suffice.importers.words.sample_names import without_each

ROUNDS = "rounds"
"""The name in a column map for the field with the list of rounds."""

_USUAL = frozenset(
    word
    for names in (
        ANSWERS,
        WEAK_REPLIES,
        OUTCOME_NAMES,
        SYNONYMS,
        OWN_SIGNALS,
        QUESTIONS,
        GOLDS,
        FEEDBACK,
        MODELS,
        LABELS,
        MONEY,
    )
    for name in names
    for word in name.split("_")
)
"""Words of usual names, whose plural names a list of them."""

_ENOUGH, _SHORT = 20, 40
"""The fewest objects whose fields show whether they are answers of several systems, and the most characters of a short text on average."""

_UNORDERED = frozenset({"samples", "generations", "candidates", "choices"})

OPTION_LISTS = frozenset({"choices", "options", "answer_choices", "answer_options", "endings", "alternatives"})
"""Names of lists of the options of a multiple choice; `choices` may also be samples."""

_OF_COMPLETIONS = frozenset({"token_ids", "cumulative_logprob", "logprob", "logprobs", "finish_reason"})

_SUB_QUESTIONS = frozenset(
    {"question", *(f"sub{gap}{what}" for gap in ("", "_") for what in ("question", "query", "q"))}
)
"""Names of the question of an item."""

_NOT_ROUNDS = frozenset(
    {"request", "input", "inputs", "prompt", "prompts", "context", "contexts", "metadata", "examples"}
)
"""Objects whose lists are not rounds of the model's answers."""


def unfold(
    records: Sequence[Record], rounds: str | None, *, is_long: Callable[[Sequence[Record]], bool], samples: bool = False
) -> Shape:
    """Return one row for each question and round.

    Args:
        records: The file's records.
        rounds: The field that contains the rounds; None = recognised by its name and content.
        is_long: Returns True if flat records already are rounds: several have the same id, and a column counts these.
        samples: Whether the rounds are independent samples.

    Raises:
        SchemaError: There is no field of that name.
        UnsettledError: Several fields may contain the rounds, or a list may contain answers or gold answers.
        DataError: An item of a list of rounds is a list.
    """
    records = one_run_each(records)
    rows = [flat_record(item) for item in records]
    if rounds is not None:
        lists = [name for name in _list_fields(rows) if name.startswith(f"{rounds}.")]
        if lists:
            raise SchemaError(
                f"{records[0].where}: {rounds!r} is an object with several lists: name one, --column {ROUNDS}={lists[0]}; there "
                f"are: {cut_list(lists)}"
            )
        if rounds in column_names(rows):
            return _reading_flat(_named_rounds(rows, rounds))
        if rounds in column_names(records):
            return _named_rounds(records, rounds)
        names = [name.strip() for name in rounds.split(",")]
        if len(names) > 1 and {*names} <= {*column_names(rows), *column_names(records)}:
            return rows_of_answers(rows if {*names} <= {*column_names(rows)} else records, names, samples=samples)
        raise SchemaError(
            f"{records[0].where}: no field {rounds!r:.80} (for {ROUNDS!r}); there are: {cut_list(column_names(rows))}"
        )
    if is_long(rows):
        return _as_it_is(rows)
    shape = _of_lists(records) or widened(rows, samples=samples)
    if shape is None and any(row is not item for row, item in zip(rows, records, strict=True)):
        shape = _of_lists(rows)
        return _as_it_is(rows) if shape is None else _reading_flat(shape)
    return shape or _as_it_is(rows)


def _reading_flat(shape: Shape) -> Shape:
    """Return a shape that also flattens the records that it reads later."""
    return replace(shape, read=lambda records: shape.read([*map(flat_record, records)]))


def _named_rounds(records: Sequence[Record], name: str) -> Shape:
    """Return a row for each item of the list that the user named; if its texts have no known meaning, they are the answers."""
    lists = _list_fields(records)
    is_list = name in lists and _items_are(records, name, (str, int, float, bool))
    names = [name, *(_alike(records, name, lists) if is_list else [])]
    shape = replace(_rows_of_items(records, names), is_ordered=True)
    item = _item_name(name)
    has_answers = any(last_name(_item_name(other)) in ANSWERS for other in names)
    if not is_list or has_answers or last_name(item) in OUTCOME_NAMES or not _items_are(records, name, str):
        return shape

    def renamed(rows: Iterable[Record]) -> list[Record]:
        return [replace(row, values={"answer" if n == item else n: v for n, v in row.values.items()}) for row in rows]

    def read(others: Sequence[Record]) -> tuple[list[Record], int]:
        rows, skipped = shape.read(others)
        return renamed(rows), skipped

    columns = {"answer" if ours == item else ours: shown for ours, shown in shape.columns.items()}
    return replace(shape, rows=renamed(shape.rows), columns=columns, read=read)


def _of_lists(records: Sequence[Record]) -> Shape | None:
    """Return the shape of records with rounds in lists, or with an object of answers by system; else None."""
    lists = [name for name in _list_fields(records) if _NOT_ROUNDS.isdisjoint(_above(name))]
    lists = [name for name in lists if not (_items_are(records, name, dict) and are_prompts(_values(records, name)))]
    objects = [name for name in lists if _items_are(records, name, dict) and last_name(name) in ROUND_LISTS]
    if not objects:
        further = [name for name in lists if _items_are(records, name, dict) and _has_rounds(records, name)]
        objects = further if len(further) == 1 else []
    if len(objects) > 1:
        choices: Choices = {}
        for name in objects:
            choices |= of_columns({ROUNDS: name}, f"each item of {name!r} is a round")
        raise UnsettledError(f"the rounds may be in {' or '.join(map(repr, objects))}", "columns", choices)
    if objects:
        said = _values(records, objects[0])
        refuse_several_questions(without_examples(said, shared_opening(said)), objects[0], ROUNDS)
        _refuse_sub_questions(records, objects[0])
        return _rows_of_items(records, objects)
    parallel = _parallel(records, lists)
    if len(parallel) == 1:
        _refuse_asked_turns(records, parallel[0])
    if parallel:
        rows = [*map(flat_record, records)]
        inner = [name for name in _list_fields(rows) if name not in {*column_names(records)}]
        inner = [name for name in _alike(rows, parallel[0], inner) if _items_are(rows, name, (int, float))]
        return _reading_flat(_rows_of_items(rows, [*parallel, *inner])) if inner else _rows_of_items(records, parallel)
    panels = [name for name in column_names(records) if _is_panel(records, name)]
    if len(panels) == 1:
        return replace(_rows_of_items(records, panels), is_ordered=_are_numbered(records, panels[0]))
    return None


def _above(name: str, lead: str = "") -> list[str]:
    """Return the names of the objects around a field, except those that are also around the field `lead`."""
    return [own for own in plain_name(name).split(".")[:-1] if own not in plain_name(lead).split(".")[:-1]]


def _refuse_sub_questions(records: Sequence[Record], name: str) -> None:
    """Raise if the items of most lists have questions of their own, so that they do not answer their record's question."""
    asked: dict[str, list[int]] = {}
    several = [value for value in _values(records, name) if len(value) > 1]
    for value in several:
        texts: dict[str, list[str]] = {}
        for field, text in (pair for item in value for pair in flat(item or {}).items()):
            if last_name(field) in _SUB_QUESTIONS and isinstance(text, str):
                texts.setdefault(field, []).append(text)
        for field, own in texts.items():
            asked.setdefault(field, []).append(len(own) == len({*own}) == len(value))
    for field, differ in asked.items():
        if 2 * sum(differ) > len(several):
            raise UnsettledError(
                f"each item of {name!r} has a question of its own ({field!r}): answers to other questions are no rounds, and if the record's "
                "question was answered once, there is nothing to stop",
                "columns",
                of_columns({ROUNDS: name}, f"each item of {name!r} answers the record's question again"),
            )


def _refuse_asked_turns(records: Sequence[Record], name: str) -> None:
    """Raise if the texts of a list `turns` may be user requests, since the record has no other question and no gold answer."""
    others = {last_name(other) for item in records for other in flat_record(item).values} - {last_name(name)}
    if last_name(name) == "turns" and _items_are(records, name, str) and others.isdisjoint((*QUESTIONS, *GOLDS)):
        raise UnsettledError(
            f"the texts in {name!r} may be what a user asks in turn, since no other field is a question: then each answer is to a question "
            "of its own, and there is nothing to stop",
            "columns",
            of_columns({ROUNDS: name}, "each is an answer to one question"),
        )


def _as_it_is(rows: list[Record]) -> Shape:
    return Shape(rows=rows, columns={}, read=lambda records: ([*map(flat_record, records)], 0))


def _list_fields(records: Sequence[Record]) -> list[str]:
    result = []
    for name in column_names(records):
        values = [item.values[name] for item in records if item.values.get(name) is not None]
        if values and all(isinstance(value, list) for value in values) and max(map(len, values)) > 1:
            result.append(name)
    return result


def _items_are(records: Sequence[Record], name: str, kind: type | tuple[type, ...]) -> bool:
    """Return whether all items in the lists of a field are of the type `kind`; missing items are ignored."""
    return all(
        isinstance(value, kind) or value is None for item in records for value in item.values.get(name) or ()
    ) and any(value is not None for item in records for value in item.values.get(name) or ())


def _values(records: Sequence[Record], name: str) -> list[Any]:
    return [item.values.get(name) or () for item in records]


def _has_rounds(records: Sequence[Record], name: str) -> bool:
    """Return whether list items are rounds: they have answers, are nodes of a tree, or are completions as in vLLM and HELM."""
    first = next(value for item in records for value in item.values.get(name) or () if isinstance(value, dict))
    if any(plain_name(field) in PARENTS for field in first):
        return True
    is_completion = "text" in first and not _OF_COMPLETIONS.isdisjoint(first)
    return is_completion or any(plain_name(field.rpartition(".")[2]) in ANSWERS for field in flat(first))


def _parallel(records: Sequence[Record], lists: Sequence[str]) -> list[str]:
    """Return the lists of single values that have one item for each round; the list of answers or outcomes comes first."""
    scalar = [name for name in lists if _items_are(records, name, (str, int, float, bool))]
    leads = sorted(
        (name for name in scalar if names_rounds(name)),
        key=lambda name: (
            last_name(name) in OPTION_LISTS,
            single_name(last_name(name)) not in ANSWERS and last_name(name) not in ROUND_LISTS,
        ),
    )
    if not leads:
        return []
    return [leads[0], *_alike(records, leads[0], [name for name in lists if last_name(name) not in OPTION_LISTS])]


def _alike(records: Sequence[Record], lead: str, lists: Sequence[str]) -> list[str]:
    """Return the other lists of single values that have as many items as `lead` in every record; lists of passages are left out."""

    def lengths(name: str) -> list[int]:
        return [len(item.values.get(name) or ()) for item in records]

    inside = [name for name in lists if name != lead and not is_of_passages(".".join(_above(name, lead)))]
    inside = [name for name in inside if _NOT_ROUNDS.isdisjoint(_above(name, lead))]
    scalar = [name for name in inside if _items_are(records, name, (str, int, float, bool))]
    return [name for name in scalar if lengths(name) == lengths(lead)]


def _is_panel(records: Sequence[Record], name: str) -> bool:
    """Return whether a field is an object with one answer for each system, and not with the parts of a single answer."""
    values = [item.values.get(name) for item in records]
    are_answers = single_name(plain_name(name)) in ANSWERS and all(
        isinstance(value, dict)
        and len(value) > 1
        and not any(isinstance(item, dict | list) or plain_name(key) in ANSWERS for key, item in value.items())
        for value in values
    )
    return are_answers and not _are_fields([value for value in values if isinstance(value, dict)])


def _are_fields(values: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether objects have the parts of one answer: some values are numbers, or each text occurs in one field only."""
    said: dict[str, list[Any]] = {}
    for value in values:
        for name, own in value.items():
            said.setdefault(name, []).extend([] if own is None else [own])
    kinds = {isinstance(own, str) for items in said.values() for own in items}
    texts = [str(own).strip().lower() for items in said.values() for own in items]
    if len(values) < _ENOUGH or (len(kinds) == 1 and sum(map(len, texts)) > _SHORT * len(texts)):
        return False
    return len(kinds) > 1 or len({*texts}) == sum(
        len({str(own).strip().lower() for own in items}) for items in said.values()
    )


def _are_numbered(records: Sequence[Record], name: str) -> bool:
    return all(round_numbers(value) is not None for item in records if (value := item.values.get(name)))


def _rows_of_items(records: Sequence[Record], names: Sequence[str]) -> Shape:
    """Return a row for each item of the lists; every row repeats the record's fields about the question."""
    lead, values = names[0], _values(records, names[0])
    is_dialogue = is_dialogue_list(values) and has_replies(values)
    opening = shared_opening(_values(records, lead)) if is_dialogue else []
    are_graded = is_dialogue and has_grades(without_examples(_values(records, lead), opening))
    pairs = _pairs_of(records, names, opening, is_dialogue=is_dialogue, are_graded=are_graded)
    counter = counter_of(pairs)
    pairs = in_counted_order(pairs, counter)
    own = {"round", *(name for _, _, inner in pairs for values in inner for name in values)}
    number = counter_from_0(pairs) or "round"
    rows = round_rows(pairs, own, lead, number)
    simple = [name for name in names if not _items_are(records, name, dict)]
    others = cut_list(map(repr, other_roles(values))) if is_dialogue else ""
    what = f"what the assistant said{f' (and not {others})' if others else ''}" if is_dialogue else "an item"
    left_out = (
        f"; the opening that all have in common ({counted(len(opening), 'message')}) is left out" if opening else ""
    )

    def read(others: Sequence[Record]) -> tuple[list[Record], int]:
        own_pairs = _pairs_of(others, names, opening, is_dialogue=is_dialogue, are_graded=are_graded)
        further = in_counted_order(own_pairs, counter)
        return round_rows(further, own, lead, number), without_rounds(further)

    return Shape(
        rows=rows,
        how=f"each record is a question, and {what} in {' and '.join(map(repr, names))} is a round{left_out}",
        columns={
            number: f"order of {counter!r} in {lead!r}" if counter else f"order in {lead!r}",
            **{_item_name(name): f"items of {name!r}" for name in simple},
        },
        skipped=without_rounds(pairs),
        outer=outer_names(rows, own),
        is_ordered=_names_order(lead),
        read=read,
    )


def _names_order(lead: str) -> bool:
    """Return whether a list's name implies that its items are rounds in order, unlike names of answers or samples.

    >>> _names_order("attempts"), _names_order("samples"), _names_order("responses")
    (True, False, False)
    """
    plain = plain_name(lead.rpartition(".")[2])
    return (plain in ROUND_LISTS and plain not in _UNORDERED) or without_each(plain) != plain


def _pairs_of(
    records: Sequence[Record], names: Sequence[str], opening: Sequence[str], *, is_dialogue: bool, are_graded: bool
) -> list[Pair]:
    """Return for each record: the record, its fields about the question, and its rounds as objects, one for each list item."""
    pairs: list[Pair] = []
    for item in records:
        outer = dict(flat({name: value for name, value in item.values.items() if name not in names}))
        if is_dialogue:
            (messages,) = without_examples([item.values.get(names[0]) or ()], opening)
            inner, question = said_in(messages, are_graded=are_graded)
            if question and not any(plain_name(name) in QUESTIONS for name in outer):
                outer["question"] = question
        else:
            columns = [_rounds_in(item, name) for name in names]
            inner = [
                {field: value for part in parts for field, value in part.items()}
                for parts in zip(*columns, strict=True)
            ]
        pairs.append((item, outer, inner))
    return pairs


def _rounds_in(item: Record, name: str) -> list[dict[str, Any]]:
    """Return the rounds of one field, each an object."""
    value = item.values.get(name)
    if value is None:
        return []
    if isinstance(value, dict):
        numbers = round_numbers(value)
        places = range(len(value)) if numbers is None else sorted(range(len(value)), key=numbers.__getitem__)
        items = [*value.items()]
        return [{"answer": items[place][1], "member": items[place][0]} for place in places]
    if not isinstance(value, list):
        raise DataError(f"{item.where}: {name!r} is {value!r:.60}; expected a list with one item for each round")
    if any(isinstance(part, list) for part in value):
        raise DataError(
            f"{item.where}: {name!r} contains lists of lists, {value!r:.60}; expected one item for each round: write one record "
            "for each of the inner lists"
        )
    return [_only_texts(flat(part)) if isinstance(part, dict) else {_item_name(name): part} for part in value]


def _only_texts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each list of a single reply among a round's fields by the reply, and the list's name by its singular.

    >>> _only_texts({"outputs": ["Oslo"], "tags": ["a"]})
    {'tags': ['a'], 'output': 'Oslo'}
    """
    result = dict(values)
    for name, value in values.items():
        single = single_name(name)
        is_one = isinstance(value, list) and len(value) == 1 and isinstance(value[0], str)
        if is_one and plain_name(single) in REPLIES and single not in result:
            result[single] = result.pop(name)[0]
    return result


def _item_name(name: str) -> str:
    """Return the column for the items of a list: the singular of a usual name, else the name as in the log.

    >>> _item_name("drafts"), _item_name("judge_scores"), _item_name("cost_cents"), _item_name("answers_by_round")
    ('answer', 'judge_score', 'cost_cents', 'answer')
    """
    if last_name(name) in ROUND_LISTS:
        return "answer"
    single = single_name(without_each(name))
    return single if last_name(single).rpartition("_")[2] in _USUAL else without_each(name)
