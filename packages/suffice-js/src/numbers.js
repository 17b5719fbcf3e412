/**
 * Numbers as people and models write them in answers: signs, thousands, fractions, powers of ten, currencies and units.
 *
 * A port of `suffice.policy.numbers_in_text`, with exact fractions of big integers.
 */

import { anyCase, length, pattern, strip } from "./text.js";

const LONGEST = 1000;
const HOLE = "\0";
const MINUS = /[\u2010-\u2013\u2212\uff0d]/g;
const VULGAR = /[¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]/g;

/** @type {readonly [RegExp, string][]} */
const REWRITTEN = [
  [pattern(String.raw`\b(?:${anyCase("minus|negative")})\s+(?=[$€£¥.\d])`, "g"), "-"],
  [pattern(String.raw`\{,\}`, "g"), ","],
  [pattern(String.raw`\\([$%#])|\^\{?\\circ\}?`, "g"), "$1"],
  [pattern(String.raw`\\(?:boxed|fbox|text|mathrm|mbox)\b|\\[,;! ()\[\]]`, "g"), " "],
];

const SCALES = /** @type {Record<string, bigint>} */ ({
  dozen: 12n,
  hundred: 100n,
  thousand: 10n ** 3n,
  million: 10n ** 6n,
  billion: 10n ** 9n,
  trillion: 10n ** 12n,
});
const SHORT = /** @type {Record<string, bigint>} */ ({ k: 10n ** 3n, m: 10n ** 6n, mn: 10n ** 6n, b: 10n ** 9n, bn: 10n ** 9n });

/** @param {string} letters */
const oneOf = (letters) => `(?:${anyCase([...letters].join("|"))})`;
const UNITS = [
  `${oneOf("kcm")}${anyCase("m")}`,
  `${oneOf("km")}${anyCase("g")}`,
  ...["ml", "lbs?", "oz", "ft", "mph", "km/h", "hrs?", "mins?", "secs?", "ms"].map(anyCase),
  `${oneOf("kmgt")}${anyCase("b")}`,
  anyCase("kwh"),
].join("|");
const RUN = String.raw`(?:\d[\d.,_']*\d|\d)`;
const CURRENCY = String.raw`(?=\s*(?:${anyCase("usd|eur|gbp|dollars?|euros?")})\b)`;

/**
 * Return the pattern of a number from its currency on.
 *
 * @param {string} name Ending of the names of its groups.
 * @param {string} afterShort What must follow a short scale, such as the "m" of "5m".
 */
const numberFrom = (name, afterShort) =>
  String.raw`(?<inner${name}>[-+])?(?<![\w.])(?:(?<whole${name}>\d{1,9})\s+(?=\d+\s*/\s*\d))?` +
  String.raw`(?<digits${name}>\.${RUN}|${RUN}\.?(?!\d))(?<power${name}>[eE][-+]?\d{1,3}(?!\w))?` +
  String.raw`(?:\s*(?:[xX\u00d7*·]|\\${anyCase("times")}|\\${anyCase("cdot")})\s*10\s*(?:\^|\*\*)\s*\{?(?<ten${name}>[-+]?\d{1,3})\}?(?!\w))?` +
  String.raw`(?:\s*/\s*(?<bottom${name}>\d+)(?![\d.,]*\d))?` +
  String.raw`(?:\s*(?<scale${name}>${anyCase("dozen|hundred|thousand")}|${oneOf("mbt")}${anyCase("r?illion")})${anyCase("s?")}\b|(?:${UNITS})\b` +
  String.raw`|\s?(?<short${name}>${oneOf("kmb")}|${anyCase("bn|mn")})\b${afterShort})?(?!\w)`;

const NUMBER = pattern(
  String.raw`(?:(?:^\s*|(?<=[:=]\s)|(?<![\w)\]}.%,]))(?<sign>(?<=[:=]\s)[-+]\s*|^\s*[-+]\s*|[-+])?)` +
    String.raw`(?:[$€£¥]\s*${numberFrom("1", "")}|${numberFrom("2", CURRENCY)})`,
  "g",
);
const VALID = pattern(String.raw`^(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?$`);

const NOT_ALONE = pattern(
  [
    String.raw`\0\s*(?:[-+*/\u00d7·÷:±]|\*\*|[xX])\s*\(?\s*\0`,
    String.raw`\0\s*\0|\0\s*[-+*/]\s*(?:\d|[A-Za-z]\b|\()|\0\s*(?:\^|[ap]\.?m\b|pi\b|π|√|±)|^\W*\0!`,
    String.raw`[-+±][\s$€£¥(\{]*\0|[\^√∛]\s*[(\{]?\s*\0|^\W*[<>≤≥≠±]\s*[$€£¥]?\0|(?<![\w<])\w\s*[<>≤≥≠]\s*\0`,
  ].join("|"),
);
const COMMAND = pattern(String.raw`\\[A-Za-z]|\d,\d|\d[.,]\d+[.,]\d`);
const SEVERAL = pattern(String.raw`[;\n]|,(?!\d{3})|\b(?:${anyCase("and|or")})\b`);
const PERCENT = pattern(String.raw`\d\s*\\?%`);
const DIGIT = /\p{Nd}/gu;

/** @typedef {{ readonly top: bigint, readonly bottom: bigint }} Fraction A fraction in lowest terms. */

/** @param {bigint} top @param {bigint} bottom @returns {Fraction} */
function fraction(top, bottom) {
  let [a, b] = [top < 0n ? -top : top, bottom];
  while (b) [a, b] = [b, a % b];
  return a ? { top: top / a, bottom: bottom / a } : { top: 0n, bottom: 1n };
}

/** Return a fraction as Python writes it. @param {Fraction} value */
const written = (value) => (value.bottom === 1n ? String(value.top) : `${value.top}/${value.bottom}`);

/** Return a text with digits of all scripts as ASCII digits. @param {string} text */
function asciiDigits(text) {
  return text.replace(DIGIT, (digit) => {
    const code = /** @type {number} */ (digit.codePointAt(0));
    if (code < 0x80) return digit;
    if (code >= 0x1d7ce && code <= 0x1d7ff) return String((code - 0x1d7ce) % 10);
    let zero = code;
    while (code - zero < 9 && /\p{Nd}/u.test(String.fromCodePoint(zero - 1))) zero -= 1;
    return String(code - zero);
  });
}

/**
 * Return the value of a match of a number; null if it cannot be read.
 *
 * @param {Record<string, string | undefined>} groups
 * @returns {Fraction | null}
 */
function valueOf(groups) {
  /** @param {string} name */
  const group = (name) => groups[`${name}1`] ?? groups[`${name}2`] ?? "";
  const digits = group("digits").replace(/\.+$/, "");
  if (!VALID.test(digits) || Math.max(length(digits), length(group("bottom"))) > LONGEST) return null;
  const [whole, decimals = ""] = asciiDigits(digits.replaceAll(",", "")).split(".");
  let [top, bottom] = [BigInt(whole + decimals), 10n ** BigInt(decimals.length)];
  for (const exponent of [group("power").slice(1), group("ten")]) {
    const power = Number(asciiDigits(exponent || "0"));
    if (power >= 0) top *= 10n ** BigInt(power);
    else bottom *= 10n ** BigInt(-power);
  }
  top *= (SCALES[group("scale").toLowerCase()] ?? 1n) * (SHORT[group("short").toLowerCase()] ?? 1n);
  if (group("bottom")) {
    const divisor = BigInt(asciiDigits(group("bottom")));
    if (divisor === 0n) return null;
    bottom *= divisor;
  }
  top += BigInt(asciiDigits(group("whole") || "0")) * bottom;
  const minus = [...`${groups.sign ?? ""}${group("inner")}`].filter((sign) => sign === "-").length;
  return fraction(minus % 2 ? -top : top, bottom);
}

/**
 * Return what stands around the numbers of a text, with a hole for each, and their values.
 *
 * @param {string} text
 */
function withoutNumbers(text) {
  let rest = text.replace(MINUS, "-").replace(VULGAR, (one) => ` ${one.normalize("NFKC").replace("\u2044", "/")}`);
  rest = strip(rest.replaceAll(HOLE, " "));
  for (const [part, replacement] of REWRITTEN) rest = rest.replace(part, replacement);
  /** @type {(Fraction | string)[]} */
  const values = [];
  rest = rest.replace(NUMBER, (...found) => {
    values.push(valueOf(found[found.length - 1]) ?? found[0]);
    return HOLE;
  });
  return { rest, values };
}

/** @param {string} text @returns {Fraction | null} */
function only(text) {
  if (length(text) > LONGEST) return null;
  const before = text.split("=");
  const last = /** @type {string} */ (before.pop());
  if (before.length && (/[<>!~]$/.test(before[before.length - 1]) || before.slice(1).some((part) => SEVERAL.test(part)))) {
    return null;
  }
  const { rest, values } = withoutNumbers(last);
  const different = new Set(values.map((value) => (typeof value === "string" ? `text ${value}` : written(value))));
  if (different.size !== 1 || NOT_ALONE.test(rest) || COMMAND.test(rest)) return null;
  return typeof values[0] === "string" ? null : values[0];
}

/**
 * Return the only number of a text, or of what follows its last "=", as a fraction; null where there is none, or several.
 *
 * @param {string} text
 */
export function onlyNumber(text) {
  const value = only(text);
  return value && written(value);
}

/** Return the only number of a text, where a percent sign counts: 39 % is 39/100. @param {string} text */
export function percentOf(text) {
  const value = only(text);
  if (!value) return null;
  return written(PERCENT.test(text) ? fraction(value.top, value.bottom * 100n) : value);
}
