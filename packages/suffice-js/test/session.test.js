import assert from "node:assert/strict";
import { test } from "node:test";

import { DataError, Policy, RuleSyntaxError, SchemaError, Session, UnknownSignalError, UnsupportedError, normalizeAnswer } from "suffice-js";

const FILE = {
  format: "suffice.policy",
  version: 1,
  name: "",
  rule: "tasr",
  selector: "last",
  start_round: 1,
  max_rounds: 5,
  calibrators: [],
  state: {},
  answer_position: { kind: "marker", text: "Answer:" },
  abstain_patterns: null,
  depends: {},
  provenance: {},
};

/** @param {object} changes @param {{ given?: string[] }} [options] */
const policyOf = (changes, options) => Policy.parse(JSON.stringify({ ...FILE, ...changes }), options);

test("the walk-through of TASR stops at round 3", () => {
  const session = new Session(policyOf({}));
  for (const [answer, p_correct] of [["Titus Andronicus", 0.3], ["The Tempest", 0.81], ["The Tempest", 0.8]]) {
    session.observe({ answer, signals: { p_correct } });
  }
  const { stop_round, answer, reason, fired } = session.decision;
  assert.deepEqual([stop_round, answer, reason, fired], [3, "The Tempest", "rule", "(answer_stable >= 1) & (p_correct > 0.25)"]);
});

test("a loop that ends early returns the best answer so far", () => {
  const session = new Session(policyOf({ rule: "never()", selector: "max_p_correct" }));
  session.observe({ answer: "Oslo", signals: { p_correct: 0.9 } });
  session.observe({ answer: "Bergen", signals: { p_correct: 0.2 } });
  assert.equal(session.end("exhausted").answer, "Oslo");
  assert.throws(() => session.observe({ answer: "Oslo" }), DataError);
});

test("what cannot be decided here is refused with the reason", () => {
  const calibrator = {
    output: "p_correct",
    signal: "answer_margin",
    method: "platt",
    per_round: false,
    unseen_round: "error",
    target: "em",
    maps: { "-1": { map: "sigmoid", slope: 1, intercept: 0 } },
    rounds_fitted: { "-1": 9 },
  };
  assert.throws(() => policyOf({ calibrators: [calibrator] }), /answer_margin.*given/);
  const session = new Session(policyOf({ calibrators: [calibrator] }, { given: ["answer_margin"] }));
  assert.throws(() => session.observe({ answer: "Oslo" }), /answer_margin/);
  assert.throws(() => policyOf({ normalizer: "math" }), UnsupportedError);
  assert.throws(() => policyOf({ rule: "posterior_plurality > 0.9" }), UnsupportedError);
  assert.throws(() => policyOf({ rule: "my_rule(3)" }), RuleSyntaxError);
  assert.throws(() => policyOf({ rule: "deer(0.9)" }), /save the policy with Python/);
  assert.throws(() => policyOf({ more: 1 }), SchemaError);
  assert.throws(() => Policy.parse("{"), SchemaError);
});

test("answers may be read in a form that the Python library knows", () => {
  const position = { kind: "marker", text: "Answer:" };
  assert.ok(policyOf({ answer_position: { ...position, form: "decimal-comma" } }) instanceof Policy);
  for (const change of [{ form: "roman" }, { form: ["thousands"] }, { more: 1 }]) {
    assert.throws(() => policyOf({ answer_position: { ...position, ...change } }), SchemaError);
  }
});

test("a round without what the policy reads is an error, and still counts", () => {
  const session = new Session(policyOf({ rule: "spend > 3" }));
  assert.throws(() => session.observe({ answer: "Oslo" }), UnknownSignalError);
  assert.equal(session.observe({ answer: "Oslo", signals: { spend: 4 } }).stop_round, 2);
  assert.throws(() => new Session(policyOf({})).observe({ answer: 3 }), DataError);
  assert.throws(() => new Session(policyOf({})).observe({ answers: "Oslo" }), DataError);
});

test("answers are normalised as in SQuAD", () => {
  assert.equal(normalizeAnswer("The  Tempest!"), "tempest");
});
