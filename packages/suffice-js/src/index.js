/**
 * Decide in process when an answer loop should stop, by a policy of the Python library Suffice.
 *
 * @module
 */

export { DataError, NotFittedError, RuleSyntaxError, SchemaError, SufficeError, UnknownSignalError, UnsupportedError } from "./errors.js";
export { normalizeAnswer } from "./answers.js";
export { Policy } from "./policy.js";
export { Session } from "./session.js";

/**
 * @typedef {import("./session.js").Decision} Decision
 * @typedef {import("./session.js").Observed} Observed
 * @typedef {import("./session.js").Reason} Reason
 * @typedef {import("./signals.js").Cost} Cost
 */
