"""Determine the space of a search, and choose a rule on tune questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from suffice.errors import DataError
from suffice.evaluation.replay import reads_round_0
from suffice.evaluation.replay.charging import component_of
from suffice.evaluation.replay.costs import is_on_demand
from suffice.evaluation.search.data import find_prompt
from suffice.evaluation.search.fitting import Defined
from suffice.evaluation.search.optimism import Trials
from suffice.evaluation.search.space import PRESETS, Space, available, preset, thoughts, votes
from suffice.policy.rules import tasr
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.policy.signals import CRITIC, CUMULATED, SIGNALS, TRIAL
from suffice.recordings.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The goal of a search: the best metric within a budget of calls, compared with a baseline."""

    metric: str
    budget: float
    baseline: str


def compared_labels(space: Space | str) -> tuple[str, ...]:
    """Return the label columns whose values a space compares.

    The only such column is `prompt_id`, if a block of the space names its prompt.
    """
    spec = space if isinstance(space, Space) else PRESETS.get(space)
    return ("prompt_id",) if spec is not None and any(block.prompt for block in spec.blocks) else ()


def space_of(
    space: Space | str,
    defined: Mapping[str, Defined],
    patience: Sequence[int] | None,
    max_rounds: Sequence[int] | None,
    highest: Sequence[int],
) -> Space:
    """Return the space to search.

    Args:
        space: A space, the name of a preset, or `available`.
        defined: The signals that tune questions have, by prompt.
        patience: Replaces the patience of the space; None = keep it.
        max_rounds: Replaces the highest rounds of the space; None = keep them.
        highest: The last round of the tune questions, and of the searched questions.  If they differ and the space sets
            no highest round, rules run to the later one.

    Raises:
        DataError: The space has no rules or too many, or it is `available` and the recording has several prompts.
    """
    spec = space if isinstance(space, Space) else _available(defined) if space == "available" else preset(space)
    spec = replace(
        spec,
        patience=spec.patience if patience is None else tuple(patience),
        max_rounds=spec.max_rounds if max_rounds is None else tuple(max_rounds),
    )
    if not spec.max_rounds and min(highest) < max(highest):
        spec = replace(spec, max_rounds=(max(highest),))
    spec.check()
    return spec


def _available(defined: Mapping[str, Defined]) -> Space:
    if len(defined) > 1:
        names = ", ".join(map(repr, defined))
        raise DataError(
            f"the space 'available' is for rounds of one prompt, and the recording holds several ({names}): select one "
            "(Recording.select), or describe a space whose blocks name their prompts"
        )
    there = next(iter(defined.values()))
    if "thinking_tokens" in there.columns:
        return thoughts(there.columns)
    return votes() if there.independent else available(there.columns)


def wanted_signals(space: Space, defined: Mapping[str, Defined]) -> dict[str, list[str]]:
    """Return, by prompt, the signals that the space reads, and those of `tasr` if available."""
    named = [block.prompt for block in space.blocks]
    wanted: dict[str, dict[str, None]] = {}
    for block in space.blocks:
        prompt = find_prompt(block.prompt, defined, named)
        wanted.setdefault(prompt, {}).update(dict.fromkeys(literal.signal for literal in block.literals))
    for prompt, signals in wanted.items():
        extra = [name for name in sorted(tasr().signals) if name not in signals]
        if all(name in defined[prompt].columns for name in extra) and not defined[prompt].independent:
            signals.update(dict.fromkeys(extra))
    return {prompt: [*signals] for prompt, signals in wanted.items()}


def chosen_policy(
    trials: Trials, best: int, policies: Mapping[str, Policy], goal: Goal, seen: Seen
) -> tuple[Policy, str]:
    """Convert the rule selected on tune questions to a policy; also return the prompt whose rounds it reads."""
    explorer, number = trials.explorer, trials.distinct.number[[best]]
    (rule,), ((prompt,), (highest,)) = explorer.rules(number), explorer.settings(number)
    fitted = policies[prompt]
    provenance = {
        "space": explorer.space.name,
        "n_rules": explorer.space.count,
        "n_distinct": len(trials.distinct),
        "metric": goal.metric,
        "budget": goal.budget,
        "selected_on": "tune",
    }
    policy = replace(
        fitted,
        rule=rule,
        start_round=0 if reads_round_0(rule) else 1,
        max_rounds=highest,
        name="",
        calibrators=tuple(calibrator for calibrator in fitted.calibrators if calibrator.output in rule.signals),
        state={name: state for name, state in fitted.state.items() if name in rule.signals},
        provenance={**fitted.provenance, "search": provenance, **seen.to_dict()},
    )
    return policy, prompt


def left_out_notes(defined: Mapping[str, Defined]) -> list[str]:
    """Return a note if the space `available` leaves out `top_score_z`, because `top_score` is the same everywhere."""
    there = next(iter(defined.values()))
    if there.same_score and "top_score_z" not in there.columns:
        return ["top_score_z is not searched: top_score is the same in all tune questions"]
    return []


def on_demand_notes(space: Space, policies: Iterable[Policy], recording: Recording) -> list[str]:
    """Return a note if a rule reads a signal of calls on demand: of a judge, a probe or an embedder.

    The note says that these calls are not counted.

    Trial answers of chains of thought are counted, see `TrialCosts`.
    """
    literals = {literal.signal for block in space.blocks for literal in block.literals} - CUMULATED.keys()
    measured_by = recording.signal_components
    charged = {name.split(".", 1)[1].rsplit(".", 1)[0] for name in recording.names("cost")}
    signals = set[str]()
    for policy in policies:
        for name in literals & policy.rule.signals:
            raw, component = component_of(name, policy, measured_by)
            has_calls = component == CRITIC or is_on_demand(component, set(measured_by.values()))
            if has_calls and component not in ("", TRIAL) and (raw in SIGNALS or component in charged):
                signals.add(name)
    if signals:
        return [f"calls are the loop's own: what {', '.join(sorted(signals))} costs is charged by replay, rule by rule"]
    return []


def empty_notes(chosen: object | None, best: int | None, goal: Goal) -> list[str]:
    """Return a note for each of the two sets of questions, tune and searched, on which no rule meets the budget."""
    notes = []
    if chosen is None:
        notes.append(f"no rule needs at most {goal.budget:g} mean calls on tune: nothing was selected there")
    if best is None:
        notes.append(f"no rule needs at most {goal.budget:g} mean calls here")
    return notes
