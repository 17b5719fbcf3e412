"""`suffice demo rivals`: methods that ask for their own evidence, on a tiny model whose knowledge is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from suffice._version import __version__
from suffice.cli import options
from suffice.cli.console import progress_bar, quiet_bars, status
from suffice.cli.output import Output, Screen, check_markdown
from suffice.cli.parameters import Setting
from suffice.common.files import quoted
from suffice.common.tables import Column, Table, render
from suffice.evaluation.statistics import Resampling
from suffice.loops.retrieval import dataset_hash
from suffice_papers.cbdr.world import PROCESSOR_NOTE
from suffice_papers.rivals.bench import ROUNDS, Bench
from suffice_papers.rivals.gates import gate_lines
from suffice_papers.rivals.lines import RivalLine, fixed_lines, line_of, rivals_table
from suffice_papers.rivals.taught import STEPS, TINY_CHAIN, TINY_SELF_ASK, train_chains
from suffice_retrieval.methods import ChainMethod, Dragin, Flare, IRCoT, SelfAsk

_KS = (1, 3)
"""Numbers of passages per query: 1, because this reader is confused by several, and 3, closer to the papers."""

_FIXED = (0, 1, 2, 3, 4, 5, 6, 10)
_OWN_RULE = "answer_stable"
_DRAGINS = ((0.3, 25), (1.2, 25), (0.3, 5), (1.2, 5))
"""Thresholds and query lengths to choose from on tune questions, because the paper's are for other models."""

_CAVEAT = (
    "A model this small cannot rank the methods: it shows that they run, what they cost, and that each is compared with a fixed "
    "number of passages for no more. The ranking is what a file of your own models, data and GPU makes "
    "(suffice record --loop, suffice run)."
)


def demo_rivals(
    output: Output,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the model and the recordings.")] = Path(
        "suffice-rivals"
    ),
    seed: Annotated[int, Setting("papers", "seed", min=0, help="Seed of the world and of the training.")] = 0,
    steps: Annotated[int, Setting("papers", "steps", min=1, help="Training steps.")] = STEPS,
    threads: Annotated[int, Setting("papers", "threads", min=1, help="Processor threads.")] = 1,
    limit: Annotated[int | None, Setting("papers", "limit", min=1, help="Only the first questions.")] = None,
    markdown: options.Markdown = None,
) -> None:
    """Compare methods that ask for their own evidence.

    Self-Ask, IRCoT, FLARE, DRAGIN, gates and a learned stop run on a tiny model that was taught their formats, and a
    third of the facts.  It is trained in some minutes; a second call only measures.

    Example: suffice demo rivals --out rivals
    """
    quiet_bars()
    check_markdown(markdown)
    folder = out / f"model-{seed}"
    if not (folder / "facts.json").exists():
        with progress_bar(f"teaching seed {seed}", quiet=output.as_json) as move:
            train_chains(folder, seed, steps=steps, threads=threads, on_progress=move)
    bench = Bench.of(folder, out, limit, quiet=output.as_json)
    lines = rival_lines(bench)
    tables = [taught_table(bench), rivals_table(_title(bench), lines, Resampling())]
    sentences = [_headline(lines), _CAVEAT]
    if markdown is not None:
        markdown.write_text(_rivals_page(bench, tables, sentences, seed, limit), encoding="utf-8")
    data = {"lines": [line.to_dict() for line in lines], "notice": _CAVEAT}
    then = f"suffice replay {quoted(out / 'ircot-1.parquet')} --rule '(chain_ended >= 1)' --rule {_OWN_RULE}"
    output.show(data, Screen(sentences=sentences, tables=[tables[1], tables[0]], files={"page": markdown}, then=then))


def rival_lines(bench: Bench) -> list[RivalLine]:
    """Measure every line of the page: fixed numbers of passages first, then methods, then gates and learned stops."""
    sources: tuple[Callable[[Bench], list[RivalLine]], ...] = (_fixed, _methods, gate_lines)
    return [line for source in sources for line in source(bench)]


def _fixed(bench: Bench) -> list[RivalLine]:
    return [line for k, line in enumerate(fixed_lines(bench.plain("fixed", bench.evaluation))) if k in _FIXED]


def _methods(bench: Bench) -> list[RivalLine]:
    """Measure each method twice: until it ends by itself, as published, and stopped by a rule of this package."""
    chosen = _tuned_dragin(bench)
    dragin = f"DRAGIN, theta={chosen.theta:g} and n={chosen.n} by tune"
    lines = []
    for k in _KS:
        methods: dict[str, ChainMethod] = {
            "Self-Ask": SelfAsk(k=k, prompt=TINY_SELF_ASK),
            "IRCoT": IRCoT(k=k, prompt=TINY_CHAIN),
            "FLARE, masked sentence": Flare(k=k, prompt=TINY_CHAIN),
            "FLARE, generated questions": Flare(k=k, ask=True, prompt=TINY_CHAIN),
            dragin: replace(chosen, k=k),
        }
        for name, method in methods.items():
            file = f"{method.name}{'-ask' * bool(method.settings().get('ask'))}-{k}"
            published = bench.asked(f"{file}-published", method, bench.evaluation, every_round=False)
            lines.append(line_of(f"{name}, k={k}", "method, own end", published, bench.policy()))
            if k == min(_KS):
                every = bench.asked(file, method, bench.evaluation, every_round=True)
                lines.append(
                    line_of(f"{name}, k={k}: {_OWN_RULE}", "method, our rule", every, bench.policy(rule=_OWN_RULE))
                )
    return lines


def _tuned_dragin(bench: Bench) -> Dragin:
    """Return DRAGIN with the best settings on half of the tune questions.

    The best settings give the most right answers; among ties, the fewest retrievals.
    """

    def rank(method: Dragin) -> tuple[float, float]:
        file = f"tune-dragin-{method.theta:g}-{method.n}"
        line = line_of(
            method.name, "tune", bench.asked(file, method, bench.tune[::2], every_round=False), bench.policy()
        )
        return float(line.right.mean()), -float(line.retrievals.mean())

    return max((Dragin(k=min(_KS), theta=theta, n=n, prompt=TINY_CHAIN) for theta, n in _DRAGINS), key=rank)


def taught_table(bench: Bench) -> Table:
    """Tabulate the model's accuracy by the taught steps of a question; answers are checked against the world's facts."""
    recording = bench.plain("fixed", bench.evaluation)
    right, kinds = recording.column("em"), [question.type for question in bench.evaluation]
    by_id = dict(zip((question.question_id for question in bench.evaluation), kinds, strict=True))
    taught = [by_id[name] for name in recording.question_ids]
    with status("reading the two passages", quiet=bench.quiet):
        stating = [[item for item in q.passages if item.passage_id in q.supporting] for q in bench.evaluation]
        replies = bench.reader.answers([q.question for q in bench.evaluation], stating)
    told = {
        q.question_id: float((reply.answer or "").rstrip(".") == q.answers[0])
        for q, reply in zip(bench.evaluation, replies, strict=True)
    }
    rows = []
    for kind in ("both", "first", "second", "none"):
        rows_of = [place for place, name in enumerate(taught) if name == kind]
        n = len(rows_of)
        shares = [sum(right[place, k] for place in rows_of) / n for k in (0, 1, 5)] if n else [float("nan")] * 3
        with_both = [told[q.question_id] for q in bench.evaluation if q.type == kind]
        rows.append((kind, n, *shares, sum(with_both) / n if n else float("nan")))
    columns = ("never retrieve", "1 passage", "5 passages", "the two that state it")
    return Table(
        title="What the model knows: right, %, by the steps whose facts it was taught",
        columns=(Column("taught"), Column("questions", ".0f"), *(Column(name, ".1f", scale=100) for name in columns)),
        rows=tuple(rows),
    )


def _title(bench: Bench) -> str:
    return (
        f"Ways of asking, {len(bench.evaluation)} questions of two steps, pools of ten passages; methods take k passages for each "
        f"query, and at most {ROUNDS} rounds"
    )


def _headline(lines: Sequence[RivalLine]) -> str:
    run = [line for line in lines if not line.why]
    fixed = max((line for line in run if line.kind == "fixed"), key=lambda line: float(line.right.mean()))
    best = max((line for line in run if line.kind != "fixed"), key=lambda line: float(line.right.mean()))
    return (
        f"{best.name} is right most often among the methods: on {100 * best.right.mean():.1f} % of {len(best.right)} questions, with "
        f"{best.calls.mean():.1f} calls and {best.tokens.mean():.0f} tokens each. The best fixed number ({fixed.name}) is right "
        f"on {100 * fixed.right.mean():.1f} %, with {fixed.calls.mean():.0f} call and {fixed.tokens.mean():.0f} tokens."
    )


def _rivals_page(bench: Bench, tables: Sequence[Table], sentences: Sequence[str], seed: int, limit: int | None) -> str:
    steps = json.loads((bench.folder / "facts.json").read_text(encoding="utf-8"))["steps"]
    part = "" if limit is None else f" --set limit={limit}"
    command = f"suffice demo rivals --set seed={seed} --set steps={steps}{part} --set markdown=docs/results/rivals.md"
    written = (
        f"Written by `{command}` (suffice {__version__}), resampling seed 42, questions {dataset_hash(bench.evaluation)}. "
        "[How to run them](../how-to/rivals.md)."
    )
    return "\n\n".join(
        [
            "# Methods that ask for their own evidence",
            written,
            *sentences,
            PROCESSOR_NOTE.strip(),
            render([tables[0]], "md"),
            render([tables[1]], "md"),
            _NOTES,
        ]
    )


_NOTES = """## How to read it

- The world is invented, so that what the model knows is known: of its facts a third were taught, a third are asked and were never told,
  and the rest were told with another value each time. Answers are right if they are the world's.
- "Fixed for no more" is the fixed number of passages, ranked once by the question and read in one call, that is right most often among
  those that need no more calls and no more tokens. A method is *better* if the paired 95 % interval of the difference is above 0, and
  *dominated* if that fixed number is right at least as often.
- "Method, own end" asks for an answer only where the method ends. "Method, our rule" stops at the first answer that is given twice in a
  row, for which every round is answered: those calls are in its cost.
- Settings are those of the papers (FLARE's theta .8 and beta .4, at most 15 collected passages in IRCoT), but DRAGIN's threshold and length of
  queries, which the tune questions chose, and k: with three passages for each query this reader loses its way among those of the same
  entity or relation. The order of the methods follows from that, and would be another with another reader.
- "Gate" answers from the question alone, with one passage, or with all; "gate and stop" answers from round 0 on and takes one passage
  more while its signal says that this is not enough; the "learned stop" (Stop-RAG) was learned on the tune questions. What is fitted, and
  every threshold, comes from the tune questions. A model that was not trained for it has no reflection tokens for Self-RAG.
- What did not work: a model that read the question before the passages, and whose heads began by looking back one to four tokens alone, did not
  learn in a thousand steps to repeat the names that it had read, with which every method fails.
- The second tables of rivals, votes that stop early (Adaptive-Consistency, Early-Stopping Self-Consistency), are on
  [published samples](samples.md); gates that read hidden states are also on [the tiny model of single facts](gates-tiny.md).
"""
