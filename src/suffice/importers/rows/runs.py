"""Distinguish several runs of a question, and number the rows of each run as rounds.

Rows with another file, model, prompt, temperature or system are another run, not another round.  There are three exceptions: the
log numbers its rounds, its files or lists of records are named after rounds, or the user declares a panel of samples.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from suffice.common.tables import counted
from suffice.errors import SchemaError
from suffice.importers.columns.grid import cell_number
from suffice.importers.columns.table_columns import ColumnMap
from suffice.importers.files.records import Record, column_names, with_column
from suffice.importers.rows.row_times import falling_back, order_by_time, refuse_other_order
from suffice.importers.rows.speakers import are_turns
from suffice.importers.shapes.shape import ANY, Shape
from suffice.importers.words.names import ORDER_WORDS, REPEATS, RUNS, is_pass_name, last_name, plain_name
from suffice.recordings.runs import LOOP_NAMES, MODEL_NAMES, RUN_FILE, is_of_judge

FILE = "file"
"""Placeholder for the file's name among the columns that tell runs apart."""

RUN = "run"
"""The name in a column map for the column that tells the runs of a question apart."""

RUN_NUMBER = "run_number"
"""The column that `Passes` adds."""


def declared_runs(columns: Mapping[str, str], names: Collection[str]) -> tuple[str, ...]:
    """Return the columns that distinguish runs according to the user: one column, or several that are separated by commas.

    >>> declared_runs({"run": "lang, seed"}, ["lang", "seed"]), declared_runs({"run": "a,b"}, ["a,b"])
    (('lang', 'seed'), ('a,b',))
    """
    said = columns.get(RUN, "")
    return (said,) if said in names else tuple(name.strip() for name in said.split(",") if name.strip())


_REPLIED = frozenset({"response", "reply", "completion", "output"})
_ORDER_FILE = re.compile(rf"(?P<head>.*?(?P<word>{'|'.join(ORDER_WORDS)}))[_\-. ]?(?P<number>\d+)", re.IGNORECASE)
_PIECE = re.compile(r"(?:part|shard|chunk|split|batch|page|logs?|export|of|t|z|[\d_\-.:/ ])+", re.IGNORECASE)
_REPEAT = re.compile(r"(?:.*[_\-. /])?(?:run|seed|rep|repeat|repetition|replicate)[_\-. ]?\d+", re.IGNORECASE)

Run = tuple[str, tuple[str, ...]]
"""The means by which runs are told apart (`columns`, `file` or `number`), and the names of these columns."""


def _run_columns(rows: Sequence[Record], key: str, ignored: Collection[str]) -> tuple[str, ...]:
    """Return the columns that distinguish runs of a question, for rows without round numbers.

    Columns of models always distinguish runs.  Others, such as systems or seeds, do so only if their values repeat, so that they
    are neither texts nor ids of rows.  The model named in replies is used if no other column names it.
    """
    names = [
        name
        for name in column_names(rows)
        if last_name(name) in {*LOOP_NAMES, *_REPEATED} and name != key and not {name, last_name(name)} & {*ignored}
        if not is_of_judge(name)
    ]
    said = [name for name in names if not _REPLIED & {*plain_name(name).split(".")[:-1]}]
    return tuple(name for name in said or names if last_name(name) in _ALWAYS or _occurs_again(rows, name))


_ALWAYS = MODEL_NAMES | {"member"}
_REPEATED = ("generator", "run_id", "run", "seed", "repeat", "member")


def _occurs_again(rows: Sequence[Record], name: str) -> bool:
    values = [str(row.values[name]) for row in rows if row.values.get(name) is not None]
    return 2 * len(set(values)) <= len(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder:
    """The order in which the rows of a question become rounds.

    Attributes:
        key: The column of the question's id.
        column: The column for the round numbers.
        runs: Columns that distinguish runs, each with its own rounds; `FILE` stands for the file's name.
        head: The common beginning of all file names, which end with the round number; "" if file names do not number rounds.
        time: The column of times that orders the rows of a run; "" for the order of the file.
        asks: Whether to ask if the order is doubtful.
        trusted: The order that counts if times and file order differ: `file`, `time`, or "" if the user has not chosen.
        is_counted: True if the file numbers the rows of all runs of a question consecutively.
    """

    key: str
    column: str
    runs: tuple[str, ...]
    head: str = ""
    time: str = ""
    asks: bool = True
    trusted: str = ""
    is_counted: bool = False

    def numbered(self, rows: Sequence[Record]) -> tuple[list[Record], str]:
        """Number the rounds of whole questions; also return the column of times that determined their order.

        Raises:
            ValueError: A file has no number.
            UnsettledError: A column of times orders the rows, but can be read in two ways, or not at all.
        """
        if self.head:
            return with_column(rows, self.column, [_number_of_file(row.file, self.head) for row in rows]), ""
        ids = [run_id(row, (self.key, *self.runs)) for row in rows]
        name, order = order_by_time(rows, ids, asks=self.asks)
        if name and self.trusted == "file" and falling_back(order, ids):
            name, order = "", range(len(rows))
        elif name and self.asks and not self.trusted:
            refuse_other_order(name, order, ids)
        seen: Counter[tuple[str, ...]] = Counter()
        numbers = [0] * len(rows)
        for place in order:
            seen[ids[place]] += 1
            numbers[place] = seen[ids[place]]
        return with_column(rows, self.column, numbers), name


def run_id(row: Record, names: Sequence[str]) -> tuple[str, ...]:
    """Return a row's values in some columns as texts; the column `FILE` stands for the name of its file."""
    return tuple(row.file if name == FILE else str(row.values.get(name)) for name in names)


def row_order(
    rows: Sequence[Record],
    plan: ColumnMap,
    *,
    is_ordered: bool,
    ignored: Collection[str],
    samples: bool,
    declared: Sequence[str] = (),
    trusted: str = "",
) -> RowOrder | None:
    """Choose the order in which the rows of a question become rounds; None if the file numbers them itself.

    Args:
        rows: All rows, or a sample of them.
        plan: The meaning of the columns.
        is_ordered: Whether the form of the file implies rounds, such as a list of attempts or numbered columns.
        ignored: Names that the user declared to have no column.
        samples: Whether the user says that rows are samples, or answers of a panel.
        declared: The columns that distinguish runs according to the user.
        trusted: The order that counts if times and file order differ; see `RowOrder`.
    """
    key = plan.columns.get("question_id")
    if key is None:
        return None
    ids = [str(row.values.get(key)) for row in rows]
    if len(set(ids)) == len(ids):
        return None
    runs = (*declared,) or _run_columns(rows, key, ignored)
    if "round" in plan.columns:
        several = {*zip(ids, (run_id(row, runs) for row in rows), strict=True)}
        if is_ordered or samples or len(several) == len(set(ids)):
            return None
        return RowOrder(key=key, column=plan.columns["round"], runs=runs, is_counted=True)
    files = [*dict.fromkeys(row.file for row in rows)]
    head, word = ordered_files(files) if "round" not in ignored and FILE not in ignored else ("", "")
    if head:
        taken = {*column_names(rows)}
        return RowOrder(key=key, column="round" if word in taken else word, runs=(), head=head)
    if samples:
        runs = (*declared,)
    elif FILE not in ignored and not all(map(_PIECE.fullmatch, files)):
        runs = (FILE, *runs)
    return RowOrder(key=key, column="round", runs=runs, asks=not (samples or "round" in ignored), trusted=trusted)


def ordered_files(files: Sequence[str]) -> tuple[str, str]:
    """Return the common beginning of file names that differ only in a round number, and the word that they use for a round.

    >>> ordered_files(["round_1", "round_10", "round_2"]), ordered_files(["gpt-3", "gpt-4"])
    (('round', 'round'), ('', ''))
    """
    matches = [_ORDER_FILE.fullmatch(name) for name in files]
    heads = {match["head"] for match in matches if match is not None}
    if len(files) < 2 or len(heads) != 1 or None in matches:  # noqa: PLR2004
        return "", ""
    return heads.pop(), next(match["word"].lower() for match in matches if match is not None)


def _number_of_file(name: str, head: str) -> int:
    return int(name.removeprefix(head).lstrip("_-. "))


class RunColumns:
    """Finds the columns that distinguish several runs of a question.

    Runs may differ in their file, in other columns, or only in the number of their record.
    """

    def __init__(
        self,
        rows: Sequence[Record],
        plan: ColumnMap,
        declared: Sequence[str] = (),
        where: Mapping[str, str] | None = None,
    ) -> None:
        self._key, self._number = plan.columns["question_id"], plan.columns["round"]
        self._declared = (*declared,)
        unknown = [name for name in declared if name not in column_names(rows)]
        if unknown:
            raise SchemaError(f"no column {unknown[0]!r} (for {RUN!r}); there are: {', '.join(column_names(rows))}")
        names = [
            name for name in column_names(rows) if last_name(name) in RUNS and name not in (self._key, self._number)
        ]
        questions = [str(row.values.get(self._key)) for row in rows]
        names = [n for n in names if (where or {}).get(n) == ANY or not are_turns(rows, n, questions)]
        loops = [name for name in names if last_name(name) in {*LOOP_NAMES, *_REPEATED}]
        self._ways = [(FILE,), *((name,) for name in names), (FILE, *loops)]
        self._files: set[str] = set()
        self._clash = self._in_records = False

    def add(self, rows: Sequence[Record]) -> None:
        """Add the rows of further whole questions."""
        self._files.update(row.file for row in rows)
        self._in_records = self._in_records or len({row.number for row in rows}) < len(rows)
        pairs = [(str(row.values.get(self._key)), str(row.values.get(self._number))) for row in rows]
        if len(set(pairs)) == len(pairs):
            return
        self._clash = True
        self._ways = [
            way
            for way in self._ways
            if len({(*pair, *run_id(row, way)) for pair, row in zip(pairs, rows, strict=True)}) == len(rows)
            if last_name(way[0]) != "attempt" or not _begins_late(pairs, [run_id(row, way) for row in rows])
        ]

    def choice(self) -> Run | None:
        """Return the way in which runs are distinguished (`file`, `columns`, `number` or `restart`), and the columns for it.

        None if each question has one run, or runs cannot be distinguished.
        """
        if self._declared:
            if self._number in self._declared:
                return "restart", (*(name for name in self._declared if name != self._number), RUN)
            return "columns", self._declared
        if not self._clash:
            return None
        if self._ways:
            way = self._ways[0] if len(self._files) > 1 else tuple(name for name in self._ways[0] if name != FILE)
            return ("file" if way == (FILE,) else "columns"), way
        return ("number", ("number",)) if self._in_records else None


def _begins_late(pairs: Sequence[tuple[str, str]], runs: Sequence[tuple[str, ...]]) -> bool:
    """Return whether some run begins after the first round of its question, as where a single round was attempted again."""
    lowest: dict[tuple[str, ...], float] = {}
    for (question, number), run in zip(pairs, runs, strict=True):
        for own in ((question,), (question, *run)):
            lowest[own] = min(cell_number(number, "round", ""), lowest.get(own, math.inf))
    return any(low > lowest[own[:1]] for own, low in lowest.items())


def tell_apart(rows: Sequence[Record], plan: ColumnMap, run: Run) -> tuple[list[Record], dict[str, str]]:
    """Give each run of a question its own id; return the rows, and the question to which each id belongs."""
    key = plan.columns["question_id"]
    kind, names = run
    questions = [str(row.values.get(key)) for row in rows]
    if kind == "columns":
        runs = ["@".join(run_id(row, names)) for row in rows]
    elif kind == "file":
        first: dict[str, str] = {}
        runs = [
            row.file if first.setdefault(question, row.file) != row.file else ""
            for question, row in zip(questions, rows, strict=True)
        ]
    elif kind == "restart":
        others = [run_id(row, names[:-1]) for row in rows]
        again = _restarts(rows, [*zip(questions, others, strict=True)], plan.columns["round"])
        runs = ["@".join(filter(None, [*own, n])) for own, n in zip(others, again, strict=True)]
    else:
        occurs: dict[str, dict[int, int]] = {}
        runs = []
        for question, row in zip(questions, rows, strict=True):
            own = occurs.setdefault(question, {})
            n = own.setdefault(row.number, len(own) + 1)
            runs.append(str(n) if n > 1 else "")
    clusters, result = {}, []
    are_repeats = all(row.values.get(RUN) == row.file for row in rows)  # as with --file-is run
    says_file = (
        FILE in names and not are_repeats and not any(last_name(name) in LOOP_NAMES for name in column_names(rows))
    )
    for row, question, suffix in zip(rows, questions, runs, strict=True):
        own_id = f"{question}@{suffix}" if suffix else question
        clusters[own_id] = question
        of_file = {RUN_FILE: row.file} if says_file and not _REPEAT.fullmatch(row.file) else {}
        known_id = None if row.values.get(key) in (None, "") else own_id  # the error of a missing id needs it missing
        result.append(replace(row, values={**of_file, **row.values, key: known_id}))
    return result, clusters


def _restarts(rows: Sequence[Record], questions: Sequence[Hashable], number: str) -> list[str]:
    """Return the run of each row, "" for a question's first run.

    A further run begins where the round numbers of the question begin again.
    """
    last: dict[Hashable, tuple[float, int]] = {}
    result = []
    for row, question in zip(rows, questions, strict=True):
        place = cell_number(row.values.get(number), "round", row.where)
        before, n = last.get(question, (-math.inf, 1))
        n += place <= before
        last[question] = place, n
        result.append(str(n) if n > 1 else "")
    return result


class Passes:
    """Numbers the runs of each question in file order.

    A question's rows are a further run if rows of another question come between them and the earlier ones.
    """

    def __init__(self, key: str) -> None:
        self._key, self._last = key, ""
        self._runs: Counter[str] = Counter()

    def numbered(self, rows: Iterable[Record]) -> Iterator[Record]:
        """Add the run's number to each row; rows must be in file order."""
        for row in rows:
            own = str(row.values.get(self._key))
            self._runs[own] += own != self._last
            self._last = own
            yield row.having({RUN_NUMBER: self._runs[own]})


def runs_notes(several: int, plan: ColumnMap, run: Run, order: RowOrder | None) -> list[str]:
    """Return notes on questions with several runs, and on options that would read them differently."""
    if not several:  # runs were declared, but each question has one
        return []
    said = (
        f"{counted(several, 'question')} with several runs: each run has the id {plan.columns['question_id']}@{'@'.join(run[1])}, "
        "and a question is one cluster"
    )
    if order is None or run[0] in ("number", "restart"):
        return [said]
    names = [name for name in order.runs if name in (FILE, *run[1]) or last_name(name) in LOOP_NAMES]
    left_out = " ".join(f"--column {name}=" for name in names)
    remedy = (
        f"each {' and '.join(names)} is a run of its own. To read rounds instead, in the order of the rows: {left_out}"
        + ("; if each file is a round: --file-is round" if FILE in names else "")
        + "; a panel that votes: --samples"
    )
    return [said, remedy]


def ignored_names(columns: Mapping[str, str]) -> frozenset[str]:
    """Return the names of this library for which the log has no column, according to the user."""
    return frozenset(name for name, theirs in columns.items() if not theirs)


_IF_SAMPLES = "if they are independent samples, import them with --samples"


def order_notes(order: RowOrder | None, plan: ColumnMap, shape: Shape, *, samples: bool) -> list[str]:
    """Return a note on how the rows of each question were numbered as rounds."""
    if order is None:
        name = plan.columns.get("round", "")
        if name in shape.columns and not shape.is_ordered and not samples:
            items = shape.columns[name].replace("order in", "the items of").replace("number in", "the columns")
            return [f"{items} are read as rounds that follow one another; {_IF_SAMPLES}"]
        if samples or not (last_name(name).startswith(REPEATS) or is_pass_name(name)):
            return []
        return [f"{name!r} counts rounds that follow one another; {_IF_SAMPLES}"]
    if order.head:
        return [f"the number in the name of a file is that of its round: {order.head} 1, 2, ..."]
    if order.is_counted:
        return []
    by = f"by {order.time!r}" if order.time else "in their order"
    what = "the rows of a question are its rounds"
    if order.runs:
        what = "the rows of a question that belong to one run are its rounds"
    further = "" if order.time or samples else f"; {_IF_SAMPLES}"
    return [f"no column counts rounds: {what}, {by}{further}"]
