"""`suffice convert`: published question sets as files that `suffice record` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, BadParameter, Option

from suffice.cli.output import Output, Screen
from suffice.common.files import quoted
from suffice.common.tables import counted
from suffice.loops.retrieval.forms import QUESTION_FORMS
from suffice_retrieval.indexes.converting import CorpusConversion, convert_corpus
from suffice_retrieval.question_sets.converting import Conversion, Draw, convert_questions
from suffice_retrieval.question_sets.sources import CORPUS_FORM, OWN_FORM, check_form, form_of, open_source


def convert_command(
    source: Annotated[
        str,
        Argument(
            metavar="SOURCE",
            help="A file, a folder of files (parquet, json, jsonl, csv), or the id of a set on the hub.",
        ),
    ],
    out: Annotated[Path, Option("--out", "-o", help="The questions, a .jsonl or .jsonl.gz file.")],
    output: Output,
    form: Annotated[
        str | None,
        Option("--as", help=f"Instead of recognising the form: {', '.join((*QUESTION_FORMS, OWN_FORM, CORPUS_FORM))}."),
    ] = None,
    sample: Annotated[int | None, Option("--sample", min=1, help="Draw so many questions.")] = None,
    splits: Annotated[
        str | None, Option("--splits", help="Draw disjoint splits, for instance tune=200,eval=500.")
    ] = None,
    seed: Annotated[int, Option("--seed", help="Seed of the draw.")] = 0,
    draw: Annotated[
        Draw,
        Option(
            "--draw",
            help="hashed: by the texts, whatever their order; shuffled or sampled: the rows in their order, by Python's "
            "random.Random(SEED), as published programs draw.",
        ),
    ] = "hashed",
    split: Annotated[str | None, Option("--split", help="The split of the source, where it has several.")] = None,
    config: Annotated[
        str | None, Option("--config", help="Its configuration: a folder, or a name on the hub; all takes all folders.")
    ] = None,
    revision: Annotated[str | None, Option("--revision", help="The commit of a set on the hub.")] = None,
    without_passages: Annotated[
        bool, Option("--without-passages", help="Leave the passages out, for a search in a corpus.")
    ] = False,
) -> None:
    """Sets: HotpotQA, 2WikiMultiHopQA, MuSiQue, NQ-Open, TriviaQA, PopQA, FEVER, GSM8K and MATH, in the form of the hub or of their authors; and the passages of a corpus.

    Splits never share a question's text, and have the same shares of types. A card beside the file describes its origin.

    Example: suffice convert dev.json -o q.jsonl --splits tune=100,eval=300
    """
    if form is not None:
        check_form(form)
    origin = open_source(source, split=split, config=config, revision=revision)
    name = form or form_of(origin)
    if name == CORPUS_FORM:
        if sample is not None or splits is not None:
            raise BadParameter("a corpus has no questions to draw", param_hint="--sample")
        corpus = convert_corpus(origin, out)
        output.show(corpus.to_dict(), _corpus_screen(corpus))
        return
    conversion = convert_questions(
        origin,
        out,
        form=name,
        sample=sample,
        splits=None if splits is None else split_sizes(splits),
        seed=seed,
        draw=draw,
        passages=not without_passages,
    )
    output.show(conversion.to_dict(), _questions_screen(conversion, is_named=form is not None))


def _corpus_screen(corpus: CorpusConversion) -> Screen:
    sentence = (
        f"{corpus.path}: {counted(corpus.n_passages, 'passage')} of a corpus, from {counted(corpus.n_rows, 'row')}"
    )
    then = f"suffice record QUESTIONS.jsonl --corpus {quoted(corpus.path)} -o recording.parquet"
    return Screen(sentences=[sentence], notes=corpus.notes, then=then)


def split_sizes(text: str) -> dict[str, int]:
    """Parse the value of `--splits`, and return the number of questions of each split.

    >>> split_sizes("tune=100,eval=300")
    {'tune': 100, 'eval': 300}
    """
    pairs = [item.partition("=") for item in text.split(",")]
    sizes = {name.strip(): int(n) for name, _, n in pairs if n.strip().isdecimal()}
    if len(sizes) != len(pairs):
        raise BadParameter("it is given as NAME=N,NAME=N, each name once", param_hint="--splits")
    return sizes


def _questions_screen(conversion: Conversion, *, is_named: bool) -> Screen:
    how = "as you said" if is_named else "recognised by its fields"
    licence = f"licence {conversion.licence}" if conversion.licence else "its licence is not known here"
    left_out = sum(item.n for item in conversion.unread)
    title = f" of {conversion.title} ({how}; {licence})" if conversion.title else f" ({licence})"
    sentence = f"{conversion.path}: {counted(conversion.n_questions, 'question')}{title}, from {counted(conversion.n_rows, 'row')}"
    notes = [f"{item.n:,} left out: {item.reason} (the first: {item.first})" for item in conversion.unread]
    split = next(filter(None, conversion.splits), "")
    stem = conversion.path.name.partition(".")[0]
    chosen = f" --split {quoted(split)}" if split else ""
    recording = quoted(f"{stem}-{split}.parquet" if split else f"{stem}.parquet")
    return Screen(
        sentences=[sentence if not left_out else f"{sentence}, of which {left_out:,} were left out"],
        tables=conversion.tables(),
        notes=[*notes, *conversion.notes],
        files={"card": conversion.card},
        then=f"suffice record {quoted(conversion.path)}{chosen} -o {recording}",
    )
