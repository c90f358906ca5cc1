/** Settings of this browser, and signing out. */
import { send } from "../api.js";
import { html } from "../html.js";
import { stop } from "../live.js";
import { Head } from "../parts/page.js";
import { When } from "../parts/when.js";
import { me, signedOut } from "../state/me.js";
import { clock, density, keys, theme } from "../state/settings.js";

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
      <dt>Until</dt><dd><${When} at=${me.value?.expires_at} none="no end" /></dd></dl>
      ${!local && html`<p><button onClick=${signOut}>Sign out</button></p>`}</div></section></div>`;
}
