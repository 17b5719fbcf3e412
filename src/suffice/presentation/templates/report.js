(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  /* Numbers. The sum is NumPy's, in NumPy's order, so that a mean has the same last bit as `suffice replay`. */
  function pairwise(a, from, n) {
    if (n < 8) {
      let sum = 0;
      for (let i = from; i < from + n; i++) sum += a[i];
      return sum;
    }
    if (n <= 128) {
      let [r0, r1, r2, r3, r4, r5, r6, r7] = a.subarray(from, from + 8);
      const whole = from + n - (n % 8);
      for (let i = from + 8; i < whole; i += 8) {
        r0 += a[i]; r1 += a[i + 1]; r2 += a[i + 2]; r3 += a[i + 3];
        r4 += a[i + 4]; r5 += a[i + 5]; r6 += a[i + 6]; r7 += a[i + 7];
      }
      let sum = ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7));
      for (let i = whole; i < from + n; i++) sum += a[i];
      return sum;
    }
    let half = Math.floor(n / 2);
    half -= half % 8;
    return pairwise(a, from, half) + pairwise(a, from + half, n - half);
  }
  const mean = (a) => pairwise(a, 0, a.length) / a.length;

  async function unpacked(text) {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }
  const arrays = new Map();
  function array(place) {
    if (!arrays.has(place)) {
      arrays.set(place, (async () => {
        const packed = data.arrays[place];
        const planes = await unpacked(packed.data);
        if (packed.bytes === 1) return new Int8Array(planes.buffer);
        const n = planes.length / packed.bytes;
        const bytes = new Uint8Array(planes.length);
        for (let plane = 0; plane < packed.bytes; plane++) {
          for (let i = 0; i < n; i++) bytes[i * packed.bytes + plane] = planes[plane * n + i];
        }
        return new Float64Array(bytes.buffer);
      })());
    }
    return arrays.get(place);
  }

  /* The slider. */
  async function startSlider(section, cell) {
    const choice = find(section, ".literal"), range = find(section, ".position"), exact = find(section, ".exact");
    const live = find(section, ".live"), text = find(section, ".text"), shares = find(section, ".shares");
    const announcer = find(section, "[role=status]");
    let slider, values, stops, tables, chart, speaking;

    async function load() {
      slider = cell.sliders[Number(choice.value)];
      [values, stops] = await Promise.all([array(slider.values), array(slider.stops)]);
      tables = {};
      for (const [name, entry] of Object.entries(slider.outcomes)) tables[name] = { by: entry.by, values: await array(entry.array) };
      range.min = slider.low; range.max = slider.high; range.step = slider.step;
      const drawn = await draw(find(section, "[data-role=path]"), slider.chart);
      chart = drawn.view;
      move(slider.value);
    }
    function at(threshold) {
      const width = slider.rounds.length, n = stops.length / (width + 1);
      const columns = Object.fromEntries(Object.keys(tables).map((name) => [name, new Float64Array(n)]));
      const counts = new Map();
      for (let q = 0; q < n; q++) {
        let region = 0;
        for (let k = 0; k < width; k++) {
          const value = values[q * width + k];
          if (slider.closed ? value <= threshold : value < threshold) region++;
        }
        const place = q * (width + 1) + region, stop = stops[place];
        counts.set(stop, (counts.get(stop) || 0) + 1);
        for (const name in columns) {
          const table = tables[name];
          columns[name][q] = table.by === "stop" ? table.values[q * width + stop] : table.values[place];
        }
      }
      const means = Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, mean(column)]));
      return { means, counts, n };
    }
    const figure = { calls: [1, 2, "calls"], tokens: [1, 0, "tokens"], seconds: [1, 3, "seconds"], money: [1, 6, cell.currency] };
    function move(threshold, from) {
      if (!Number.isFinite(threshold)) return;
      if (from !== range) range.value = threshold;
      if (from !== exact) exact.value = threshold;
      const { means, counts, n } = at(threshold);
      const literal = `${slider.signal} ${slider.comparison} ${threshold}`;
      const inside = slider.parenthesised ? `(${literal})` : literal;
      text.replaceChildren(...slider.rule.flatMap((part, i) => (i ? [make("b", {}, inside), part] : [part])));
      live.replaceChildren(...Object.entries(means).map(([name, value]) => {
        const [scale, digits, title] = figure[name] || [100, 1, name.toUpperCase()];
        const start = slider.start[name];
        const change = start === null || !Number.isFinite(value) ? "" : `${value >= start ? "+" : "−"}${fixed(scale * Math.abs(value - start), digits)} vs the policy`;
        const same = value === start ? "as the policy" : change;
        return make("div", { class: "tile" }, make("dt", {}, title),
          make("dd", { "data-outcome": name, "data-value": String(value) }, fixed(scale * value, digits)), make("dd", { class: "dim" }, same));
      }));
      section.dataset.threshold = String(threshold);
      const places = slider.rounds.map((round, k) => [`round ${round}`, counts.get(k) || 0]);
      if (counts.get(-1)) places.unshift(["no round", counts.get(-1)]);
      shares.replaceChildren(make("div", { class: "head" }, "Stops at"), ...places.flatMap(([name, count]) => {
        const bar = make("b");
        bar.style.width = `${(100 * count) / n}%`;
        return [make("span", {}, name), make("i", {}, bar), make("span", { "data-round": name, "data-count": count }, `${fixed((100 * count) / n, 1)} %`)];
      }));
      const metric = cell.metric;
      const sentence = `Threshold ${threshold}: ${metric.toUpperCase()} ${points(means[metric])}, ${fixed(means.calls, 2)} calls`;
      range.setAttribute("aria-valuetext", sentence);
      clearTimeout(speaking);
      speaking = setTimeout(() => { announcer.textContent = sentence; }, 400);
      if (chart) chart.data("here", [{ quality: 100 * means[metric], cost: means.calls }]).run();
    }
    range.addEventListener("input", () => move(Number(range.value), range));
    exact.addEventListener("input", () => { if (exact.value.trim() !== "") move(Number(exact.value), exact); });
    find(section, ".reset").addEventListener("click", () => move(slider.value));
    choice.addEventListener("change", load);
    await load();
  }

  /* Question by question. */
  const STEP = 300;
  async function startBrowser(section, cell) {
    const held = JSON.parse(new TextDecoder().decode(await unpacked(cell.browser.packed)));
    const metric = cell.metric;
    const which = find(section, ".which"), items = find(section, ".items"), detail = find(section, ".detail");
    const search = find(section, "input[type=search]"), more = find(section, ".more"), count = find(section, ".count");
    find(section, ".scope").textContent = cell.browser.scope;
    which.append(...cell.browser.policies.map((name, i) => make("option", { value: i }, name)));
    find(section, ".policy").hidden = cell.browser.policies.length < 2;
    const haystack = held.map((t) => JSON.stringify([t.id, t.question, t.golds, t.labels, t.rounds.map((r) => [r.answer, r.passage_ids]), Object.values(t.passages).map(([title]) => title)]).toLowerCase());
    let shown = [], chosen = 0, limit = STEP, filter = "all";

    const round = (t, r) => t.rounds.find((one) => one.round === r);
    const score = (t, r) => { const one = round(t, r); return one && one.metrics[metric] !== undefined ? one.metrics[metric] : null; };
    function kind(t) {
      const p = t.policies[which.value], last = t.rounds[t.rounds.length - 1].round;
      const mine = p.reason === "unrun" ? null : score(t, p.answer), whole = score(t, p.full);
      const early = p.stop < last;
      return { p, early, mine, whole, wrong: early && mine !== null && whole !== null && mine < whole,
        saved: early && mine !== null && whole !== null && mine >= whole };
    }
    const filters = {
      all: ["All", () => true],
      wrong: ["Wrong-early", (k) => k.wrong, "stopped early, and the full budget's answer scores higher"],
      saved: ["Saved", (k) => k.saved, "stopped early, and nothing was lost"],
      differs: ["Disagreements", (k) => k.p.differs, "the full budget returns another answer"],
    };
    const base = section.id;
    function buildFilters() {
      find(section, ".filters").replaceChildren(...Object.entries(filters).flatMap(([name, [title, test, about]]) => {
        const n = held.filter((t) => test(kind(t))).length;
        const input = make("input", { type: "radio", name: `${base}-filter`, id: `${base}-${name}`, value: name, checked: name === filter });
        input.addEventListener("change", () => { filter = name; refresh(); });
        return [input, make("label", { for: input.id, title: about || null, "data-filter": name }, `${title} ${n}`)];
      }));
    }
    function refresh() {
      const words = search.value.toLowerCase();
      shown = held.map((t, i) => i).filter((i) => filters[filter][1](kind(held[i])) && haystack[i].includes(words));
      chosen = 0; limit = STEP;
      list();
      open();
    }
    function list() {
      count.textContent = `${shown.length.toLocaleString("en-US")} shown`;
      more.hidden = shown.length <= limit;
      items.replaceChildren(...shown.slice(0, limit).map((i, place) => {
        const t = held[i], k = kind(t);
        const state = k.wrong ? "lost by stopping" : k.saved ? "saved" : t.cut ? "recording cut short" : "full length";
        const item = make("div", { class: "item", role: "option", id: `${base}-item-${place}`, "aria-selected": String(place === chosen), "data-id": t.id },
          make("p", {}, t.question || t.id),
          make("span", { class: "meta" }, `${k.p.stop < 0 ? "no round" : `round ${k.p.stop} of ${t.rounds[t.rounds.length - 1].round}`} · ${metric.toUpperCase()} ${points(k.mine)} · ${state}`));
        item.addEventListener("click", () => select(place));
        return item;
      }));
      if (shown.length) items.setAttribute("aria-activedescendant", `${base}-item-${chosen}`);
      else items.removeAttribute("aria-activedescendant");
    }
    function select(place) {
      const next = Math.max(0, Math.min(shown.length - 1, place));
      if (!shown.length) return;
      while (next >= limit) { limit += STEP; list(); }
      const before = document.getElementById(`${base}-item-${chosen}`), after = document.getElementById(`${base}-item-${next}`);
      if (before) before.setAttribute("aria-selected", "false");
      after.setAttribute("aria-selected", "true");
      items.setAttribute("aria-activedescendant", after.id);
      const top = after.offsetTop - items.offsetTop;
      if (top < items.scrollTop) items.scrollTop = top;
      else if (top + after.offsetHeight > items.scrollTop + items.clientHeight) items.scrollTop = top + after.offsetHeight - items.clientHeight;
      chosen = next;
      open();
    }
    function why(p) {
      if (p.reason === "rule") return `the rule held: ${p.fired}`;
      const words = { max_rounds: "the budget was used up", exhausted: "no evidence was left", failed: "no round gave an answer" };
      return words[p.reason] || p.reason;
    }
    const pairs = (values) => make("dl", { class: "kv" }, Object.entries(values).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, short(value)))));
    const tag = (value) => make("span", { class: `tag ${value >= 1 ? "good" : value > 0 ? "" : "bad"}` }, `${metric.toUpperCase()} ${points(value)}`);
    function open() {
      if (!shown.length) { detail.replaceChildren(make("p", { class: "dim" }, "No question fits.")); return; }
      const t = held[shown[chosen]], k = kind(t), p = k.p;
      const answer = (r) => { const one = round(t, r); return one && one.answer ? `“${one.answer}”` : "no answer"; };
      const verdict = t.cut ? "A rule cut this recording short: what the full budget would have returned is unknown."
        : !k.early ? "It ran as long as was recorded."
        : p.differs ? `The full budget would have returned ${answer(p.full)} (${metric.toUpperCase()} ${points(k.whole)}).`
        : "The full budget would have returned the same answer.";
      const labels = Object.entries(t.labels).map(([name, value]) => make("span", { class: "tag" }, `${name}: ${value}`));
      detail.replaceChildren(
        make("h3", {}, t.question || t.id),
        make("p", { class: "line dim" }, make("span", { class: "tag" }, t.id), labels),
        t.golds.length ? make("p", {}, make("span", { class: "dim" }, t.golds.length > 1 ? "Gold answers " : "Gold answer "), make("strong", { class: "golds" }, t.golds.join(" · "))) : null,
        make("p", { class: "why" }, p.reason === "unrun" ? "It would have gone on past the last recorded round. " : p.stop < 0 ? "It never answered. " : `Stopped after round ${p.stop} because ${why(p)}. Returned ${answer(p.answer)}${p.answer !== p.stop ? ` of round ${p.answer}` : ""}. `, verdict),
        make("ol", { class: "rounds" }, t.rounds.map((one, place) => line(t, p, one, place))),
      );
    }
    function line(t, p, one, place) {
      const state = one.round === p.stop ? "stop" : one.round > p.stop ? "later" : "";
      const before = new Set(place ? t.rounds[place - 1].passage_ids || [] : []);
      const fresh = (one.passage_ids || []).filter((id) => !before.has(id));
      const read = Object.entries(p.signals).filter(([name]) => name !== "round").map(([name, column]) => [name, column[one.round - p.first]]);
      const value = one.metrics[metric];
      return make("li", { class: state, "data-round": one.round },
        make("span", { class: "dot", "aria-hidden": "true" }, one.round),
        make("p", { class: "answer" }, make("span", { class: "sr" }, `Round ${one.round}${state === "later" ? ", after the stop" : ""}: `), one.answer || "(no answer)", " ", value === undefined || value === null ? null : tag(value)),
        fresh.length ? make("p", { class: "line" }, "new evidence ", make("b", {}, fresh.map((id) => t.passages[id] ? t.passages[id][0] || id : id).join(", "))) : null,
        read.length && one.round >= p.first ? make("p", { class: "line" }, read.flatMap(([name, v], i) => [i ? " · " : "", `${name} `, make("b", {}, short(v))])) : null,
        state === "stop" ? make("p", { class: "stopline" }, `Stops here: ${why(p)}.`) : null,
        make("details", {}, make("summary", {}, "signals, text, cost"),
          fresh.filter((id) => t.passages[id]).map((id) => make("p", { class: "evidence" }, make("b", {}, t.passages[id][0]), " ", t.passages[id][1])),
          one.text && one.text !== one.answer ? make("pre", {}, one.text) : null,
          one.feedback ? make("pre", {}, one.feedback) : null,
          pairs(one.signals), pairs(one.metrics), pairs(one.cost)));
    }
    items.addEventListener("keydown", (event) => {
      const page = 10, moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
      if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      select(chosen + moves[event.key]);
    });
    search.addEventListener("input", refresh);
    search.addEventListener("keydown", (event) => { if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); items.focus(); } });
    which.addEventListener("change", () => { buildFilters(); refresh(); });
    more.addEventListener("click", () => { limit += STEP; list(); });
    section.addEventListener("keydown", (event) => {
      if (event.key === "/" && event.target !== search) { event.preventDefault(); search.focus(); }
    });
    buildFilters();
    refresh();
  }

  /* The page. */
  const started = new Set();
  async function start(article) {
    const place = Number(article.dataset.cell);
    if (started.has(place)) return;
    started.add(place);
    const cell = data.cells[place];
    for (const element of all(article, "[data-chart]")) await draw(element, cell.charts[element.dataset.chart]);
    for (const input of all(article, "[id*=cost-]")) {
      input.addEventListener("change", () => draw(find(article, "[data-role=pareto]"), cell.charts[`pareto-${input.value}`]));
    }
    const slider = find(article, ".slider");
    if (slider) await startSlider(slider, cell);
    await startBrowser(find(article, ".browser"), cell);
    article.dataset.ready = "true";
  }
  const pick = document.getElementById("cell");
  if (pick) {
    pick.addEventListener("change", () => {
      for (const article of all(document, ".cell")) article.hidden = article.dataset.cell !== pick.value;
      start(find(document, `.cell[data-cell="${pick.value}"]`));
    });
  }
  startTheme();
  let opened = [];
  addEventListener("beforeprint", () => { opened = all(document, "main .card > details:not([open])"); for (const one of opened) one.open = true; });
  addEventListener("afterprint", () => { for (const one of opened) one.open = false; });

  start(find(document, ".cell:not([hidden])")).catch((problem) => {
    find(document, "main").prepend(make("p", { class: "caveats" }, `This browser cannot show the charts and the questions (${problem.message}); the tables are complete. A browser from 2023 or later can.`));
    throw problem;
  });
})();
