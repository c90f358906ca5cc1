/** Calendars: the times at which jobs do not fire. Which firings an edit would move is shown before it is saved. */
import { send } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { ask, Command, quoted, say } from "../parts/dialog.js";
import { write } from "../parts/json.js";
import { Badge, Empty, Head, Loaded, Trouble } from "../parts/page.js";
import { now, When } from "../parts/when.js";
import { go, jobNamed, place, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";

/** @typedef {import("../records.d.ts").CalendarPreview} CalendarPreview */
/** @typedef {import("../records.d.ts").CalendarDays} CalendarDays */

const EXAMPLE = [{ kind: "weekdays", days: ["sat", "sun"] }];
const TYPING_MS = 150;
const SHOWN = 20;
const EFFECTS = /** @type {Record<string, string>} */ ({ moved: "late", dropped: "excluded", added: "planned" });

/** What saving these rules would change, 150 ms after the last key. An older answer never replaces a newer one.
 * @param {string} name @param {string} text @param {string} timezone @param {number} saved how often it was saved */
function useChanges(name, text, timezone, saved) {
  const [state, set] = useState({ preview: /** @type {CalendarPreview | null} */ (null), problem: /** @type {Error | null} */ (null) });
  const turn = useRef(0);
  useEffect(() => {
    const mine = (turn.current += 1);
    const timer = setTimeout(async () => {
      const next = await Promise.resolve()
        .then(() => send("POST", `/v1/calendars/${encodeURIComponent(name || "new")}/preview`, { rules: JSON.parse(text), timezone }))
        .then((preview) => ({ preview, problem: null }), (problem) => ({ preview: null, problem }));
      if (mine === turn.current) set(next);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [name, text, timezone, saved]);
  return state;
}

/** @param {{ state: ReturnType<typeof useChanges> }} given */
function Changes({ state }) {
  const { preview, problem } = state;
  const count = preview ? preview.moved + preview.dropped + preview.added : 0;
  return html`<section class="panel" aria-label="what saving changes"><header><h2>What saving changes</h2></header><div class="body stack" aria-live="polite">
    ${problem instanceof SyntaxError ? html`<p class="muted">What saving changes is shown as soon as the rules are JSON.</p>` : problem && html`<${Trouble} error=${problem} />`}
    ${preview && html`<p class="sentence">${count === 0 ? "No firing of the next 30 days changes." : `${count.toLocaleString("en-GB")} firings of ${preview.jobs} ${preview.jobs === 1 ? "job" : "jobs"} change: ${preview.moved} move, ${preview.dropped} disappear, ${preview.added} appear.`}</p>
      ${preview.partial && html`<p class="s-warning">There are too many to look at each: this is a part.</p>`}
      ${count > 0 && html`<ul class="lines" aria-label="firings that change">${preview.items.slice(0, SHOWN).map((each) => html`<li>
        <span><a href=${jobNamed(each.job)}>${each.job}</a> <${Badge} state=${EFFECTS[each.effect]} word=${each.effect} /><br /><span class="muted">${each.reason}</span></span>
        <span class="number"><${When} at=${each.at ?? each.to} />${each.at && each.to && html`<br />→ <${When} at=${each.to} />`}</span></li>`)}</ul>`}
      ${count > SHOWN && html`<p class="muted">and ${(count - SHOWN).toLocaleString("en-GB")} more</p>`}`}</div></section>`;
}

/** Why a text is no JSON; empty if it is.
 * @param {string} text */
function faultOf(text) {
  try {
    JSON.parse(text);
    return "";
  } catch (problem) {
    return /** @type {Error} */ (problem).message;
  }
}

/** @param {{ calendar?: any, then: () => void }} given */
function Rules({ calendar, then }) {
  const [name, setName] = useState(calendar?.name ?? "");
  const [timezone, setTimezone] = useState(calendar?.timezone ?? "UTC");
  const [text, setText] = useState(write(calendar?.rules ?? EXAMPLE));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [saved, setSaved] = useState(0);
  const changes = useChanges(name, text, timezone, saved);
  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await send("PUT", `/v1/calendars/${encodeURIComponent(name)}`, { rules: JSON.parse(text), timezone });
      say(`${name} saved`);
      setError(null);
      setSaved(saved + 1);
      then();
      go(to(`/calendars/${encodeURIComponent(name)}`));
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
    }
  };
  const fault = faultOf(text);
  const why = !may("calendars:write") ? "needs calendars:write" : fault ? "the rules are no JSON" : "";
  return html`<div class="columns first"><section class="panel"><header><h2>Rules</h2></header><form class="body stack" onSubmit=${save}>
    <div class="two">${!calendar && html`<div class="field"><label for="name">Name</label><input id="name" required value=${name} onInput=${(/** @type {any} */ e) => setName(e.target.value)} /></div>`}
      <div class="field"><label for="zone">Zone</label><input id="zone" value=${timezone} onInput=${(/** @type {any} */ e) => setTimezone(e.target.value)} /></div></div>
    <div class="field"><label for="rules">Rules as JSON</label><textarea id="rules" rows="8" spellcheck="false" aria-invalid=${!!fault} aria-describedby=${fault ? "rules-fault" : null} value=${text} onInput=${(/** @type {any} */ e) => setText(e.target.value)}></textarea>
      ${fault && html`<span id="rules-fault" class="fault" role="alert">This is not JSON: ${fault}</span>`}</div>
    ${error && html`<${Trouble} error=${error} />`}
    <${Command} line=${`mainspring calendar save ${quoted(name || "NAME")} --rules ${quoted(text.replace(/\s+/g, " "))} --tz ${timezone}`} />
    <div class="row"><button class="primary" disabled=${!!why} title=${why}>Save the calendar</button>${!calendar && html`<a class="button" href=${to("/calendars")}>Cancel</a>`}</div></form></section>
    <${Changes} state=${changes} /></div>`;
}

/** @param {string} name */
function askToRemove(name) {
  ask({
    title: `Remove calendar ${name}`, text: "Jobs that use it keep it: then it is refused, and they are named.", button: "Remove it", danger: true, done: `${name} removed`,
    command: (reason) => `mainspring calendar remove ${quoted(name)}${reason ? ` --reason ${quoted(reason)}` : ""}`,
    act: async (reason) => {
      await send("DELETE", `/v1/calendars/${encodeURIComponent(name)}${reason ? `?reason=${encodeURIComponent(reason)}` : ""}`);
      go(to("/calendars"));
    },
  });
}

/** The months of the coming year, with the days that are excluded.
 * @param {{ name: string, timezone: string }} given */
function Days({ name, timezone }) {
  const days = useResource(`/v1/calendars/${encodeURIComponent(name)}/days`, undefined, (news) => news.more);
  return html`<${Loaded} of=${days}>${(/** @type {CalendarDays} */ found) => html`<section class="panel"><header><h2>The coming year</h2><span class="muted">${found.items.length.toLocaleString("en-GB")} days are excluded, wholly or in part</span></header><div class="body stack">
      <div class="year">${monthsOf(found.items, timezone).map((month) => html`<${Month} month=${month} />`)}</div>
      <p>${found.jobs === 0 ? "No job uses it." : html`Used by ${found.used_by.map((job, n) => html`${n ? ", " : ""}<a href=${jobNamed(job)}>${job}</a>`)}${found.jobs > found.used_by.length ? ` and ${(found.jobs - found.used_by.length).toLocaleString("en-GB")} more jobs` : ""}.`}</p></div></section>`}</${Loaded}>`;
}

const WEEKDAYS = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"];

/** @typedef {{ label: string, weeks: ({ day: number, when: "past" | "today" | "", excluded?: import("../records.d.ts").ExcludedDay } | null)[][] }} MonthGrid */

/** Twelve months from that of today on, by the calendar's clocks, as the server names days. Of those before today it names none.
 * @param {import("../records.d.ts").ExcludedDay[]} days @param {string} timezone @returns {MonthGrid[]} */
function monthsOf(days, timezone) {
  const known = new Map(days.map((each) => [each.day, each]));
  const today = new Intl.DateTimeFormat("en-CA", { timeZone: timezone }).format(now());
  const [year, month] = today.split("-").map(Number);
  const cellOf = (/** @type {string} */ date) => ({ day: Number(date.slice(8)), when: /** @type {"past" | "today" | ""} */ (date < today ? "past" : date === today ? "today" : ""), excluded: known.get(date) });
  return Array.from({ length: 12 }, (_, n) => {
    const first = new Date(Date.UTC(year, month - 1 + n, 1));
    const count = new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1, 0)).getUTCDate();
    const before = (first.getUTCDay() + 6) % 7;
    const cells = [...Array(before).fill(null), ...Array.from({ length: count }, (_, day) => cellOf(new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth(), day + 1)).toISOString().slice(0, 10)))];
    const weeks = Array.from({ length: Math.ceil(cells.length / 7) }, (_, week) => cells.slice(week * 7, week * 7 + 7));
    return { label: new Intl.DateTimeFormat("en-GB", { month: "long", year: "numeric", timeZone: "UTC" }).format(first), weeks };
  });
}

/** @param {{ month: MonthGrid }} given */
function Month({ month }) {
  return html`<table class="month"><caption>${month.label}</caption><thead><tr>${WEEKDAYS.map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
    <tbody>${month.weeks.map((week) => html`<tr>${week.map((cell) => (cell ? html`<td class=${`${cell.when} ${cell.excluded ? (cell.excluded.whole ? "out" : "part") : ""}`} aria-current=${cell.when === "today" ? "date" : null} title=${cell.excluded ? `${cell.excluded.day}: ${cell.excluded.whole ? "excluded" : "excluded in part"}: ${cell.excluded.reason}` : cell.when === "past" ? "past" : cell.when || null}>${cell.day}</td>` : html`<td></td>`))}</tr>`)}</tbody></table>`;
}

/** @param {{ argument?: string }} given */
export default function Calendars({ argument }) {
  const calendars = useResource("/v1/calendars");
  const isNew = place.value.query.get("new") !== null;
  return html`<${Loaded} of=${calendars}>${(/** @type {any} */ found) => {
    const one = found.items.find((/** @type {any} */ each) => each.name === argument);
    if (argument && !one) return html`<${Head} title=${`Calendar ${argument}`} /><${Empty}>There is no calendar of this name. <a href=${to("/calendars")}>All calendars</a></${Empty}>`;
    if (one) return html`<${Head} title=${`Calendar ${one.name}`} actions=${may("calendars:write") && html`<button class="danger" onClick=${() => askToRemove(one.name)}>Remove</button>`}><span class="muted">${one.timezone}</span></${Head}><div class="stack"><${Rules} calendar=${one} then=${calendars.reload} /><${Days} name=${one.name} timezone=${one.timezone} key=${write(one.rules)} /></div>`;
    if (isNew) return html`<${Head} title="New calendar" /><${Rules} then=${calendars.reload} />`;
    return html`<${Head} title="Calendars" actions=${may("calendars:write") && html`<a class="button" href=${to("/calendars", { new: 1 })}>New calendar</a>`} />
      ${found.items.length
        ? html`<ul class="tiles">${found.items.map((/** @type {any} */ each) => html`<li class="panel"><header><h2><a href=${to(`/calendars/${encodeURIComponent(each.name)}`)}>${each.name}</a></h2><span class="muted">${each.timezone}</span></header><div class="body muted">${each.rules.length} ${each.rules.length === 1 ? "rule" : "rules"}</div></li>`)}</ul>`
        : html`<${Empty} command="mainspring calendar save holidays --weekends --date 12-25">There are no calendars.</${Empty}>`}`;
  }}</${Loaded}>`;
}
