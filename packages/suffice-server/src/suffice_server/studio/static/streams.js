/* Answers that come line by line, and questions of which only the latest counts. */

/* Return a function that ends what was asked before, and gives the signal for what is asked now. */
export function latest() {
  let controller = new AbortController();
  return () => { controller.abort(); controller = new AbortController(); return controller.signal; };
}

/* Yield each line of a response as the JSON that it is. */
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n");
    text = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

/* Put a part of a page, as the server wrote it, into an element; its scripts do not run. */
export function fill(element, html) {
  element.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
}
