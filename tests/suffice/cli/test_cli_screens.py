"""What commands print by default: one screen, with the next command; `--details` prints the rest."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from suffice.cli.console import fits
from suffice.cli.output import Screen
from suffice.cli.tree import commands
from suffice.common.tables import Column, Table
from suffice.recordings import bundled_recording, write_recording
from suffice.verdicts.decisions import decide
from suffice_gates.gates import answered_recording, load_answered
from suffice_papers.semantic import theory
from tests.support.cli_tools import cli, corpus, dataset, question, reply
from tests.support.endpoint import Endpoint

CITIES = ("Oslo", "Rome", "Lima", "Bern")
ALL = dict(commands())
QUICK = "--set resamples=50"
CALLS = [
    "calibrate tune.parquet -o fitted.json",
    f"replay eval.parquet --policy policy.json --rule answer_stable {QUICK}",
    "replay eval.parquet --policy policy.json",
    f"diagnose eval.parquet --tune tune.parquet --rule tasr {QUICK}",
    f"diagnose eval.parquet {QUICK}",
    f"report eval.parquet --policy policy.json {QUICK}",
    f"search eval.parquet --tune tune.parquet {QUICK}",
    f"search eval.parquet --tune tune.parquet --policy selected.json {QUICK}",
    "certify eval.parquet --max-loss 0.5 --policy policy.json --path p_correct --tune tune.parquet -o certified.json",
    "certify eval.parquet --max-loss 0.5 --policy policy.json",
    "decide eval.parquet -o decided.json",
    "decide self_refine.parquet --metric target_sentiment --set leave-out-failed=true -o advised.json",
    "deploy decision.json -o deployed.json",
    "deploy policy.json --to langgraph",
    "data show policy.json",
    "data signals",
    f"data selectors eval.parquet --tune tune.parquet {QUICK}",
    f"data selectors eval.parquet --tune tune.parquet -o ranked.json {QUICK}",
    "data prices",
    "data prices gpt-4o-mini",
    "data costs eval.parquet --model gpt-4o-mini",
    f"gate compare gates.parquet --no-questions --column p_known {QUICK}",
    "gate states q.jsonl -o q.states --encoder minilm",
    "judge gold eval.parquet -o gold.parquet",
    "import run.csv -o imported.parquet --log-golds keep",
    'answer "Where is tower 1?" --corpus documents',
    "record q.jsonl -o recorded.parquet --limit 4",
    "convert q.jsonl -o converted.jsonl --splits tune=2,eval=1",
    f"paper protocol self_refine_gpt4 --metric target_sentiment {QUICK}",
    "paper semantic",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Recordings, a policy, questions, documents and a table, all of them small."""
    base = tmp_path_factory.mktemp("screens")
    with Endpoint(reply) as endpoint:
        model = ("--base-url", endpoint.url, "--model", "m")
        for name, first in (("tune", 0), ("eval", 40)):
            dataset(base / f"{name}.jsonl", *(question(first + i) for i in range(40)))
            assert cli("record", base / f"{name}.jsonl", "-o", base / f"{name}.parquet", *model).code == 0
    assert cli("calibrate", base / "tune.parquet", "-o", base / "policy.json").code == 0
    dataset(base / "q.jsonl", n=6)
    corpus(base / "documents")
    (base / "run.csv").write_text(
        "question_id,round,answer,golds\nq1,1,Rome,Oslo\nq1,2,Oslo,Oslo\nq2,1,Paris,Paris\nq2,2,Paris,Paris\n"
    )
    answers = load_answered("2wiki_llama31_tune")[:60]
    scored = answered_recording(answers, {"p_known": [i / 60 for i in range(60)]})
    write_recording(base / "gates.parquet", scored.table, scored.metadata)
    drafts = bundled_recording("self_refine_gpt4")
    write_recording(base / "self_refine.parquet", drafts.table, drafts.metadata)
    decide(drafts, metric="target_sentiment", leave_out_failed=True).save(base / "decision.json")
    return base


@pytest.fixture
def screens(monkeypatch):
    """The screens that commands print, as values."""
    printed = []
    whole = Screen.print

    def noted(screen, **how):
        printed.append(screen)
        whole(screen, **how)

    monkeypatch.setattr(Screen, "print", noted)
    return printed


def bare(text):
    return re.sub(r"\s+", "", text)


def missing(screen, printed):
    """Return what a screen holds and a text does not."""
    texts, without_blanks = [*screen.sentences, *screen.notes], bare(printed)
    for table in screen.tables:
        names = (column.name for column in table.columns)
        is_whole = fits(table, 200)
        cells = (cell for row in table.texts() for cell in row if is_whole and len(cell) < 28)
        texts += [table.title, *table.notes, *names, *cells]
    return [text for text in texts if bare(text) not in without_blanks and not all(w in printed for w in text.split())]


@pytest.mark.parametrize("call", CALLS)
def test_output_fits_one_screen_and_details_print_the_rest(call, folder, screens, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(theory, "_SAMPLE", 10)  # questions that `paper protocol` also runs live
    short = cli(*shlex.split(call), code=0)
    lines = short.out.splitlines()
    assert 1 <= len(lines) <= 45
    assert max(len(line.rstrip()) for line in lines if not line.startswith("next: ")) <= 100
    whole = cli(*shlex.split(call), "--details").out
    for screen in screens[-1:]:
        assert missing(screen, whole) == []
        assert bool(missing(screens[0], short.out)) == ("\nmore: --details\n" in short.out)
    after = [line for line in lines if line.startswith("next: ")]
    if screens:
        assert after == [f"next: {screens[-1].then}"] if screens[-1].then else not after
    place, words = parsed(after[0].removeprefix("next: ")) if after else ("", [])
    if after and not any(word.isupper() or "FRESH" in word or "OTHER" in word for word in words):
        cli(*place.split(), *words, code=0)
    assert after or call.startswith(("paper semantic", "data prices gpt"))


def parsed(command):
    """Return the place of a command and its arguments, which its parser takes."""
    program, *words = shlex.split(command)
    assert program == "suffice"
    place = max((p for p in ALL if words[: len(p.split())] == p.split()), key=len)
    rest = words[len(place.split()) :]
    ALL[place].make_context(place, list(rest))
    return place, rest


def table(rows, *columns):
    return Table(title="T", columns=columns, rows=tuple(rows), notes=("first sentence. Second one.",))


def test_long_tables_and_many_notes_fit_and_the_rest_is_named(capsys):
    wide = table(
        ((f"rule {i}", 0.5, *(1e6 for _ in range(20))) for i in range(99)),
        Column("rule"),
        Column("quality of answers", ".1f"),
        *(Column(f"column {i}", ",.2f") for i in range(20)),
    )
    notes = ["of these 7 is unknown", *(f"{chr(97 + i)} has nothing like it" for i in range(20))]
    Screen(sentences=["One. " * 90, "Two."], tables=[wide, wide], notes=notes, then="suffice demo").print()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert any("of these 7 is unknown" in line for line in lines)
    assert lines[-2:] == ["more: --details", "next: suffice demo"]


def test_numbers_stay_on_one_line_and_long_texts_are_broken(capsys):
    words = "a verdict of very many words " * 5
    one = table([("x" * 60, (0.1, -0.2, 0.3), words)], Column("rule"), Column("d", "+.1f", interval=True), Column("v"))
    Screen(tables=[one]).print()
    out = capsys.readouterr().out
    assert "+0.1 [-0.2, +0.3]" in out
    assert max(map(len, out.splitlines())) <= 100
    assert out.count("verdict") == 5


def test_notes_are_cut_at_sentences_and_after_their_option(capsys):
    case = "'Miranda v. Rourke, 366 U.S. 379 (2010)' or 'Dr. Lang' for 'Prof. Pierce'"
    advice = f"part of a point goes to {case}, and {case}: `suffice decide --metric em` gives it to none"
    Screen(sentences=["One."], notes=[f"{advice}. Another sentence", "few words. " + "More words follow. " * 9]).print()
    shown = " ".join(capsys.readouterr().out.split())
    assert f"note: {advice}. note: few words." in shown
    assert "Another sentence" not in shown
    assert "More words" not in shown


def test_every_problem_is_shown_before_other_notes(capsys):
    problems = [f"problem: the file {name!r} does not exist" for name in ("a", "b", "c", "d", "e", "f", "g", "h")]
    Screen(sentences=["One."], notes=["a legend", *problems]).print()
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert shown == [*(f"note: {problem}" for problem in problems), "note: a legend"]


def test_the_legend_of_a_hidden_table_is_hidden_with_it(capsys):
    def table(title, *notes):
        return Table(title=title, columns=(Column("a"),), rows=((1,),), notes=notes)

    screen = Screen(tables=[table("first", "of the first"), table("second", "of the second", "3 answers are missing")])
    screen.print()
    shown = capsys.readouterr().out
    assert "note: of the first" in shown
    assert "note: 3 answers are missing" in shown, "figures on the screen may depend on it"
    assert "of the second" not in shown
    screen.print(details=True)
    assert "of the second" in capsys.readouterr().out


JARGON = (
    "answer_stable",
    "stable_twice",
    "uncached",
    "cached",
    "tune",
    "fitted",
    "policy",
    "f1",
    "F1",
    "selected here",
    "prices",
    "normalizer",
    "traject",
    "censored",
)


def test_a_first_decision_is_said_in_plain_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": q, "question": f"Where is tower {q}?", "round": r, "gold": "Oslo", "input_tokens": 9, "output_tokens": 1}
        | {"answer": "Oslo" if r > q % 4 else ("Rome", "Lima", "Bern")[(q + r) % 3]}
        for q in range(90)
        for r in (1, 2, 3)
    ]
    Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = cli("import", "log.jsonl", "--yes").out + cli("decide", "log.parquet").out
    assert "answer repeats" in words
    assert "changes the score by" in words or "change the score by" in words
    header = next(line for line in words.splitlines() if line.startswith("what you could do "))
    assert re.split(r"  +", header.strip()) == ["what you could do", "calls saved, %", "score: change", "verdict"]
    assert not [word for word in JARGON if word in words]
    assert re.search(r"\[[-+]", words) is None
    assert "answer_stable" in cli("decide", "log.parquet", "--details").out


def test_the_first_screens_have_one_table_each_and_few_words(tmp_path, monkeypatch):
    """A newcomer reads a sentence, then one table: question, round, answer, right answer, tokens, calls saved, change."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"question_id": f"q{q}", "question": f"Which city has number {q}?", "round": r, "gold_answer": f"City {q}"}
        | {"answer": f"City {q}" if r > q % 5 else f"Town {q + 1}", "prompt_tokens": 300 + r, "completion_tokens": 20}
        for q in range(90)
        for r in (1, 2, 3)
    ]
    Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    screens = [cli("import", "log.jsonl").out, cli("decide", "log.parquet").out]
    headers = [
        ["round", "answer", "right", "right answers, %", "tokens"],
        ["what you could do", "calls saved, %", "right answers: change", "verdict"],
    ]
    for shown, header in zip(screens, headers, strict=True):
        assert len(shown.strip().split("\n\n")) == 2, "an empty line ends a table"
        assert header in [re.split(r"  +", line.strip()) for line in shown.splitlines()]
        assert shown.partition("\n\n")[2].startswith("more: --details\n")
        words = {*re.findall(r"[a-z_0-9]+", shown)}
        assert not words & {*JARGON, "cap", "judge", "loop", "now", "proved", "note"}
    assert "gold_answer as right answer, prompt_tokens and completion_tokens as tokens" in " ".join(screens[0].split())
    assert "(answers are compared as 'number')" in screens[0]
    whole = cli("import", "log.jsonl", "--yes", "--details").out
    for name in ("input tokens", "output tokens", "different answers so far", "What was read", "usual name"):
        assert name in whole
        assert name not in screens[0]
    assert "questions judge, " in cli("decide", "log.parquet", "--details").out


def test_the_screens_of_an_easy_log_name_no_tokens_prices_or_ids(tmp_path, monkeypatch):
    """Its terms are question, round, answer, right answer, score and calls saved."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"question": f"Where is tower {q}?", "gold": CITIES[q % 4], "round": r, "cost": 0.001 * r}
        | {"answer": CITIES[(q + (q % 7 == 0 or (r < 2 and q % 3 == 0))) % 4]}
        for q in range(120)
        for r in (1, 2, 3)
        if r < 3 or q % 2
    ]
    Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain, whole = (cli("import", "log.jsonl", *more).words for more in ((), ("--details",)))
    assert "Columns read: question, round, answer, gold as right answer Question" in plain
    assert "--column spend=cost if it is a running total" in plain
    assert "--column spend=cost:each if each row has its own dollars more: --details" in plain
    assert "60 of 120 questions have fewer than 3 rounds, for a reason that the log does not give." in plain
    for hidden in ("tokens", "as no column has its id", "suffice decide --prices", "lost rows", "score (F1)"):
        assert hidden in whole
        assert hidden not in plain
    cli("import", "log.jsonl", "--ended", "rule", "--yes")
    shown = cli("decide", "log.parquet").words
    assert not [word for word in (*JARGON, "tokens", "ended") if word in shown]


def test_a_decision_says_how_questions_were_divided(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drafts = bundled_recording("self_refine_gpt4")
    write_recording("drafts.parquet", drafts.table, drafts.metadata)
    call = ("decide", "drafts.parquet", "--metric", "target_sentiment", "--set", "leave-out-failed=true")
    assert re.search(r"(\d+) questions count, (\d+) others chose what to try", cli(*call).words)


def test_a_cut_table_says_how_many_rounds_are_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "id": q,
            "question": f"Where is tower {q}?",
            "round": r,
            "gold": "Oslo",
            "answer": "Oslo" if r > q % 12 else f"Rome {r}",
        }
        for q in range(60)
        for r in range(1, 49)
    ]
    Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = cli("import", "log.jsonl", "--yes").out
    n_shown, left = len(re.findall(r"(?m)^ +\d+  ", shown)), re.search(r"(?m)^\.\.\. (\d+) more rounds?$", shown)
    assert left is not None
    assert n_shown + int(left[1]) == 48
    assert "more round" not in cli("import", "log.jsonl", "--details").out


def test_decide_and_deploy_call_a_rule_by_one_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "id": q,
            "question": f"Where is tower {q}?",
            "round": r,
            "gold": "Oslo",
            "answer": "Oslo" if q % 2 or r > 3 else f"Rome {r}",
        }
        for q in range(700)
        for r in range(1, 6)
    ]
    Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli("import", "log.jsonl", "--yes", "--expected", "last-is-gold", "--log-golds", "keep").code == 0
    decided, deployed = cli("decide", "log.parquet").words, cli("deploy", "decision.json").words
    assert "Stop once the answer repeats" in decided
    assert "Stop once the answer repeats" in deployed
    assert not {"answer_stable", "stable_twice"} & {
        *re.findall(r"\w+", decided + deployed.partition("from suffice")[0])
    }
