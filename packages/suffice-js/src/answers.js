/**
 * When two answers are the same: the normalizers of a policy, and the signals that read the answers alone.
 */

import { DataError, UnsupportedError } from "./errors.js";
import { DEFAULT_ABSTAIN_PATTERNS } from "./generated.js";
import { onlyNumber, percentOf } from "./numbers.js";
import { first, isBlank, pattern, split, strip } from "./text.js";

const PUNCTUATION = /[!-/:-@[-`{-~]/g;
const ARTICLE = pattern(String.raw`\b(a|an|the)\b`, "g");
const CLOSED = new Set(["yes", "no", "noanswer"]);
const COMPARED = 1000;

/**
 * Return an answer as the official scorer of HotpotQA and SQuAD compares it: lower case, without punctuation and articles.
 *
 * @param {string} text
 */
export function normalizeAnswer(text) {
  return split(text.toLowerCase().replace(PUNCTUATION, "").replace(ARTICLE, " ")).join(" ");
}

/** Return the key by which the answers of two rounds are compared. @param {string} text */
export const answerKey = (text) => normalizeAnswer(text) || strip(text).toLowerCase();

/**
 * Return the token F1 of two answers.
 *
 * @param {string} answer
 * @param {string} gold
 */
export function f1(answer, gold) {
  const [one, other] = [normalizeAnswer(answer), normalizeAnswer(gold)];
  if (one !== other && (CLOSED.has(one) || CLOSED.has(other))) return 0;
  const [tokens, golds] = [split(one), split(other)];
  const counts = new Map();
  for (const token of golds) counts.set(token, (counts.get(token) ?? 0) + 1);
  let same = 0;
  for (const token of tokens) {
    const left = counts.get(token) ?? 0;
    if (left > 0) same += 1;
    counts.set(token, left - 1);
  }
  if (same === 0) return 0;
  const [precision, recall] = [same / tokens.length, same / golds.length];
  return (2 * precision * recall) / (precision + recall);
}

const LONGEST = 1000;
const TRUTH = /** @type {Record<string, string>} */ ({ true: "true", yes: "true", false: "false", no: "false" });
const TRUTH_FIRST = pattern(
  String.raw`^[^\p{L}\p{N}]*([tT][rR][uU][eE]|[yY][eE][sS]|[fF][aA][lL][sS][eE]|[nN][oO])(?:[^\p{L}\p{N}]*|[.,:;!][^]*)$`,
);
const OPTION = pattern(String.raw`^[^\p{L}\p{N}]*([A-Za-z])(?:[^\p{L}\p{N}]*|[).:\]][^]*)$`);
const APART = String.raw`[^\p{L}\p{N}]`;
/** @param {string} letter */
const listed = (letter) => String.raw`${letter}(?:${APART}+(?:(?:and|or)\b${APART}+)?${letter})+`;
const OPTIONS = pattern(
  String.raw`^(?:${APART}*(?:${listed("[A-Z]")}|${listed("[a-z]")})${APART}*` +
    String.raw`|${APART}*[A-Za-z]([)\]:])\s[^]*(?:[,;]|\band)\s*[(\[]?[A-Za-z]\1\s[^]*)$`,
);

/** @typedef {(answer: string) => string | null} Normalizer Returns the key of an answer; null if it casts no vote. */

/** @type {Record<string, Normalizer>} */
const NORMALIZERS = {
  qa: (answer) => answerKey(answer) || null,
  exact: (answer) => strip(answer) || null,
  number: onlyNumber,
  percent: percentOf,
  boolean(answer) {
    const match = TRUTH_FIRST.exec(first(answer, LONGEST));
    return match ? TRUTH[match[1].toLowerCase()] : null;
  },
  letter(answer) {
    const text = strip(first(answer, LONGEST));
    const match = OPTIONS.test(text) ? null : OPTION.exec(text);
    return match ? match[1].toUpperCase() : null;
  },
};

/** The normalizers of the Python library that this package does not have, with the reason. */
const ELSEWHERE = /** @type {Record<string, string>} */ ({
  decimal_comma: "it falls back to `mixed`",
  mixed_comma: "it reads programs and units",
  mixed: "it reads programs and units",
  literal: "it reads literals of Python",
  unordered: "it reads literals of Python",
  math: "it needs a computer algebra system",
  date: "it reads dates as Python does",
  date_day_first: "it reads dates as Python does",
  meaning: "it needs an embedder",
});

/**
 * Return a normalizer by its name.
 *
 * @param {string} name
 * @returns {Normalizer}
 */
export function normalizerOf(name) {
  if (Object.hasOwn(NORMALIZERS, name)) return NORMALIZERS[name];
  const here = Object.keys(NORMALIZERS).join(", ");
  const why = Object.hasOwn(ELSEWHERE, name) ? ELSEWHERE[name] : "it is not one of the Python library's own";
  throw new UnsupportedError(
    `the policy compares answers by ${JSON.stringify(name)}, which this package does not have: ${why}. Here are: ${here}`,
  );
}

/**
 * Number the distinct answers by first appearance; NaN for an answer that is missing or cannot be read.
 *
 * @param {readonly (string | null)[]} answers
 * @param {Normalizer} normalizer
 */
export function answerIds(answers, normalizer) {
  const known = new Map();
  return answers.map((answer) => {
    const key = answer === null ? null : normalizer(answer);
    if (key === null) return Number.NaN;
    if (!known.has(key)) known.set(key, known.size);
    return /** @type {number} */ (known.get(key));
  });
}

const WORD_EDGES = /^[.,;:!?"'()[\]{}*_`<>\u2026]+|[.,;:!?"'()[\]{}*_`<>\u2026]+$/gu;

/** @param {string} text */
function strippedWords(text) {
  return split(text.toLowerCase().replaceAll("\u2019", "'"))
    .map((word) => word.replace(WORD_EDGES, ""))
    .filter(Boolean);
}

/** @param {readonly string[]} words */
const spaced = (words) => (words.length ? ` ${words.join(" ")} ` : " ");

/** @param {string} text @returns {string[]} */
function partsOf(text) {
  /** @type {string[][]} */
  const runs = [[]];
  for (const part of split(text)) {
    if (part === "*") runs.push([]);
    else runs[runs.length - 1].push(...strippedWords(part));
  }
  if (!runs.some((run) => run.length)) {
    throw new DataError(`an abstain pattern needs at least one word; ${JSON.stringify(text)} has none and would match anything`);
  }
  return runs.map(spaced);
}

/** @param {string} words @param {readonly string[]} parts */
function matches(words, parts) {
  if (!words.startsWith(parts[0])) return false;
  let end = parts[0].length - 1;
  for (const part of parts.slice(1, -1)) {
    const at = words.indexOf(part, end);
    if (at < 0) return false;
    end = at + part.length - 1;
  }
  const last = parts[parts.length - 1];
  return words.endsWith(last) && words.length - last.length >= end;
}

/**
 * Return a function that says whether an answer is a refusal to answer, by these patterns.
 *
 * @param {readonly string[]} [patterns] Words, with `*` for any words; default: the library's own list.
 * @returns {(answer: string | null) => number}
 */
export function abstainedBy(patterns = DEFAULT_ABSTAIN_PATTERNS) {
  const parsed = patterns.map(partsOf);
  return (answer) => {
    if (answer === null || isBlank(answer)) return Number.NaN;
    const words = spaced(strippedWords(first(answer, COMPARED)));
    const refused = parsed.some((parts) => (parts.length === 1 ? words === parts[0] : matches(words, parts)));
    return refused ? 1 : 0;
  };
}
