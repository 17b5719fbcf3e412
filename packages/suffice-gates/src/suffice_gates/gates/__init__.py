"""Gates judged offline, on questions that were answered without and with retrieval."""

from suffice_gates.gates.answered import (
    ANSWERED_FIELDS,
    BUNDLED_ANSWERS,
    Answered,
    answered_recording,
    load_answered,
    questions_of,
    with_scores,
)
from suffice_gates.gates.changes import Transition, Transitions, examples_table, transitions, transitions_table
from suffice_gates.gates.compare import (
    ComparedGate,
    GateComparison,
    GatePrice,
    ScoredGate,
    compare_gates,
    comparison_table,
    knowledge_table,
    rates_table,
)
from suffice_gates.gates.complexity import ComplexityGate, fit_complexity
from suffice_gates.gates.evaluation import GateEvaluation, even_betas, gate_rule
from suffice_gates.gates.features import FEATURES, question_features
from suffice_gates.gates.point import GatePoint, points_table
from suffice_gates.gates.question_only import Fitted, QuestionGate, adaptive_labels, fit_gate, question_folds
from suffice_gates.gates.standard import QUESTION_GATES, column_gate, held_out_gates, question_gates
from suffice_gates.gates.threshold import BothWays, choose_beta

__all__ = [
    "ANSWERED_FIELDS",
    "BUNDLED_ANSWERS",
    "FEATURES",
    "QUESTION_GATES",
    "Answered",
    "BothWays",
    "ComparedGate",
    "ComplexityGate",
    "Fitted",
    "GateComparison",
    "GateEvaluation",
    "GatePoint",
    "GatePrice",
    "QuestionGate",
    "ScoredGate",
    "Transition",
    "Transitions",
    "adaptive_labels",
    "answered_recording",
    "choose_beta",
    "column_gate",
    "compare_gates",
    "comparison_table",
    "even_betas",
    "examples_table",
    "fit_complexity",
    "fit_gate",
    "gate_rule",
    "held_out_gates",
    "knowledge_table",
    "load_answered",
    "points_table",
    "question_features",
    "question_folds",
    "question_gates",
    "questions_of",
    "rates_table",
    "transitions",
    "transitions_table",
    "with_scores",
]
