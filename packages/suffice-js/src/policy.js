/**
 * A policy: when to stop and which answer to return, as the Python library writes it to a file.
 */

import { abstainedBy, normalizerOf } from "./answers.js";
import { Calibrator, isObject, stateOf } from "./calibrators.js";
import { DataError, SchemaError, UnsupportedError } from "./errors.js";
import { ANSWER_FORMS, POLICY_FORMAT, POLICY_VERSION, POSITION_KINDS, SIGNALS } from "./generated.js";
import { parseRule } from "./rules.js";
import { parseSelector } from "./selectors.js";
import { COMPUTED, CUMULATED } from "./signals.js";
import { isVote, isWeighted } from "./votes.js";

const FIELDS = /** @type {Record<string, (value: unknown) => boolean>} */ ({
  name: (value) => typeof value === "string",
  rule: (value) => typeof value === "string",
  selector: (value) => typeof value === "string",
  start_round: (value) => value === 0 || value === 1,
  max_rounds: (value) => Number.isInteger(value) && Number(value) >= 1 && Number(value) <= 100_000,
  calibrators: Array.isArray,
  state: isObject,
  answer_position: isPosition,
  abstain_patterns: (value) => value === null || (Array.isArray(value) && value.every((one) => typeof one === "string")),
  depends: isObject,
  provenance: isObject,
});
const OPTIONAL = /** @type {Record<string, (value: unknown) => boolean>} */ ({
  normalizer: (value) => typeof value === "string",
  certificate: (value) => value === null || isObject(value),
  sha256: () => true,
});

/** @param {unknown} value */
function isPosition(value) {
  if (!isObject(value) || typeof value.text !== "string") return false;
  const { kind: _kind, text: _text, form, ...others } = value;
  if (Object.keys(others).length > 0 || (form !== undefined && !(typeof form === "string" && ANSWER_FORMS.includes(form)))) return false;
  const hasText = POSITION_KINDS[value.kind];
  return hasText !== undefined && (hasText ? value.text.trim() !== "" : value.text === "");
}

/** @param {unknown} data @returns {Record<string, any>} */
function checked(data) {
  if (!isObject(data) || data.format !== POLICY_FORMAT) throw new SchemaError(`this is not a policy: the field "format" must be ${POLICY_FORMAT}`);
  if (data.version !== POLICY_VERSION) {
    throw new SchemaError(`policy version ${JSON.stringify(data.version)} is not readable; this release reads ${POLICY_VERSION}`);
  }
  const { format: _format, version: _version, ...fields } = data;
  const missing = Object.keys(FIELDS).filter((name) => !Object.hasOwn(fields, name));
  const unknown = Object.keys(fields).filter((name) => !Object.hasOwn(FIELDS, name) && !Object.hasOwn(OPTIONAL, name));
  if (missing.length || unknown.length) {
    throw new SchemaError(`a policy with the unknown fields [${unknown.join(", ")}] and the missing fields [${missing.join(", ")}]`);
  }
  for (const [name, value] of Object.entries(fields)) {
    if (!(FIELDS[name] ?? OPTIONAL[name])(value)) {
      throw new SchemaError(`the field ${JSON.stringify(name)} of a policy cannot be ${JSON.stringify(value)?.slice(0, 100)}`);
    }
  }
  return fields;
}

/**
 * Everything that a deployment needs. It decides exactly as in Python, or `Policy.parse` refuses it with the reason.
 */
export class Policy {
  /** @param {unknown} data The values of a policy file. @param {{ given?: readonly string[] }} [options] */
  constructor(data, { given = [] } = {}) {
    const fields = checked(data);
    /** The name that reports call it, or the text of the rule. @type {string} */
    this.label = fields.name || fields.rule;
    /** The first round of the loop, 0 or 1. @type {number} */
    this.startRound = fields.start_round;
    /** The highest round. @type {number} */
    this.maxRounds = fields.max_rounds;
    /** What the fitted state belongs to: model, prompt, retriever. The host compares it with what runs. @type {Record<string, unknown>} */
    this.depends = fields.depends;
    this.rule = parseRule(fields.rule);
    this.calibrators = new Map(fields.calibrators.map((/** @type {unknown} */ item) => new Calibrator(item)).map((/** @type {Calibrator} */ one) => [one.output, one]));
    if (this.calibrators.size < fields.calibrators.length) throw new DataError("two calibrators of one signal");
    this.selector = parseSelector(fields.selector, [...this.rule.signals, ...this.calibrators.keys()]);
    this.state = new Map(Object.entries(fields.state).map(([name, state]) => [name, stateOf(state)]));
    for (const name of this.state.keys()) {
      if (Object.hasOwn(SIGNALS, name) && !SIGNALS[name].fitted) throw new DataError(`state of ${JSON.stringify(name)}, which is not fitted`);
    }
    this.normalizerName = fields.normalizer ?? "qa";
    this.normalizer = normalizerOf(this.normalizerName);
    this.refuses = fields.abstain_patterns === null ? null : abstainedBy(fields.abstain_patterns);
    /** Signals that the host has promised to measure in every round. */
    this.given = new Set(given);
    /** The signals that the rule and the selector read, sorted. */
    this.signals = [...new Set([...this.rule.signals, ...this.selector.signals])].sort();
    const raws = this.signals.flatMap((name) => this.rawsOf(name));
    const own = [...(this.normalizerName === "qa" ? [] : ["answer_stable"]), ...(this.refuses === null ? [] : ["abstained"])];
    this.fromAnswers = new Set(raws.filter((name) => isVote(name) || own.includes(name)));
    const read = [...raws, ...(this.signals.some(isWeighted) ? this.rawsOf("p_correct") : [])];
    const derived = (/** @type {string} */ name) =>
      name === "round" || Object.hasOwn(CUMULATED, name) || (this.fromAnswers.has(name) && name !== "abstained");
    /** The signals that must be measured or computed in each round, sorted. */
    this.rawSignals = [...new Set(read.filter((name) => !derived(name)))].sort();
    this.checkSupport();
  }

  /**
   * Read the JSON of a policy file; nothing in it is executed.
   *
   * @param {string} text The content of the file.
   * @param {{ given?: readonly string[] }} [options] `given`: signals that the host measures in every round, although the
   *   Python library would compute them from tokens, passages or embeddings.
   * @throws {SchemaError} The text is not a policy that this release reads.
   * @throws {RuleSyntaxError} The rule or the selector does not parse.
   * @throws {UnsupportedError} The policy is valid, but this package cannot decide by it.
   */
  static parse(text, options) {
    let data;
    try {
      data = JSON.parse(text);
    } catch (error) {
      throw new SchemaError(`the policy is not JSON: ${error instanceof Error ? error.message : error}`);
    }
    return new Policy(data, options);
  }

  /** Return the measured signals that fitted state turns into a signal, or the signal itself. @param {string} name @returns {string[]} */
  rawsOf(name) {
    const state = this.state.get(name);
    if (state?.type === "rationale") return Object.keys(state.weights);
    const source = this.sourceOf(name);
    return [source ?? name];
  }

  /** Return the signal that a calibrator or fitted statistics compute a signal from, if any. @param {string} name */
  sourceOf(name) {
    const state = this.state.get(name);
    if (state?.type === "zscore" || state?.type === "allocation") return state.source;
    return this.calibrators.get(name)?.signal;
  }

  /** Return whether a signal needs fitted state that the policy lacks. @param {string} name */
  unfitted(name) {
    return Object.hasOwn(SIGNALS, name) && SIGNALS[name].fitted && this.sourceOf(name) === undefined && !this.state.has(name);
  }

  /** Refuse what would need a model, tokens, passages or embeddings that the rounds of this package do not have. */
  checkSupport() {
    const fitted = this.signals.filter((name) => this.sourceOf(name) !== undefined).map((name) => this.rawsOf(name)[0]);
    const summed = fitted.find((name) => name === "round" || Object.hasOwn(CUMULATED, name));
    if (summed !== undefined) throw new UnsupportedError(`a calibrator of ${summed}, which is not a measured signal`);
    for (const name of this.rawSignals) {
      if (name === "posterior_plurality") {
        throw new UnsupportedError("posterior_plurality needs a numerical integral, which this package does not have: use posterior_majority");
      }
      const byState = this.state.get(name)?.type === "idf";
      const elsewhere = Object.hasOwn(SIGNALS, name) && (SIGNALS[name].computed ? !Object.hasOwn(COMPUTED, name) : byState);
      if (elsewhere && !this.given.has(name)) {
        throw new UnsupportedError(
          `the policy ${JSON.stringify(this.label)} reads ${name}, which this package does not compute: measure it yourself, put it into ` +
            `the signals of every round (null where undefined), and say so: Policy.parse(text, { given: ["${name}"] })`,
        );
      }
    }
  }
}
