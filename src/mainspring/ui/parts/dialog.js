/** Dialogs: what will happen, why, the command that does the same, and what went wrong if something did. */
import { html, mount, signal, useEffect, useRef, useState } from "../html.js";
import { place } from "../router.js";
import { Trouble, wordsOf } from "./page.js";

const toast = signal("");
let timer = 0;

/** Say briefly that something was done.
 * @param {string} text */
export function say(text) {
  toast.value = text;
  clearTimeout(timer);
  timer = setTimeout(() => (toast.value = ""), 4000);
}

/** @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  say("copied");
}

/** A command to copy. On a page of another namespace it names that one.
 * @param {{ line: string }} given */
export function Command({ line: words }) {
  const namespace = place.value.query.get("ns");
  const line = namespace ? `${words} --namespace ${quoted(namespace)}` : words;
  return html`<div class="command"><code tabindex="0">${wordsOf(line)}</code><button type="button" class="plain" aria-label="copy the command" onClick=${() => copy(line)}>copy</button></div>`;
}

/** @typedef {{ title: string, text: any, button: string, danger?: boolean, reason?: boolean, command: (reason: string) => string,
 *   act: (reason: string) => Promise<any>, done: string, children?: any }} Question */

/** The dialog that is open, if any. */
export const question = signal(/** @type {Question | null} */ (null));

/** @param {Question} asked */
export function ask(asked) {
  question.value = asked;
}

function Toast() {
  return html`<div role="status" aria-live="polite">${toast.value && html`<div class="toast">${toast.value}</div>`}</div>`;
}

/** The open dialog; one for the whole page. */
function Dialog() {
  const asked = question.value;
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [reason, setReason] = useState("");
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    setReason("");
    setError(null);
    if (asked && !element.current?.open) element.current?.showModal();
    if (!asked) element.current?.close();
  }, [asked]);
  if (!asked) return html`<dialog ref=${element}></dialog>`;
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await asked.act(reason);
      question.value = null;
      say(asked.done);
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
    } finally {
      setBusy(false);
    }
  };
  return html`<dialog ref=${element} aria-label=${asked.title} onClose=${() => (question.value = null)}>
    <form method="dialog" onSubmit=${submit}>
      <h2>${asked.title}</h2>
      <div class="stack">${asked.text}</div>
      ${asked.reason !== false && html`<div class="field"><label for="reason">Reason, for those who look later</label>
        <input id="reason" value=${reason} onInput=${(/** @type {any} */ e) => setReason(e.target.value)} maxlength="1000" /></div>`}
      ${error && html`<${Trouble} error=${error} />`}
      <${Command} line=${asked.command(reason)} />
      <div class="buttons">
        <button type="button" onClick=${() => (question.value = null)}>Keep it as it is</button>
        <button class=${asked.danger ? "danger" : "primary"} disabled=${busy}>${asked.button}</button>
      </div>
    </form>
  </dialog>`;
}

mount(html`<${Dialog} />`);
mount(html`<${Toast} />`);

/** A word as a shell takes it.
 * @param {string} word */
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
