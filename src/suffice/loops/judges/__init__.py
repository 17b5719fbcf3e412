"""Judge drafts by marks of a language model, by comparisons of two drafts, or by similarity to gold answers."""

from suffice.loops.judges.columns import (
    PREFERRED,
    REFERENCES,
    PreferenceColumns,
    embedding_similarity,
    gold_score,
    prefer_to_last,
    reference_columns,
    rouge_l,
    token_f1,
)
from suffice.loops.judges.endpoint import ATTEMPTS, JudgeModel
from suffice.loops.judges.marks import (
    Draft,
    Judgement,
    MarkJudge,
    Panel,
    ahp_weights,
    checked_weights,
    entropy_weights,
    equal_weights,
    least_squares_weights,
)
from suffice.loops.judges.pairwise import Comparison, PairwiseJudge
from suffice.loops.judges.prompts import MARKS, VERDICTS, MarkPrompt, PairPrompt
from suffice.loops.judges.recording import (
    Noise,
    RecordingMarks,
    drafts_of,
    judge_recording,
    noise_of,
    with_columns,
    with_marks,
)

__all__ = [
    "ATTEMPTS",
    "MARKS",
    "PREFERRED",
    "REFERENCES",
    "VERDICTS",
    "Comparison",
    "Draft",
    "JudgeModel",
    "Judgement",
    "MarkJudge",
    "MarkPrompt",
    "Noise",
    "PairPrompt",
    "PairwiseJudge",
    "Panel",
    "PreferenceColumns",
    "RecordingMarks",
    "ahp_weights",
    "checked_weights",
    "drafts_of",
    "embedding_similarity",
    "entropy_weights",
    "equal_weights",
    "gold_score",
    "judge_recording",
    "least_squares_weights",
    "noise_of",
    "prefer_to_last",
    "reference_columns",
    "rouge_l",
    "token_f1",
    "with_columns",
    "with_marks",
]
