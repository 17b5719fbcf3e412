// A loop that asks `suffice serve` after each round whether to stop. Node 23 or newer runs it: node client.ts
const base = process.env.SUFFICE_URL ?? "http://127.0.0.1:8080";
const headers = { authorization: `Bearer ${process.env.SUFFICE_TOKEN}`, "content-type": "application/json" };

export type Decided = { stop: boolean; stop_round: number | null; answer: string | null; reason: string | null; audit: boolean };

async function post<T>(path: string, body: unknown): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    const response = await fetch(base + path, { method: "POST", headers, body: JSON.stringify(body) }).catch(() => null);
    if (response?.ok) return (await response.json()) as T;
    const wait = response ? response.headers.get("retry-after") : "1"; // the server may be starting again
    if (wait === null || attempt === 10) throw new Error(response ? await response.text() : `no answer from ${base}`);
    await new Promise((resolve) => setTimeout(resolve, 1000 * Number(wait)));
  }
}

// `write` is your loop: one call of the model, which returns the text or the whole response of the endpoint.
export async function answer(policy: string, question: string, write: (round: number) => Promise<unknown>): Promise<Decided> {
  const session = await post<{ id: string; next_round: number }>("/v1/sessions", { policy, question });
  const send = async (index: number) =>
    post<Decided>(`/v1/sessions/${session.id}/rounds`, { index, response: await write(index) }); // sent again, it counts once
  let index = session.next_round;
  let decided = await send(index);
  while (!decided.stop) decided = await send(++index);
  void (async () => { for (let audit = decided.audit; audit; ) audit = (await send(++index)).audit; })().catch(console.error);
  return decided; // the rounds of an audit go on meanwhile
}

if (import.meta.main ?? process.argv[1] === import.meta.filename)
  console.log(JSON.stringify(await answer("stable", "Where?", async (round) => (round < 2 ? "I am not sure" : "Oslo"))));
