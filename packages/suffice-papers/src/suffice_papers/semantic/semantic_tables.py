"""The published tables of Semantic Early-Stopping, recomputed from the published figures as far as possible."""

from __future__ import annotations

from typing import Any

from suffice.common.tables import Column, Table, figure
from suffice_papers.paper import Paper, PaperFigure, flags_table, origin_table
from suffice_papers.semantic.charts import published_chart
from suffice_papers.semantic.figures import (
    BASELINE,
    MARGINS,
    FigureSplit,
    PublishedRun,
    PublishedSemantic,
    published_semantic,
)

_ABLATION = (
    "abl_full",
    "abl_no_critic",
    "abl_no_entropy",
    "abl_no_isgain",
    *(f"abl_{n}_only" for n in ("critic", "entropy", "isgain")),
)

_NOT_DERIVABLE = {
    "tests between two policies": (
        "the published spreads are those of differences to fixed_k6; of the difference between two other policies only "
        "the mean is known"
    ),
    "figures by question": "scores, stop rounds and distances of single questions were not published",
}

_ROUNDS, _TOKENS, _SCORE = Column("rounds", ".2f"), Column("tokens", ",.0f"), Column("score", ".4f")
_SAVED = Column("saved", "+.1f", scale=100)


def paper_semantic(command: str = "suffice paper semantic") -> Paper:
    """Recompute the figures of each policy in Semantic Early-Stopping (arXiv 2606.27009) from other published figures.

    No model is run.  Savings and differences follow from the published means, spreads follow from differences and
    Cohen's d_z, and tests and verdicts follow from the spreads.

    Args:
        command: The command that was run, for the provenance.
    """
    published = published_semantic()
    splits = published.splits.values()
    main = published.splits["test"]
    by_split = [table for split in splits for table in _split_tables(published, split)]
    return Paper(
        title="The published figures of Semantic Early-Stopping, recomputed",
        headline=_verdicts_headline(published, main),
        summary=_screen_table(published, main),
        parts=(
            _source_facts(published, command),
            *by_split,
            _oracle_table(published),
            _tokens_table(published),
            _conjecture_table(published),
            flags_table(published.flags),
        ),
        not_made=_NOT_DERIVABLE,
        figures=tuple(
            PaperFigure(
                name=f"policies-{split.name}",
                spec=published_chart(split, _suite(split)),
                caption=(
                    f"Published scores on {split.name}; bars are the published intervals of the difference to {BASELINE}, drawn around "
                    "its score. The line joins the fixed numbers of rounds."
                ),
            )
            for split in splits
        ),
    )


def _split_tables(published: PublishedSemantic, split: FigureSplit) -> tuple[Table, Table, Table]:
    return _means_table(published, split), _verdicts_table(published, split), _ablation_table(published, split)


def _changed(published: PublishedSemantic, run: PublishedRun) -> str | None:
    """Return the published and the recomputed verdict of equivalence if they differ, else None."""
    if run.verdict is None:
        return None
    both = run.differences["score"].equivalent(published.paper["margin"])
    return f"{_yes_or_no(run.verdict)} -> {_yes_or_no(both)}" if run.verdict != both else None


def _verdicts_headline(published: PublishedSemantic, split: FigureSplit) -> str:
    verdicts = [run for run in split.runs.values() if run.verdict is not None]
    changed = [run.name for run in verdicts if _changed(published, run)]
    ours = split.runs["entropy_only"]
    return (
        f"Of {len(verdicts)} published verdicts of equivalence on {split.name}, {len(changed)} do not follow from the "
        f"published spreads ({', '.join(changed)}); entropy_only saves {figure(split.saved(ours.name), '.0f', 100)} % of the "
        f"tokens and is dominated by {split.dominating(ours.name)[0]}."
    )


def _screen_table(published: PublishedSemantic, split: FigureSplit) -> Table:
    return Table.of(
        f"Policies on {split.name}, {split.questions} questions; differences to {BASELINE}",
        _suite(split),
        {
            Column("policy"): "name",
            _ROUNDS: "rounds",
            Column("saved, %", "+.1f", scale=100): lambda run: split.saved(run.name),
            _SCORE: "score",
            Column("Δscore", "+.4f", interval=True): _score_difference,
            Column("verdict"): lambda run: _changed(published, run),
            Column("dominated by"): lambda run: next(iter(split.dominating(run.name)), None),
        },
        (
            "saved: of the tokens of fixed_k6; verdict: of equivalence within 0.02, published -> recomputed, where they differ",
            "dominated by: a fixed budget or random stop with at least the score for at most the tokens",
        ),
    )


def _source_facts(published: PublishedSemantic, command: str) -> Table:
    paper = published.paper
    runs = ", ".join(f"{s.name}: {s.questions} questions, commit {s.commit}" for s in published.splits.values())
    settings = f"eps {paper['eps']}, patience {paper['patience']}, {paper['max_rounds']} rounds, judge {paper['judge']}"
    return origin_table(
        (
            ("paper", f"{paper['title']} (arXiv {paper['arxiv']})"),
            ("figures", f"result files of {paper['repository']} ({runs})"),
            ("settings", settings),
            ("command", command),
            *((f"not derivable: {what}", why) for what, why in _NOT_DERIVABLE.items()),
        )
    )


def _name(published: PublishedSemantic, split: FigureSplit, run: PublishedRun) -> str:
    flags = published.flagged(split.name, run.name)
    return run.name + (f" [{', '.join(flag.id for flag in flags)}]" if flags else "")


def _suite(split: FigureSplit) -> list[PublishedRun]:
    """Return the policies of a split that are not cells of the ablation."""
    return [run for run in split.runs.values() if run.name not in _ABLATION]


def _score_difference(run: PublishedRun) -> tuple[float, float, float] | None:
    score = run.differences.get("score")
    return None if score is None else (score.mean, score.low, score.high)


def _means_table(published: PublishedSemantic, split: FigureSplit) -> Table:
    adjusted = split.holm(lambda score: score.recomputed_p())
    scores = {run.name: run.differences["score"] for run in _suite(split) if "score" in run.differences}
    return Table.of(
        f"Policies on {split.name}, {split.questions} questions; differences to {BASELINE}",
        _suite(split),
        {
            Column("policy [flags]"): lambda run: _name(published, split, run),
            _ROUNDS: "rounds",
            _TOKENS: "tokens",
            _SAVED: lambda run: split.saved(run.name) if "tokens" in run.differences else None,
            _SCORE: "score",
            Column("Δscore, published interval", "+.4f", interval=True): _score_difference,
            Column("p, published", ".2g"): lambda run: scores[run.name].t_p if run.name in scores else None,
            Column("p, recomputed", ".2g"): lambda run: scores[run.name].recomputed_p() if run.name in scores else None,
            Column("p, Holm", ".2g"): lambda run: adjusted.get(run.name),
            Column("dominated by"): lambda run: ", ".join(split.dominating(run.name)) or None,
        },
        (
            "saved: per cent of the tokens of fixed_k6, recomputed from the means; tokens as the paper counts them",
            f"p: paired t-test; Holm's correction over {len(adjusted)} runs, each of several that are one run once",
            "dominated by: fixed budgets and random stops with at least the score for at most the tokens",
        ),
    )


def _verdicts_table(published: PublishedSemantic, split: FigureSplit) -> Table:
    margin = published.paper["margin"]
    adjusted = split.holm(lambda score: score.p_loss(margin))

    def row(run: PublishedRun) -> tuple[Any, ...]:
        score = run.differences["score"]
        return (
            _name(published, split, run),
            (score.mean, *score.bounds()),
            score.error,
            run.p_lower,
            score.p_loss(margin),
            adjusted.get(run.name),
            *(_yes_or_no(score.non_inferior(size)) for size in MARGINS),
            _yes_or_no(run.verdict),
            *(_yes_or_no(score.equivalent(size)) for size in MARGINS),
            _changed(published, run),
        )

    return Table(
        title=f"Non-inferiority and equivalence on {split.name}, recomputed; margins 0.01, 0.02, 0.05",
        columns=(
            Column("policy [flags]"),
            Column("Δscore [90 %]", "+.4f", interval=True),
            Column("standard error", ".4f"),
            *(Column(f"p at .02, {what}", ".3g") for what in ("published", "recomputed", "Holm")),
            *(Column(f"non-inferior at {size:g}") for size in MARGINS),
            Column("published 'TOST' at 0.02"),
            *(Column(f"equivalent (TOST) at {size:g}") for size in MARGINS),
            Column("verdict changes"),
        ),
        rows=tuple(row(run) for run in split.runs.values() if run.verdict is not None),
        notes=(
            "standard error: difference / (d_z * sqrt(n)), exact; the 90 % interval is that of both one-sided tests",
            "non-inferior: one side, a loss of the margin is excluded; equivalent: a gain of the margin as well",
            "a run that is fixed_k6 under another name has no spread and passes every test of equality with itself",
        ),
    )


def _yes_or_no(value: object) -> str:
    return "yes" if value else "no"


def _ablation_table(published: PublishedSemantic, split: FigureSplit) -> Table:
    runs = [split.runs[name] for name in _ABLATION]
    return Table.of(
        f"Ablation on {split.name}: {len(runs)} cells, {len({run.means for run in runs})} different runs",
        runs,
        {
            Column("cell [flags]"): lambda run: _name(published, split, run),
            _ROUNDS: "rounds",
            _TOKENS: "tokens",
            _SAVED: lambda run: split.saved(run.name),
            _SCORE: "score",
            Column("the same run as"): lambda run: ", ".join(split.copies(run.name)) or None,
        },
    )


def _oracle_table(published: PublishedSemantic) -> Table:
    rows = []
    for split in published.splits.values():
        best = split.runs["oracle_is"].score
        others = sorted(split.different(), key=lambda run: -run.score)
        listed = [*(run for run in others if run.name != "oracle_is"), split.runs[BASELINE]]
        rows += [(split.name, run.name, run.score, best - run.score) for run in listed]
    return Table(
        title="What the oracle is above each policy",
        columns=(Column("split"), Column("policy"), _SCORE, Column("oracle minus policy", "+.4f")),
        rows=tuple(rows),
        notes=(
            (
                f"the abstract says +{published.text['oracle_delta']:.3f} over every practical policy: on test that is the "
                f"difference to {BASELINE} and to critic_only, which is {BASELINE}"
            ),
            "only the difference to fixed_k6 has a published spread",
        ),
    )


def _tokens_table(published: PublishedSemantic) -> Table:
    rows: list[tuple[object, ...]] = []
    for split in published.splits.values():
        for name in ("shp", "abl_isgain_only", "oracle_is"):
            run = split.runs[name]
            loop = split.loop_tokens(run.rounds)
            rows.append((split.name, name, run.rounds, run.tokens, loop, run.tokens - loop, split.judge_tokens(name)))
    return Table(
        title="The token column: what it says about the judge",
        columns=(
            Column("split"),
            Column("policy"),
            _ROUNDS,
            *(Column(name, ",.0f") for name in ("tokens", "loop", "judge", "judge per round")),
        ),
        rows=tuple(rows),
        notes=(
            (
                "loop: writer and critic in that many rounds, on a straight line between fixed_k1, fixed_k3 and fixed_k6 "
                "(an estimate: long trajectories need not cost the mean)"
            ),
            *(note for split in published.splits.values() for note in _judge_notes(split)),
            (
                "the author's published harness adds up writer, critic and judge over all rounds up to the stop, embeddings "
                "free: what `suffice replay --set ledger=published` does; it charges a repeated draft's marks each time, our "
                "recordings once"
            ),
        ),
    )


def _judge_notes(split: FigureSplit) -> tuple[str, str]:
    """Return notes on the column of tokens: the rounds with calls of the judge, and the cost of judging all rounds."""
    wide, narrow = split.runs["abl_isgain_only"], split.runs["shp"]
    rounds = (wide.rounds - narrow.rounds) * split.questions
    extra = (wide.tokens - narrow.tokens) * split.questions
    judge = split.judge_tokens("shp")
    loop = split.loop_tokens(3.0) - split.loop_tokens(2.0)
    eager, lazy = rounds * (judge + loop), (rounds + 1) * judge + rounds * loop
    whole = split.runs[BASELINE].tokens + 6 * split.judge_tokens("oracle_is")
    return (
        (
            f"{split.name}: without the rule of convergence the gain alone runs {rounds:.0f} rounds more in all and costs "
            f"{extra:,.0f} tokens more; about {eager:,.0f} if every visited round is judged, at least {lazy:,.0f} if the "
            "judge is asked only where the rule reads it (a round at which the drafts converged is then judged, too)"
        ),
        f"{split.name}: an oracle that pays for judging all six rounds would need about {whole:,.0f} tokens",
    )


def _conjecture_table(published: PublishedSemantic) -> Table:
    text = published.text
    return Table.of(
        "Do distances fall? (published; nothing here can be recomputed without the distances)",
        published.splits.values(),
        {
            Column("split [flags]"): lambda split: f"{split.name} [pooled-steps]",
            Column("monotone", ".0%"): lambda split: split.conjecture["monotone"],
            Column("slope by round", "+.4f", interval=True): lambda split: tuple(split.conjecture["slope"]),
            Column("mean step", "+.4f"): lambda split: split.conjecture["step"],
            Column("Wilcoxon's statistic", ",.0f"): lambda split: split.conjecture["statistic"],
            Column("largest with one value a trajectory", ",.0f"): lambda split: (
                split.questions * (split.questions + 1) // 2
            ),
            Column("p (pooled)", ".2g"): lambda split: split.conjecture["p"],
            Column("mean distance", ".3f"): lambda split: text["mean_distance"][split.name],
            Column("median", ".3f"): lambda split: text["median_distance"][split.name],
            Column("below eps", ".0%"): lambda split: text["below_eps"][split.name],
        },
    )
