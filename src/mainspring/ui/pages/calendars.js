/** Calendars: the times at which jobs do not fire. Their rules can be edited. */
import { send } from "../api.js";
import { html, useState } from "../html.js";
import { Command, quoted, say } from "../parts/dialog.js";
import { write } from "../parts/json.js";
import { Empty, Head, Loaded, Trouble } from "../parts/page.js";
import { go, place, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";

const EXAMPLE = [{ weekdays: ["sat", "sun"] }];

/** @param {{ calendar?: any, then: () => void }} given */
function Rules({ calendar, then }) {
  const [name, setName] = useState(calendar?.name ?? "");
  const [timezone, setTimezone] = useState(calendar?.timezone ?? "UTC");
  const [text, setText] = useState(write(calendar?.rules ?? EXAMPLE));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await send("PUT", `/v1/calendars/${encodeURIComponent(name)}`, { rules: JSON.parse(text), timezone });
      say(`${name} saved`);
      then();
      go(to(`/calendars/${encodeURIComponent(name)}`));
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
    }
  };
  const why = may("calendars:write") ? "" : "needs calendars:write";
  return html`<section class="panel"><header><h2>Rules</h2></header><form class="body stack" onSubmit=${save}>
    <div class="two">${!calendar && html`<div class="field"><label for="name">Name</label><input id="name" required value=${name} onInput=${(/** @type {any} */ e) => setName(e.target.value)} /></div>`}
      <div class="field"><label for="zone">Zone</label><input id="zone" value=${timezone} onInput=${(/** @type {any} */ e) => setTimezone(e.target.value)} /></div></div>
    <div class="field"><label for="rules">Rules as JSON</label><textarea id="rules" rows="8" spellcheck="false" value=${text} onInput=${(/** @type {any} */ e) => setText(e.target.value)}></textarea></div>
    ${error && html`<${Trouble} error=${error} />`}
    <${Command} line=${`mainspring calendar save ${quoted(name || "NAME")} --file rules.json --tz ${timezone}`} />
    <div class="row"><button class="primary" disabled=${!!why} title=${why}>Save the calendar</button></div></form></section>`;
}

/** @param {{ argument?: string }} given */
export default function Calendars({ argument }) {
  const calendars = useResource("/v1/calendars");
  const isNew = place.value.query.get("new") !== null;
  return html`<${Loaded} of=${calendars}>${(/** @type {any} */ found) => {
    const one = found.items.find((/** @type {any} */ each) => each.name === argument);
    if (argument && !one) return html`<${Head} title=${argument} /><${Empty}>There is no calendar of this name. <a href=${to("/calendars")}>All calendars</a></${Empty}>`;
    if (one) return html`<${Head} title=${one.name}><span class="muted">${one.timezone}</span></${Head}><div class="stack"><${Rules} calendar=${one} then=${calendars.reload} /></div>`;
    return html`<${Head} title="Calendars" actions=${may("calendars:write") && html`<a class="button" href=${to("/calendars", { new: 1 })}>New calendar</a>`} />
      ${isNew ? html`<${Rules} then=${calendars.reload} />` : found.items.length
        ? html`<ul class="tiles">${found.items.map((/** @type {any} */ each) => html`<li class="panel"><header><h2><a href=${to(`/calendars/${encodeURIComponent(each.name)}`)}>${each.name}</a></h2><span class="muted">${each.timezone}</span></header><div class="body muted">${each.rules.length} ${each.rules.length === 1 ? "rule" : "rules"}</div></li>`)}</ul>`
        : html`<${Empty} command="mainspring calendar save holidays --file holidays.json">There are no calendars.</${Empty}>`}`;
  }}</${Loaded}>`;
}
