/* What every page shares: elements, numbers, charts and colours. Pages load it as a module; a report contains it. */
const find = (root, selector) => root.querySelector(selector);
const all = (root, selector) => [...root.querySelectorAll(selector)];

/* Text of recordings enters the page here and nowhere else: always as text, never as markup. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

function fixed(value, digits) {
  if (value === null || !Number.isFinite(value)) return "-";
  const [whole, part] = (value * (1 + 1e-12)).toFixed(digits).split(".");  // as `suffice.common.tables` rounds
  return whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",") + (part ? `.${part}` : "");
}
const points = (value) => fixed(value === null || value === undefined ? NaN : 100 * value, 1);
const short = (value) => (value === null || value === undefined ? "-" : String(Number(value.toPrecision(4))));

/* Charts: colours are CSS variables, so that the theme and print need no redraw. */
const config = {
  background: "transparent",
  font: getComputedStyle(document.body).fontFamily,
  view: { stroke: "transparent" },
  axis: {
    labelColor: "var(--muted)", titleColor: "var(--muted)", gridColor: "var(--line)", domainColor: "var(--line)",
    tickColor: "var(--line)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: 400, titlePadding: 8, labelOverlap: true, labelFlush: false,
  },
};
const SHAPES = { circle: "M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10z", square: "M1.5 1.5h9v9h-9z", diamond: "M6 0l6 6l-6 6l-6-6z", line: "M-2 5h16v2h-16z" };
function symbol(entry) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 12 12");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", SHAPES[entry.shape]);
  path.style.fill = entry.hollow ? "var(--surface)" : entry.colour;
  path.style.stroke = entry.colour;
  path.style.strokeWidth = entry.hollow ? "2" : "0";
  svg.append(path);
  return svg;
}
async function draw(element, spec) {
  const before = element.previousElementSibling;
  if (before && before.className === "legend") before.remove();
  const legend = (spec.usermeta && spec.usermeta.legend) || [];
  if (legend.length) element.before(make("ul", { class: "legend" }, legend.map((entry) => make("li", {}, symbol(entry), entry.name))));
  return vegaEmbed(element, spec, { ast: true, actions: false, renderer: "svg", config, tooltip: true });
}

/* The button that changes between the colours of the system, light and dark. */
function startTheme() {
  const theme = document.getElementById("theme"), order = ["system", "light", "dark"];
  const remembered = { get() { try { return localStorage.getItem("suffice-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("suffice-theme", value); } catch { /* a page from disk may have no storage */ } } };
  function paint(name) {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    find(theme, "span").textContent = name;
    theme.setAttribute("aria-label", name === "system" ? "Colours: as the system" : `Colours: ${name}`);
  }
  let current = order.includes(remembered.get()) ? remembered.get() : "system";
  theme.addEventListener("click", () => { current = order[(order.indexOf(current) + 1) % order.length]; remembered.set(current); paint(current); });
  paint(current);
}

export { all, config, draw, find, fixed, make, points, short, startTheme };
