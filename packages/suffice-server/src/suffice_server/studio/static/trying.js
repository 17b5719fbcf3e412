/* Try a rule: completion in the box, figures as they come; an edit ends what was asked before. */
import { all, draw, find, make } from "./components.js";
import { fill, latest, lines } from "./streams.js";

const form = document.getElementById("draft"), results = document.getElementById("results");
const problem = document.getElementById("rule-problem"), stale = document.getElementById("stale"), announcer = document.getElementById("announcer");
const address = form.dataset.address, tab = crypto.randomUUID();
const PAUSE = 60;
let label = "";

function query(more) {
  const values = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") values.set(name, value);
  for (const [name, value] of Object.entries(more || {})) values.set(name, value);
  return values.toString();
}

/* A box with completion: a list below it, chosen by keys or a click. */
function combobox(input) {
  const list = document.getElementById(input.getAttribute("aria-controls")), next = latest();
  let offers = [], chosen = -1, pending = null;

  function close() {
    offers = []; chosen = -1;
    list.hidden = true; list.replaceChildren();
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }
  function mark(place) {
    const options = all(list, "[role=option]");
    if (options[chosen]) options[chosen].setAttribute("aria-selected", "false");
    chosen = place;
    if (!options[chosen]) { input.removeAttribute("aria-activedescendant"); return; }
    options[chosen].setAttribute("aria-selected", "true");
    options[chosen].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", options[chosen].id);
  }
  function take(place) {
    const offer = offers[place];
    input.value = input.value.slice(0, offer.first) + offer.insert + input.value.slice(offer.last);
    const cursor = offer.first + offer.insert.length;
    input.focus();
    input.setSelectionRange(cursor, cursor);
    close();
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }
  function offer() {
    const request = fetched();
    pending = request;
    request.finally(() => { if (pending === request) pending = null; });
  }
  async function fetched() {
    const signal = next();
    const fitted = form.elements.fitted ? form.elements.fitted.value : "";
    const asked = new URLSearchParams({ what: input.dataset.what, text: input.value, cursor: String(input.selectionStart), fitted });
    try {
      const answer = await (await fetch(`${address}/completion?${asked}`, { signal })).json();
      if (signal.aborted || document.activeElement !== input) return;
      offers = answer.candidates;
      chosen = -1;
      list.replaceChildren(...offers.map((one, place) => {
        const option = make("li", { role: "option", id: `${list.id}-${place}`, "aria-selected": "false", "data-kind": one.kind },
          make("code", {}, one.label), make("span", { class: "dim" }, one.about));
        option.addEventListener("mousedown", (event) => { event.preventDefault(); take(place); });
        return option;
      }));
      list.hidden = !offers.length;
      input.setAttribute("aria-expanded", String(offers.length > 0));
      input.removeAttribute("aria-activedescendant");
    } catch (error) { if (error.name !== "AbortError") close(); }  // the figures say that the studio does not answer
  }
  input.addEventListener("input", offer);
  input.addEventListener("click", offer);
  input.addEventListener("blur", () => { keys.length = 0; next(); close(); });
  /* A key that chooses waits for the list that belongs to the text, and what is typed after it waits for the choice. */
  const keys = [];
  function drain() {
    while (keys.length) {
      if (pending) { pending.finally(drain); return; }
      press(keys.shift());
    }
  }
  function press(key) {
    const n = offers.length;
    if (key.length === 1) {
      input.setRangeText(key, input.selectionStart, input.selectionEnd, "end");
      input.dispatchEvent(new Event("input", { bubbles: true }));
    } else if (key === "Enter") {
      if (chosen >= 0) take(chosen);
      else { close(); ask(); }
    } else if (!n) { offer(); }
    else { mark(key === "ArrowDown" ? (chosen + 1) % n : (chosen <= 0 ? n : chosen) - 1); }
  }
  input.addEventListener("keydown", (event) => {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp" || event.key === "Enter" || (keys.length && event.key.length === 1)) {
      event.preventDefault();
      keys.push(event.key);
      drain();
    } else if (event.key === "Escape" && (offers.length || pending)) {
      event.preventDefault(); event.stopPropagation();
      keys.length = 0; next(); close();
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight" || event.key === "Home" || event.key === "End") {
      if (offers.length) setTimeout(offer);
    }
  });
}

/* What is wrong, with its place marked and what may have been meant; the last good figures stay, and say so. */
function complain(wrong, commands) {
  const text = form.elements.rule.value;
  const marked = wrong.last > wrong.first || wrong.first > 0
    ? make("code", { class: "marked" }, text.slice(0, wrong.first), make("mark", {}, text.slice(wrong.first, wrong.last) || "␣"), text.slice(wrong.last)) : null;
  const fixes = (wrong.fixes || []).map((fix) => {
    const button = make("button", { type: "button", class: "plain" }, make("code", {}, fix.insert));
    button.addEventListener("click", () => {
      form.elements.rule.value = text.slice(0, fix.first) + fix.insert + text.slice(fix.last);
      form.elements.rule.focus();
      form.elements.rule.dispatchEvent(new Event("input", { bubbles: true }));
    });
    return button;
  });
  problem.replaceChildren(...[marked, make("p", {}, wrong.message), fixes.length ? make("p", {}, "Did you mean ", ...fixes) : null,
    ...(commands || []).map((line) => make("p", {}, make("code", {}, line)))].filter(Boolean));
  problem.hidden = false;
  form.elements.rule.setAttribute("aria-invalid", "true");
  results.removeAttribute("aria-busy");
  if (label) {
    stale.textContent = `Below are still the figures of ${label}, the last rule that could be tried.`;
    stale.hidden = false;
    results.classList.add("stale");
  } else { results.replaceChildren(); }
}

async function show(answer, signal) {
  const open = new Set(all(results, "details[open][data-name]").map((one) => one.dataset.name));
  const before = find(results, "details[data-name]") !== null, cost = find(results, "input[name=shown-cost]:checked");
  problem.hidden = true; stale.hidden = true;
  form.elements.rule.removeAttribute("aria-invalid");
  results.classList.remove("stale");
  fill(results, answer.html);
  if (before) for (const one of all(results, "details[data-name]")) one.open = open.has(one.dataset.name);
  const tradeoff = find(results, "[data-role=tradeoff]");
  for (const input of all(results, "input[name=shown-cost]")) {
    if (cost && input.value === cost.value) { input.checked = true; tradeoff.dataset.chart = `tradeoff-${input.value}`; }
    input.addEventListener("change", () => draw(tradeoff, answer.charts[`tradeoff-${input.value}`]));
  }
  label = answer.label;
  results.dataset.label = label;
  if (answer.final) announcer.textContent = answer.sentence;
  for (const element of all(results, "[data-chart]")) {
    if (!signal.aborted) await draw(element, answer.charts[element.dataset.chart]);
  }
}

const next = latest();
let waiting;
async function ask() {
  clearTimeout(waiting);
  const signal = next();
  history.replaceState(null, "", `${address}?${query()}`);
  results.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(`${address}/figures?${query({ tab })}`, { signal });
    if (!response.ok) { complain({ message: `the studio answered ${response.status}`, first: 0, last: 0 }); return; }
    let last = null;
    for await (const answer of lines(response)) {
      if (signal.aborted) return;
      last = answer;
      if (last.problem) complain(last.problem, last.commands);
      else if (last.html) await show(last, signal);
    }
    if (!signal.aborted && last && (last.final || last.problem)) results.removeAttribute("aria-busy");
  } catch (error) {
    if (error.name === "AbortError") return;
    complain({ message: "the studio does not answer: is it still running in its terminal?", first: 0, last: 0 });
  }
}

for (const input of all(form, "[role=combobox]")) combobox(input);
form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
form.addEventListener("input", () => { next(); clearTimeout(waiting); results.setAttribute("aria-busy", "true"); waiting = setTimeout(ask, PAUSE); });
for (const button of all(document, ".example")) {
  button.addEventListener("click", () => { form.elements.rule.value = button.dataset.rule; ask(); });
}
ask();
