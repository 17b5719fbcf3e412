// Written by docs/build.py from the Python library; edit that.

/** The format of a policy file. @type {string} */
export const POLICY_FORMAT = "suffice.policy";

/** The version of policy files that this release reads. @type {number} */
export const POLICY_VERSION = 1;

/** The kinds of answer position, and whether each has a text. @type {Record<string, boolean>} */
export const POSITION_KINDS = {
 "marker": true,
 "json": true,
 "tool": true,
 "start": true,
 "whole": false,
 "regex": true,
 "boxed": false,
 "last-number": false,
 "letter": false,
 "code-block": false
};

/** The forms in which answers are read. @type {string[]} */
export const ANSWER_FORMS = [
 "thousands",
 "decimal-comma",
 "day-first",
 "month-first",
 "no-currency"
];

/** Words that are no names. @type {string[]} */
export const PYTHON_KEYWORDS = [
 "False",
 "None",
 "True",
 "and",
 "as",
 "assert",
 "async",
 "await",
 "break",
 "class",
 "continue",
 "def",
 "del",
 "elif",
 "else",
 "except",
 "finally",
 "for",
 "from",
 "global",
 "if",
 "import",
 "in",
 "is",
 "lambda",
 "nonlocal",
 "not",
 "or",
 "pass",
 "raise",
 "return",
 "try",
 "while",
 "with",
 "yield"
];

/** The patterns of refusals to answer. @type {string[]} */
export const DEFAULT_ABSTAIN_PATTERNS = [
 "unknown",
 "the answer is unknown",
 "not known",
 "none",
 "none mentioned",
 "none of the passages *",
 "null",
 "n/a",
 "n.a",
 "not applicable",
 "unclear",
 "unspecified",
 "undetermined",
 "unanswerable",
 "noanswer",
 "no answer",
 "no answer found *",
 "no answer available *",
 "no answer is *",
 "no information",
 "no information *",
 "there is no information *",
 "there is no mention *",
 "insufficient information *",
 "insufficient evidence *",
 "insufficient context *",
 "not enough information *",
 "not available",
 "not available in *",
 "not available from *",
 "not found",
 "not found in *",
 "not mentioned *",
 "not specified *",
 "not stated *",
 "not provided *",
 "not given",
 "not given in *",
 "not explicitly *",
 "not sure",
 "i'm not sure *",
 "i am not sure *",
 "don't know",
 "do not know",
 "i don't know",
 "i do not know",
 "i don't know the answer *",
 "i do not know the answer *",
 "i don't know based on *",
 "i do not know based on *",
 "i don't have enough *",
 "i do not have enough *",
 "i cannot answer *",
 "i can't answer *",
 "i cannot determine *",
 "i can't determine *",
 "i am unable to *",
 "i'm unable to *",
 "unable to determine *",
 "unable to answer *",
 "impossible to determine *",
 "cannot be determined *",
 "can't be determined *",
 "cannot determine *",
 "cannot answer *",
 "* cannot be determined *",
 "* is not mentioned *",
 "* are not mentioned *",
 "* is not specified *",
 "* is not stated *",
 "* is not provided *",
 "the answer is not *",
 "the text does not *",
 "the passage does not *",
 "the passages do not *",
 "the context does not *",
 "the provided * does not *",
 "the provided * do not *"
];

/** The texts of named rules, by how many numbers they are given. @type {Record<string, Record<string, string>>} */
export const NAMED_RULES = {
 "tasr": {
  "0": "(answer_stable >= 1) & (p_correct > 0.25)",
  "1": "(answer_stable >= 1) & (p_correct > {0})"
 },
 "tasr_guarded": {
  "0": "(answer_stable >= 1) & (p_correct > 0.25) & (abstained < 1)"
 },
 "tasr_m20": {
  "0": "(answer_stable >= 1) & (p_correct > 0.2)"
 },
 "answer_stable": {
  "0": "answer_stable >= 1"
 },
 "answer_stable_guarded": {
  "0": "(answer_stable >= 1) & (abstained < 1)"
 },
 "margin": {
  "0": "p_correct > 0.25",
  "1": "p_correct > {0}"
 },
 "fixed_k": {
  "1": "round >= {0}"
 },
 "round_aware": {
  "0": "((round <= 1) & (p_correct > 0.8)) | ((answer_stable >= 1) & (p_correct > 0.25))",
  "1": "((round <= 1) & (p_correct > {0})) | ((answer_stable >= 1) & (p_correct > 0.25))"
 },
 "margin_or_overlap": {
  "0": "(p_correct > 0.725) | (overlap > 0.15)"
 },
 "famA_m20": {
  "0": "(p_correct > 0.725) | ((overlap > 0.15) & (p_correct > 0.2))"
 },
 "famB": {
  "0": "(calibrated_confidence > 0.6) | (p_correct > 0.675) | (overlap > 0.15)"
 },
 "two_of_four": {
  "0": "k_of(2, (answer_stable >= 1), (p_correct > 0.6), (overlap > 0.15), (calibrated_confidence > 0.7))"
 },
 "soft_sum": {
  "0": "answer_stable + p_correct + overlap > 1.5"
 },
 "stable_and_overlap": {
  "0": "(answer_stable >= 1) & (overlap >= 0.15)"
 },
 "stable_and_entailed": {
  "0": "(answer_stable >= 1) & (judge_entailment >= 4)"
 },
 "sufficient_context": {
  "0": "context_sufficient >= 1",
  "1": "(context_sufficient >= 1) & (p_correct > {0})"
 },
 "AS_ov_or_en": {
  "0": "(answer_stable >= 1) & ((overlap >= 0.15) | (judge_entailment >= 4))"
 },
 "semantic": {
  "1": "patience((semantic_distance < {0}), 2)",
  "2": "patience((semantic_distance < {0}), {1})"
 },
 "semantic_bge": {
  "0": "patience((semantic_distance < 0.06), 2)"
 },
 "semantic_full": {
  "1": "first_of((critic_approved >= 1), (patience((semantic_distance < {0}), 2)), (information_gain <= 0))",
  "2": "first_of((critic_approved >= 1), (patience((semantic_distance < {0}), {1})), (information_gain <= 0))"
 },
 "semantic_full_bge": {
  "0": "first_of((critic_approved >= 1), (patience((semantic_distance < 0.06), 2)), (information_gain <= 0))"
 },
 "similar": {
  "0": "answer_f1_previous >= 0.8",
  "1": "answer_f1_previous >= {0}"
 },
 "lead": {
  "1": "vote_lead >= {0}"
 },
 "ppr": {
  "0": "vote_evidence >= 2.995732273553991"
 },
 "settled": {
  "1": "vote_lead + round > {0}"
 },
 "adaptive_consistency": {
  "0": "posterior_majority >= 0.95",
  "1": "posterior_majority >= {0}"
 },
 "dsc": {
  "0": "(allocated <= 1) | ((window_end_4 >= 1) & (posterior_majority >= 0.95) & ((round <= 4) | (round + -1 * allocated >= 0)))",
  "1": "(allocated <= 1) | ((window_end_4 >= 1) & (posterior_majority >= {0}) & ((round <= 4) | (round + -1 * allocated >= 0)))"
 },
 "esc": {
  "1": "window_agreement_{0} >= 1"
 },
 "token_budget": {
  "1": "thinking_tokens >= {0}"
 },
 "dynasor": {
  "0": "(patience((answer_stable >= 1), 2)) & (patience((trial_hesitates < 1), 3))"
 },
 "deer": {
  "0": "answer_logprob_mean > -0.05129329438755058"
 },
 "thought_calibrated": {
  "0": "p_correct >= 0.9"
 },
 "lynx": {
  "0": "p_settled > 0.9"
 },
 "rasc": {
  "0": "times((rationale_score >= 0.5), 5)",
  "1": "times((rationale_score >= {0}), 5)",
  "2": "times((rationale_score >= {0}), {1})"
 },
 "checked": {
  "1": "(check_error <= 0) | (round >= {0})"
 },
 "loopgain": {
  "0": "error_gain >= 0.95",
  "1": "(check_error <= {0}) | (error_gain >= 0.95)"
 },
 "frugalgpt": {
  "1": "verifier_score > {0}",
  "2": "((verifier_score > {0}) & (round <= 1)) | ((verifier_score > {1}) & (round > 1))"
 },
 "automix": {
  "0": "verifier_score >= 0.5"
 },
 "critic_only": {
  "0": "critic_approved >= 1"
 },
 "adaptive_rag": {
  "0": "(complexity < 1) | (patience(((complexity < 2) | ((round >= 1) & (round < 2))), 2))"
 },
 "stable_twice": {
  "0": "patience((answer_stable >= 1), 2)"
 }
};

/** The signals of the Python library. @type {Record<string, { low: number, high: number, clip: boolean, first: number, last: number | null, component: string, fitted: boolean, computed: boolean, needs: string[] }>} */
export const SIGNALS = {
 "answer_stable": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 2,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "answer_f1_previous": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 2,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "answer_similarity_previous": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 2,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "abstained": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "answer_in_evidence": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": [
   "passages"
  ]
 },
 "answer_length": {
  "low": 1.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "overlap": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 2,
  "last": null,
  "component": "retrieval",
  "fitted": true,
  "computed": false,
  "needs": [
   "passages"
  ]
 },
 "top_score": {
  "low": -Infinity,
  "high": Infinity,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "retrieval",
  "fitted": false,
  "computed": true,
  "needs": [
   "pool_scores"
  ]
 },
 "score_gap": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "retrieval",
  "fitted": false,
  "computed": true,
  "needs": [
   "pool_scores"
  ]
 },
 "top_score_z_pool": {
  "low": -Infinity,
  "high": Infinity,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "retrieval",
  "fitted": false,
  "computed": true,
  "needs": [
   "pool_scores"
  ]
 },
 "top_score_z": {
  "low": -Infinity,
  "high": Infinity,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "retrieval",
  "fitted": true,
  "computed": false,
  "needs": [
   "pool_scores"
  ]
 },
 "top_score_z_robust": {
  "low": -Infinity,
  "high": Infinity,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "retrieval",
  "fitted": false,
  "computed": true,
  "needs": [
   "pool_scores"
  ]
 },
 "rerank_score": {
  "low": -Infinity,
  "high": Infinity,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "reranker",
  "fitted": false,
  "computed": false,
  "needs": [
   "reranker"
  ]
 },
 "judge_entailment": {
  "low": 1.0,
  "high": 5.0,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "judge:entailment",
  "fitted": false,
  "computed": false,
  "needs": [
   "judge"
  ]
 },
 "context_sufficient": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "judge:context_sufficient",
  "fitted": false,
  "computed": false,
  "needs": [
   "sufficiency"
  ]
 },
 "verbal_confidence": {
  "low": 1.0,
  "high": 5.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": [
   "verbal_confidence"
  ]
 },
 "calibrated_confidence": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": true,
  "computed": false,
  "needs": [
   "verbal_confidence"
  ]
 },
 "answer_probability": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": false,
  "needs": [
   "answer_probability"
  ]
 },
 "chain_ended": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "chain"
  ]
 },
 "queries": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "chain"
  ]
 },
 "lowest_probability": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "chain"
  ]
 },
 "rind": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "chain"
  ]
 },
 "p_correct": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": true,
  "computed": false,
  "needs": [
   "logprobs"
  ]
 },
 "round": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "calls": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "costs"
  ]
 },
 "tokens": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "costs"
  ]
 },
 "seconds": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "costs"
  ]
 },
 "p_known": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": 0,
  "component": "gate",
  "fitted": false,
  "computed": false,
  "needs": [
   "p_known"
  ]
 },
 "complexity": {
  "low": 0.0,
  "high": 2.0,
  "clip": false,
  "first": 0,
  "last": 0,
  "component": "gate",
  "fitted": false,
  "computed": false,
  "needs": [
   "complexity"
  ]
 },
 "p_enough": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "prober",
  "fitted": false,
  "computed": false,
  "needs": [
   "p_enough"
  ]
 },
 "p_settled": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "prober",
  "fitted": false,
  "computed": false,
  "needs": [
   "p_settled"
  ]
 },
 "p_retrieve": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": 0,
  "component": "gate",
  "fitted": false,
  "computed": false,
  "needs": [
   "p_retrieve"
  ]
 },
 "sample_spread": {
  "low": -Infinity,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "seakr",
  "fitted": false,
  "computed": false,
  "needs": [
   "sample_spread"
  ]
 },
 "new_confidence": {
  "low": -Infinity,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "ctrla",
  "fitted": false,
  "computed": false,
  "needs": [
   "new_confidence"
  ]
 },
 "critique_score": {
  "low": -Infinity,
  "high": Infinity,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "self-rag",
  "fitted": false,
  "computed": false,
  "needs": [
   "critique_score"
  ]
 },
 "answer_margin": {
  "low": 0.0,
  "high": 30.0,
  "clip": true,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": [
   "logprobs"
  ]
 },
 "answer_margin_min": {
  "low": 0.0,
  "high": 30.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": [
   "token_logprobs"
  ]
 },
 "answer_margin_p10": {
  "low": 0.0,
  "high": 30.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": [
   "token_logprobs"
  ]
 },
 "answer_margin_mean": {
  "low": 0.0,
  "high": 30.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": [
   "token_logprobs"
  ]
 },
 "answer_margin_median": {
  "low": 0.0,
  "high": 30.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": [
   "token_logprobs"
  ]
 },
 "answer_logprob_mean": {
  "low": -100.0,
  "high": 0.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": [
   "token_logprobs"
  ]
 },
 "answer_entropy_mean": {
  "low": 0.0,
  "high": 20.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": [
   "token_logprobs"
  ]
 },
 "answer_entropy_max": {
  "low": 0.0,
  "high": 20.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": [
   "token_logprobs"
  ]
 },
 "answer_logprob_sum": {
  "low": -1000000.0,
  "high": 0.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": [
   "token_logprobs"
  ]
 },
 "semantic_distance": {
  "low": 0.0,
  "high": 2.0,
  "clip": false,
  "first": 2,
  "last": null,
  "component": "embedder",
  "fitted": false,
  "computed": true,
  "needs": [
   "embedding"
  ]
 },
 "semantic_distance_2": {
  "low": 0.0,
  "high": 2.0,
  "clip": false,
  "first": 3,
  "last": null,
  "component": "embedder",
  "fitted": false,
  "computed": true,
  "needs": [
   "embedding"
  ]
 },
 "semantic_distance_3": {
  "low": 0.0,
  "high": 2.0,
  "clip": false,
  "first": 4,
  "last": null,
  "component": "embedder",
  "fitted": false,
  "computed": true,
  "needs": [
   "embedding"
  ]
 },
 "semantic_distance_4": {
  "low": 0.0,
  "high": 2.0,
  "clip": false,
  "first": 5,
  "last": null,
  "component": "embedder",
  "fitted": false,
  "computed": true,
  "needs": [
   "embedding"
  ]
 },
 "semantic_distance_5": {
  "low": 0.0,
  "high": 2.0,
  "clip": false,
  "first": 6,
  "last": null,
  "component": "embedder",
  "fitted": false,
  "computed": true,
  "needs": [
   "embedding"
  ]
 },
 "semantic_novelty": {
  "low": 0.0,
  "high": 2.0,
  "clip": false,
  "first": 2,
  "last": null,
  "component": "embedder",
  "fitted": false,
  "computed": true,
  "needs": [
   "embedding"
  ]
 },
 "critic_approved": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 2,
  "last": null,
  "component": "critic",
  "fitted": false,
  "computed": true,
  "needs": [
   "feedback"
  ]
 },
 "information_score": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 1,
  "last": null,
  "component": "judge:information_score",
  "fitted": false,
  "computed": true,
  "needs": [
   "information_score"
  ]
 },
 "information_gain": {
  "low": -1.0,
  "high": 1.0,
  "clip": false,
  "first": 2,
  "last": null,
  "component": "judge:information_score",
  "fitted": false,
  "computed": true,
  "needs": [
   "information_score"
  ]
 },
 "draft_tokens": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": true,
  "needs": [
   "costs"
  ]
 },
 "critic_praise": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "critic",
  "fitted": false,
  "computed": true,
  "needs": [
   "feedback"
  ]
 },
 "lexical_support": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": true,
  "needs": [
   "passages"
  ]
 },
 "command_repeated": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "steps"
  ]
 },
 "tool_failed": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "steps"
  ]
 },
 "check_passed": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "steps"
  ]
 },
 "spend": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "steps"
  ]
 },
 "since_change": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "checks_green_since_change": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "generator",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "context_tokens": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "check_error": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "checker"
  ]
 },
 "error_gain": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "thinking_tokens": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "thinking"
  ]
 },
 "thinking_ended": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "thinking"
  ]
 },
 "thinking_hesitation": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": true,
  "needs": [
   "thinking"
  ]
 },
 "trial_hesitates": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "trial",
  "fitted": false,
  "computed": true,
  "needs": [
   "thinking"
  ]
 },
 "thinking_novelty": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": true,
  "needs": [
   "thinking"
  ]
 },
 "rationale_steps": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "rationale_coherence": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "rationale_doubt": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": true,
  "needs": []
 },
 "question_relevance": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": [
   "question_relevance"
  ]
 },
 "rationale_score": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": true,
  "computed": false,
  "needs": []
 },
 "answer_id": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "vote_share": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "vote_lead": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "vote_entropy": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "posterior_majority": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "posterior_plurality": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "vote_evidence": {
  "low": -Infinity,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "window_agreement_2": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "window_agreement_3": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "window_agreement_4": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "window_agreement_5": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "window_agreement_6": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "window_agreement_7": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "window_agreement_8": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "window_agreement_9": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "window_agreement_10": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "window_end_4": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "vote_repeats": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "vote_joins": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "weighted_vote_share": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "weighted_vote_lead": {
  "low": 0.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "",
  "fitted": false,
  "computed": false,
  "needs": []
 },
 "verifier_score": {
  "low": -Infinity,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "verifier",
  "fitted": false,
  "computed": false,
  "needs": [
   "verifier"
  ]
 },
 "passed": {
  "low": 0.0,
  "high": 1.0,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "checker",
  "fitted": false,
  "computed": false,
  "needs": [
   "checker"
  ]
 },
 "difficulty": {
  "low": -Infinity,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "difficulty",
  "fitted": false,
  "computed": false,
  "needs": [
   "difficulty"
  ]
 },
 "allocated": {
  "low": 1.0,
  "high": Infinity,
  "clip": false,
  "first": 0,
  "last": null,
  "component": "difficulty",
  "fitted": true,
  "computed": false,
  "needs": [
   "difficulty"
  ]
 }
};
