/** Calendars: times at which jobs do not fire. */
import { html } from "../html.js";
import { Json } from "../parts/json.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { useResource } from "../state/resource.js";

export default function Calendars() {
  const calendars = useResource("/v1/calendars");
  return html`<${Head} title="Calendars" /><${Loaded} of=${calendars}>${(/** @type {any} */ found) => found.items.length
    ? html`<div class="stack">${found.items.map((/** @type {any} */ each) => html`<section class="panel"><header><h2>${each.name}</h2><span class="muted">${each.timezone}</span></header>
        <div class="body"><${Json} value=${each.rules} label=${`rules of ${each.name}`} /></div></section>`)}</div>`
    : html`<${Empty} command="mainspring calendar save holidays --file holidays.json">There are no calendars.</${Empty}>`}</${Loaded}>`;
}
