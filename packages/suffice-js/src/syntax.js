/**
 * The syntax of rules and selectors: the part of Python's expressions that they use. Nothing is executed.
 */

import { RuleSyntaxError } from "./errors.js";
import { PYTHON_KEYWORDS } from "./generated.js";

/**
 * @typedef {{ kind: "number", value: number, whole: boolean }} NumberNode
 * @typedef {{ kind: "name", name: string }} NameNode
 * @typedef {{ kind: "negative", of: Node }} NegativeNode
 * @typedef {{ kind: "binary", sign: string, left: Node, right: Node }} BinaryNode
 * @typedef {{ kind: "compare", signs: string[], values: Node[] }} CompareNode
 * @typedef {{ kind: "and" | "or", members: Node[] }} JoinNode
 * @typedef {{ kind: "not" }} NotNode
 * @typedef {{ kind: "tuple", items: Node[] }} TupleNode
 * @typedef {{ kind: "call", name: string, values: Node[], named: [string, Node][] }} CallNode
 * @typedef {NumberNode | NameNode | NegativeNode | BinaryNode | CompareNode | JoinNode | NotNode | TupleNode | CallNode} Node
 */

const LONGEST = 20_000;
const TOKEN =
  /[ \t\f]+|\r\n|[\r\n]|(?:(?:\d(?:_?\d)*)?\.\d(?:_?\d)*|\d(?:_?\d)*\.?)(?:[eE][-+]?\d(?:_?\d)*)?|[A-Za-z_]\w*|[<>=!]=|[-+*&|<>(),=~]/y;

/** @typedef {{ text: string, place: number }} Token */

/**
 * Return the words, numbers and signs of a text.
 *
 * @param {string} text
 * @param {string} what
 */
function tokensOf(text, what) {
  /** @type {Token[]} */
  const tokens = [];
  let [place, depth] = [0, 0];
  while (place < text.length) {
    TOKEN.lastIndex = place;
    const found = TOKEN.exec(text)?.[0];
    const next = found === undefined ? "" : (text[place + found.length] ?? "");
    const isNumber = found !== undefined && /^\.?\d/.test(found);
    const misspelled = isNumber && (/[\w.]/.test(next) || /^0[\d_]*[1-9][\d_]*$/.test(/** @type {string} */ (found)));
    const outside = found !== undefined && /^[\r\n]/.test(found) && depth === 0;
    if (found === undefined || misspelled || outside) {
      throw new RuleSyntaxError(`${JSON.stringify(text)} is not a ${what}: ${JSON.stringify(text[place])} at character ${place + 1} does not belong there`);
    }
    if (found === "(") depth += 1;
    else if (found === ")") depth -= 1;
    if (!/^\s/.test(found)) {
      const word = /** @type {Record<string, string>} */ ({ "&": "and", "|": "or" })[found];
      tokens.push({ text: word ?? found, place });
    }
    place += found.length;
  }
  return tokens;
}

/** Reads tokens from left to right, loosest operator first. */
class Reader {
  /** @param {string} text @param {string} what */
  constructor(text, what) {
    this.text = text;
    this.what = what;
    this.tokens = tokensOf(text, what);
    this.at = 0;
  }

  get next() {
    return this.tokens[this.at]?.text;
  }

  /** @param {string} text */
  takes(text) {
    const is = this.next === text;
    if (is) this.at += 1;
    return is;
  }

  /** @param {string} [hint] @returns {never} */
  refuse(hint = "an operator, a name or a number is missing or misplaced") {
    const place = this.tokens[this.at]?.place ?? this.text.length;
    throw new RuleSyntaxError(`${JSON.stringify(this.text)} is not a ${this.what}: at character ${place + 1}, ${hint}`);
  }

  /** @returns {Node} */
  all() {
    const node = this.joined("or");
    if (this.at < this.tokens.length) this.refuse();
    return node;
  }

  /** @param {"or" | "and"} word @returns {Node} */
  joined(word) {
    /** @type {Node[]} */
    const members = [];
    do members.push(word === "or" ? this.joined("and") : this.compared());
    while (this.takes(word));
    return members.length > 1 ? { kind: word, members } : members[0];
  }

  /** @returns {Node} */
  compared() {
    if (this.takes("not")) {
      this.compared();
      return { kind: "not" };
    }
    /** @type {Node[]} */
    const values = [this.summed()];
    /** @type {string[]} */
    const signs = [];
    while (/^(?:[<>]=?|[=!]=)$/.test(this.next ?? "")) {
      signs.push(/** @type {string} */ (this.next));
      this.at += 1;
      values.push(this.summed());
    }
    return signs.length ? { kind: "compare", signs, values } : values[0];
  }

  /** @returns {Node} */
  summed() {
    let node = this.multiplied();
    while (this.next === "+" || this.next === "-") {
      const sign = this.next;
      this.at += 1;
      node = { kind: "binary", sign, left: node, right: this.multiplied() };
    }
    return node;
  }

  /** @returns {Node} */
  multiplied() {
    let node = this.signed();
    while (this.takes("*")) node = { kind: "binary", sign: "*", left: node, right: this.signed() };
    return node;
  }

  /** @returns {Node} */
  signed() {
    if (this.takes("-")) return { kind: "negative", of: this.signed() };
    if (this.takes("~")) {
      this.signed();
      return { kind: "not" };
    }
    return this.atom();
  }

  /** @returns {Node} */
  atom() {
    const word = this.next;
    if (word === undefined) this.refuse("the text ends too early");
    if (this.takes("(")) return this.parenthesised();
    if (/^\.?\d/.test(word)) {
      this.at += 1;
      return { kind: "number", value: Number(word.replaceAll("_", "")), whole: /^[\d_]+$/.test(word) };
    }
    if (!/^[A-Za-z_]/.test(word) || PYTHON_KEYWORDS.includes(word)) this.refuse();
    this.at += 1;
    return this.takes("(") ? this.called(word) : { kind: "name", name: word };
  }

  /** @returns {Node} */
  parenthesised() {
    const first = this.joined("or");
    if (this.takes(")")) return first;
    const items = [first];
    while (this.takes(",")) {
      if (this.next === ")") break;
      items.push(this.joined("or"));
    }
    if (!this.takes(")")) this.refuse("a parenthesis is not closed");
    return { kind: "tuple", items };
  }

  /** @param {string} name @returns {Node} */
  called(name) {
    /** @type {Node[]} */
    const values = [];
    /** @type {[string, Node][]} */
    const named = [];
    while (!this.takes(")")) {
      const key = this.next ?? "";
      if (/^[A-Za-z_]/.test(key) && this.tokens[this.at + 1]?.text === "=" && !PYTHON_KEYWORDS.includes(key)) {
        this.at += 2;
        named.push([key, this.joined("or")]);
      } else {
        if (named.length) this.refuse("an argument without a name follows one with a name");
        values.push(this.joined("or"));
      }
      if (!this.takes(",") && this.next !== ")") this.refuse("a parenthesis is not closed");
    }
    return { kind: "call", name, values, named };
  }
}

/**
 * Return the syntax tree of a text.
 *
 * @param {string} text
 * @param {string} what What the text should be, for messages.
 * @returns {Node}
 */
export function parsed(text, what) {
  const stripped = text.trim();
  if (text.length > LONGEST) throw new RuleSyntaxError(`a ${what} of ${text.length} characters is too long; allowed: ${LONGEST}`);
  if (stripped === "") throw new RuleSyntaxError(`an empty text is not a ${what}`);
  return new Reader(stripped, what).all();
}
