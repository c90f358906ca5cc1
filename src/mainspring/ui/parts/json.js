/** JSON as text: keys in their order, integers exact, never as markup. */
import { Exact } from "../api.js";
import { html } from "../html.js";

/** @param {unknown} value @param {string} [indent] @returns {string} */
export function write(value, indent = "") {
  const deeper = `${indent}  `;
  if (value instanceof Exact) return value.digits;
  if (Array.isArray(value)) return value.length ? `[\n${value.map((each) => deeper + write(each, deeper)).join(",\n")}\n${indent}]` : "[]";
  if (value && typeof value === "object") {
    const parts = Object.entries(value).map(([name, each]) => `${deeper}${JSON.stringify(name)}: ${write(each, deeper)}`);
    return parts.length ? `{\n${parts.join(",\n")}\n${indent}}` : "{}";
  }
  return JSON.stringify(value) ?? "null";
}

/** @param {{ value: unknown, label: string }} given */
export function Json({ value, label }) {
  const text = write(value);
  return html`<div class="json"><pre class="code" tabindex="0" aria-label=${label}>${text}</pre><button type="button" class="plain" aria-label=${`copy the ${label}`} onClick=${async () => (await import("./dialog.js")).copy(text)}>copy</button></div>`;
}
