"""Adapter for CrewAI: a guardrail of a task that asks for revisions until the policy accepts the best draft."""

from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError
from suffice.hosts.runs import NO_LOGPROBS, Measure, QuestionRun, opener
from suffice.hosts.usage import call_cost
from suffice.policy.rounds import Cost
from suffice.policy.session.sources import PolicySource

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder


class StopTask:
    """Asks the agent of a task for drafts until the policy stops, and returns the best one.

    Give the task `**stop.arguments`, which are a guardrail and its retries, and begin with `stop.kickoff(crew, question)`.
    CrewAI's own guardrails raise when the retries are used up, and lose the drafts.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        retries: Largest number of retries of the task.  After them, the best of all drafts is returned.
        revise: The request for the next draft.
        measure: Measures signals of a draft, given the question and the draft.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
    """

    def __init__(
        self,
        policy: PolicySource,
        *,
        retries: int = 9,
        revise: str = "Improve your answer.",
        measure: Measure | None = None,
        recorder: "Recorder | None" = None,
        price: "Price | PriceFile | None" = None,
    ) -> None:
        self._open_run = opener(policy, measure, recorder, price=price, gives=NO_LOGPROBS)
        self._current: ContextVar[_Kickoff] = ContextVar("kickoff")

        def decide(output: Any) -> tuple[bool, Any]:  # CrewAI reads the signature of a guardrail
            kickoff = self._current.get(None)
            if kickoff is None:
                raise DataError("the crew was started without the policy: start it with stop.kickoff(crew, question)")
            run = kickoff.run
            run.observe(output.raw, cost=kickoff.cost_since())
            if len(run.session.rounds) > retries:
                run.end("cancelled")
            return (True, run.text or output.raw) if run.decision else (False, revise)

        self.arguments = {"guardrail": decide, "guardrail_max_retries": retries}

    def kickoff(self, crew: Any, question: str, inputs: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start the crew on a question; return the best draft of the task and the decision.

        Args:
            crew: The crew; one of its tasks was created with `**stop.arguments`.
            question: The question, for `measure` and a recorder.
            inputs: The inputs of `crew.kickoff`; None = one input named `question`, which is the question.

        Raises:
            DataError: No task of the crew was created with `**stop.arguments`.
        """
        if all(task.guardrail is not self.arguments["guardrail"] for task in crew.tasks):
            raise DataError("no task of the crew asks the policy: make it with Task(..., **stop.arguments)")
        run = self._open_run(question)
        token = self._current.set(_Kickoff(run, crew))
        try:
            crew.kickoff(inputs={"question": question} if inputs is None else inputs)
        finally:
            self._current.reset(token)
        run.end("exhausted")
        return run.text, run.metadata()


class _Kickoff:
    """The run of a kickoff, and the usage of its models up to the previous draft."""

    def __init__(self, run: QuestionRun, crew: Any) -> None:
        self.run = run
        self._models = list({id(agent.llm): agent.llm for agent in crew.agents}.values())
        self._before = self._used()

    def cost_since(self) -> Cost:
        """Return the cost of all calls since the last draft; CrewAI itself counts over a model's whole lifetime."""
        before, self._before = self._before, self._used()
        calls, prompts, cached, replies = (now - earlier for now, earlier in zip(self._before, before, strict=True))
        cost = call_cost(prompts - cached, replies, cached)
        return replace(cost, calls=float(max(calls, 1)))

    def _used(self) -> list[int]:
        names = ("successful_requests", "prompt_tokens", "cached_prompt_tokens", "completion_tokens")
        totals = [model.get_token_usage_summary() for model in self._models]
        return [sum(getattr(total, name) for total in totals) for name in names]
