/**
 * Text as Python sees it: words, white space and numbers, on which both libraries have to agree.
 */

const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORD = "\\p{L}\\p{N}_";

/**
 * Build a regular expression from Python's syntax, with Unicode classes: `\w`, `\W`, `\d`, `\s` and `\b`.
 *
 * Inside a class `\w`, `\d` and `\s` may be used as well; `[^]` is any character.
 *
 * @param {string} source The pattern.
 * @param {string} [flags] Flags besides `u`.
 */
export function pattern(source, flags = "") {
  let inClass = false;
  const text = source.replace(/\\[\s\S]|\[|\]/g, (part) => {
    if (part === "[" && !inClass) inClass = true;
    else if (part === "]") inClass = false;
    if (part === "\\w") return inClass ? WORD : `[${WORD}]`;
    if (part === "\\W") return `[^${WORD}]`;
    if (part === "\\d") return "\\p{Nd}";
    if (part === "\\s") return inClass ? SPACE : `[${SPACE}]`;
    if (part === "\\S") return `[^${SPACE}]`;
    if (part === "\\b") return `(?:(?<=[${WORD}])(?![${WORD}])|(?<![${WORD}])(?=[${WORD}]))`;
    return part;
  });
  return new RegExp(text, `u${flags}`);
}

const SPACES = new RegExp(`[${SPACE}]+`, "u");
const EDGES = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "gu");
const BLANK = new RegExp(`^[${SPACE}]*$`, "u");

/** The characters besides a letter and its capital that Python takes for the letter where case does not count. */
const ALSO = /** @type {Record<string, string>} */ ({ i: "\u0130\u0131", k: "\u212a", s: "\u017f" });

/**
 * Return a part of a pattern in which the case of lower-case letters does not count, as Python ignores it.
 *
 * @param {string} source Letters and signs without classes or escapes.
 */
export const anyCase = (source) =>
  source.replace(/[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}${ALSO[letter] ?? ""}]`);

/** Return the words between white space. @param {string} text */
export const split = (text) => text.split(SPACES).filter((word) => word !== "");

/** Return a text without white space at its ends. @param {string} text */
export const strip = (text) => text.replace(EDGES, "");

/** Return whether a text is missing, empty or white space alone. @param {string | null | undefined} text */
export const isBlank = (text) => text === null || text === undefined || BLANK.test(text);

/** Return the first characters of a text, where a character is a code point. @param {string} text @param {number} most */
export const first = (text, most) => (text.length <= most ? text : Array.from(text).slice(0, most).join(""));

/** Return the number of characters. @param {string} text */
export const length = (text) => Array.from(text).length;

/**
 * Return a number as Python's `repr` of a float writes it.
 *
 * @param {number} value
 */
export function pythonFloat(value) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const sign = value < 0 ? "-" : "";
  const [mantissa, power] = Math.abs(value).toExponential().split("e");
  const digits = mantissa.replace(".", "");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    const tail = digits.length > 1 ? `.${digits.slice(1)}` : "";
    return `${sign}${digits[0]}${tail}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${sign}${whole}.${digits.slice(exponent + 1) || "0"}`;
}

/** Return a threshold as the text of a rule writes it. @param {number} value */
export function thresholdText(value) {
  return Number.isInteger(value) && Math.abs(value) < 2 ** 53 ? String(value + 0 || 0) : pythonFloat(value);
}
