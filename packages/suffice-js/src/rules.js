/**
 * Rules: predicates over rounds. A comparison with an undefined signal (NaN) is false, so missing evidence never stops a loop.
 */

import { RuleSyntaxError, UnsupportedError } from "./errors.js";
import { NAMED_RULES, PYTHON_KEYWORDS, SIGNALS } from "./generated.js";
import { parsed } from "./syntax.js";
import { thresholdText } from "./text.js";

/**
 * @typedef {import("./syntax.js").Node} Node
 *
 * @typedef {object} View The rounds so far, as columns.
 * @property {number} n Number of rounds.
 * @property {ReadonlyMap<string, readonly number[]>} columns Values by signal, one for each round; NaN where undefined.
 */

const COMPARISONS = /** @type {Record<string, (a: number, b: number) => boolean>} */ ({
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
});

/** @param {View} view @param {string} name */
export const column = (view, name) => /** @type {readonly number[]} */ (view.columns.get(name));

/** A predicate over rounds; its text specifies it completely. */
export class Rule {
  /** The signals that the rule may read. @returns {string[]} */
  get signals() {
    return [];
  }

  /** Return at which rounds the rule fires. @param {View} view @returns {boolean[]} */
  fires(view) {
    return Array.from({ length: view.n }, () => false);
  }

  /**
   * Add the signals that a lazy evaluation reads at the last round.
   *
   * @param {View} view
   * @param {boolean} asked Whether it matters there whether this rule fires.
   * @param {Set<string>} read
   */
  reads(view, asked, read) {
    void [view, asked, read];
  }

  /** Return the text of the member that fires at the last round. @param {View} view */
  held(view) {
    void view;
    return String(this);
  }

  toString() {
    return "never()";
  }
}

/** Fires where a weighted sum of signals compares with a number; of one signal with weight 1 it is a threshold. */
class Comparison extends Rule {
  /** @param {[number, string][]} terms @param {string} sign @param {number} value */
  constructor(terms, sign, value) {
    super();
    for (const number of [value, ...terms.map(([weight]) => weight)]) {
      if (!Number.isFinite(number)) throw new RuleSyntaxError(`a threshold must be a finite number, not ${number}`);
    }
    this.terms = terms;
    this.sign = sign;
    this.value = value;
  }

  get signals() {
    return this.terms.map(([, name]) => name);
  }

  /** @param {View} view */
  fires(view) {
    const compare = COMPARISONS[this.sign];
    return Array.from({ length: view.n }, (_, r) => {
      let total = 0;
      for (const [weight, name] of this.terms) if (weight !== 0) total += weight * column(view, name)[r];
      return compare(total, this.value);
    });
  }

  /** @param {View} view @param {boolean} asked @param {Set<string>} read */
  reads(view, asked, read) {
    if (asked) for (const [weight, name] of this.terms) if (weight !== 0) read.add(name);
  }

  toString() {
    const parts = this.terms.map(([weight, name]) => (weight === 1 ? name : `${thresholdText(weight)} * ${name}`));
    return `${parts.join(" + ")} ${this.sign} ${thresholdText(this.value)}`;
  }
}

/** @param {readonly boolean[]} values */
const last = (values) => values[values.length - 1];

/** Fires where all members do (`and`) or where any does (`or`, `first_of`). */
class Joined extends Rule {
  /** @param {"and" | "or" | "first_of"} kind @param {Rule[]} rules */
  constructor(kind, rules) {
    super();
    if (kind === "first_of" && !rules.length) throw new RuleSyntaxError("first_of takes at least 1 rules, not none");
    this.kind = kind;
    const flat = (/** @type {Rule} */ rule) => (rule instanceof Joined && rule.kind === kind ? rule.rules : [rule]);
    this.rules = /** @type {Rule[]} */ (kind === "first_of" ? rules : rules.flatMap(flat));
  }

  get signals() {
    return this.rules.flatMap((rule) => rule.signals);
  }

  /** @param {View} view */
  fires(view) {
    const each = this.rules.map((rule) => rule.fires(view));
    const holds = (/** @type {number} */ r) =>
      this.kind === "and" ? each.every((fires) => fires[r]) : each.some((fires) => fires[r]);
    return Array.from({ length: view.n }, (_, r) => holds(r));
  }

  /** @param {View} view @param {boolean} asked @param {Set<string>} read */
  reads(view, asked, read) {
    for (const rule of this.rules) {
      rule.reads(view, asked, read);
      asked &&= last(rule.fires(view)) === (this.kind === "and");
    }
  }

  /** @param {View} view */
  held(view) {
    const fired = this.kind === "and" ? undefined : this.rules.find((rule) => last(rule.fires(view)));
    return fired === undefined ? String(this) : fired.held(view);
  }

  toString() {
    const members = this.rules.map((rule) => `(${rule})`);
    if (this.kind === "first_of") return `first_of(${members.join(", ")})`;
    return members.join(this.kind === "and" ? " & " : " | ");
  }
}

/** Fires where at least `k` members do. */
class KOf extends Rule {
  /** @param {number} k @param {Rule[]} rules */
  constructor(k, rules) {
    super();
    if (!rules.length || k < 1 || k > rules.length) {
      throw new RuleSyntaxError(`k of k_of must be a whole number 1..${rules.length}, not ${k}`);
    }
    this.k = k;
    this.rules = rules;
  }

  get signals() {
    return this.rules.flatMap((rule) => rule.signals);
  }

  /** @param {View} view */
  fires(view) {
    const each = this.rules.map((rule) => rule.fires(view));
    return Array.from({ length: view.n }, (_, r) => each.filter((fires) => fires[r]).length >= this.k);
  }

  /** @param {View} view @param {boolean} asked @param {Set<string>} read */
  reads(view, asked, read) {
    let votes = 0;
    for (const [position, rule] of this.rules.entries()) {
      const open = votes < this.k && votes + this.rules.length - position >= this.k;
      rule.reads(view, asked && open, read);
      votes += last(rule.fires(view)) ? 1 : 0;
    }
  }

  toString() {
    return `k_of(${this.k}, ${this.rules.map((rule) => `(${rule})`).join(", ")})`;
  }
}

/** Fires once a rule has fired in `n` rounds: the last ones (`patience`), or any (`times`). */
class Repeated extends Rule {
  /** @param {"patience" | "times"} kind @param {Rule} rule @param {number} n */
  constructor(kind, rule, n) {
    super();
    if (n < 1) throw new RuleSyntaxError(`n of ${kind} must be a whole number >= 1, not ${n}`);
    this.kind = kind;
    this.rule = rule;
    this.n = n;
  }

  get signals() {
    return this.rule.signals;
  }

  /** @param {View} view */
  fires(view) {
    let count = 0;
    return this.rule.fires(view).map((fired) => {
      count = fired ? count + 1 : this.kind === "times" ? count : 0;
      return count >= this.n;
    });
  }

  /** @param {View} view @param {boolean} asked @param {Set<string>} read */
  reads(view, asked, read) {
    this.rule.reads(view, asked || this.n > 1, read);
  }

  toString() {
    return `${this.kind}((${this.rule}), ${this.n})`;
  }
}

/** @param {string} name */
function checkName(name) {
  if (PYTHON_KEYWORDS.includes(name)) throw new RuleSyntaxError(`${JSON.stringify(name)} is not a signal name: it is a keyword of Python`);
}

/** @param {Node} node @param {string} text @returns {[number, string][]} */
function linear(node, text) {
  if (node.kind === "name") {
    checkName(node.name);
    return [[1, node.name]];
  }
  /** @param {[number, string][]} terms @param {number} factor @returns {[number, string][]} */
  const times = (terms, factor) => terms.map(([weight, name]) => [factor * weight, name]);
  if (node.kind === "binary") {
    if (node.sign === "*") return times(linear(node.right, text), numberOf(node.left, text));
    return [...linear(node.left, text), ...times(linear(node.right, text), node.sign === "-" ? -1 : 1)];
  }
  throw refused(text, "a signal or a weighted sum of signals is expected here: a + 2 * b");
}

/** Return the number of a node. @param {Node} node @param {string} text @returns {number} */
export function numberOf(node, text) {
  if (node.kind === "negative") return -numberOf(node.of, text);
  if (node.kind === "number") return node.value;
  throw refused(text, "a number is expected here");
}

/** @param {Node} node @param {string} text */
function wholeNumber(node, text) {
  if (node.kind === "number" && node.whole) {
    if (Number.isSafeInteger(node.value)) return node.value;
    throw new UnsupportedError(`${JSON.stringify(text)}: a whole number is at most 2 ** 53 here`);
  }
  throw refused(text, "a whole number is expected here");
}

/** @param {string} text @param {string} hint */
const refused = (text, hint) => new RuleSyntaxError(`a part of ${JSON.stringify(text)} is not allowed: ${hint}`);

/** Return the rule of a syntax tree. @param {Node} node @param {string} text @returns {Rule} */
export function ruleOf(node, text) {
  switch (node.kind) {
    case "and":
    case "or":
      return new Joined(node.kind, node.members.map((member) => ruleOf(member, text)));
    case "compare": {
      if (node.signs.length > 1) throw refused(text, "one comparison at a time: a > 1 & a < 2");
      const [sign] = node.signs;
      if (!Object.hasOwn(COMPARISONS, sign)) throw refused(text, `allowed comparisons: ${Object.keys(COMPARISONS).join(", ")}`);
      return new Comparison(linear(node.values[0], text), sign, numberOf(node.values[1], text));
    }
    case "name":
      return namedRule(node.name, [], text);
    case "call":
      if (node.named.length) throw refused(text, "a comparison, a combination or a named rule is expected here");
      return called(node.name, node.values, text);
    case "not":
    case "negative":
      throw refused(text, "a rule cannot be negated; write the opposite comparison");
    default:
      throw refused(text, "a comparison, a combination or a named rule is expected here");
  }
}

/** @param {string} name @param {Node[]} values @param {string} text @returns {Rule} */
function called(name, values, text) {
  const rules = (/** @type {Node[]} */ nodes) => nodes.map((node) => ruleOf(node, text));
  if (name === "k_of" && values.length) return new KOf(wholeNumber(values[0], text), rules(values.slice(1)));
  if (name === "first_of") return new Joined("first_of", rules(values));
  if (name === "patience" && (values.length === 1 || values.length === 2)) {
    return new Repeated("patience", ruleOf(values[0], text), values.length === 2 ? wholeNumber(values[1], text) : 2);
  }
  if (name === "times" && values.length === 2) return new Repeated("times", ruleOf(values[0], text), wholeNumber(values[1], text));
  if (name === "never" && !values.length) return new Rule();
  return namedRule(name, values.map((node) => numberOf(node, text)), text);
}

/** @param {string} name @param {number[]} numbers @param {string} text @returns {Rule} */
function namedRule(name, numbers, text) {
  if (!Object.hasOwn(NAMED_RULES, name)) {
    throw new RuleSyntaxError(
      `${JSON.stringify(name)} in ${JSON.stringify(text)} is not a rule that this package knows. A signal needs a comparison ` +
        `(${name} > 0.5); named rules: ${Object.keys(NAMED_RULES).join(", ")}. A rule of your own exists in Python alone`,
    );
  }
  const written = NAMED_RULES[name][numbers.length];
  if (written === undefined) {
    throw new RuleSyntaxError(
      `${name} with ${numbers.length} numbers is not a rule that this package can write out: save the policy with Python, ` +
        "whose files hold the rule in full",
    );
  }
  const full = written.replace(/\{(\d)\}/g, (_, place) => thresholdText(numbers[Number(place)]));
  const rule = ruleOf(parsed(full, "rule"), full);
  const unknown = rule.signals.find((signal) => !Object.hasOwn(SIGNALS, signal));
  if (unknown !== undefined) throw new RuleSyntaxError(`${name}(${numbers.join(", ")}) would read ${unknown}, which does not exist`);
  return rule;
}

/**
 * Return the rule that a text describes; nothing is executed.
 *
 * @param {string} text
 * @returns {Rule}
 */
export const parseRule = (text) => ruleOf(parsed(text, "rule"), text);
