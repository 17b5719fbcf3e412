"""Tables of a replay: outcomes with intervals; mixtures of budgets; costs; stops; tests of margins."""

from __future__ import annotations

import math

from suffice.common.tables import Column, Table, counted
from suffice.evaluation.replay.front import Mixture
from suffice.evaluation.replay.replayed_rows import Replayed

_CENSORED = (
    "† censored: a rule ended the recording of some questions before this policy would have stopped. What it would have "
    "answered there is unknown: quality runs from all wrong to all right there, costs are the least that is possible"
)
_SELECTED = "* selected here: fitted or chosen on some of these questions, so the figures flatter it"
_SHOWN = (
    "shown: by betting, which is exact for every distribution of losses; the bounds of t and bootstrap hold for many questions "
    "that differ, and decide nothing here"
)
_MIXTURE = (
    "a mixture gives each question one of two budgets by a throw of a coin, so anyone can have it; these questions chose the two, "
    "so the difference describes them and proves nothing about others"
)
_TESTS = {
    "mcnemar": "McNemar, exact",
    "sign_flip": "sign flips, exact",
    "monte_carlo": "sign flips, {n:,} at random",
}
_INTERVALS = {
    "expanded": "expanded percentile",
    "percentile": "percentile",
    "bca": "BCa",
    "t": "bootstrap-t",
}
_COST_COLUMNS = {
    "tokens": Column("tokens", ",.0f"),
    "uncached_tokens": Column("uncached", ",.0f"),
    "cached_tokens": Column("cached", ",.0f"),
    "output_tokens": Column("output", ",.0f"),
    "seconds": Column("seconds", ",.3f"),
}


def replay_tables(result: Replayed) -> list[Table]:
    """Return the tables of a replay that have rows: outcomes, tests, mixtures, costs, stops, and margins."""
    tables = [outcomes_table(result), costs_table(result), stops_table(result)]
    if result.metrics:
        tables = [tables[0], differences_table(result), mixtures_table(result), *tables[1:], margin_tests_table(result)]
    return [table for table in tables if table.rows]


def outcomes_table(result: Replayed) -> Table:
    """Return the table of metrics, paired differences to the baseline, calls, and dominating baselines."""
    quality = result.metrics
    shown = [name for name in (*quality[:1], "calls") if any(row.difference(name) for row in result.rows)]
    how = result.resampling
    intervals = f"{_INTERVALS[how.interval]}, {how.n_resamples:,} paired bootstrap draws, seed {how.seed}"
    marks = [_CENSORED] if any(row.censored for row in result.rows) else []
    marks += [_SELECTED] if any(row.selected_here for row in result.rows) else []
    whole = result.n_clusters == result.n
    rows = counted(result.n, "question" if whole else "row")
    rows += "" if whole else f" of {counted(result.n_clusters, 'question')}"
    return Table(
        title=f"{rows}; {100 * how.level:g} % intervals ({intervals})",
        columns=(
            Column("policy"),
            *(Column(name.upper(), ",.1f", scale=100) for name in quality),
            *(_delta_column(name, result.against) for name in shown),
            Column("calls", ",.2f"),
            Column("P50", ",.0f"),
            Column("P95", ",.0f"),
            Column("verdict"),
        ),
        rows=tuple(
            (
                row.marked,
                *(row.quality(name) for name in quality),
                *(row.difference(name) for name in shown),
                *(row.at_least(value) for value in (row.calls.mean, row.calls.p50, row.calls.p95)),
                row.verdict,
            )
            for row in result.rows
        ),
        notes=tuple(marks),
    )


def differences_table(result: Replayed) -> Table:
    """Return the table of tests of each policy's differences, corrected for the number of policies."""
    family = [row for row in result.rows if any(not math.isnan(delta.p_holm) for delta in row.deltas.values())]
    lines = [(row, name, row.deltas[name]) for name in result.metrics for row in family if name in row.deltas]
    return Table(
        title=f"Tests of no difference to {result.against}; Holm's correction, policies: {len(family)}",
        columns=(
            Column("policy"),
            Column("metric"),
            Column("difference", "+,.1f", scale=100, interval=True),
            Column("questions that differ", ",.0f"),
            Column("p", ".3f"),
            Column("p (Holm)", ".3f"),
            Column("test"),
        ),
        rows=tuple(
            (
                row.marked,
                name,
                row.difference(name),
                delta.n_nonzero,
                delta.p,
                delta.p_holm,
                _TESTS[delta.test].format(n=result.resampling.n_resamples),
            )
            for row, name, delta in lines
        ),
        notes=tuple(dict.fromkeys(f"{row.marked}, {name}: {d.warning}" for row, name, d in lines if d.warning)),
    )


def mixtures_table(result: Replayed) -> Table:
    """Return the table that compares each rule with the best mixture of two fixed budgets at no higher cost."""
    metric = result.metrics[0]
    rules = [row for row in result.rows if row.kind == "rule"]
    return Table(
        title=f"Rules beside the best mixture of two fixed budgets that costs no more ({result.cost})",
        columns=(
            Column("policy"),
            Column(result.cost, ",.6f" if result.cost == "money" else ",.2f"),
            Column(metric.upper(), ".1f", scale=100),
            Column("best mixture"),
            Column("share of the second", ".0%"),
            Column("its " + metric.upper(), ".1f", scale=100),
            Column("difference", "+.1f", scale=100),
        ),
        rows=tuple(
            (
                row.marked,
                row.at_least(row.costs[result.cost]),
                row.quality(metric),
                *(
                    ("every budget costs more", None, None, None)
                    if (mixed := row.mixture) is None
                    else (_mixture_text(mixed), mixed.share or None, mixed.quality, row.metrics[metric] - mixed.quality)
                ),
            )
            for row in rules
        ),
        notes=(_MIXTURE,) if rules else (),
    )


def _mixture_text(mixture: Mixture) -> str:
    return mixture.cheap if mixture.cheap == mixture.dear else f"{mixture.cheap} and {mixture.dear}"


def costs_table(result: Replayed) -> Table:
    """Return the table of mean operational costs per question, by kind."""
    columns = {**_COST_COLUMNS, "money": Column(result.currency, ",.6f")}
    return Table(
        title="Mean operational cost per question" + ("" if result.ledger == "live" else f", ledger: {result.ledger}"),
        columns=(Column("policy"), *columns.values()),
        rows=tuple((row.marked, *(row.at_least(row.costs[kind]) for kind in columns)) for row in result.rows),
    )


def stops_table(result: Replayed) -> Table:
    """Return the table of shares of questions that stop at each round."""
    rounds = sorted({r for row in result.rows for r in row.stop_rounds})
    beyond = [Column("beyond the recording", ".0%")] if any(row.censored for row in result.rows) else []
    return Table(
        title="Share of questions by stop round",
        columns=(Column("policy"), *(Column(f"stop@{r}" if r >= 0 else "no round", ".0%") for r in rounds), *beyond),
        rows=tuple(
            (
                row.marked,
                *(row.stop_rounds.get(r, 0.0) for r in rounds),
                *(max(0.0, 1.0 - sum(row.stop_rounds.values())) for _ in beyond),
            )
            for row in result.rows
        ),
    )


def margin_tests_table(result: Replayed) -> Table:
    """Return the table of non-inferiority and equivalence tests of every policy, at each margin."""
    metric = result.metrics[0]
    rules = [row for row in result.rows if row.kind == "rule"]
    return Table(
        title=f"{metric.upper()} against {result.against}: is the loss within a margin?",
        columns=(
            Column("policy"),
            Column("claim"),
            Column("margin", ".1f", scale=100),
            Column("difference", "+.1f", scale=100),
            Column("lower bound, t", "+.1f", scale=100),
            Column("lower bound, bootstrap", "+.1f", scale=100),
            Column("confidence", ".1%"),
            Column("p, betting", ".4f"),
            Column("shown"),
            Column("shown above", ".1f", scale=100),
        ),
        rows=tuple(
            (
                row.marked,
                "non-inferior" if test.kind == "non_inferiority" else "equivalent",
                test.margin,
                test.delta,
                # Without variance the interval has no width, so its end would not be a valid bound.
                test.low if math.isfinite(test.d_z) else None,
                test.low_bootstrap if math.isfinite(test.d_z) else None,
                test.level,
                test.p_exact,
                "yes" if test.shown else "no",
                test.shown_above,
            )
            for row in rules
            for test in row.margins
        )
        + tuple(
            (row.marked, "any", None, row.delta_bounds[metric], None, None, None, None, "unknown", None)
            for row in rules
            if metric in row.delta_bounds
        ),
        notes=(
            *([_SHOWN] if any(row.margins for row in rules) else []),
            *dict.fromkeys(f"{row.marked}: {test.warning}" for row in rules for test in row.margins if test.warning),
        ),
    )


def replay_notes(result: Replayed) -> tuple[str, ...]:
    """Return the notes of the result and of its rows, each once."""
    rows = (
        f"{'random(...)' if row.kind == 'random' else row.label}: {note}" for row in result.rows for note in row.notes
    )
    return tuple(dict.fromkeys((*result.notes, *rows)))


def _delta_column(name: str, baseline: str) -> Column:
    spec, scale = ("+,.2f", 1.0) if name == "calls" else ("+,.1f", 100.0)
    return Column(f"Δ{name} vs {baseline}", spec, scale=scale, interval=True)
