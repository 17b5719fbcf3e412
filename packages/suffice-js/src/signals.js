/**
 * Signals: numbers that are known when a round ends, without labels. NaN = undefined.
 */

import { abstainedBy, answerKey, f1 } from "./answers.js";
import { SIGNALS } from "./generated.js";
import { isBlank, split } from "./text.js";

/**
 * @typedef {object} Cost The measured costs of one component; null where the endpoint does not report them.
 * @property {number | null} [calls]
 * @property {number | null} [uncached_tokens]
 * @property {number | null} [cached_tokens]
 * @property {number | null} [output_tokens]
 * @property {number | null} [seconds]
 *
 * @typedef {object} Round One round of a loop, as the host reports it.
 * @property {number} index The round: 0 = the model alone, 1, 2, ... = after the r-th piece of evidence or draft.
 * @property {string | null} answer The answer; null if the round produced none.
 * @property {Readonly<Record<string, number | boolean | null>>} signals Signals that the host measured; null where undefined.
 * @property {Readonly<Record<string, Cost>>} costs Costs by component.
 */

const ROUNDING = 1e-6;
const WRITERS = ["generator", "writer"];

/** Components whose calls `calls`, `tokens` and `seconds` add up. */
const LOOP_COMPONENTS = [...WRITERS, "critic", "query"];

/** The kinds of cost that each of these signals adds up since the start round. */
export const CUMULATED = /** @type {Record<string, (keyof Cost)[]>} */ ({
  calls: ["calls"],
  tokens: ["uncached_tokens", "cached_tokens", "output_tokens"],
  seconds: ["seconds"],
});

/** Return a host's value as a number; NaN if it is none. @param {unknown} value */
export const asNumber = (value) => (typeof value === "number" || typeof value === "boolean" ? Number(value) : Number.NaN);

/** Return the value of a signal in a round's signals. @param {Round} round @param {string} name */
export const measured = (round, name) => asNumber(Object.hasOwn(round.signals, name) ? round.signals[name] : null);

/** Return whether a signal may be defined at a round. @param {string} name @param {number} r */
export function mayExist(name, r) {
  const known = SIGNALS[name];
  return r >= known.first && (known.last === null || r <= known.last);
}

/** Return a value if it is in the range of a signal, else NaN; clip it where that is declared, or by rounding. @param {string} name @param {number} value */
export function clean(name, value) {
  if (!Object.hasOwn(SIGNALS, name)) return Number.isFinite(value) ? value : Number.NaN;
  const { low, high, clip } = SIGNALS[name];
  if (Number.isFinite(value) && low <= value && value <= high) return value;
  const isNear = Number.isFinite(value) && value >= low - ROUNDING && value <= high + ROUNDING;
  return isNear || (clip && !Number.isNaN(value)) ? Math.min(Math.max(value, low), high) : Number.NaN;
}

/** @param {readonly Round[]} rounds @returns {[string, string] | null} */
function lastTwo(rounds) {
  const [before, last] = rounds.slice(-2);
  if (last === undefined || last.index < 2 || isBlank(last.answer) || isBlank(before.answer)) return null;
  return [/** @type {string} */ (last.answer), /** @type {string} */ (before.answer)];
}

/**
 * The rounds since the one with which the newest answer came; NaN without an answer.
 * @param {readonly Round[]} rounds
 */
function sameBefore(rounds) {
  let [last, same, without] = [/** @type {string | null} */ (null), -1, 0];
  for (const { answer } of [...rounds].reverse()) {
    if (answer === null) without += 1;
    else if (last === null || answer === last) [last, same, without] = [answer, same + 1 + without, 0];
    else break;
  }
  return last === null ? Number.NaN : same;
}

/** @param {readonly Round[]} rounds */
function checksGreen(rounds) {
  const same = sameBefore(rounds);
  if (Number.isNaN(same)) return Number.NaN;
  let green = 0;
  for (const round of rounds.slice(rounds.length - 1 - same).reverse()) {
    const passed = measured(round, "check_passed");
    if (passed === 0) break;
    green += passed === 1 ? 1 : 0;
  }
  return green;
}

/** @param {readonly Round[]} rounds */
function errorGain(rounds) {
  const errors = rounds.map((round) => measured(round, "check_error"));
  let smoothed = Number.NaN;
  for (let r = 1; r < errors.length; r += 1) {
    const [before, now] = [errors[r - 1], errors[r]];
    const ratio = before !== 0 ? now / before : now === 0 ? 0 : 2.05;
    smoothed = Number.isNaN(smoothed) ? ratio : 0.5 * ratio + 0.5 * smoothed;
    if (Number.isNaN(now)) smoothed = Number.NaN;
  }
  return smoothed;
}

const MARKS = ["faithfulness", "answer_relevancy", "context_precision", "context_recall"];

/** @param {Round} round */
function informationScore(round) {
  if (Object.hasOwn(round.signals, "information_score")) return measured(round, "information_score");
  const marks = MARKS.map((name) => measured(round, name));
  if (!marks.every((mark) => mark >= 0 && mark <= 1)) return Number.NaN;
  return Math.min(Math.max(marks.reduce((sum, mark) => sum + 0.25 * mark, 0), 0), 1);
}

/** Return a cost; 0 where the component does not say, NaN where it is unknown. @param {Cost} cost @param {keyof Cost} kind */
const costOf = (cost, kind) => (cost[kind] === undefined ? 0 : asNumber(cost[kind]));

/** @param {Round} round @param {readonly string[]} components @param {(cost: Cost) => number} value */
function ofFirst(round, components, value) {
  const name = components.find((component) => Object.hasOwn(round.costs, component));
  return name === undefined ? Number.NaN : value(round.costs[name]);
}

/** Return what a round adds to `calls`, `tokens` or `seconds`. @param {string} name @param {Round} round */
export function costsOf(name, round) {
  const absent = LOOP_COMPONENTS.some((component) => Object.hasOwn(round.costs, component)) ? 0 : Number.NaN;
  let sum = 0;
  for (const component of LOOP_COMPONENTS) {
    for (const kind of CUMULATED[name]) {
      sum += Object.hasOwn(round.costs, component) ? costOf(round.costs[component], kind) : absent;
    }
  }
  return sum;
}

const abstained = abstainedBy();

/** The signals that this package computes from the rounds, besides those of votes. */
export const COMPUTED = /** @type {Record<string, (rounds: readonly Round[]) => number>} */ ({
  answer_stable(rounds) {
    const pair = lastTwo(rounds);
    return pair === null ? Number.NaN : Number(answerKey(pair[0]) === answerKey(pair[1]));
  },
  answer_f1_previous(rounds) {
    const pair = lastTwo(rounds);
    if (pair === null) return Number.NaN;
    return answerKey(pair[0]) === answerKey(pair[1]) ? 1 : f1(...pair);
  },
  answer_length: (rounds) => split(rounds[rounds.length - 1].answer ?? "").length || Number.NaN,
  abstained: (rounds) => abstained(rounds[rounds.length - 1].answer),
  since_change: sameBefore,
  checks_green_since_change: checksGreen,
  error_gain: errorGain,
  information_score: (rounds) => informationScore(rounds[rounds.length - 1]),
  information_gain(rounds) {
    if (rounds.length < 2) return Number.NaN;
    const [before, last] = rounds.slice(-2).map((round) => clean("information_score", informationScore(round)));
    return last - before;
  },
  context_tokens: (rounds) =>
    ofFirst(rounds[rounds.length - 1], WRITERS, (cost) => costOf(cost, "uncached_tokens") + costOf(cost, "cached_tokens")),
  draft_tokens: (rounds) => ofFirst(rounds[rounds.length - 1], [...WRITERS].reverse(), (cost) => costOf(cost, "output_tokens")),
});
