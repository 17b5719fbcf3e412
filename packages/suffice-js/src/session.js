/**
 * The live state of one question.
 */

import { answerIds } from "./answers.js";
import { DataError, NotFittedError, UnknownSignalError } from "./errors.js";
import { SIGNALS } from "./generated.js";
import { COMPUTED, CUMULATED, asNumber, clean, costsOf, mayExist, measured } from "./signals.js";
import { isBlank } from "./text.js";
import { isVote, isWeighted, voteSignal } from "./votes.js";

/**
 * @typedef {import("./policy.js").Policy} Policy
 * @typedef {import("./signals.js").Cost} Cost
 * @typedef {import("./signals.js").Round} Round
 * @typedef {"rule" | "max_rounds" | "exhausted" | "failed" | "cancelled"} Reason
 *
 * @typedef {object} Observed One round, as the host reports it.
 * @property {number} [index] The round; it must be the session's `nextRound`.
 * @property {string | null} [answer] The answer; null if the round produced none.
 * @property {Readonly<Record<string, number | boolean | null>>} [signals] Signals that the host measured; null where undefined.
 * @property {Readonly<Record<string, Cost>>} [costs] Costs by component (`generator`, `critic`, ...).
 *
 * @typedef {object} Decision The decision after one round.
 * @property {boolean} stop Whether the loop ends here.
 * @property {number | null} stop_round The round at which it ends; null while it goes on.
 * @property {number | null} answer_round The round whose answer is returned; null while it goes on, or without an answer.
 * @property {string | null} answer That answer.
 * @property {Reason | null} reason Why it ends; null while it goes on.
 * @property {string | null} fired The text of the member of the rule that held; null unless the reason is `rule`.
 * @property {Record<string, number | null>} signals What the policy read at this round; null where undefined.
 */

const FREE = ["", "generator", "retrieval"];
const KEYS = ["index", "answer", "signals", "costs"];

/** @param {Observed} observed @param {number} expected @returns {Round} */
function roundOf(observed, expected) {
  if (typeof observed !== "object" || observed === null || Array.isArray(observed)) {
    throw new DataError(`a session observes a round, such as { answer: "Oslo" }, not ${JSON.stringify(observed)}`);
  }
  const unknown = Object.keys(observed).find((key) => !KEYS.includes(key));
  if (unknown !== undefined) throw new DataError(`a round has ${KEYS.join(", ")}, not ${unknown}`);
  const { index = expected, answer = null, signals = {}, costs = {} } = observed;
  if (answer !== null && typeof answer !== "string") throw new DataError(`an answer is a text, or null where there is none, not ${JSON.stringify(answer)}`);
  for (const [name, value] of Object.entries({ signals, costs })) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw new DataError(`${name} of a round is an object, not ${JSON.stringify(value)}`);
  }
  for (const [component, cost] of Object.entries(costs)) {
    if (typeof cost !== "object" || cost === null) throw new DataError(`the costs of ${component} are an object, such as { calls: 1 }, not ${JSON.stringify(cost)}`);
  }
  return { index, answer, signals, costs };
}

/**
 * Decides one question, round by round.
 *
 * A policy without its signals never stops the loop, so the session reports what is missing at the first round with an answer
 * at which the signal may exist. The round still counts: `end` returns the best answer, and the loop may go on.
 */
export class Session {
  /** @type {Map<string, number[]>} */
  #derived = new Map();
  /** @type {Map<string, number[]>} */
  #raw = new Map();
  /** @type {number[]} */
  #weights = [];
  /** @type {Set<string>} */
  #unproven;

  /**
   * @param {Policy} policy
   * @param {{ missing?: "error" | "ignore" }} [options] `missing`: what to do at a round that lacks a signal which the policy
   *   reads: throw an error (the default), or go on without it.
   */
  constructor(policy, { missing = "error" } = {}) {
    if (missing !== "error" && missing !== "ignore") throw new DataError(`missing is ${JSON.stringify(missing)}; allowed: error, ignore`);
    this.policy = policy;
    this.missing = missing;
    /** @type {Round[]} */
    this.rounds = [];
    /** The final decision; null while the loop goes on. @type {Decision | null} */
    this.decision = null;
    this.#unproven = new Set(missing === "ignore" ? [] : policy.signals.filter((name) => name !== "round"));
    for (const name of policy.signals) this.#derived.set(name, []);
    for (const name of policy.rawSignals) this.#raw.set(name, []);
  }

  /** The index of the round that `observe` expects. */
  get nextRound() {
    return this.policy.startRound + this.rounds.length;
  }

  /**
   * Observe one round and decide.
   *
   * @param {Observed} observed
   * @returns {Decision}
   * @throws {DataError} Another round is expected, the loop has already stopped, or a value has another type.
   * @throws {UnknownSignalError} The round lacks a signal that the policy reads; the round still counts.
   * @throws {NotFittedError} The round lacks a calibrated signal, and the policy has no calibrator for it.
   */
  observe(observed) {
    const round = roundOf(observed, this.nextRound);
    if (round.index !== this.nextRound) throw new DataError(`round ${round.index} came where round ${this.nextRound} is expected`);
    if (round.index > this.policy.maxRounds) throw new DataError(`round ${round.index} came after max_rounds=${this.policy.maxRounds}: end the loop (end)`);
    if (this.decision !== null) throw new DataError(`round ${round.index} came after the stop at round ${this.decision.stop_round}: open a new Session`);
    for (const name of this.policy.given) {
      if (!Object.hasOwn(round.signals, name)) throw new DataError(`round ${round.index} has no ${name} among its signals, which was said to be given: null where it is undefined`);
    }
    this.#write(round);
    this.rounds.push(round);
    const view = this.#view();
    this.#prove(view);
    if (this.policy.rule.fires(view)[view.n - 1]) return this.#stop("rule", this.policy.rule.held(view));
    if (round.index === this.policy.maxRounds) return this.#stop("max_rounds", null);
    return { stop: false, stop_round: null, answer_round: null, answer: null, reason: null, fired: null, signals: this.#latest() };
  }

  /**
   * End the question from outside, with the best answer so far.
   *
   * @param {"exhausted" | "failed" | "cancelled"} reason No evidence is left, the model failed, or the host gave up.
   * @returns {Decision}
   */
  end(reason) {
    if (!["exhausted", "failed", "cancelled"].includes(reason)) throw new DataError(`a loop cannot be ended for the reason ${JSON.stringify(reason)}; allowed: exhausted, failed, cancelled`);
    if (this.decision !== null) throw new DataError(`the loop has already stopped (${this.decision.reason}): open a new Session`);
    return this.#stop(reason, null);
  }

  #view() {
    return { n: this.rounds.length, columns: this.#derived };
  }

  /** @returns {Record<string, number | null>} */
  #latest() {
    if (!this.rounds.length) return {};
    const value = (/** @type {string} */ name) => /** @type {number[]} */ (this.#derived.get(name))[this.rounds.length - 1];
    return Object.fromEntries(this.policy.signals.map((name) => [name, Number.isNaN(value(name)) ? null : value(name)]));
  }

  /** Write the columns of the next round. @param {Round} round */
  #write(round) {
    const [rounds, place] = [[...this.rounds, round], this.rounds.length];
    for (const [name, column] of this.#raw) column[place] = this.#rawValue(name, rounds);
    if (this.policy.signals.some(isWeighted)) this.#weights[place] = this.#value("p_correct", rounds);
    for (const [name, column] of this.#derived) {
      const value = this.#value(name, rounds);
      const before = Object.hasOwn(CUMULATED, name) && place > 0 ? column[place - 1] : 0;
      column[place] = Number.isFinite(value + before) ? value + before : Number.NaN;
    }
  }

  /** Return a measured signal at the last round. @param {string} name @param {readonly Round[]} rounds */
  #rawValue(name, rounds) {
    const round = rounds[rounds.length - 1];
    if (Object.hasOwn(SIGNALS, name) && !mayExist(name, round.index)) return Number.NaN;
    if (Object.hasOwn(round.signals, name) || !Object.hasOwn(COMPUTED, name)) return clean(name, measured(round, name));
    return clean(name, COMPUTED[name](rounds));
  }

  /** Return a signal of the rule at the last round. @param {string} name @param {readonly Round[]} rounds @returns {number} */
  #value(name, rounds) {
    const { policy } = this;
    const { index, answer } = rounds[rounds.length - 1];
    if (name === "round") return index;
    if (Object.hasOwn(CUMULATED, name)) return costsOf(name, rounds[rounds.length - 1]);
    const state = policy.state.get(name);
    if (state?.type === "rationale") return state.apply(Object.keys(state.weights).map((feature) => this.#value(feature, rounds)));
    const source = policy.sourceOf(name);
    if (source !== undefined) {
      const value = isVote(source) ? this.#value(source, rounds) : this.#written(source, rounds);
      if (state?.type === "zscore" || state?.type === "allocation") return state.apply(value);
      return /** @type {import("./calibrators.js").Calibrator} */ (policy.calibrators.get(name)).predict(value, index);
    }
    if (!policy.fromAnswers.has(name)) return this.#written(name, rounds);
    if (name === "abstained" && policy.refuses !== null) return policy.refuses(answer);
    const ids = answerIds(rounds.map((round) => round.answer), policy.normalizer);
    if (name !== "answer_stable") return voteSignal(name, ids, isWeighted(name) ? this.#weights : null);
    const [last, before] = [ids[ids.length - 1], ids[ids.length - 2] ?? Number.NaN];
    return index < 2 || Number.isNaN(last + before) ? Number.NaN : Number(last === before);
  }

  /** @param {string} name @param {readonly Round[]} rounds */
  #written(name, rounds) {
    return /** @type {number[]} */ (this.#raw.get(name))[rounds.length - 1];
  }

  /** Check that the last round has valid values of the signals that the policy reads there for the first time. @param {import("./rules.js").View} view */
  #prove(view) {
    const round = this.rounds[this.rounds.length - 1];
    if (this.missing === "ignore" || isBlank(round.answer)) return;
    const read = new Set(this.policy.selector.signals);
    this.policy.rule.reads(view, true, read);
    /** @type {Map<string, string>} */
    const lacks = new Map();
    for (const name of this.policy.signals) {
      const [raw] = this.policy.rawsOf(name);
      if (Object.hasOwn(round.signals, raw) && this.#raw.has(raw) && Number.isNaN(this.#written(raw, this.rounds))) {
        const lack = this.#lackOf(raw, round);
        if (lack !== null && Object.hasOwn(SIGNALS, raw)) lacks.set(name, lack);
      }
    }
    for (const name of [...this.#unproven]) {
      const [raw] = this.policy.rawsOf(name);
      const known = Object.hasOwn(SIGNALS, raw) ? SIGNALS[raw] : undefined;
      if (known && !mayExist(raw, round.index)) continue;
      if (known && !FREE.includes(known.component) && !read.has(name)) continue;
      this.#unproven.delete(name);
      const lack = this.#lackOf(raw, round);
      if (lack !== null) lacks.set(name, lack);
    }
    if (!lacks.size) return;
    const text = [...lacks].map(([name, lack]) => `${name} (${lack})`).join(", ");
    const Kind = [...lacks.keys()].some((name) => this.policy.unfitted(name)) ? NotFittedError : UnknownSignalError;
    throw new Kind(
      `the policy ${JSON.stringify(this.policy.label)} reads what round ${round.index} does not bring: ${text}. Put it into the signals of ` +
        'the round, null where it is undefined; new Session(policy, { missing: "ignore" }) goes on without',
    );
  }

  /** Return what a round lacks for a measured signal; null if it is complete. @param {string} raw @param {Round} round */
  #lackOf(raw, round) {
    const value = this.#raw.has(raw) ? this.#written(raw, this.rounds) : Object.hasOwn(CUMULATED, raw) ? costsOf(raw, round) : 0;
    if (!Number.isNaN(value)) return null;
    const known = Object.hasOwn(SIGNALS, raw) ? SIGNALS[raw] : undefined;
    if (Object.hasOwn(round.signals, raw)) {
      const numeric = asNumber(round.signals[raw]);
      if (!known || !Number.isFinite(numeric) || !mayExist(raw, round.index)) return null;
      return `a value from ${known.low} to ${known.high} is needed, not ${numeric}`;
    }
    if (known?.needs.includes("costs")) return "no costs";
    return known?.computed && !known.needs.length ? null : "no value";
  }

  /** @param {Reason} reason @param {string | null} fired @returns {Decision} */
  #stop(reason, fired) {
    const { normalizer, selector } = this.policy;
    const answers = this.rounds.map(({ answer }) => answer);
    const given = answers.map((answer) => !isBlank(answer));
    const keys = answers.map((answer) => (answer === null ? "" : (normalizer(answer) ?? "")));
    const chosen = answers.length ? selector.select(this.#view(), { given, keys }) : -1;
    const round = chosen >= 0 ? this.rounds[chosen] : null;
    this.decision = {
      stop: true,
      stop_round: this.rounds.length ? this.nextRound - 1 : null,
      answer_round: round?.index ?? null,
      answer: round?.answer ?? null,
      reason: round === null ? "failed" : reason,
      fired: round === null ? null : fired,
      signals: this.#latest(),
    };
    return this.decision;
  }
}
