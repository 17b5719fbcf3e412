"""The list of a recording's questions, and for each question a page with all rounds and a policy's decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from starlette.responses import PlainTextResponse, Response

from suffice.errors import SufficeError
from suffice.evaluation.replay.baselines import RECORDED
from suffice.evaluation.replay.references import baseline_policy
from suffice.policy.session import Policy
from suffice_server.studio.browsing import FILTERS, PAGE_SIZE, Browsed, Fates
from suffice_server.studio.folder import Item
from suffice_server.studio.pages import LONGEST_TEXT
from suffice_server.studio.view import Tab, View, ViewModule
from suffice_server.studio.views.recordings import RECORDINGS
from suffice_server.studio.views.trying import draft_of

_NO_TEXTS = dict.fromkeys(("answer", "text", "feedback"))


_SETTINGS = ("selector", "start_round", "max_rounds", "fitted", "baseline")


@dataclass(frozen=True, kw_only=True)
class _Walk:
    """The parsed address of a page of questions: recording, policy, filter and search.

    Attributes:
        item: The file of the recording.
        browsed: The recording.
        fates: The outcome of the policy for each question.
        chosen: The name of the filter.
        search: The searched words.
        policy: Id of the policy's file; empty if the policy is given as a rule.
        rule: Text of the rule, if the policy is given as one.
        settings: Other values of the address: those of the rule, and the policy to compare with.
        choices: Policies in the folder.
        problem: The reason why the requested policy cannot be shown, and a policy that never stops is shown instead; empty if
            the requested policy is shown.
    """

    item: Item
    browsed: Browsed
    fates: Fates
    chosen: str
    search: str
    policy: str
    rule: str
    settings: dict[str, str] = field(default_factory=dict)
    choices: list[Item] = field(default_factory=list)
    problem: str = ""

    @classmethod
    def of(cls, view: View) -> _Walk:
        """Parse the address of a request."""
        item = view.item(*RECORDINGS)
        browsed = view.folder.recording(item)
        policy, rule, problem = view.value("policy"), view.value("rule"), ""
        settings = {name: view.value(name) for name in _SETTINGS}
        wanted: Policy | None = None
        try:
            if rule:
                wanted = browsed.workbench.policy(draft_of(view))
            elif policy:
                wanted = view.folder.policy(view.item("policy", key=policy))
            fates = browsed.fates(wanted or browsed.whole)
            if settings["baseline"]:
                fates = browsed.compared(fates, _baseline(view, browsed, fates.policy))
        except SufficeError as error:
            problem, fates = str(error), browsed.fates(browsed.whole)
        return cls(
            item=item,
            browsed=browsed,
            fates=fates,
            chosen=view.value("show", "all"),
            search=view.value("search"),
            policy=policy,
            rule=rule,
            settings=settings,
            choices=view.of_kind("policy"),
            problem=problem,
        )

    def query(self, **changes: Any) -> str:
        """Return the address's query with some values changed."""
        values = {
            "policy": self.policy,
            "rule": self.rule,
            **self.settings,
            "show": "" if self.chosen == "all" else self.chosen,
            "search": self.search,
        }
        return View.query(**{**values, **changes})

    def place_address(self, place: int) -> str:
        """Return the address of a question."""
        return f"/recording/{self.item.id}/questions/{place}{self.query()}"

    def after(self, chosen: str, place: int) -> str:
        """Return the address of the next question after `place` that passes a filter; empty if no later question does."""
        later = np.flatnonzero(self.fates.filters[chosen][place + 1 :])
        return self.place_address(place + 1 + int(later[0])) if len(later) else ""


def _baseline(view: View, browsed: Browsed, like: Policy) -> Policy:
    """Return the policy to compare with: a policy in the folder, or a policy made of a rule and the selector of `like`.

    Raises:
        SufficeError: The baseline is neither a policy in the folder nor a rule.
    """
    baseline = draft_of(view).baseline
    if isinstance(baseline, Policy):
        return baseline
    text = "full" if baseline in (None, RECORDED, f"fixed_k({int(browsed.recording.index[-1])})") else baseline
    return baseline_policy(browsed.recording, text, like)


def questions_page(view: View) -> Response:
    """Return the list of questions."""
    walk = _Walk.of(view)
    places = walk.browsed.positions(walk.fates, walk.chosen, walk.search)
    n_pages = max(1, -(-len(places) // PAGE_SIZE))
    page = min(max(1, view.number("page", 1)), n_pages)
    shown = places[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    filters = [
        {
            "name": name,
            "title": title,
            "about": about,
            "n": int(walk.fates.filters[name].sum()),
            "address": walk.query(show="" if name == "all" else name),
        }
        for name, (title, about) in FILTERS.items()
        if name in walk.fates.filters
    ]
    return view.page(
        "questions.html",
        f"Questions of {walk.item.name}",
        walk=walk,
        item=walk.item,
        filters=filters,
        questions=walk.browsed.summaries(walk.fates, shown) if len(shown) else [],
        n=len(places),
        first=(page - 1) * PAGE_SIZE + 1,
        page=page,
        n_pages=n_pages,
    )


def question_page(view: View) -> Response:
    """Return one question with all its rounds."""
    walk = _Walk.of(view)
    place = view.index("place")
    question = walk.browsed.question(place, walk.fates.policy, view.passages)
    places = walk.browsed.positions(walk.fates, walk.chosen, walk.search)
    before, after = np.searchsorted(places, place), np.searchsorted(places, place, side="right")
    moves = {
        "previous": walk.place_address(int(places[before - 1])) if before > 0 else "",
        "next": walk.place_address(int(places[after])) if after < len(places) else "",
        "wrong": walk.after("wrong", place),
        "early": walk.after("early", place),
        "list": f"/recording/{walk.item.id}/questions{walk.query(page=int(before) // PAGE_SIZE + 1)}",
    }
    return view.page(
        "question.html",
        question["question"] or question["id"],
        walk=walk,
        item=walk.item,
        place=place,
        position=int(before) + 1 if after > before else 0,
        n=len(places),
        question=question | {"rounds": (rounds := _shown_rounds(question, walk.browsed.metric))},
        rounds=rounds,
        decided=question["policies"][0],
        whole=float(walk.fates.whole[place]),
        score=float(walk.fates.score[place]),
        moves=moves,
        logged=_handed_out(walk, place),
        longest=LONGEST_TEXT,
    )


def _shown_rounds(question: dict[str, Any], metric: str) -> list[dict[str, Any]]:
    """Prepare the rounds for the page, each with its new evidence."""
    decided, before, rounds = question["policies"][0], set[str](), []
    for one in question["rounds"]:
        ids = list(one.get("passage_ids") or ())
        column = one["round"] - decided["first"]
        rounds.append(
            {
                **_NO_TEXTS,
                **one,
                "fresh": [(name, *question["passages"].get(name, ("", ""))) for name in ids if name not in before],
                "state": "stop"
                if one["round"] == decided["stop"]
                else "later"
                if one["round"] > decided["stop"]
                else "",
                "goes_on": bool(decided["signals"]) and decided["first"] <= one["round"] < decided["stop"],
                "read": {
                    name: values[column]
                    for name, values in decided["signals"].items()
                    if name != "round" and 0 <= column < len(values)
                },
                "score": one["metrics"].get(metric),
            }
        )
        before |= set(ids)
    return rounds


def _handed_out(walk: _Walk, place: int) -> dict[str, Any]:
    """Return the logged decision about a question; empty if the recording is not a log."""
    recording = walk.browsed.recording
    names = ("policy_digest", "stop_round", "answer_round", "stop_reason", "audit_rate", "audited")
    known = {name: recording.per_question(name, [])[place] for name in names if name in recording.table.column_names}
    return {name: value for name, value in known.items() if value is not None} if "policy_digest" in known else {}


def text_page(view: View) -> Response:
    """Return one text of a round without cutting it, as plain text."""
    browsed = view.folder.recording(view.item(*RECORDINGS))
    field_name = view.request.path_params["field"]
    return PlainTextResponse(browsed.cell(view.index("place"), view.index("round"), field_name))


QUESTIONS_VIEW = ViewModule(
    pages=[
        ("GET", "/recording/{id}/questions", questions_page),
        ("GET", "/recording/{id}/questions/{place}", question_page),
        ("GET", "/recording/{id}/questions/{place}/round/{round}/{field}", text_page),
    ],
    tabs=[Tab(title="Questions", path="/recording/{id}/questions", kinds=RECORDINGS, place=10)],
)
