/** Which keys do what. */
import { html, mount } from "../html.js";
import { PLACES } from "../keys.js";

const KEYS = [
  ["/", "filter of the page"], ["⌘K", "search pages, jobs and runs"], ["?", "this help"], ["n", "namespace"], ["t", "zone of all times"], ["p", "pause updates"],
  ["j k", "next and previous row"], ["Enter", "open the row"], ["x", "select the row"], ["a", "actions"], ["[ ]", "previous and next object of the list"], ["e", "edit the job"], ["y Y", "copy the id, copy the link"], ["Esc", "close"],
];

let dialog = /** @type {HTMLDialogElement | null} */ (null);

export function open() {
  dialog?.showModal();
}

function Help() {
  const places = Object.entries(PLACES).map(([key, path]) => [`g ${key}`, path === "/" ? "overview" : path.slice(1)]);
  return html`<dialog ref=${(/** @type {HTMLDialogElement | null} */ it) => (dialog = it)} aria-label="keys"><div class="content"><h2>Keys</h2><dl class="facts keys">${[...places, ...KEYS].map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>
    <form method="dialog"><div class="buttons"><button>Close</button></div></form></div></dialog>`;
}

mount(html`<${Help} />`);
