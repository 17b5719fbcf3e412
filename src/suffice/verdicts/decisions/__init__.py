"""Turn logs into one verdict: keep the loop, lower its cap, or stop by a rule.

`suffice decide` runs these steps, each listed with its module; each takes the result of the step before:

1. `suffice.recordings.recording`: `read_recording` reads a parquet file into a `Recording`, a row for each question and round.
2. `suffice.verdicts.decisions.protocol`: `decide` keeps the rounds that the loop ran itself (`without_audits`, `uncut`) and
   divides the questions: tune questions choose the candidates, the others judge them.  Both parts go through steps 4 to 7.
3. `suffice.verdicts.decisions.candidates`: `candidates` returns every `Policy` that may be advised, fitted on tune questions.
4. `suffice.evaluation.replay.prepared`: a `PreparedRecording` computes the metric, costs and columns that all policies share.
5. `suffice.evaluation.replay.baselines`: `run_policy` replays one policy: its `Stops`, their metric and cost, a `Run`.
6. `suffice.verdicts.losses`: a `LossAccount` compares each run with the baseline's: a `PolicyLoss`, with bounds per question.
7. `suffice.verdicts.decisions.losses`: `measure_candidates` adds up repeated questions, losses and costs: `Measured`.
8. `suffice.verdicts.decisions.trial`: a `Trial` is declared on the tune questions and extended by the others: it bets on
   each candidate's losses (`suffice.verdicts.decisions.wealth`), and returns the verdict.
9. `suffice.verdicts.decisions.advice`: an `Advice` is the trial in words: one sentence, tables, and the decision file.
"""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.verdicts.decisions.advice import Advice as Advice
    from suffice.verdicts.decisions.labels import Labels as Labels, write_sheet as write_sheet
    from suffice.verdicts.decisions.losses import SAVABLE as SAVABLE
    from suffice.verdicts.decisions.protocol import decide as decide
    from suffice.verdicts.decisions.trial import AdviceKind as AdviceKind, Trial as Trial
    from suffice.verdicts.decisions.wealth import Wealth as Wealth

__getattr__, __dir__, __all__ = lazy_face(__name__)
