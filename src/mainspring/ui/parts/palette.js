/** The palette: pages, and jobs and runs by part of a name or id. */
import { get } from "../api.js";
import { html, mount, signal, useEffect, useRef, useState } from "../html.js";
import { PLACES } from "../keys.js";
import { go, jobHref, to } from "../router.js";

/** @typedef {{ text: string, note: string, href: string }} Entry */

/** @param {string} words @returns {Promise<Entry[]>} */
async function look(words) {
  const pages = Object.entries(PLACES).map(([key, path]) => ({ text: path === "/" ? "overview" : path.slice(1), note: `g ${key}`, href: to(path) }));
  const found = pages.filter((each) => each.text.includes(words.toLowerCase()));
  if (words.length < 2) return inOrder(found, words);
  const jobs = await get("/v1/jobs", { q: words, fields: "row", limit: 5 }).catch(() => ({ items: [] }));
  const runs = /^[0-9a-z]{4,26}$/i.test(words) ? await get("/v1/runs", { id: words, fields: "row", limit: 5 }).catch(() => ({ items: [] })) : { items: [] };
  return inOrder([
    ...found,
    ...jobs.items.map((/** @type {any} */ job) => ({ text: job.name, note: "job", href: jobHref(job) })),
    ...runs.items.map((/** @type {any} */ run) => ({ text: `${run.task} …${run.run_id.slice(-8)}`, note: run.state, href: to(`/runs/${run.run_id}`) })),
  ], words);
}

/** What is called so, then what begins so, then the rest.
 * @param {Entry[]} entries @param {string} words */
function inOrder(entries, words) {
  const typed = words.toLowerCase();
  const rank = (/** @type {Entry} */ { text }) => (text.toLowerCase() === typed ? 0 : text.toLowerCase().startsWith(typed) ? 1 : 2);
  return entries.sort((one, other) => rank(one) - rank(other));
}

/** The words to open with; an object, so that the same words open it again. */
const asked = signal(/** @type {{ words: string } | null} */ (null));

/** @param {string} words what was typed already */
export function open(words) {
  asked.value = { words };
}

function Palette() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [words, setWords] = useState("");
  const now = asked.value;
  const [found, setFound] = useState({ words: "", entries: /** @type {Entry[]} */ ([]) });
  const [chosen, setChosen] = useState(0);
  /** The words for which Enter was pressed before their answer came. */
  const entered = useRef(/** @type {string | null} */ (null));
  useEffect(() => {
    if (!now || dialog.current?.open) return;
    setWords(now.words);
    dialog.current?.showModal();
  }, [now]);
  useEffect(() => {
    let current = true;
    look(words).then((entries) => {
      if (!current) return;
      setFound({ words, entries });
      setChosen(0);
      if (entered.current === words) leave(entries[0]);
    });
    return () => void (current = false);
  }, [words, now]);  // Opened again: perhaps in another namespace.
  const leave = (/** @type {Entry | undefined} */ entry) => {
    entered.current = null;
    if (!entry) return;
    dialog.current?.close();
    go(entry.href);
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    const typed = /** @type {HTMLInputElement} */ (event.target).value;
    if (event.key === "ArrowDown") setChosen(Math.min(chosen + 1, found.entries.length - 1));
    else if (event.key === "ArrowUp") setChosen(Math.max(chosen - 1, 0));
    else if (event.key !== "Enter") return;
    else if (typed === found.words) leave(found.entries[chosen]);
    else entered.current = typed;
    event.preventDefault();
  };
  return html`<dialog ref=${dialog} aria-label="search"><div class="palette">
    <div class="row"><input type="text" aria-label="search pages, jobs and runs" placeholder="Page, job or run id" value=${words} onInput=${(/** @type {any} */ e) => ((entered.current = null), setWords(e.target.value))} onKeyDown=${press} /><button type="button" class="plain" onClick=${() => dialog.current?.close()}>Close</button></div>
    <ul role="listbox" aria-label="found">${found.entries.slice(0, 12).map((each, n) => html`<li role="none">
      <a role="option" aria-selected=${n === chosen} href=${each.href} onClick=${() => dialog.current?.close()}><span>${each.text}</span><span class="muted">${each.note}</span></a></li>`)}</ul>
    ${found.entries.length === 0 && found.words !== "" && html`<p class="muted" role="status">No page, job or run is called “${found.words}”.</p>`}
  </div></dialog>`;
}

mount(html`<${Palette} />`);
