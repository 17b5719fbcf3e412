/** The base class of all errors of this package. */
export class SufficeError extends Error {
  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

/** A text is not a rule or a selector. */
export class RuleSyntaxError extends SufficeError {}

/** A file is not a policy that this release reads. */
export class SchemaError extends SufficeError {}

/** A value from the host is not what is allowed. */
export class DataError extends SufficeError {}

/** The policy is valid, but this package cannot decide by it; the message says why. */
export class UnsupportedError extends SufficeError {}

/** A round lacks a signal that the policy reads. */
export class UnknownSignalError extends SufficeError {}

/** A signal needs fitted state that the policy does not hold. */
export class NotFittedError extends SufficeError {}
