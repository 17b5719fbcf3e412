  const charts = JSON.parse(document.getElementById("charts").textContent), page = find(document, ".cell");
  (async () => {
    for (const element of all(page, "[data-chart]")) await draw(element, charts[element.dataset.chart]);
    page.dataset.ready = "true";
  })().catch((problem) => {
    find(document, "main").prepend(make("p", { class: "caveats" }, `This browser cannot show the charts (${problem.message}); the tables are complete. A browser from 2023 or later can.`));
    throw problem;
  });
