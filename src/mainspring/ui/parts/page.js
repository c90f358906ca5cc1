/** What every page shares: its head, states as badges, and how loading, errors and emptiness look. */
import { Problem } from "../api.js";
import { lookOf } from "../draw/text.js";
import { html, useEffect, useState } from "../html.js";
import { place, to } from "../router.js";
import { When } from "./when.js";

/** Up to this length no name needs a place to break. */
const SHORT = 24;

/** A long name, which is broken behind its signs and not within a word.
 * @param {string} name */
export function breakable(name) {
  return name.length <= SHORT ? name : name.split(/(?<=[._:/-])/).map((part, n) => html`${n > 0 && html`<wbr />`}${part}`);
}

/** @param {{ title: any, children?: any, actions?: any }} given */
export function Head({ title, children, actions }) {
  useEffect(() => {
    document.title = `${typeof title === "string" ? `${title} · ` : ""}Mainspring`;
  }, [title]);
  return html`<div class="page-head"><h1>${typeof title === "string" ? breakable(title) : title}</h1>${children}${actions && html`<div class="actions">${actions}</div>`}</div>`;
}

/** An instant in a sentence, and how far it was from the time of the answer. */
const INSTANT = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)(?: \((?:in )?[\d.a-z]+(?: ago)?\))?/;

/** The whole id of a run in a sentence. */
const RUN = /\b(0[0-9a-hjkmnp-tv-z]{25})\b/;

/** A sentence of the server, whose commands stand in backticks. Its instants are shown in the zone of all others, and its runs are links.
 * @param {{ text: string, zone?: string, job?: boolean }} given */
export function Sentence({ text, zone, job }) {
  const linked = (/** @type {string} */ part) => part.split(RUN).map((each, n) => (n % 2 ? (place.value.path.endsWith(each) ? `…${each.slice(-8)}` : html`<a class="nowrap" href=${to(`/runs/${each}`)}>…${each.slice(-8)}</a>`) : each));
  const timed = (/** @type {string} */ part) => part.split(INSTANT).map((each, n) => (n % 2 ? html`<${When} at=${each} zone=${zone} job=${job} />` : linked(each)));
  return text.split("`").map((part, n) => (n % 2 ? html`<code>${wordsOf(part)}</code>` : timed(part)));
}

/** Longer words than this are broken where a line ends. */
const WORD = 32;

/** The words of a command, which is broken between them: no line ends behind the dashes of a word.
 * @param {string} line */
export function wordsOf(line) {
  return line.split(" ").map((word, n) => html`${n ? " " : ""}<span class=${word.length <= WORD ? "nowrap" : ""}>${word}</span>`);
}

/** What browsers say when a request reaches no server; each has words of its own. */
const UNREACHABLE = /fetch|load|network/i;

/** @param {{ error: Error, retry?: () => void }} given */
export function Trouble({ error, retry }) {
  const problem = error instanceof Problem ? error : null;
  const title = problem?.title || (problem ? "Refused" : error instanceof SyntaxError ? "This is not JSON" : error instanceof TypeError ? "The server does not answer" : "Not all of it is done");
  const text = error instanceof TypeError && UNREACHABLE.test(error.message) ? "There is no connection to it. This page goes on as soon as there is." : error.message;
  const isMissing = problem?.status === 404;  // The sentence says no less than the title.
  return html`<div class="problem" role="alert">
    ${!isMissing && html`<strong>${title}</strong>`}
    <span><${Sentence} text=${isMissing ? `${text.slice(0, 1).toUpperCase()}${text.slice(1).replace(/\.?$/, ".")}` : text} /></span>
    ${problem?.remedy && problem.faults.length < 2 && html`<span class="muted"><${Sentence} text=${problem.remedy} /></span>`}
    ${problem?.request && html`<span class="muted mono">request ${problem.request}</span>`}
    ${retry && !isMissing && html`<button onClick=${retry}>Try again</button>`}
  </div>`;
}

/** @param {{ children: any, command?: string | string[] }} given */
export function Empty({ children, command = [] }) {
  return html`<div class="empty"><p>${children}</p>${[command].flat().map((each) => html`<code>${wordsOf(each)}</code>`)}</div>`;
}

/** A resource, once it is there. What answers the question before stays, dimmed. What is only asked again, because of news, stays as it is: on a
 * busy system the page would never be clear.
 * @param {{ of: import("../state/resource.js").Resource<any>, children: (data: any) => any }} given */
export function Loaded({ of, children }) {
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    if (!of.loading) return setSlow(false);
    const timer = setTimeout(() => setSlow(true), of.data === null ? 150 : 300);
    return () => clearTimeout(timer);
  }, [of.loading, of.data === null]);
  const trouble = of.error && html`<${Trouble} error=${of.error} retry=${of.reload} />`;
  if (of.data === null) return trouble ?? (slow ? html`<div class="skeleton" aria-busy="true"></div>` : null);
  return html`${trouble}<div class=${slow && of.loading && !of.current ? "dim" : ""}>${children(of.data)}</div>`;
}

/** A state, as glyph and word.
 * @param {{ state: string, word?: string }} given */
export function Badge({ state, word }) {
  const look = lookOf(state);
  return html`<span class=${`badge s-${look.tone}`}><span class="glyph" aria-hidden="true">${look.glyph}</span>${word ?? look.word}</span>`;
}

/** How much of a capacity is used.
 * @param {{ used: number, of: number }} given */
export function Meter({ used, of }) {
  const share = of ? Math.min(used / of, 1) : 0;
  const fill = (/** @type {HTMLElement | null} */ bar) => bar && (bar.style.width = `${share * 100}%`);
  return html`<span class="meter" role="meter" aria-valuenow=${used} aria-valuemin="0" aria-valuemax=${of} aria-label=${`${used} of ${of}`}><i ref=${fill}></i></span>`;
}
