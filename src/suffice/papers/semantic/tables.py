"""The published tables of Semantic Early-Stopping, recomputed as far as its published figures allow."""

from __future__ import annotations

from suffice._version import __version__
from suffice.papers.semantic.figures import (
    BASELINE,
    MARGINS,
    FigureSplit,
    PublishedRun,
    PublishedSemantic,
    published_semantic,
)
from suffice.papers.tasr.tables import Paper
from suffice.statistics import holm
from suffice.tables import Column, Table

__all__ = ["TITLE", "paper_semantic"]

TITLE = "The published figures of Semantic Early-Stopping, recomputed"
"""What the tables are called together."""

_CELLS = (
    "abl_full",
    "abl_no_critic",
    "abl_no_entropy",
    "abl_no_isgain",
    *(f"abl_{n}_only" for n in ("critic", "entropy", "isgain")),
)
_SCORE = ".4f"


def paper_semantic(command: str = "suffice paper semantic") -> Paper:
    """Recompute the per-policy figures of Semantic Early-Stopping (arXiv 2606.27009) from what it published.

    Nothing is run: percent saved and differences come from the published means, spreads from differences and Cohen's
    d_z, tests and verdicts from the spreads.

    Args:
        command: What was run, for the provenance.
    """
    published = published_semantic()
    tables = [_provenance(published, command)]
    for split in published.splits.values():
        tables += [_policies(published, split), _verdicts(published, split), _ablation(published, split)]
    tables += [_oracle(published), _tokens(published), _conjecture(published), _flags(published)]
    return Paper(tables=tuple(tables), not_made=_NOT_DERIVABLE)


_NOT_DERIVABLE = {
    "tests between two policies": (
        "the published spreads are those of differences to fixed_k6; of the difference between two other policies only "
        "the mean is known"
    ),
    "figures by question": "scores, stop rounds and distances of single questions were not published",
}


def _provenance(published: PublishedSemantic, command: str) -> Table:
    paper = published.paper
    runs = ", ".join(f"{s.name}: {s.questions} questions, commit {s.commit}" for s in published.splits.values())
    rows = (
        ("paper", f"{paper['title']} (arXiv {paper['arxiv']})"),
        ("figures", f"result files of {paper['repository']} ({runs})"),
        (
            "settings",
            f"eps {paper['eps']}, patience {paper['patience']}, {paper['max_rounds']} rounds, judge {paper['judge']}",
        ),
        ("command", command),
        ("suffice", __version__),
        *((f"not derivable: {what}", why) for what, why in _NOT_DERIVABLE.items()),
    )
    return Table(title="How these tables were made", columns=(Column("what"), Column("value")), rows=rows)


def _name(published: PublishedSemantic, split: FigureSplit, run: PublishedRun) -> str:
    flags = published.flagged(split.name, run.name)
    return run.name + (f" [{', '.join(flag.id for flag in flags)}]" if flags else "")


def _suite(split: FigureSplit) -> list[PublishedRun]:
    """Return the policies without the cells of the ablation."""
    return [run for run in split.runs.values() if run.name not in _CELLS]


def _policies(published: PublishedSemantic, split: FigureSplit) -> Table:
    different = split.different()
    raised = dict(
        zip(
            (run.name for run in different),
            holm([run.differences["score"].recomputed_p() for run in different]).tolist(),
            strict=True,
        )
    )
    rows = []
    for run in _suite(split):
        score = run.differences.get("score")
        tokens = run.differences.get("tokens")
        rows.append(
            (
                _name(published, split, run),
                run.rounds,
                run.tokens,
                None if tokens is None else split.saved(run.name),
                run.score,
                None if score is None else (score.mean, score.low, score.high),
                None if score is None else score.t_p,
                None if score is None else score.recomputed_p(),
                raised.get(run.name),
                ", ".join(split.dominating(run.name)) or None,
            )
        )
    return Table(
        title=f"Policies on {split.name}, {split.questions} questions; differences to {BASELINE}",
        columns=(
            Column("policy [flags]"),
            Column("rounds", ".2f"),
            Column("tokens", ",.0f"),
            Column("saved", "+.1f", scale=100),
            Column("score", _SCORE),
            Column("Δscore, published interval", "+.4f", interval=True),
            Column("p, published", ".2g"),
            Column("p, recomputed", ".2g"),
            Column("p, Holm", ".2g"),
            Column("dominated by"),
        ),
        rows=tuple(rows),
        notes=(
            "saved: per cent of the tokens of fixed_k6, recomputed from the means; tokens as the paper counts them",
            f"p: paired t-test; Holm's correction over {len(different)} runs, each of several that are one run once",
            "dominated by: fixed budgets and random stops with at least the score for at most the tokens",
        ),
    )


def _verdicts(published: PublishedSemantic, split: FigureSplit) -> Table:
    different = split.different()
    raised = dict(
        zip(
            (run.name for run in different),
            holm([run.differences["score"].p_loss(published.paper["margin"]) for run in different]).tolist(),
            strict=True,
        )
    )
    rows = []
    for run in split.runs.values():
        if run.verdict is None:
            continue
        score, margin = run.differences["score"], published.paper["margin"]
        low, high = score.bounds()
        both = score.equivalent(margin)
        rows.append(
            (
                _name(published, split, run),
                (score.mean, low, high),
                score.error,
                run.p_lower,
                score.p_loss(margin),
                raised.get(run.name),
                *(_yes(score.non_inferior(size)) for size in MARGINS),
                _yes(run.verdict),
                *(_yes(score.equivalent(size)) for size in MARGINS),
                f"{_yes(run.verdict)} -> {_yes(both)}" if run.verdict != both else None,
            )
        )
    return Table(
        title=f"Non-inferiority and equivalence on {split.name}, recomputed; margins 0.01, 0.02, 0.05",
        columns=(
            Column("policy [flags]"),
            Column("Δscore [90 %]", "+.4f", interval=True),
            Column("standard error", ".4f"),
            Column("p at .02, published", ".3g"),
            Column("p at .02, recomputed", ".3g"),
            Column("p at .02, Holm", ".3g"),
            *(Column(f"non-inferior at {size:g}") for size in MARGINS),
            Column("published 'TOST' at 0.02"),
            *(Column(f"equivalent (TOST) at {size:g}") for size in MARGINS),
            Column("verdict changes"),
        ),
        rows=tuple(rows),
        notes=(
            "standard error: difference / (d_z * sqrt(n)), exact; the 90 % interval is that of both one-sided tests",
            "non-inferior: one side, a loss of the margin is excluded; equivalent: a gain of the margin as well",
            "a run that is fixed_k6 under another name has no spread and passes every test of equality with itself",
        ),
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _ablation(published: PublishedSemantic, split: FigureSplit) -> Table:
    rows = []
    for name in _CELLS:
        run = split.runs[name]
        rows.append(
            (
                _name(published, split, run),
                run.rounds,
                run.tokens,
                split.saved(name),
                run.score,
                ", ".join(split.copies(name)) or None,
            )
        )
    distinct = len({(split.runs[name].rounds, split.runs[name].tokens, split.runs[name].score) for name in _CELLS})
    return Table(
        title=f"Ablation on {split.name}: {len(_CELLS)} cells, {distinct} different runs",
        columns=(
            Column("cell [flags]"),
            Column("rounds", ".2f"),
            Column("tokens", ",.0f"),
            Column("saved", "+.1f", scale=100),
            Column("score", _SCORE),
            Column("the same run as"),
        ),
        rows=tuple(rows),
    )


def _oracle(published: PublishedSemantic) -> Table:
    rows = []
    for split in published.splits.values():
        best = split.runs["oracle_is"].score
        rows += [
            (split.name, run.name, run.score, best - run.score)
            for run in sorted(split.different(), key=lambda run: -run.score)
            if run.name != "oracle_is"
        ]
        rows.append((split.name, BASELINE, split.runs[BASELINE].score, best - split.runs[BASELINE].score))
    return Table(
        title="What the oracle is above each policy",
        columns=(Column("split"), Column("policy"), Column("score", _SCORE), Column("oracle minus policy", "+.4f")),
        rows=tuple(rows),
        notes=(
            (
                f"the abstract says +{published.text['oracle_delta']:.3f} over every practical policy: on test that is the "
                f"difference to {BASELINE} and to critic_only, which is {BASELINE}"
            ),
            "only the difference to fixed_k6 has a published spread",
        ),
    )


def _tokens(published: PublishedSemantic) -> Table:
    rows: list[tuple[object, ...]] = []
    for split in published.splits.values():
        for name in ("shp", "abl_isgain_only", "oracle_is"):
            run = split.runs[name]
            loop = split.loop_tokens(run.rounds)
            rows.append((split.name, name, run.rounds, run.tokens, loop, run.tokens - loop, split.judge_tokens(name)))
    notes = [
        (
            "loop: writer and critic in that many rounds, on a straight line between fixed_k1, fixed_k3 and fixed_k6 (an "
            "estimate: long trajectories need not cost the mean)"
        )
    ]
    for split in published.splits.values():
        wide, narrow = split.runs["abl_isgain_only"], split.runs["shp"]
        rounds = (wide.rounds - narrow.rounds) * split.questions
        extra = (wide.tokens - narrow.tokens) * split.questions
        judge = split.judge_tokens("shp")
        loop = split.loop_tokens(3.0) - split.loop_tokens(2.0)
        eager, lazy = rounds * (judge + loop), (rounds + 1) * judge + rounds * loop
        notes.append(
            f"{split.name}: without the rule of convergence the gain alone runs {rounds:.0f} rounds more in all and costs "
            f"{extra:,.0f} tokens more; about {eager:,.0f} if every visited round is judged, at least {lazy:,.0f} if the "
            "judge is asked only where the rule reads it (a round at which the drafts converged is then judged, too)"
        )
        whole = split.runs[BASELINE].tokens + 6 * split.judge_tokens("oracle_is")
        notes.append(
            f"{split.name}: an oracle that pays for judging all six rounds would need about {whole:,.0f} tokens"
        )
    notes.append(
        "the author's published harness adds up writer, critic and judge over all rounds up to the stop, embeddings free: "
        "what `suffice replay --ledger published` does; it charges a repeated draft's marks each time, our recordings once"
    )
    return Table(
        title="The token column: what it says about the judge",
        columns=(
            Column("split"),
            Column("policy"),
            Column("rounds", ".2f"),
            Column("tokens", ",.0f"),
            Column("loop", ",.0f"),
            Column("judge", ",.0f"),
            Column("judge per round", ",.0f"),
        ),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _conjecture(published: PublishedSemantic) -> Table:
    rows = []
    for split in published.splits.values():
        told, n = split.conjecture, split.questions
        rows.append(
            (
                f"{split.name} [pooled-steps]",
                told["monotone"],
                tuple(told["slope"]),
                told["step"],
                told["statistic"],
                n * (n + 1) // 2,
                told["p"],
                published.text["mean_distance"][split.name],
                published.text["median_distance"][split.name],
                published.text["below_eps"][split.name],
            )
        )
    return Table(
        title="Do distances fall? (published; nothing here can be recomputed without the distances)",
        columns=(
            Column("split [flags]"),
            Column("monotone", ".0%"),
            Column("slope by round", "+.4f", interval=True),
            Column("mean step", "+.4f"),
            Column("Wilcoxon's statistic", ",.0f"),
            Column("largest with one value a trajectory", ",.0f"),
            Column("p (pooled)", ".2g"),
            Column("mean distance", ".3f"),
            Column("median", ".3f"),
            Column("below eps", ".0%"),
        ),
        rows=tuple(rows),
    )


def _flags(published: PublishedSemantic) -> Table:
    rows = tuple((flag.id, ", ".join(flag.places), flag.reason) for flag in published.flags)
    columns = (Column("flag"), Column("where"), Column("why"))
    return Table(title="Published figures that do not fit together", columns=columns, rows=rows)
