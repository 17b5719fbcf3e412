/* Decide: the command runs beside the page, says how long it takes, and can be ended. */
import { draw, find } from "./components.js";
import { fill, latest, lines } from "./streams.js";

const form = document.getElementById("declared"), advice = document.getElementById("advice"), cancel = document.getElementById("cancel");
const progress = document.getElementById("progress"), problem = document.getElementById("declared-problem");
const address = form.dataset.address, next = latest();

function query() {
  const values = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") values.set(name, value);
  return values.toString();
}

async function decide() {
  const signal = next();
  history.replaceState(null, "", `${address}?${query()}`);
  problem.hidden = true; cancel.hidden = false;
  progress.textContent = "Comparing";
  advice.setAttribute("aria-busy", "true");
  try {
    for await (const line of lines(await fetch(`${address}/advice?${query()}`, { signal }))) {
      if (line.seconds !== undefined) progress.textContent = `Comparing, ${line.seconds.toFixed(0)} s`;
      else if (line.problem) {
        problem.textContent = line.problem;
        problem.hidden = false;
        advice.replaceChildren();
        progress.textContent = "";
      } else {
        fill(advice, line.html);
        progress.textContent = "Done";
        await draw(find(advice, "[data-role=advice]"), line.chart);
        document.getElementById("announcer").textContent = line.sentence;
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") {
      problem.textContent = "the studio does not answer: is it still running in its terminal?";
      problem.hidden = false;
    }
    if (signal.aborted && !cancel.hidden) return;  // a later one began
    progress.textContent = "Cancelled";
  }
  cancel.hidden = true;
  advice.removeAttribute("aria-busy");
}

form.addEventListener("submit", (event) => { event.preventDefault(); decide(); });
cancel.addEventListener("click", () => { cancel.hidden = true; next(); });
decide();
