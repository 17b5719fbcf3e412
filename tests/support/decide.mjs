// Decide cases with packages/suffice-js: a JSON list on standard input, a JSON list on standard output.
import { readFileSync } from "node:fs";

import { abstainedBy, normalizerOf } from "../../packages/suffice-js/src/answers.js";
import { Policy, Session, SufficeError } from "../../packages/suffice-js/src/index.js";

/** Return what a function returns, or the name of the error of this package that it throws. */
function outcome(run) {
  try {
    return run();
  } catch (error) {
    if (error instanceof SufficeError) return { error: error.name, message: error.message };
    throw error;
  }
}

function decided({ policy, given, missing, rounds, normalizer, texts }) {
  if (texts !== undefined) return texts.map(normalizer === "abstained" ? abstainedBy() : normalizerOf(normalizer));
  const loaded = outcome(() => Policy.parse(JSON.stringify(policy), { given }));
  if (!(loaded instanceof Policy)) return { refused: loaded.error, message: loaded.message };
  if (rounds === undefined) return { refused: null, rule: String(loaded.rule), selector: String(loaded.selector) };
  const session = new Session(loaded, { missing });
  const errors = [];
  for (const round of rounds) {
    if (session.decision !== null) break;
    const found = outcome(() => session.observe(round));
    if (found.error) errors.push([round.index, found.error]);
    if (session.nextRound !== round.index + 1) break; // a round that does not count ends the trajectory
  }
  const decision = session.decision ?? outcome(() => session.end("exhausted"));
  return { refused: null, errors, decision, rule: String(loaded.rule), selector: String(loaded.selector) };
}

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf-8")).map(decided)));
