/**
 * Fitted state of a policy: monotone maps from a raw signal to a probability, and statistics of other signals.
 */

import { DataError, NotFittedError, SchemaError } from "./errors.js";

/** @typedef {(value: number) => number} Curve Returns a probability; NaN for NaN. */

/** Return whether a value is an object of JSON. @param {unknown} value @returns {value is Record<string, any>} */
export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Return whether an object has exactly these fields. @param {Record<string, unknown>} data @param {readonly string[]} names */
export const hasFields = (data, names) => names.every((name) => Object.hasOwn(data, name)) && Object.keys(data).length === names.length;

const isNumber = (/** @type {unknown} */ value) => typeof value === "number" && Number.isFinite(value);
const isProbability = (/** @type {any} */ value) => isNumber(value) && value >= 0 && value <= 1;
const isCount = (/** @type {any} */ value) => Number.isInteger(value) && value >= 1;

/**
 * Interpolate linearly between knots as `numpy.interp` does; a value outside takes that of the nearest knot.
 *
 * @param {number} value
 * @param {readonly number[]} x
 * @param {readonly number[]} y
 */
function interpolated(value, x, y) {
  if (Number.isNaN(value)) return value;
  if (value <= x[0]) return y[0];
  if (value >= x[x.length - 1]) return y[y.length - 1];
  let [low, high] = [0, x.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= value) low = middle;
    else high = middle;
  }
  return ((y[low + 1] - y[low]) / (x[low + 1] - x[low])) * (value - x[low]) + y[low];
}

/** @param {unknown} data @returns {Curve} */
function curveOf(data) {
  if (isObject(data)) {
    const { map, value, x, y, slope, intercept } = data;
    if (map === "constant" && hasFields(data, ["map", "value"]) && isProbability(value)) {
      return (at) => (Number.isNaN(at) ? at : value);
    }
    if (map === "piecewise_linear" && hasFields(data, ["map", "x", "y"]) && Array.isArray(x) && Array.isArray(y)) {
      const rises = x.every((knot, place) => isNumber(knot) && (place === 0 || knot > x[place - 1]));
      const levels = y.every((level, place) => isProbability(level) && (place === 0 || level >= y[place - 1]));
      if (rises && levels && x.length === y.length && x.length > 1) return (at) => interpolated(at, x, y);
    }
    if (map === "sigmoid" && hasFields(data, ["map", "slope", "intercept"]) && isNumber(slope) && isNumber(intercept) && slope > 0) {
      return (at) => 1 / (1 + Math.exp(-Math.min(Math.max(slope * at + intercept, -700), 700)));
    }
  }
  throw new SchemaError(
    `a calibration map does not read: ${JSON.stringify(data)?.slice(0, 200)}. It is constant, piecewise_linear (knots increase, ` +
      "probabilities do not decrease) or sigmoid (the slope is positive)",
  );
}

const FIELDS = ["output", "signal", "method", "per_round", "unseen_round", "target", "maps", "rounds_fitted"];

/** A monotone map from a raw signal to the probability that the round's answer is correct, for each round. */
export class Calibrator {
  /** @param {unknown} data The values of a policy file. */
  constructor(data) {
    if (!isObject(data) || !hasFields(data, FIELDS)) throw new SchemaError(`a calibrator has the fields ${FIELDS.join(", ")}`);
    const { output, signal, method, per_round: perRound, unseen_round: unseen, maps, rounds_fitted: counts, target } = data;
    if (!["isotonic", "platt"].includes(method) || !["error", "nearest"].includes(unseen)) {
      throw new SchemaError(`unknown method ${JSON.stringify(method)} or unseen_round ${JSON.stringify(unseen)} of a calibrator`);
    }
    if (![output, signal, target].every((text) => typeof text === "string") || typeof perRound !== "boolean" || !isObject(maps) || !isObject(counts)) {
      throw new SchemaError("a calibrator needs texts as output, signal and target, true or false as per_round, and objects as maps and rounds_fitted");
    }
    const rounds = [...Object.keys(maps), ...Object.keys(counts)];
    if (!rounds.every((r) => /^-?\d+$/.test(r)) || !Object.values(counts).every(Number.isInteger)) {
      throw new SchemaError(`the maps of a calibrator do not read: rounds are whole numbers, not ${rounds.join(", ")}`);
    }
    this.output = output;
    this.signal = signal;
    this.nearest = unseen === "nearest";
    this.perRound = perRound;
    this.curves = new Map(Object.entries(maps).map(([r, map]) => [Number(r), curveOf(map)]));
    if (!this.curves.size || (!perRound && !(this.curves.size === 1 && this.curves.has(-1)))) {
      throw new SchemaError(`a calibrator with per_round=${perRound} cannot have the rounds ${[...this.curves.keys()].join(", ")}`);
    }
  }

  /**
   * Return the probability for a value at a round; NaN for NaN.
   *
   * @param {number} value
   * @param {number} r
   */
  predict(value, r) {
    let curve = this.curves.get(this.perRound ? r : -1);
    if (curve === undefined) {
      if (Number.isNaN(value)) return value;
      const fitted = [...this.curves.keys()].sort((a, b) => Math.abs(a - r) - Math.abs(b - r) || a - b);
      if (!this.nearest) {
        throw new NotFittedError(
          `the calibrator of ${JSON.stringify(this.output)} was not fitted for round ${r}, only for ${fitted.sort((a, b) => a - b).join(", ")}: ` +
            "record those rounds and calibrate again, or lower max_rounds",
        );
      }
      curve = /** @type {Curve} */ (this.curves.get(fitted[0]));
    }
    return curve(value);
  }
}

/** @typedef {{ type: "idf" }} Idf */
/** @typedef {{ type: "zscore", source: string, apply: (value: number) => number }} ZScore */
/** @typedef {{ type: "allocation", source: string, apply: (value: number) => number }} Allocation */
/** @typedef {{ type: "rationale", weights: Record<string, number>, apply: (values: readonly number[]) => number }} RationaleScore */
/** @typedef {Idf | ZScore | Allocation | RationaleScore} FittedState */

/** @param {Record<string, any>} data @returns {ZScore} */
function zscoreOf({ type, center, scale, ...rest }) {
  if (!isNumber(center) || !isNumber(scale) || scale < 0 || Object.keys(rest).length) {
    throw new DataError("a z-score needs a finite center and a finite scale >= 0, and nothing else");
  }
  const apply = (/** @type {number} */ value) => {
    const z = scale === 0 ? Number.NaN : (value - center) / scale;
    return Number.isFinite(z) ? z : Number.NaN;
  };
  return { type, source: "top_score", apply };
}

/** @param {Record<string, any>} data @returns {Allocation} */
function allocationOf({ type, difficulties, sizes, easy, ...rest }) {
  const lists = Array.isArray(difficulties) && Array.isArray(sizes) && sizes.length === difficulties.length + 1;
  const rises = lists && difficulties.every((value, place) => isNumber(value) && (place === 0 || value >= difficulties[place - 1]));
  if (!rises || !sizes.every(isCount) || !(easy === null || isNumber(easy)) || Object.keys(rest).length) {
    throw new DataError(
      "an allocation needs ascending difficulties, a number of samples for each and one more, and the largest easy difficulty or null",
    );
  }
  const apply = (/** @type {number} */ value) => {
    if (Number.isNaN(value)) return value;
    if (easy !== null && value <= easy) return 1;
    const easier = difficulties.findIndex((/** @type {number} */ one) => one >= value);
    return sizes[easier < 0 ? difficulties.length : easier];
  };
  return { type, source: "difficulty", apply };
}

/** @param {Record<string, any>} data @returns {RationaleScore} */
function rationaleOf({ type, weights, intercept, ...rest }) {
  const isValid = isObject(weights) && Object.keys(weights).length && Object.values(weights).every(isNumber);
  if (!isValid || !isNumber(intercept) || Object.keys(rest).length) {
    throw new DataError("a score of rationales needs a finite weight for one or more signals and a finite intercept");
  }
  const factors = Object.values(weights);
  const apply = (/** @type {readonly number[]} */ values) => {
    const sum = values.reduce((total, value, place) => total + factors[place] * value, 0);
    return 0.5 * (1 + Math.tanh((intercept + sum) / 2));
  };
  return { type, weights, apply };
}

/** @param {Record<string, any>} data @returns {Idf} */
function idfOf({ type, n, df, seen, ...rest }) {
  const isValid = isCount(n) && isObject(df) && Object.values(df).every((count) => isCount(count) && count <= n);
  if (!isValid || !(seen === undefined || seen === null || isObject(seen)) || Object.keys(rest).length) {
    throw new DataError("document frequencies must be whole numbers from 1 to the number of texts");
  }
  for (const hashes of [seen?.tune_ids, seen?.tune_texts]) {
    if (hashes !== undefined && hashes !== null && !(Array.isArray(hashes) && hashes.every((one) => typeof one === "string"))) {
      throw new SchemaError("the questions that document frequencies were fitted on must be lists of hashes");
    }
  }
  return { type };
}

const STATES = /** @type {Record<string, (data: Record<string, any>) => FittedState>} */ ({
  allocation: allocationOf,
  idf: idfOf,
  rationale: rationaleOf,
  zscore: zscoreOf,
});

/**
 * Read the fitted state of a signal.
 *
 * @param {unknown} data
 * @returns {FittedState}
 */
export function stateOf(data) {
  const type = isObject(data) ? data.type : undefined;
  if (!isObject(data) || typeof type !== "string" || !Object.hasOwn(STATES, type)) {
    throw new DataError(`fitted state of unknown type ${JSON.stringify(type)}; allowed: ${Object.keys(STATES).join(", ")}`);
  }
  return STATES[type](data);
}
