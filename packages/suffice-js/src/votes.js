/**
 * Signals of votes among the answers so far, each at the last of the given rounds.
 */

/** Running counts of votes by answer. */
class Tally {
  /** @param {readonly number[]} ids @param {readonly number[] | null} weights */
  constructor(ids, weights) {
    /** @type {number[]} */
    this.counts = [];
    this.first = 0;
    this.second = 0;
    this.total = 0;
    this.begun = false;
    let leader = -1;
    for (const [r, id] of ids.entries()) {
      const votes = weights === null ? 1 : weights[r];
      if (Number.isNaN(id) || Number.isNaN(votes)) continue;
      this.begun = true;
      while (this.counts.length <= id) this.counts.push(0);
      const count = this.counts[id] + votes;
      this.counts[id] = count;
      this.total += votes;
      const isOther = id !== leader;
      if (isOther && count > this.first) {
        this.second = this.first;
        leader = id;
      } else if (isOther) this.second = Math.max(this.second, count);
      if (id === leader) this.first = count;
    }
  }
}

/** Return P(Binomial(a + b + 1, 1/2) <= a), which is exact: every entry is a mean of two. @param {number} a @param {number} b */
function posterior(a, b) {
  let row = [0.5];
  for (let votes = 1; votes <= a + b; votes += 1) {
    row = Array.from({ length: votes + 1 }, (_, place) => {
      const fromLess = place > 0 ? row[place - 1] / 2 : 0;
      const fromSame = place < votes ? row[place] / 2 : 0.5;
      return fromLess + fromSame;
    });
  }
  return row[a];
}

/** @param {number} a @param {number} b */
function evidence(a, b) {
  const logs = [0];
  for (let k = 1; k <= a + b + 1; k += 1) logs.push(logs[k - 1] + Math.log(k));
  return (a + b) * Math.log(2) - logs[a + b + 1] + logs[a] + logs[b];
}

/** @param {Tally} tally */
function entropy(tally) {
  let sum = 0;
  for (const count of tally.counts) {
    const share = count / Math.max(tally.total, 1e-300);
    sum += share > 0 ? share * Math.log(share) : 0;
  }
  return Math.abs(sum);
}

/** @param {Tally} tally */
const share = (tally) => (tally.total > 0 ? tally.first / tally.total : Number.NaN);
/** @param {Tally} tally */
const lead = (tally) => tally.first - tally.second;

/** @type {Record<string, (tally: Tally) => number>} */
const FROM_COUNTS = {
  vote_share: share,
  vote_lead: lead,
  vote_entropy: entropy,
  posterior_majority: (tally) => posterior(tally.first, tally.second),
  vote_evidence: (tally) => evidence(tally.first, tally.second),
  weighted_vote_share: share,
  weighted_vote_lead: lead,
};

/** @param {readonly number[]} ids */
function joins(ids) {
  const [last, before] = [ids[ids.length - 1], new Tally(ids.slice(0, -1), null).counts];
  if (Number.isNaN(last)) return last;
  const most = Math.max(0, ...before);
  return Number(most > 0 && before.indexOf(most) === last);
}

/** Return whether this package computes a signal from votes. @param {string} name */
export const isVote = (name) =>
  name === "answer_id" || Object.hasOwn(FROM_COUNTS, name) || /^vote_(?:repeats|joins)$|^window_(?:agreement|end)_\d+$/.test(name);

/** Return whether a signal weighs votes, by `p_correct`. @param {string} name */
export const isWeighted = (name) => name === "weighted_vote_share" || name === "weighted_vote_lead";

/**
 * Return a signal of votes at the last round.
 *
 * @param {string} name
 * @param {readonly number[]} ids The number of each answer, by first appearance; NaN for one without a vote.
 * @param {readonly number[] | null} weights The weight of each answer; null counts each as one.
 */
export function voteSignal(name, ids, weights) {
  const last = ids[ids.length - 1];
  if (name === "answer_id") return last;
  const window = /^window_(agreement|end)_(\d+)$/.exec(name);
  if (window) {
    const size = Number(window[2]);
    if (ids.length % size !== 0) return 0;
    return Number(window[1] === "end" || ids.slice(-size).every((id) => id === ids[ids.length - size]));
  }
  if (name === "vote_repeats") return Number.isNaN(last) ? last : Number(ids.length > 1 && ids[ids.length - 2] === last);
  if (name === "vote_joins") return joins(ids);
  const tally = new Tally(ids, weights);
  return tally.begun ? FROM_COUNTS[name](tally) : Number.NaN;
}
