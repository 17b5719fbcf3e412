"""The page to try a rule: a text box with completion, and immediate results."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.responses import Response, StreamingResponse

from suffice.common.files import quoted
from suffice.common.results import jsonable
from suffice.common.tables import Column, Table
from suffice.errors import NotFittedError, RuleSyntaxError, SufficeError
from suffice.evaluation.replay.baselines import RECORDED
from suffice.evaluation.replay.charts import pareto_chart, pareto_costs, stops_chart
from suffice.evaluation.replay.costs import COSTS
from suffice.evaluation.replay.outcomes import default_metrics, has_outcome
from suffice.evaluation.replay.price_lists import list_prices
from suffice.evaluation.replay.replay_tables import costs_table, outcomes_table, replay_notes, stops_table
from suffice.policy.rules import parse_rule
from suffice.presentation.headline import headline
from suffice.presentation.html import tiles
from suffice_server.studio.completion import Offers, Problem, complete_rule, complete_selector
from suffice_server.studio.folder import Item
from suffice_server.studio.pages import render_page
from suffice_server.studio.view import Tab, View, ViewModule
from suffice_server.studio.views.recordings import RECORDINGS
from suffice_server.studio.workbench import RuleDraft, SupersededError, Tryout, Workbench

_tried_log = logging.getLogger(__name__)

EXAMPLES = (
    "tasr",
    "answer_stable",
    "similar",
    "semantic_bge",
    "critic_only",
    "patience((answer_stable >= 1), 2)",
    "fixed_k(2)",
)
VOTES_EXAMPLES = ("lead(3)", "adaptive_consistency", "esc(5)", "vote_share >= 0.7", "fixed_k(3)")
"""Example rules, shown if the recording has their signals; the second tuple is for independent samples."""

_MOST_EXAMPLES = 4
_BASELINES = ("full", RECORDED, "closed_book")


def draft_of(view: View) -> RuleDraft:
    """Parse the rule and its settings from the address.

    Raises:
        SufficeError: A field is not a number, or the policy is not in the folder.
    """
    baseline: Any = view.value("baseline") or None
    file: Path | None = None
    if baseline is not None and baseline.startswith("policy:"):
        file = (item := view.item("policy", key=baseline.removeprefix("policy:"))).path
        baseline = view.folder.policy(item)
    fitted = view.value("fitted")
    return RuleDraft(
        rule=view.value("rule"),
        selector=view.value("selector").strip(),
        start_round=_optional_number(view, "start_round"),
        max_rounds=_optional_number(view, "max_rounds"),
        metric=view.value("metric"),
        cost=view.value("cost") or "calls",
        model=view.value("model"),
        baseline=baseline,
        baseline_file=file,
        fitted=view.folder.policy(view.item("policy", key=fitted)) if fitted else None,
    )


def _optional_number(view: View, name: str) -> int | None:
    text = view.value(name).strip()
    if text and not (text.isdecimal() and len(text) < 7):  # noqa: PLR2004
        raise RuleSyntaxError(f"{name} is {text!r}; allowed: a whole number, or nothing")
    return int(text) if text else None


def try_page(view: View) -> Response:
    """Return the page on which a rule is tried."""
    item = view.item(*RECORDINGS)
    browsed = view.folder.recording(item)
    bench, recording = browsed.workbench, browsed.recording
    policies = view.of_kind("policy")
    names = [bench.metric, *default_metrics(recording), *recording.names("metric"), "agreement"]
    signals = bench.vocabulary().signals
    texts = VOTES_EXAMPLES if recording.independent else EXAMPLES
    examples = [text for text in texts if parse_rule(text).signals <= {*signals, "round"}]
    usual = RECORDED if recording.cut.any() else "fixed_k(3)"
    rule = view.value("rule") or (examples[0] if examples else "")
    return view.page(
        "trying.html",
        f"Try a rule on {item.name}",
        item=item,
        charts=True,
        typed=quoted(item.path),
        rule=rule,
        examples=examples[:_MOST_EXAMPLES],
        policies=policies,
        metrics=[name for name in dict.fromkeys(names) if name and has_outcome(recording, name)],
        costs=COSTS,
        models=sorted(list_prices()),
        usual=usual,
        baselines=[
            name
            for name in (*(f"fixed_k({k})" for k in range(1, int(recording.index[-1]) + 1)), *_BASELINES)
            if name != usual and (name != "closed_book" or int(recording.index[0]) == 0)
        ],
        values={name: view.value(name) for name in view.request.query_params},
        n=len(recording.question_ids),
        signals=signals,
        is_open=bool({*view.request.query_params} - {"rule"}),
        exchangeable=recording.exchangeable,
    )


def completion_answer(view: View) -> Response:
    """Return JSON with the completions at the cursor, and the reason why the text cannot be tried (null if it can)."""
    bench = view.folder.recording(view.item(*RECORDINGS)).workbench
    fitted = view.value("fitted")
    policy = view.folder.policy(view.item("policy", key=fitted)) if fitted else None
    complete = complete_selector if view.value("what") == "selector" else complete_rule
    offers: Offers = complete(view.value("text"), view.number("cursor", 0), bench.vocabulary(policy))
    return view.json(asdict(offers))


def figures_answer(view: View) -> Response:
    """Stream the rule's results, first figures and then intervals.

    If the rule cannot be tried, stream the reason.  If the rule was edited meanwhile, stop with a note.
    """
    item = view.item(*RECORDINGS)
    bench = view.folder.recording(item).workbench
    check = bench.turns.begin(view.value("tab"))

    def lines() -> Iterator[str]:
        try:
            for answer in _stage_answers(view, item, bench, check):
                yield json.dumps(jsonable(answer)) + "\n"
        except SupersededError:
            yield '{"superseded": true}\n'
        except Exception:  # noqa: BLE001 - the headers are sent: it can only be said in the stream
            _tried_log.exception("a rule could not be tried")
            yield json.dumps({"problem": _problem("the studio itself failed; its terminal shows the error")}) + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def _problem(message: str) -> dict[str, Any]:
    return asdict(Problem(message=message, first=0, last=0))


def _stage_answers(view: View, item: Item, bench: Workbench, check: Any) -> Iterator[dict[str, Any]]:
    commands: dict[str, str] = {}
    draft: RuleDraft | None = None
    try:
        draft = draft_of(view)
        commands = bench.commands(draft, item.path)
        for tryout in bench.stages(draft, check):
            yield _tryout_answer(view, item, bench, draft, tryout)
    except SufficeError as error:
        problem = complete_rule(
            view.value("rule"), 0, bench.vocabulary(None if draft is None else draft.fitted)
        ).problem
        answer = _problem(str(error)) if problem is None else asdict(problem)
        if not isinstance(error, RuleSyntaxError):
            answer["message"] = str(error)
        fit = [line for line in commands.values() if " calibrate " in line and isinstance(error, NotFittedError)]
        yield {"problem": answer, "commands": fit}


def _tryout_answer(view: View, item: Item, bench: Workbench, draft: RuleDraft, tryout: Tryout) -> dict[str, Any]:
    """Render the part of the page that shows a rule's results, with its charts."""
    result, row = tryout.result, tryout.row
    base = result.row(row.baseline)
    charts: dict[str, Any] = {"stops": stops_chart(result, [row] if row is base else [row, base])}
    sentence, caveats = result.headline(row.label), tuple[str, ...]()
    costs = pareto_costs(result) if result.metrics else []
    if result.metrics:
        words = headline(result, row.label)
        sentence, caveats = words.sentence, words.caveats
        charts |= {f"tradeoff-{cost}": pareto_chart(result, cost) for cost in costs}
    if not tryout.final:
        sentence = sentence.replace("(no interval)", "(its interval follows)")
    names = ("rule", "selector", "start_round", "max_rounds", "fitted")
    against = view.value("baseline") or row.baseline.partition(",")[0]
    html = render_page(
        "tried.html",
        view=view,
        item=item,
        draft=draft,
        tryout=tryout,
        row=row,
        result=result,
        sentence=sentence,
        caveats=caveats,
        figures=tiles(result, row, tryout.highest) if result.metrics and tryout.final else _few_tiles(tryout),
        saving=_saving(tryout),
        costs=costs,
        tables=[outcomes_table(result), costs_table(result), stops_table(result)],
        notes=dict.fromkeys(note for note in replay_notes(result)),
        walk=view.query(**{name: view.value(name) for name in names}, baseline=against),
        query=str(view.request.url.query),
        commands=bench.commands(draft, item.path),
    )
    return {"html": html, "charts": charts, "sentence": sentence, "label": row.label, "final": tryout.final}


def _few_tiles(tryout: Tryout) -> list[dict[str, Any]]:
    """Return the figures before their intervals are computed, with a note instead of each interval."""
    if not tryout.result.metrics:
        return []
    listed = tiles(tryout.result, tryout.row, tryout.highest)
    return [{**tile, "note": tile["note"].replace("[n/a]", "[…]")} for tile in listed]


def _saving(tryout: Tryout) -> Table:
    """Tabulate the mean cost of a question at full width and with the rule, and the saving."""
    result, row = tryout.result, tryout.row
    whole = [other for other in result.rows if other.kind == "fixed" and other.selector in (row.selector, "")]
    full = next((other for other in whole if other.label.startswith(f"fixed_k({tryout.highest})")), None)
    kinds = {
        "calls": ("calls", 1),
        "tokens": ("tokens", 1),
        "seconds": ("seconds", 1),
        "money": (f"{result.currency} for 1,000", 1000),
    }
    rows = []
    for kind, (name, scale) in kinds.items():
        cost, whole_cost = scale * row.costs[kind], math.nan if full is None else scale * full.costs[kind]
        exact = full is not None and not row.censored and not full.censored
        if not math.isnan(cost):
            saving = 1 - cost / whole_cost if exact and whole_cost > 0 else None
            rows.append((name, whole_cost, row.at_least(cost), saving))
    return Table(
        title="Mean cost of a question",
        columns=(
            Column("cost"),
            Column("full budget", ",.4g"),
            Column("this rule", ",.4g"),
            Column("saved", "+.1%"),
        ),
        rows=tuple(rows),
    )


def policy_answer(view: View) -> Response:
    """Download the policy of the rule.

    Raises:
        SufficeError: The policy cannot run live as it is.
    """
    bench = view.folder.recording(view.item(*RECORDINGS)).workbench
    text = bench.file(draft_of(view))
    headers = {"content-disposition": 'attachment; filename="policy.json"'}
    return Response(text, media_type="application/json", headers=headers)


TRYING_VIEW = ViewModule(
    pages=[
        ("GET", "/recording/{id}/try", try_page),
        ("GET", "/recording/{id}/try/completion", completion_answer),
        ("GET", "/recording/{id}/try/figures", figures_answer),
        ("GET", "/recording/{id}/try/policy", policy_answer),
    ],
    tabs=[Tab(title="Try a rule", path="/recording/{id}/try", kinds=RECORDINGS, place=20)],
)
