// What a user's strict TypeScript may and may not write; `npm run check` reads it, and nothing runs it.

import { Policy, Session, UnsupportedError, type Decision, type Cost } from "suffice-js";
const policy: Policy = Policy.parse("{}", { given: ["answer_margin"] });
const cost: Cost = { calls: 1, seconds: null };
const session = new Session(policy, { missing: "ignore" });
const decision: Decision = session.observe({ answer: null, signals: { spend: 1 }, costs: { generator: cost } });
const reason: "rule" | "max_rounds" | "exhausted" | "failed" | "cancelled" | null = decision.reason;
const last: Decision | null = session.decision;
session.end("exhausted").answer?.length;
// @ts-expect-error a host does not end a loop for the reason of its rule
session.end("rule");
// @ts-expect-error a round has an answer, not answers
session.observe({ answers: "x" });
export { reason, last, UnsupportedError };
