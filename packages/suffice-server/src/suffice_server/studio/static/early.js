/* Before the page is painted: the colours that were chosen here, so that no page begins in the others. */
try {
  const name = localStorage.getItem("suffice-theme");
  if (name === "light" || name === "dark") document.documentElement.dataset.theme = name;
} catch { /* without storage the system's colours apply */ }
