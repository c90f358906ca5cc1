/** The namespace of the page, and the way to another one: the page stays, its filter does not. */
import { html, useEffect, useRef } from "../html.js";
import { base, go, place } from "../router.js";
import { me, namespace } from "../state/me.js";

/** @param {string} name */
function change(name) {
  const path = place.value.path.split("/").slice(0, 2).join("/");
  go(`${base}/ui${path}${name === me.value?.home ? "" : `?ns=${encodeURIComponent(name)}`}`);
}

export function Namespaces() {
  const field = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const focus = () => field.current?.focus();
    addEventListener("mainspring-namespace", focus);
    return () => removeEventListener("mainspring-namespace", focus);
  }, []);
  const names = [...new Set([...(me.value?.namespaces ?? []), namespace.value])];
  const isOpen = me.value?.permissions?.["*"] !== undefined;
  if (!isOpen && names.length < 2) return html`<span class="muted nowrap">${namespace.value}</span>`;
  if (!isOpen) return html`<select class="namespace" ref=${field} aria-label="namespace" value=${namespace.value} onChange=${(/** @type {any} */ e) => change(e.target.value)}>${names.map((each) => html`<option>${each}</option>`)}</select>`;
  return html`<input class="namespace" ref=${field} aria-label="namespace" list="namespaces" value=${namespace.value} onChange=${(/** @type {any} */ e) => e.target.value.trim() && change(e.target.value.trim())} /><datalist id="namespaces">${names.map((each) => html`<option value=${each}></option>`)}</datalist>`;
}
