"""Turn question files into training and development sets, and refuse any overlap between them.

    python -m training.prepare convert --dataset hotpotqa --input hotpot_train_v1.1.json --output hotpotqa.jsonl.gz
    python -m training.prepare split --questions data/*.jsonl.gz --splits data/splits.json --output prepared/
    python -m training.prepare hashes --questions data/*.jsonl.gz --splits data/splits.json \
        --output training/split_hashes.json

A question file holds one JSON object a line: `id, question, answers[], type, level, paragraphs[{title, text,
is_supporting}]`.  Other fields (recorded answers of language models, say) are dropped here: nothing trains on them.
`splits.json` maps role names to lists of ids; `train` is trained on, every role that ends in `_dev` selects models, and
all other roles are only guarded.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from suffice.errors import DataError
from suffice.policy.metrics import normalize_answer

Record = dict[str, Any]
FIELDS = ("id", "question", "answers", "type", "level", "paragraphs")


# --- reading and writing ------------------------------------------------------------------------------------------


def read_questions(paths: Iterable[Path]) -> dict[str, Record]:
    """Read JSONL(.gz) question files into records by id, keeping `FIELDS` only."""
    records: dict[str, Record] = {}
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                kept = {field: record.get(field) for field in FIELDS}
                if records.setdefault(record["id"], kept) != kept:
                    raise DataError(f"question {record['id']!r} occurs twice with different content, again in {path}")
    return records


def write_questions(path: Path, records: Iterable[Record]) -> None:
    """Write records as JSONL.gz, byte for byte the same on every run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_bytes(gzip.compress(lines.encode("utf-8"), mtime=0))


# --- roles --------------------------------------------------------------------------------------------------------


def question_key(question: str) -> str:
    """Return the text by which two questions count as the same (the normalisation of the HotpotQA scorer)."""
    return normalize_answer(question)


def overlaps(train: Iterable[tuple[str, str]], guarded: Iterable[tuple[str, str]]) -> list[str]:
    """Return the ids of (id, question) pairs in `train` whose id or normalised question is in `guarded`."""
    guarded = list(guarded)
    ids = {identifier for identifier, _ in guarded}
    keys = {question_key(question) for _, question in guarded}
    return [identifier for identifier, question in train if identifier in ids or question_key(question) in keys]


def split_roles(
    records: Mapping[str, Record], splits: Mapping[str, Any]
) -> tuple[list[Record], dict[str, list[Record]]]:
    """Return the training records and the records of each `*_dev` role.

    Raises:
        DataError: A training question is, by id or by normalised text, also in another role; or an id is unknown.
    """
    roles = {role: ids for role, ids in splits.items() if isinstance(ids, list)}
    missing = [i for ids in roles.values() for i in ids if i not in records]
    if missing:
        raise DataError(f"{len(missing)} ids of the splits are in no question file, first {missing[0]!r}")
    train = [records[i] for i in roles["train"]]
    guarded = [(i, records[i]["question"]) for role, ids in roles.items() if role != "train" for i in ids]
    found = overlaps(((record["id"], record["question"]) for record in train), guarded)
    if found:
        raise DataError(
            f"{len(found)} training questions are also in tune, dev or eval, first {found[0]!r}: remove them"
        )
    return train, {role: [records[i] for i in ids] for role, ids in roles.items() if role.endswith("_dev")}


def short_hash(text: str) -> str:
    """First 12 hex digits of SHA-256: enough to tell a few thousand questions apart, and it shows nothing of them."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]


def hashed_pairs(records: Iterable[Record]) -> list[list[str]]:
    """Return the sorted pairs [hash of id, hash of normalised question]."""
    return sorted([short_hash(record["id"]), short_hash(question_key(record["question"]))] for record in records)


def pairs_hash(records: Sequence[Record]) -> dict[str, Any]:
    """Return number and hash of a set of questions, so that a model can name what it was trained on."""
    return {"n": len(records), "hash": short_hash(json.dumps(hashed_pairs(records), separators=(",", ":")))}


def split_hashes(records: Mapping[str, Record], splits: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Return `hashed_pairs` of each role."""
    return {role: hashed_pairs(records[i] for i in ids) for role, ids in splits.items() if isinstance(ids, list)}


# --- negatives for single-passage questions -----------------------------------------------------------------------


def words(text: str) -> list[str]:
    """Lowercased runs of letters and digits."""
    return re.findall(r"\w+", text.lower())


def bm25_scores(query: str, documents: Sequence[str], k1: float = 1.5, b: float = 0.75) -> list[float]:
    """BM25 of `query` against each document, statistics from these documents (Lucene's IDF, Robertson's TF)."""
    counts = [Counter(words(document)) for document in documents]
    lengths = [sum(count.values()) for count in counts]
    mean = sum(lengths) / max(1, len(lengths)) or 1.0
    scores = [0.0] * len(documents)
    for word in words(query):
        having = sum(word in count for count in counts)
        idf = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
        for i, count in enumerate(counts):
            if count[word]:
                scores[i] += idf * count[word] * (k1 + 1) / (count[word] + k1 * (1 - b + b * lengths[i] / mean))
    return scores


def borrow_negatives(records: Sequence[Record], n: int = 9) -> list[Record]:
    """Give single-passage questions the `n` passages of other such questions that BM25 ranks highest.

    Passages that contain one of the answers are left out.  Questions with more passages stay as they are.
    """
    single = [record for record in records if len(record["paragraphs"]) == 1]
    pool = [record["paragraphs"][0] for record in single]
    postings: dict[str, list[tuple[int, float]]] = {}
    counts = [Counter(words(p["title"] + " " + p["text"])) for p in pool]
    mean = sum(sum(count.values()) for count in counts) / max(1, len(counts))
    for i, count in enumerate(counts):
        norm = 1.5 * (0.25 + 0.75 * sum(count.values()) / mean)
        for word, times in count.items():
            postings.setdefault(word, []).append((i, times * 2.5 / (times + norm)))
    texts = [" " + normalize_answer(p["title"] + " " + p["text"]) + " " for p in pool]
    enriched = {}
    for own, record in enumerate(single):
        scores: Counter[int] = Counter()
        for word in set(words(record["question"])):
            found = postings.get(word, [])
            if len(found) < len(pool) // 4:  # frequent words say nothing, and cost most of the time
                idf = math.log(1 + (len(pool) - len(found) + 0.5) / (len(found) + 0.5))
                for i, weight in found:
                    scores[i] += idf * weight
        answers = [f" {normalize_answer(answer)} " for answer in record["answers"]]
        ranked = sorted(scores, key=lambda i: (-scores[i], i))
        free = (i for i in ranked if i != own and not any(answer in texts[i] for answer in answers))
        chosen = [{**pool[i], "is_supporting": False} for i, _ in zip(free, range(n), strict=False)]
        enriched[record["id"]] = {**record, "paragraphs": record["paragraphs"] + chosen}
    return [enriched.get(record["id"], record) for record in records]


# --- cloze questions from unlabelled paragraphs -------------------------------------------------------------------

_NAME = re.compile(r"[A-Z][\w'\u2019-]*(?:\.?,? (?:(?:of|the|de|and|von|van) )?[A-Z][\w'\u2019-]*)*|\b\d[\d,.]*\d\b")
_SENTENCE = re.compile(r"(?<=[a-z0-9)\]\"”][.!?]) +(?=[A-Z\"“])")


def cloze_questions(record: Record, rng: Any, n: int) -> list[Record]:
    """Make up to `n` questions out of a question's own paragraphs, without its labels (recurring-span selection).

    A sentence that names something which also stands elsewhere in the paragraphs becomes the question, the name replaced
    by a question word; the sentence is taken out of its paragraph, and the name has to be found in the others.
    After Ram et al. (2021), "Few-Shot Question Answering by Pretraining Span Selection".
    """
    paragraphs = record["paragraphs"]
    texts = [f"{p['title']} : {p['text']}" for p in paragraphs]
    made: list[Record] = []
    for at in rng.permutation(len(paragraphs)):
        sentences = _SENTENCE.split(paragraphs[at]["text"])
        options = []
        for i, sentence in enumerate(sentences):
            rest = f"{paragraphs[at]['title']} : {' '.join(sentences[:i] + sentences[i + 1 :])}"
            for match in _NAME.finditer(sentence):
                name = match.group()
                whole = re.compile(rf"\b{re.escape(name)}\b")
                inside, elsewhere = bool(whole.search(rest)), sum(bool(whole.search(t)) for t in texts) - 1
                plain = " " not in name and match.start() == 0  # the first word is often no name
                if not plain and (inside or 0 < elsewhere <= len(texts) // 2) and len(sentence.split()) > 6:
                    options.append((i, match))
        if options:
            i, match = options[int(rng.integers(len(options)))]
            word = (
                "when"
                if match.group().isdigit() and len(match.group()) == 4
                else str(rng.choice(["what", "who", "which"]))
            )
            asked = sentences[i][: match.start()] + word + sentences[i][match.end() :]
            left = " ".join(sentences[:i] + sentences[i + 1 :])
            kept = [{**p, "text": left if j == at else p["text"]} for j, p in enumerate(paragraphs)]
            whole = re.compile(rf"\b{re.escape(match.group())}\b")
            kept = [{**p, "is_supporting": bool(whole.search(f"{p['title']} : {p['text']}"))} for p in kept]
            # The answer, the sentence's own paragraph, then others: five are plenty to draw from.
            order = sorted(range(len(kept)), key=lambda j: (not kept[j]["is_supporting"], j != at, rng.random()))
            kept = [kept[j] for j in order[:2] + [j for j in order[2:] if j == at] + [j for j in order[2:] if j != at]][
                :5
            ]
            made.append(_record(f"cloze-{record['id']}-{len(made)}", asked, [match.group()], kept, "cloze", None))
        if len(made) == n:
            break
    return made


# --- official downloads -------------------------------------------------------------------------------------------


def convert_hotpotqa(path: Path) -> Iterator[Record]:
    """HotpotQA (`hotpot_train_v1.1.json`, `hotpot_dev_distractor_v1.json`) and 2WikiMultiHopQA (`train.json`)."""
    for row in json.loads(path.read_text("utf-8")):
        supporting = {title for title, _ in row["supporting_facts"]}
        paragraphs = [
            {"title": title, "text": _join(sentences), "is_supporting": title in supporting}
            for title, sentences in row["context"]
        ]
        yield _record(row["_id"], row["question"], [row["answer"]], paragraphs, row.get("type"), row.get("level"))


def convert_musique(path: Path) -> Iterator[Record]:
    """MuSiQue (`musique_ans_v1.0_train.jsonl`)."""
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        paragraphs = [
            {"title": p["title"], "text": p["paragraph_text"], "is_supporting": bool(p["is_supporting"])}
            for p in row["paragraphs"]
        ]
        answers = list(dict.fromkeys([row["answer"], *row.get("answer_aliases", [])]))
        yield _record(row["id"], row["question"], answers, paragraphs, row["id"].split("_")[0], None)


def convert_dpr(path: Path) -> Iterator[Record]:
    """Natural Questions as DPR distributes it (`biencoder-nq-train.json`): gold passage first, then hard negatives."""
    for index, row in enumerate(json.loads(path.read_text("utf-8"))):
        marked = [(context, True) for context in row["positive_ctxs"][:1]]
        marked += [(context, False) for context in row["hard_negative_ctxs"][:9]]
        if row["positive_ctxs"]:
            paragraphs = [{"title": c["title"], "text": c["text"], "is_supporting": gold} for c, gold in marked]
            yield _record(f"nq-dpr-{index}", row["question"], row["answers"], paragraphs, "single", None)


def convert_nq_open(path: Path) -> Iterator[Record]:
    """NQ-Open questions (`NQ-open.train.jsonl`): no passages, so they serve to guard a split, not to train on."""
    for index, line in enumerate(path.read_text("utf-8").splitlines()):
        row = json.loads(line)
        yield _record(f"nq-open-{index}", row["question"], row["answer"], [], "single", None)


def convert_qa_csv(path: Path) -> Iterator[Record]:
    """DPR's tab-separated question files (`nq-train.qas.csv`): question, then a list of answers."""
    with path.open(encoding="utf-8", newline="") as lines:
        for index, (question, answers) in enumerate(csv.reader(lines, delimiter="\t")):
            yield _record(f"nq-qas-{index}", question, _literal_strings(answers), [], "single", None)


def _literal_strings(text: str) -> list[str]:
    import ast  # literals only: nothing of the file is executed

    values = ast.literal_eval(text)
    if not isinstance(values, list):
        raise DataError(f"expected a list of answers, got {text!r}")
    return [str(value) for value in values]


def _join(sentences: Sequence[str]) -> str:
    return " ".join(sentence.strip() for sentence in sentences)


def _record(  # noqa: PLR0917 - one argument per field, in the order of FIELDS
    identifier: str, question: str, answers: list[str], paragraphs: list[Record], kind: str | None, level: str | None
) -> Record:
    return dict(zip(FIELDS, (identifier, question, answers, kind, level, paragraphs), strict=True))


CONVERTERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    "hotpotqa": convert_hotpotqa,
    "2wikimultihopqa": convert_hotpotqa,
    "musique": convert_musique,
    "nq-dpr": convert_dpr,
    "nq-open": convert_nq_open,
    "nq-qas": convert_qa_csv,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run one of the three commands in the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    convert = commands.add_parser("convert", help="an official download to JSONL.gz")
    convert.add_argument("--dataset", choices=sorted(CONVERTERS), required=True)
    convert.add_argument("--input", type=Path, required=True)
    convert.add_argument("--output", type=Path, required=True)
    for name, text in (("split", "training and dev files"), ("hashes", "the file that the tests check")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--questions", type=Path, nargs="+", required=True)
        command.add_argument("--splits", type=Path, required=True)
        command.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(argv)
    if args.command == "convert":
        write_questions(args.output, CONVERTERS[args.dataset](args.input))
        return
    records = read_questions(args.questions)
    splits = json.loads(args.splits.read_text("utf-8"))
    train, dev = split_roles(records, splits)
    if args.command == "hashes":
        args.output.write_text(json.dumps(split_hashes(records, splits), separators=(",", ":")) + "\n", "utf-8")
        return
    write_questions(args.output / "train.jsonl.gz", borrow_negatives(train))
    for role, rows in dev.items():
        write_questions(args.output / f"{role}.jsonl.gz", rows)
    print(f"{len(train)} training questions; " + ", ".join(f"{role}: {len(rows)}" for role, rows in dev.items()))


if __name__ == "__main__":
    main()
