/** Settings of this browser, and signing out. */
import { send } from "../api.js";
import { html } from "../html.js";
import { stop } from "../live.js";
import { Head, Loaded, Sentence } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { may, me, signedOut } from "../state/me.js";
import { useResource } from "../state/resource.js";
import { clock, density, keys, theme } from "../state/settings.js";

/** @typedef {import("../records.d.ts").ShownSetting} ShownSetting */

/** @param {{ name: string, of: any, choices: [string, string][] }} given */
function Choice({ name, of, choices }) {
  return html`<fieldset><legend>${name}</legend><div class="choices">${choices.map(([value, word]) => html`<label>
    <input type="radio" name=${name} checked=${of.value === value} onChange=${() => (of.value = value)} />${word}</label>`)}</div></fieldset>`;
}

async function signOut() {
  await send("DELETE", "/v1/session");
  stop();
  me.value = null;
  signedOut.value = true;
}

const COLUMNS = [
  { name: "Setting", tight: true, cell: (/** @type {ShownSetting} */ it) => html`<span class="mono">${it.name}</span>` },
  { name: "Value", cell: (/** @type {ShownSetting} */ it) => html`<span><span class=${`mono ${it.is_default ? "muted" : ""}`}>${it.value || "–"}</span>${!it.is_default && html`<br /><span class="muted">by default: <span class="mono">${it.default || "nothing"}</span></span>`}</span>` },
  { name: "Meaning", cell: (/** @type {ShownSetting} */ it) => html`<span><${Sentence} text=${it.meaning} /></span>` },
  { name: "Variable", tight: true, cell: (/** @type {ShownSetting} */ it) => html`<span class="mono muted">${it.variable}</span>` },
];

/** What the server runs with: what was set comes first. Secrets are masked by the server. */
function OfServer() {
  const settings = useResource("/v1/settings");
  const order = (/** @type {ShownSetting[]} */ items) => [...items].sort((one, other) => Number(one.is_default) - Number(other.is_default) || one.name.localeCompare(other.name));
  return html`<h2 class="below">Settings of the server</h2><${Loaded} of=${settings}>${(/** @type {any} */ found) => html`<${Table} label="settings of the server" columns=${COLUMNS} rows=${order(found.items)} id=${(/** @type {ShownSetting} */ it) => it.name} />`}</${Loaded}>`;
}

export default function Settings() {
  const local = me.value?.subject === "local";
  return html`<${Head} title="Settings" />
    <div class="form"><div class="stack">
      <${Choice} name="Theme" of=${theme} choices=${[["system", "as the system"], ["light", "light"], ["dark", "dark"]]} />
      <${Choice} name="Times" of=${clock} choices=${[["browser", "this browser's zone"], ["utc", "UTC"], ["job", "each job's zone"]]} />
      <${Choice} name="Rows" of=${density} choices=${[["compact", "compact"], ["comfortable", "comfortable"]]} />
      <${Choice} name="Single keys" of=${keys} choices=${[["on", "on"], ["off", "off"]]} /></div>
    <section class="panel"><header><h2>Session</h2></header><div class="body"><dl class="facts">
      <dt>Subject</dt><dd>${me.value?.subject}</dd><dt>Server</dt><dd>${me.value?.version}</dd>
      <dt>Session ends</dt><dd><${When} at=${me.value?.expires_at} none="never" /></dd></dl>
      ${!local && html`<p><button onClick=${signOut}>Sign out</button></p>`}</div></section></div>
    ${may("settings:read") && html`<${OfServer} />`}`;
}
