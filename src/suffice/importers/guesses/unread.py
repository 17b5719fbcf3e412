"""Note columns whose values do not fit their usual names, and ask about columns with unusual names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from suffice.errors import UnsettledError
from suffice.importers.answers.answer_or_gold import ACTIONS, THOUGHTS, is_model_text, other_questions
from suffice.importers.checks.judging import ONCE, flag_notes, metric_option, scales_with
from suffice.importers.checks.unnamed_scores import unnamed_score_note
from suffice.importers.columns.table_columns import TableColumns, counts_up
from suffice.importers.files.records import Record
from suffice.importers.guesses.money_notes import loop_money, money_note
from suffice.importers.guesses.unnamed_answers import rounds_in_objects
from suffice.importers.questions.compound_ids import compound_choices
from suffice.importers.questions.counted_ids import are_groups, sure_id
from suffice.importers.rows.incomplete_rows import of_kinds
from suffice.importers.rows.parallel_files import of_files
from suffice.importers.rows.speakers import speaker_choices
from suffice.importers.shapes.dialogues import are_prompts, is_dialogue_list
from suffice.importers.shapes.shape import Shape
from suffice.importers.shapes.wide_tables import numbered_families
from suffice.importers.words.choices import (
    Choices,
    column_options,
    in_options,
    of_answers,
    of_columns,
    of_each,
    of_options,
)
from suffice.importers.words.gold_names import golds_among, is_surely_gold
from suffice.importers.words.id_names import is_id_name
from suffice.importers.words.names import (
    ANSWERS,
    MOST_SPEAKERS,
    NO_ANSWERS,
    OUTCOME_NAMES,
    OWN_SIGNALS,
    SPEAKERS,
    SYNONYMS,
    TOTAL_TOKENS,
    counts_tokens,
    is_in_order,
    is_round_name,
    last_name,
    numbered,
    plain_name,
    without_steps,
    words_in,
)
from suffice.importers.words.number_forms import is_undecided
from suffice.importers.words.sample_names import said_by_columns
from suffice.importers.words.word_scales import TEMPLATE, order_of_words
from suffice.policy.metrics import normalize_answer
from suffice.policy.signals.position import DECIMAL_COMMA, THOUSANDS
from suffice.recordings.runs import LOOP_NAMES

UNCOUNTED = ": what is saved is counted in calls alone"
"""The end of the note on a table without numbers of tokens."""

_OUTPUT = "cost.generator.output_tokens"
_SPEAKERS = tuple(name for name in SPEAKERS if name not in ("source", "name", "type", "kind"))
_FIRST_DRAFT = re.compile(
    r"(initial|first|draft|zero_shot|closed_book|original|base)_(answer|response|output|draft|reply|prediction)"
)
_TOKEN_COLUMNS = {"input": "cost.generator.uncached_tokens", "output": "cost.generator.output_tokens"}
_TOKEN_WORDS = {
    "input": {"in", "input", "prompt", "eingabe", "entrada", "entrée", "ingresso", "输入"},
    "output": {"out", "output", "completion", "ausgabe", "salida", "sortie", "saída", "uscita", "输出"},
}
_ALIKE = 0.1
_DECIMAL = re.compile(r"-?\d*[.,]\d+")
_QUESTIONS, _COUNTED, _OFFERED = 10, 5, 3
"""The fewest questions of a log, and of one whose rounds are counted; and the most columns of ids, or lists of rounds, that are offered."""

_OF_LOOPS = LOOP_NAMES | {"prompt_idx"}
_TOKENS = {"uncached_tokens": "input", "output_tokens": "output"}


def unread_notes(
    table: TableColumns,
    columns: Mapping[str, str],
    shape: Shape,
    used: Collection[str],
    costs: Collection[str],
    *,
    is_judged: bool,
) -> list[str]:
    """Return notes on columns whose values do not fit their usual names and, unless `is_judged`, on columns that may be scores."""
    speakers = [] if shape.how else [*_speakers(table, columns)]
    unused = [name for name in table.names if name not in used and table.filled(name)]
    drafts = [name for name in unused if name in shape.outer and _FIRST_DRAFT.fullmatch(plain_name(name))]
    of_rounds = [] if is_judged else [name for name in unused if name not in shape.outer]
    return [
        *speakers,
        *(
            f"{name!r} is not read as a round: if it was the first draft, put it in front of the others"
            for name in drafts
        ),
        *_uncounted_rounds(table, columns, unused),
        *_costs(table, columns, shape.columns, [name for name in unused if name not in shape.outer], costs),
        *_outcomes(table, columns, shape, unused),
        *([*flag_notes(table, columns, of_rounds)] or unnamed_score_note(table, columns, of_rounds)),
    ]


def _called(names: Collection[str], usual: Collection[str]) -> list[str]:
    return [name for name in names if last_name(name) in usual]


def _speakers(table: TableColumns, columns: Mapping[str, str]) -> Iterator[str]:
    """Yield a note if the rows of a question come from several speakers; raise if one of them is a user, system or tool."""
    ids = table.column(columns.get("question_id", ""))
    for name in _called([name for name in table.names if name != columns.get("answer")], _SPEAKERS)[:1]:
        values = [*dict.fromkeys(value for value in table.column(name) if isinstance(value, str))]
        if not 1 < len(values) <= MOST_SPEAKERS or table.constant_in(name, ids):
            continue
        shown = ", ".join(values[:4])
        others = [value for value in values if value.lower() not in {"user", "human", "system", "tool"}]
        if len(others) < len(values):
            raise UnsettledError(
                f"the rows are messages of several speakers ({name!r}: {shown}), and only a model's are answers: whose texts are the rounds?",
                "options",
                of_each(name, others[:_OFFERED], "those of {!r}"),
            )
        yield (
            f"each row is read as a round, although they differ in {name!r} ({shown}): import those alone that answer (--where "
            f"{name}=VALUE)"
        )


def _uncounted_rounds(table: TableColumns, columns: Mapping[str, str], unused: Collection[str]) -> Iterator[str]:
    if "round" not in columns:
        names = [name for name in unused if is_round_name(name.rpartition(".")[2]) and not table.counts(name)]
        for name in names[:1]:
            fault = table.not_whole(name)
            why = "it is the same everywhere" if fault is None else f"it has {fault!r:.40}"
            yield f"{name!r} does not count rounds: {why}"


def _costs(
    table: TableColumns,
    columns: Mapping[str, str],
    shown: Mapping[str, str],
    unused: Collection[str],
    costs: Collection[str],
) -> Iterator[str]:
    for name in _called(unused, costs):
        fault = table.not_a_number(name)
        if fault is not None:
            yield f"{name!r} is not read as a cost: it has {fault!r:.40}, which is not a number{_forms(name, fault)}"
    if not any(ours.startswith("cost.") and ours.endswith("_tokens") for ours in columns):
        for name in _called(unused, TOTAL_TOKENS)[:1]:
            yield (
                f"{shown.get(name, name)!r} does not say which are input and which output, so none is counted; --column {_OUTPUT}={name} counts "
                "all as output, or what each round adds if they never fall (money: an upper bound)"
            )
    kinds = {ours.rpartition(".")[2] for ours in columns if ours.startswith("cost.")}
    absent = [what for kind, what in _TOKENS.items() if kind not in kinds]
    if absent and not _called(unused, TOTAL_TOKENS):
        yield _no_tokens_note(table, shown, unused, absent)
    paid = [name for name in loop_money(table, unused) if not _has_gold(name, table.names)]
    for name in sorted(paid, key=lambda name: "price" in words_in(name))[
        :1
    ]:  # a price may be that of what is asked about
        yield money_note(table, columns, name)


def _has_gold(name: str, names: Collection[str]) -> bool:
    """Return whether some column is named as the gold answer of the column `name`, as `price_gold` is for `price`."""
    own = {*words_in(name)}
    return any(own < {*words_in(other)} and is_surely_gold(other) for other in names)


def _no_tokens_note(
    table: TableColumns, shown: Mapping[str, str], unused: Collection[str], absent: Sequence[str]
) -> str:
    """Return the note that no input or no output tokens are read, with the columns that may contain them."""
    kinds = frozenset().union(*_TOKEN_WORDS.values())
    names = [name for name in unused if counts_tokens(name, kinds) and table.numbers(name)]
    what = " or ".join(absent)
    if not names:
        return f"no column has {what} tokens{UNCOUNTED}"
    listed = " and ".join(repr(shown.get(name, name)) for name in names[:_OFFERED])
    of_kind = {
        kind: [name for name in names if not words.isdisjoint(words_in(name))] for kind, words in _TOKEN_WORDS.items()
    }
    named = {kind: own[0] for kind, own in of_kind.items() if kind in absent and len(own) == 1}
    options = [column_options({_TOKEN_COLUMNS[kind]: name}) for kind, name in named.items()]
    ways = f"{' '.join(options)} reads {' and '.join(named)} tokens"
    if not options:
        options = [f"{column_options({_TOKEN_COLUMNS[kind]: names[0]})} for {kind} tokens" for kind in absent]
        options.append(f"{column_options({'thinking_tokens': names[0]})} for those of a chain of thought so far")
        ways = ", ".join(options)
    return f"{listed} {'are' if names[1:] else 'is'} not read: {ways}; until then{UNCOUNTED.removeprefix(':')}"


def _forms(name: str, value: object) -> str:
    """Return options that say if commas in a column of seconds are decimal commas; "" if the values leave no doubt."""
    if not is_undecided(value):
        return ""
    options = [column_options({"cost.generator.seconds": f"{name}:{form}"}) for form in (THOUSANDS, DECIMAL_COMMA)]
    return f": {options[0]} if its comma separates thousands, {options[1]} if decimals"


def _outcomes(table: TableColumns, columns: Mapping[str, str], shape: Shape, unused: Collection[str]) -> Iterator[str]:
    for name in _called(unused, (*OUTCOME_NAMES, *SYNONYMS, *OWN_SIGNALS)):
        is_outcome = bool(_called([name], OUTCOME_NAMES))
        fault = table.not_a_number(name)
        if is_outcome and name in shape.outer:
            yield f"{name!r} {ONCE}, so it cannot judge an earlier stop: log what each round would return, and whether it is right"
        elif fault is not None:
            order = order_of_words(name, {str(value) for value in table.column(name) if value not in (None, "")})
            scale = f"{metric_option(name, f':{order}' if order else TEMPLATE)} orders its words"
            expected = (
                f"a metric has numbers in [0, 1], or true and false ({scale})" if is_outcome else "expected a number"
            )
            yield f"{name!r} is not read, because it has {fault!r:.40}: {expected}"
    known = [ours for ours in columns if ours in OUTCOME_NAMES and ours not in ("em", "f1")]
    for ours in [ours for ours in known if not any(name.startswith(f"{columns[ours]} (") for name in table.names)]:
        values = table.numbers(columns[ours]) or [0.0]
        if not all(0 <= value <= 1 for value in values):
            low, high = min(values), max(values)
            worst, best = next(iter(scales_with(low, high)), (low, high))
            option = metric_option(columns[ours], f":{worst:g}..{best:g}")
            yield f"{columns[ours]!r} is not a metric, because it lies in [{low:g}, {high:g}]: {option} scales it to [0, 1] if {best:g} is best"


def refuse_unread_rounds(rows: Sequence[Record], columns: Mapping[str, str]) -> None:
    """Raise if a field may list the rounds of each question, or if several columns may each have the answers of one round.

    The items of such a list have varying texts that the model may have written.  At least a tenth of the texts in such a column
    equal a gold answer or, without gold answers, a text in another such column.
    """
    table = TableColumns(rows)
    free = [name for name in table.names if name not in columns.values() or name == columns.get("answer")]
    free = [] if "round" in columns else free
    choices = _lists_of_rounds(table, free)
    said = [name for name in free if last_name((numbered(name) or (name,))[0]) not in (*ACTIONS, *THOUGHTS)]
    said = [name for name in said if is_model_text(name) and NO_ANSWERS.isdisjoint(plain_name(name).split(".")[:-1])]
    alike = _of_one_kind(table, _alike_columns(table, said, columns.get("golds", "")))
    # a text may be either the question or a reply
    sure_of = {ours: theirs for ours, theirs in columns.items() if ours != "answer" or last_name(theirs) != "text"}
    ids = [] if "question_id" in columns else [name for name in _may_be_ids(table, sure_of) if name not in alike]
    # a column that is constant in each question is a gold answer
    divide = [*ids, *(name for name in table.names if is_id_name(name) and _divides(table, name))]
    answers = [name for name in alike if not any(table.constant_in(name, table.column(own)) for own in divide)]
    answers = max(([*family.values()] for family in numbered_families(answers).values()), key=len, default=answers)
    right = golds_among(answers)
    answers = [name for name in answers if name not in right]
    used, counter = columns.values(), columns.get("round", "")
    compounds = {} if "question_id" in columns else compound_choices(table, used, counter=counter)
    says = said_by_columns(answers[0]) if answers and "answer" not in columns else "rounds"
    if not any(map(is_in_order, answers)) and len({re.sub(r"\d+", "", name) for name in answers}) > 1:
        says = "either"  # names such as those of models have no order
    golds = {"golds": right[0]} if len(right) == 1 and "golds" not in columns else {}
    own_answers = {} if compounds else of_answers(answers, golds, says)
    if own_answers and "answer" not in columns:
        own_answers = in_options(rounds_in_objects(table.names, like_golds=True)) or own_answers
    parts = [part for own, _ in compounds.values() for part in own["columns"]["question_id"].split(",")]
    options = of_files(rows) | in_options(choices) | own_answers | speaker_choices(table, parts) | compounds
    own = "" if options else sure_id(table, ids, counter, columns.get("golds", ""))
    sure = own and column_options({"question_id": own})
    if len(options) == 1 and not ids and all(numbered(name) and is_in_order(name) for name in answers or [""]):
        sure = next(iter(options))
    options |= in_options(_as_ids(ids))
    if not options and "answer" in columns:
        options = of_kinds(rows, lambda own: bool(_may_be_ids(TableColumns(own), columns)))
    if options:
        raise UnsettledError(
            "no column is called like the id of a question"
            if "round" in columns
            else "no list, and no column, is called like the rounds of a question: if the log has only last answers, there is nothing to stop",
            "options",
            options,
            sure,
        )


def _divides(table: TableColumns, name: str) -> bool:
    """Return whether a column has several values, each in several rows."""
    counts = Counter(map(str, table.column(name)))
    return len(counts) > 1 < min(counts.values())


def names_runs(table: TableColumns, name: str, questions: Sequence[str]) -> bool:
    """Return whether a column has ids of runs: a run has several questions, or the same round numbers again and again."""
    if last_name(name) != "run_id":
        return False
    runs, texts = [*map(str, table.column(name))], table.column(questions[0]) if questions else []
    counter = next((own for own in table.names if is_round_name(last_name(own)) and table.counts(own)), "")
    rounds = {*zip(runs, map(str, table.column(counter)), strict=True)} if counter else runs
    is_varied = 0 < 2 * len({*map(str, texts)}) <= len(texts) and not table.constant_in(questions[0], runs)
    return is_varied or 2 * len(rounds) <= len(runs)


def refuse_unique_ids(rows: Sequence[Record], columns: Mapping[str, str]) -> None:
    """Raise if each row has its own id, but another column may identify the questions, or list the rounds."""
    table = TableColumns(rows)
    choices = _lists_of_rounds(table, [name for name in table.names if name not in columns.values()])
    names = _may_be_ids(table, {ours: theirs for ours, theirs in columns.items() if ours != "question"})
    if (
        text := columns.get("question", "")
    ) in names:  # tests that are repeated have the same text, under other numbers
        names = [text, *(name for name in names if name != text and table.constant_in(name, table.column(text)))]
    choices |= _as_ids(names)
    options = of_files(rows) | in_options(choices)
    loops = [name for name in table.names if last_name(name) in _OF_LOOPS or name.endswith("provider.id")]
    if names and not any(len({*map(str, table.column(name))}) > 1 for name in loops):
        meaning = f"{names[0]!r} names the question of each row, and its rows are independent samples"
        options |= of_options(meaning, columns={"question_id": names[0]}, samples=True)
    if options:
        raise UnsettledError(
            f"each row has a {columns['question_id']!r:.60} of its own, so it does not name a question with several rounds: what does?",
            "options",
            options,
            next(iter(options)) if _are_alike(table, names) and len(options) == len(names[:_OFFERED]) else "",
        )


def _are_alike(table: TableColumns, names: Sequence[str]) -> bool:
    """Return whether several columns divide the rows in the same way, so that any of them can identify questions."""
    return len(names) > 1 and all(table.constant_in(names[0], table.column(name)) for name in names[1:])


def refuse_one_id(rows: Sequence[Record], columns: Mapping[str, str], computed: Collection[str]) -> None:
    """Raise if all rows have the same id, but another column may identify many questions."""
    table, key = TableColumns(rows), columns["question_id"]
    if len({*map(str, table.column(key))}) > 1 or len(rows) < 2 * _QUESTIONS:
        return
    names = _may_be_ids(table, {ours: theirs for ours, theirs in columns.items() if ours not in ("question", "round")})
    if names:
        one = _as_ids([key], "all rows are about one question") if key not in computed else {}
        raise UnsettledError(
            f"{key!r} is {table.column(key)[0]!r:.40} in all {len(rows):,} rows, so it does not tell questions apart: what does?",
            "columns",
            _as_ids(names) | one,
        )


def _as_ids(names: Sequence[str], meaning: str = "") -> Choices:
    """Return the options that read columns as the ids of questions."""
    result: Choices = {}
    for name in names[:_OFFERED]:
        result |= of_columns({"question_id": name}, meaning or f"{name!r} names the question of each row")
    return result


def _lists_of_rounds(table: TableColumns, names: Sequence[str]) -> Choices:
    """Return the options that read a field (a dialogue, or a list of texts of the model) as the list of rounds."""
    lists = [
        name
        for name in names
        if _is_dialogue(table.column(name))
        or ((is_model_text(name) or last_name(name) == "trace") and _may_list_rounds(table.column(name)))
    ]
    lists = [name for name in lists if last_name(name) not in THOUGHTS]
    result: Choices = {}
    for name in lists[:_OFFERED]:
        result |= of_columns({"rounds": name}, f"each item of {name!r} is a round")
    return result


def _is_dialogue(values: Sequence[Any]) -> bool:
    conversations = [
        value for value in values if isinstance(value, list) and all(isinstance(own, dict) for own in value)
    ]
    return len(conversations) == len(values) and is_dialogue_list(conversations) and not are_prompts(conversations)


def _may_be_ids(table: TableColumns, columns: Mapping[str, str]) -> list[str]:
    """Return the columns that may identify questions: the rows of each value have one gold answer and may be rounds."""
    names = []
    for name in without_steps(table.names):
        values = [*map(str, table.column(name))]
        pairs = {*zip(values, map(str, table.column(columns.get("round", ""))), strict=True)}
        is_id = len(pairs) == len(values) if "round" in columns else are_groups(table, name, values)
        is_usable = name not in columns.values() and table.repeats(name) and is_id
        golds = columns.get("golds", "")
        is_usable = is_usable and table.column(name) != table.column(golds) and not any(map(_DECIMAL.fullmatch, values))
        is_usable = is_usable and not other_questions(table, values, name)
        counter = columns.get("round", "")
        is_counted = counter in table.names and table.counts(counter) and table.counts_in(counter, name)
        least = _COUNTED if is_counted else _QUESTIONS
        if is_usable and len({*values}) >= least and (not golds or table.constant_in(golds, values)):
            names.append(name)
    names.sort(key=lambda name: not is_id_name(name))
    return [name for name in names if table.constant_in(name, table.column(names[0]))]


def _may_list_rounds(values: Sequence[Any]) -> bool:
    items = [item for value in values if isinstance(value, list) for item in value]
    if len(items) > len(values) and all(isinstance(item, str) for item in items):
        return 2 * len({*items}) > len(values)
    if len(items) <= len(values) or not all(isinstance(item, dict) for item in items):
        return False
    fields = {name for item in items for name in item}
    if any(last_name(name) in ANSWERS for name in fields):
        return True
    if any(is_round_name(last_name(name)) and _counts_items(values, name) for name in fields):
        return True
    names = {name for item in items for name, text in item.items() if isinstance(text, str) and is_model_text(name)}
    return any(2 * len({str(item.get(name)) for item in items}) > len(values) for name in names - {"text", "content"})


def _counts_items(values: Sequence[Any], name: str) -> bool:
    """Return whether the field `name` numbers the items of each list, from 0 or 1."""
    lists = [[item.get(name) for item in value] for value in values if isinstance(value, list) and value]
    return all(all(type(own) is int for own in numbers) and counts_up(numbers) for numbers in lists)


def _alike_columns(table: TableColumns, names: Sequence[str], golds: str) -> list[str]:
    """Return the columns whose texts often equal a gold answer (without gold answers, a text in another column)."""
    texts = {name: [*map(_answer_key, table.column(name))] for name in names if table.is_text(name)}
    texts = {name: own for name, own in texts.items() if len({*own}) > 1 and [*texts.values()].count(own) == 1}
    right = [{*map(_answer_key, value if isinstance(value, list) else [value])} - {""} for value in table.column(golds)]

    def agrees(name: str) -> bool:
        others = (
            right
            if any(right)
            else [{own[i] for other, own in texts.items() if other != name} for i in range(len(table.rows))]
        )
        pairs = zip(texts[name], others, strict=True)
        return sum(bool(text) and text in other for text, other in pairs) >= _ALIKE * len(table.rows)

    return [name for name in texts if agrees(name)]


def _of_one_kind(table: TableColumns, names: Sequence[str]) -> list[str]:
    """Remove columns that number rows; if columns of texts remain, also remove columns of numbers, such as grades."""
    names = [name for name in names if not _counts_rows(table.column(name))]
    texts = [name for name in names if table.numbers(name) is None]
    return texts or names


def _counts_rows(values: Sequence[Any]) -> bool:
    """Return whether values count up from 1 several times."""
    numbers = [int(value) if str(value).isdecimal() else 0 for value in values]
    follow = all(after in (1, before + 1) for before, after in pairwise(numbers))
    return numbers[:1] == [1] and follow and max(numbers) > 1 < numbers.count(1)


def _answer_key(value: Any) -> str:
    return normalize_answer(str(value)) if isinstance(value, str | int | float) else ""
