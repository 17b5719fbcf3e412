/**
 * Selectors, which choose the answer to return among those of the rounds so far.
 */

import { RuleSyntaxError, UnsupportedError } from "./errors.js";
import { PYTHON_KEYWORDS } from "./generated.js";
import { column, numberOf, parseRule, ruleOf } from "./rules.js";
import { parsed } from "./syntax.js";
import { pythonFloat } from "./text.js";

/**
 * @typedef {import("./rules.js").View} View
 * @typedef {import("./syntax.js").Node} Node
 *
 * @typedef {object} Answers
 * @property {boolean[]} given Whether each round has an answer.
 * @property {string[]} keys The key by which each answer is compared; "" for one that cannot be read.
 */

const HUGE = 1e100;
const DISTANCES = ["semantic_distance", "semantic_distance_2", "semantic_distance_3", "semantic_distance_4", "semantic_distance_5"];

/** Return the latest place at which a predicate holds; -1 if it holds nowhere. @param {number} n @param {(r: number) => boolean} holds */
function latest(n, holds) {
  for (let r = n - 1; r >= 0; r -= 1) if (holds(r)) return r;
  return -1;
}

/** @param {readonly number[]} values @param {(r: number) => boolean} usable */
function latestLargest(values, usable) {
  const most = values.reduce((top, value, r) => (usable(r) && value > top ? value : top), -Infinity);
  return latest(values.length, (r) => usable(r) && values[r] === most);
}

/**
 * Chooses among the rounds up to the last one; its text specifies it.
 */
export class Selector {
  /** @param {string} text @param {string[]} [signals] */
  constructor(text, signals = []) {
    this.text = text;
    this.signals = signals;
  }

  /** Return the place of the answer to return; -1 if no round has one. @param {View} view @param {Answers} answers */
  select(view, answers) {
    const chosen = this.among(view, answers);
    return chosen >= 0 ? chosen : latest(view.n, (r) => answers.given[r]);
  }

  /** Return the chosen place; -1 if the values that it reads are undefined. @param {View} view @param {Answers} answers @returns {number} */
  among(view, answers) {
    return latest(view.n, (r) => answers.given[r]);
  }

  toString() {
    return this.text;
  }
}

/** The earliest answer. */
class First extends Selector {
  /** @param {View} view @param {Answers} answers */
  among(view, answers) {
    void view;
    return answers.given.indexOf(true);
  }
}

/** The answer with the largest, the smallest or the middle value of a signal. */
class OfSignal extends Selector {
  /** @param {"max" | "min" | "median"} kind @param {string} name */
  constructor(kind, name) {
    super(`${kind}_${name}`, [name]);
    this.kind = kind;
  }

  /** @param {View} view @param {Answers} answers */
  among(view, answers) {
    const values = column(view, this.signals[0]);
    const usable = (/** @type {number} */ r) => answers.given[r] && !Number.isNaN(values[r]);
    if (this.kind === "max") return latestLargest(values, usable);
    if (this.kind === "min") return latestLargest(values.map((value) => -value), usable);
    const ordered = values.filter((_, r) => usable(r)).sort((a, b) => a - b);
    const n = ordered.length;
    const middle = n ? ordered[Math.floor((n - 1) / 2)] / 2 + ordered[Math.floor(n / 2)] / 2 : 0;
    return latestLargest(values.map((value) => -Math.abs(value - middle)), usable);
  }
}

/** The most frequent answer by its key; among ties the one seen last, from its latest round. */
class Majority extends Selector {
  /** @param {View} view @param {Answers} answers */
  among(view, answers) {
    const weights = this.signals.length ? column(view, this.signals[0]) : answers.given.map(Number);
    const usable = (/** @type {number} */ r) => answers.given[r] && !Number.isNaN(weights[r]);
    const totals = answers.keys.map((key) =>
      weights.reduce((sum, weight, r) => (usable(r) && answers.keys[r] === key ? sum + weight : sum), 0),
    );
    return latestLargest(totals, usable);
  }
}

const MASK = (1n << 64n) - 1n;
const STEP = 0x9e3779b97f4a7c15n;

/** Return a hash of a seed and the votes, by the mixing steps of SplitMix64. @param {readonly number[]} ids @param {bigint} seed */
function hashOf(ids, seed) {
  let sum = 0n;
  for (const [place, id] of ids.entries()) {
    if (Number.isNaN(id)) continue;
    let mixed = (BigInt(id) + BigInt(place + 1) * STEP + seed) & MASK;
    mixed = ((mixed ^ (mixed >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
    mixed = ((mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn) & MASK;
    sum += mixed ^ (mixed >> 31n);
  }
  return (sum & MASK) >> 33n;
}

/** The most frequent answer of independent samples; ties are broken at random, by a seed. */
class MajorityOfSamples extends Selector {
  /** @param {string} text @param {string | null} weight @param {number} seed @param {string[]} [more] */
  constructor(text, weight, seed, more = []) {
    super(text, ["answer_id", ...(weight === null ? [] : [weight]), ...more]);
    this.weight = weight;
    this.seed = BigInt(seed);
  }

  /** Return the rounds that vote, and the weight of each. @param {View} view @param {Answers} answers */
  votes(view, answers) {
    const ids = column(view, "answer_id");
    const weights = this.weight === null ? ids.map(() => 1) : column(view, this.weight);
    return { voting: ids.map((id, r) => answers.given[r] && !Number.isNaN(id) && !Number.isNaN(weights[r])), weights };
  }

  /** @param {View} view @param {Answers} answers */
  among(view, answers) {
    const ids = column(view, "answer_id");
    const { voting, weights } = this.votes(view, answers);
    const [totals, lasts] = [new Map(), new Map()];
    for (const [r, votes] of voting.entries()) {
      if (!votes) continue;
      totals.set(ids[r], (totals.get(ids[r]) ?? 0) + weights[r]);
      lasts.set(ids[r], r);
    }
    const most = Math.max(...totals.values());
    const leading = [...totals].filter(([, total]) => total === most).map(([id]) => lasts.get(id));
    leading.sort((a, b) => a - b);
    if (!leading.length) return -1;
    const seen = ids.map((id, r) => (answers.given[r] ? id : Number.NaN));
    return /** @type {number} */ (leading[Number(hashOf(seen, this.seed) % BigInt(leading.length))]);
  }
}

/** The answer of a unanimous window, else the most frequent one. */
class EscAnswer extends MajorityOfSamples {
  /** @param {View} view @param {Answers} answers */
  among(view, answers) {
    const place = latest(view.n, (r) => answers.given[r]);
    const agreed = place >= 0 && column(view, this.signals[1])[place] >= 1;
    return agreed ? place : super.among(view, answers);
  }
}

/** The votes of the samples above a score, weighted by it. */
class RascAnswer extends MajorityOfSamples {
  /** @param {string} text @param {number} threshold @param {number} seed */
  constructor(text, threshold, seed) {
    super(text, "rationale_score", seed);
    this.threshold = threshold;
  }

  /** @param {View} view @param {Answers} answers */
  votes(view, answers) {
    const { voting, weights } = super.votes(view, answers);
    const accepted = voting.map((votes, r) => votes && weights[r] >= this.threshold);
    return { voting: accepted.includes(true) ? accepted : voting, weights };
  }
}

/** The draft nearest to the centroid of the drafts' embeddings, by their distances. */
class Centroid extends Selector {
  constructor() {
    super("centroid", DISTANCES);
  }

  /** @param {View} view @param {Answers} answers */
  among(view, answers) {
    const distance = (/** @type {number} */ a, /** @type {number} */ b) => {
      const name = DISTANCES[Math.abs(a - b) - 1];
      return name === undefined ? Number.NaN : column(view, name)[Math.max(a, b)];
    };
    const means = answers.given.map((given, r) => {
      let [sum, n] = [0, 0];
      for (const [other, is] of answers.given.entries()) {
        if (!given || !is || other === r || Number.isNaN(distance(r, other))) continue;
        sum += distance(r, other);
        n += 1;
      }
      return n ? sum / n : Number.NaN;
    });
    return latestLargest(means.map((mean) => -mean), (r) => answers.given[r] && !Number.isNaN(means[r]));
  }
}

/** The last draft in the longest run of rounds that each agree with the one before. */
class LongestRun extends Selector {
  /** @param {import("./rules.js").Rule} rule */
  constructor(rule) {
    super(`longest_run(${rule})`, rule.signals);
    this.rule = rule;
  }

  /** @param {View} view @param {Answers} answers */
  among(view, answers) {
    let length = 0;
    const lengths = this.rule.fires(view).map((joins, r) => {
      length = answers.given[r] ? (joins ? length : 0) + 1 : 0;
      return length;
    });
    return latestLargest(lengths, (r) => answers.given[r]);
  }
}

/** @typedef {{ name: string, weight: number, fill: number }} Term */

const SET_FEATURES = ["votes", "is_last", "is_first"];

/** Return the signal that a feature is computed from; null for a feature of the set. @param {string} name */
const signalOf = (name) => (SET_FEATURES.includes(name) ? null : name.replace(/^sum_|^best_/, ""));

/** The round with the largest weighted sum of features; among ties the latest. */
class Ranked extends Selector {
  /** @param {Term[]} terms */
  constructor(terms) {
    const texts = terms.map((term) => `${term.name}=(${pythonFloat(term.weight)}, ${pythonFloat(term.fill)})`);
    super(`ranked(${texts.join(", ")})`, /** @type {string[]} */ (terms.map((term) => signalOf(term.name)).filter((name) => name !== null)));
    this.terms = terms;
    const names = terms.map((term) => term.name);
    if (!names.length || new Set(names).size !== names.length) throw new RuleSyntaxError("a ranker needs one or more features, each once");
    for (const { name, weight, fill } of terms) {
      if (signalOf(name) === "" || !(Math.abs(weight) <= HUGE) || !(Math.abs(fill) <= HUGE)) {
        throw new RuleSyntaxError(`a ranker's term is a name with a finite weight and fill, not ${name}=(${weight}, ${fill})`);
      }
    }
  }

  /** @param {View} view @param {Answers} answers */
  among(view, answers) {
    const scores = answers.given.map(() => 0);
    for (const term of this.terms) {
      for (const [r, value] of this.feature(term, view, answers).entries()) scores[r] += term.weight * value;
    }
    return latestLargest(scores, (r) => answers.given[r]);
  }

  /** @param {Term} term @param {View} view @param {Answers} answers @returns {number[]} */
  feature({ name, fill }, view, { given, keys }) {
    const alike = (/** @type {number} */ r) => keys.map((key, other) => given[other] && key === keys[r]);
    if (name === "votes") {
      const n = Math.max(given.filter(Boolean).length, 1);
      return keys.map((_, r) => alike(r).filter(Boolean).length / n);
    }
    if (name === "is_last") return given.map((_, r) => Number(r === latest(view.n, (place) => given[place])));
    if (name === "is_first") return given.map((_, r) => Number(r === Math.max(given.indexOf(true), 0)));
    const values = column(view, /** @type {string} */ (signalOf(name))).map((value) =>
      Number.isNaN(value) ? fill : Math.min(Math.max(value, -HUGE), HUGE),
    );
    if (name.startsWith("sum_")) {
      return values.map((_, r) => alike(r).reduce((sum, is, other) => (is ? sum + values[other] : sum), 0));
    }
    if (!name.startsWith("best_")) return values;
    return values.map((_, r) => {
      const best = Math.max(...values.filter((__, other) => alike(r)[other]));
      return best === -Infinity ? fill : best;
    });
  }
}

const QUALITY = ["p_correct", "calibrated_confidence", "answer_margin", "verbal_confidence", "information_score", "judge_entailment"];
const HOSTS_QUALITY = /^(?:\w*_)?(?:quality|score|reward|rating|confidence)$/;

/**
 * Return the name of the only signal of quality, for the selector `best`.
 *
 * @param {Iterable<string>} names The signals that are available.
 */
function qualityOf(names) {
  const isOne = (/** @type {string} */ name) =>
    QUALITY.includes(name) || (!["top_score", "rerank_score"].includes(name) && HOSTS_QUALITY.test(name));
  const known = new Set([...names].filter(isOne));
  if (known.has("p_correct")) known.delete("answer_margin");
  if (known.has("calibrated_confidence")) known.delete("verbal_confidence");
  if (known.size === 1) return [...known][0];
  throw new RuleSyntaxError(
    `'best' does not say which round is best: the rule has ${known.size ? `several signals of quality: ${[...known].sort().join(", ")}` : "no signal of quality"}. ` +
      "Name the signal: max_SIGNAL",
  );
}

/**
 * Return the selector that a text names or describes; nothing is executed.
 *
 * @param {string} text
 * @param {Iterable<string>} [available] The signals from which `best` takes the only one of quality.
 * @returns {Selector}
 */
export function parseSelector(text, available = []) {
  const spelled = text.trim();
  if (spelled === "last") return new Selector("last");
  if (spelled === "first") return new First("first");
  if (spelled === "majority") return new Majority("majority");
  if (spelled === "weighted_majority") return new Majority("weighted_majority", ["p_correct"]);
  if (spelled === "best") return new OfSignal("max", qualityOf(available));
  const name = spelled.split("(")[0];
  if (Object.hasOwn(CALLS, name)) {
    const node = parsed(spelled.includes("(") ? spelled : `${spelled}()`, "selector");
    if (node.kind !== "call" || node.name !== name) throw new RuleSyntaxError(`${JSON.stringify(text)} is not a selector; write ${name}(argument, ...)`);
    return CALLS[name](node, text);
  }
  const found = /^(max|min|median)_([A-Za-z_]\w*)$/.exec(spelled);
  if (found) return new OfSignal(/** @type {"max" | "min" | "median"} */ (found[1]), found[2]);
  throw new RuleSyntaxError(
    `${JSON.stringify(text)} is not a selector that this package knows. There are: last, first, majority, weighted_majority, best, ` +
      `max_SIGNAL, min_SIGNAL, median_SIGNAL, ${Object.keys(CALLS).join(", ")}. A selector of your own exists in Python alone`,
  );
}

/** @typedef {import("./syntax.js").CallNode} CallNode */

/** Return the seed that may be the last argument of a call, 0 without one. @param {Node[]} nodes @param {string} text */
function seedOf(nodes, text) {
  if (!nodes.length) return 0;
  const [node] = nodes;
  if (nodes.length > 1 || node.kind !== "number" || !node.whole) {
    throw new RuleSyntaxError(`${JSON.stringify(text)}: the seed of a vote's ties is a whole number`);
  }
  if (!Number.isSafeInteger(node.value)) throw new UnsupportedError(`${JSON.stringify(text)}: a seed is at most 2 ** 53 here`);
  return node.value;
}

/** @type {Record<string, (node: CallNode, text: string) => Selector>} */
const CALLS = {
  majority_of_samples({ values }, text) {
    const seed = seedOf(values, text);
    return new MajorityOfSamples(seed ? `majority_of_samples(${seed})` : "majority_of_samples", null, seed);
  },
  weighted_majority_of_samples({ values }, text) {
    const weight = values[0]?.kind === "name" ? values[0].name : "p_correct";
    const seed = seedOf(values[0]?.kind === "name" ? values.slice(1) : values, text);
    const said = [...(weight === "p_correct" ? [] : [weight]), ...(seed ? [seed] : [])].join(", ");
    return new MajorityOfSamples(`weighted_majority_of_samples${said && `(${said})`}`, weight, seed);
  },
  esc({ values }, text) {
    const window = values.length ? numberOf(values[0], text) : 0;
    const seed = seedOf(values.slice(1), text);
    if (!Number.isInteger(window) || window < 2 || window > 10) throw new RuleSyntaxError(`a window of esc has 2 to 10 answers, a whole number, not ${window}`);
    return new EscAnswer(seed ? `esc(${window}, ${seed})` : `esc(${window})`, null, seed, [`window_agreement_${window}`]);
  },
  rasc({ values }, text) {
    const threshold = values.length ? numberOf(values[0], text) : 0.5;
    const seed = seedOf(values.slice(1), text);
    return new RascAnswer(`rasc(${pythonFloat(threshold)}${seed ? `, ${seed}` : ""})`, threshold, seed);
  },
  centroid({ values }, text) {
    if (values.length) throw new RuleSyntaxError(`${JSON.stringify(text)}: centroid takes no arguments`);
    return new Centroid();
  },
  longest_run({ values, named }, text) {
    if (values.length !== 1 || named.length) throw new RuleSyntaxError(`${JSON.stringify(text)}: longest_run takes one rule`);
    return new LongestRun(values[0].kind === "name" ? parseRule(values[0].name) : ruleOf(values[0], text));
  },
  ranked({ values, named }, text) {
    const terms = named.map(([name, node]) => {
      if (node.kind !== "tuple" || node.items.length !== 2 || PYTHON_KEYWORDS.includes(name)) {
        throw new RuleSyntaxError("each feature needs a weight and a fill; write ranked(p_correct=(1.25, 0.31), votes=(0.4, 0.0))");
      }
      const [weight, fill] = node.items.map((item) => numberOf(item, text));
      return { name, weight, fill };
    });
    if (values.length) throw new RuleSyntaxError(`${JSON.stringify(text)}: the arguments of ranked have names`);
    return new Ranked(terms);
  },
};
