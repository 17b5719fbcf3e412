/* What every page of the studio does: keys, copy buttons, colours. Pages work without it. */
import { all, draw, find, make, startTheme } from "./components.js";

const announcer = document.getElementById("announcer");
const say = (text) => { announcer.textContent = text; };

/* An element with data-key is clicked, or focused, by that key; the help lists them all. */
const keyed = () => all(document, "[data-key]").filter((element) => element.offsetParent !== null);
const shown = { ArrowLeft: "←", ArrowRight: "→" };

function press(element) {
  if (element.matches("input, select, textarea")) { element.focus(); if (element.select) element.select(); }
  else element.click();
}

function step(move) {
  const links = all(document, "[data-list] a");
  const next = links[Math.max(0, Math.min(links.length - 1, links.indexOf(document.activeElement) + move))];
  if (next) next.focus();
  return Boolean(next);
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const inField = event.target.closest("input:not([type=checkbox]), select, textarea, [contenteditable], dialog");
  if (inField) {
    if (event.key === "Escape" && !inField.matches("dialog")) inField.blur();
    return;
  }
  const element = keyed().find((one) => one.dataset.key === event.key);
  if (element) { event.preventDefault(); press(element); return; }
  if (event.key === "j" || event.key === "ArrowDown" && document.activeElement.closest("[data-list]")) { if (step(1)) event.preventDefault(); }
  else if (event.key === "k" || event.key === "ArrowUp" && document.activeElement.closest("[data-list]")) { if (step(-1)) event.preventDefault(); }
});

const help = document.getElementById("help");
document.getElementById("keys").addEventListener("click", () => {
  const lines = keyed().map((element) => [shown[element.dataset.key] || element.dataset.key, element.dataset.about]);
  if (find(document, "[data-list]")) lines.push(["j  k", "down and up in the list"]);
  lines.push(["Tab", "every link and button, in order"], ["Esc", "leave a field"]);
  find(help, ".keys").replaceChildren(...lines.flatMap(([key, about]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, about)]));
  help.showModal();
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try { await navigator.clipboard.writeText(button.dataset.copy); button.textContent = "Copied"; say("Copied"); }
  catch { getSelection().selectAllChildren(find(button.parentElement, "code, pre")); button.textContent = "Selected"; say("Selected: copy it with your keys"); }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

for (const form of all(document, "form[data-submit]")) {
  for (const select of all(form, "select")) select.addEventListener("change", () => { for (const hidden of all(form, "input[data-rule]")) hidden.remove(); form.submit(); });
}

/* Charts: the page has each as a picture, in whose place it is drawn with values under the pointer. */
async function drawCharts() {
  for (const element of all(document, "[data-chart]")) {
    const spec = JSON.parse(find(element.parentElement, "script[type='application/json']").textContent);
    element.replaceChildren();
    await draw(element, spec);
  }
}

/* A part of a page that follows the disk: it is asked for again, and takes the place of the old one where it differs. */
const live = document.getElementById("live"), lost = document.getElementById("lost");
let last;
function replace(next) {
  const open = all(live, "details").map((one) => one.open), at = all(live, "a, button, summary, [tabindex]").indexOf(document.activeElement);
  live.replaceChildren(...next.childNodes);
  drawCharts();
  all(live, "details").forEach((one, place) => { if (open[place]) one.open = true; });
  const again = at < 0 ? null : all(live, "a, button, summary, [tabindex]")[at];
  if (again) again.focus({ preventScroll: true });
  say("This page has changed");
}
async function refresh() {
  if (!document.hidden) {
    try {
      const response = await fetch(location.href);
      const next = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("live");
      if (!response.ok || !next) throw new Error(response.statusText);
      const text = next.innerHTML;
      if (last !== undefined && text !== last) replace(next);
      last = text;
      lost.hidden = true;
    } catch { lost.hidden = false; }
  }
  setTimeout(refresh, 1000 * live.dataset.live);
}
if (live) refresh();

let opened = [];
addEventListener("beforeprint", () => { opened = all(document, "main details:not([open])"); for (const one of opened) one.open = true; });
addEventListener("afterprint", () => { for (const one of opened) one.open = false; });

startTheme();
await drawCharts();
document.documentElement.dataset.ready = "true";
