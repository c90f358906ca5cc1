/** The output of a run: as text, so that the browser's own search finds it; followed while it runs; each line has an address. */
import { get, stream } from "../api.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { visible } from "../live.js";
import { go, place } from "../router.js";
import { say } from "./dialog.js";
import { Empty, Trouble } from "./page.js";
import { now } from "./when.js";

const MOST = 10_000;
const BLOCK = 200;
/** The height of a line, as the style sheet has it. */
const LINE_PX = 18;
/** Pauses between two looks after a run has ended: a worker may deliver output after the end. The last pause repeats while the page is open. */
const LATE_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000];
const ENDED = ["succeeded", "failed", "cancelled", "skipped"];
/** How long after its end a run is looked at again. */
const SETTLED_MS = 120_000;

/** @param {number} ms @param {AbortSignal} signal */
function pause(ms, signal) {
  return new Promise((wake) => {
    const timer = setTimeout(wake, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), wake(undefined)), { once: true });
  });
}

/** The lines so far, then those to come. After a broken connection the page continues behind the last line, so none is lost or doubled.
 * @param {any} run */
function useLines(run) {
  const [lines, setLines] = useState(/** @type {any[]} */ ([]));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [asked, setAsked] = useState(false);
  const last = useRef(0);
  const isEnded = ENDED.includes(run.state);
  const isVisible = visible.value;
  useEffect(() => {
    if (!isVisible) return;
    const abort = new AbortController();
    const path = `/v1/runs/${run.run_id}/logs`;
    const take = (/** @type {any[]} */ some) => {
      const fresh = some.filter((line) => line.number > last.current);
      if (abort.signal.aborted || !fresh.length) return;
      last.current = fresh[fresh.length - 1].number;
      setLines((old) => [...old, ...fresh].slice(-MOST));
    };
    const ask = async () => {
      const found = await get(path, { tail: MOST, after: last.current || undefined }, abort.signal);
      take(found.items);
      setAsked(true);
      setError(null);
    };
    const follow = async () => {
      const settled = run.finished_at ? Date.parse(run.finished_at) + SETTLED_MS : 0;
      for (let n = 0; !abort.signal.aborted; n += 1) {
        await ask().catch((problem) => abort.signal.aborted || setError(problem));
        if (isEnded && now().getTime() > settled) return;
        if (run.state === "running") await stream(path, { follow: true, after: last.current }, abort.signal, (event) => event.data?.text !== undefined && take([event.data])).catch(() => {});
        await pause(LATE_MS[Math.min(n, LATE_MS.length - 1)], abort.signal);
      }
    };
    follow();
    return () => abort.abort();
  }, [run.run_id, run.state, isVisible]);
  return { lines, error, asked };
}

/** Lines in blocks of one attempt. A block is two texts and not hundreds of elements: 10,000 lines are drawn in one frame, also on a busy machine.
 * @param {any[]} lines @returns {{ first: number, lines: any[], isAttempt: boolean }[]} */
function blocksOf(lines) {
  const blocks = [];
  for (let n = 0; n < lines.length; ) {
    let end = n + 1;
    while (end < lines.length && end - n < BLOCK && lines[end].attempt === lines[n].attempt) end += 1;
    blocks.push({ first: n + 1, lines: lines.slice(n, end), isAttempt: n > 0 && lines[n].attempt !== lines[n - 1].attempt });
    n = end;
  }
  return blocks;
}

/** Neighbours of one stream share an element, so that only what went to stderr is marked.
 * @param {any[]} lines */
function textsOf(lines) {
  const parts = /** @type {{ stream: string, text: string }[]} */ ([]);
  for (const line of lines) {
    const last = parts[parts.length - 1];
    const text = `${line.text.replace(/[\r\n]+/g, " ")}\n`;
    if (last?.stream === line.stream) last.text += text;
    else parts.push({ stream: line.stream, text });
  }
  return parts.map((part) => (part.stream === "stderr" ? html`<span class="stderr">${part.text}</span>` : part.text));
}

/** @param {{ block: { first: number, lines: any[], isAttempt: boolean }, target: number }} given */
function Block({ block, target }) {
  const { first, lines } = block;
  const content = useMemo(() => [lines.map((_, n) => first + n).join("\n"), textsOf(lines)], [first, lines.length]);
  const row = target - first;
  const place = (/** @type {HTMLElement | null} */ bar) => bar && (bar.style.top = `${row * LINE_PX}px`);
  const size = (/** @type {HTMLElement | null} */ box) => box && (box.style.containIntrinsicHeight = `${lines.length * LINE_PX}px`);
  const choose = (/** @type {MouseEvent} */ event) => {
    const box = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    go(`${location.pathname}${location.search}#L${first + Math.floor((event.clientY - box.top) / LINE_PX)}`, { replace: true });
  };
  return html`${block.isAttempt && html`<p class="rule">attempt ${lines[0].attempt}</p>`}<div class="block" ref=${size}>
    <pre class="numbers" aria-hidden="true" title="link to this line" onClick=${choose}>${content[0]}</pre><pre class="text">${content[1]}</pre>
    ${row >= 0 && row < lines.length && html`<i class="target" id=${`L${target}`} ref=${place}></i>`}</div>`;
}

/** Save the output as a file. A link could send neither the namespace nor the header with which a session counts.
 * @param {any} run */
async function download(run) {
  const text = await get(`/v1/runs/${run.run_id}/logs`, { limit: MOST, format: "text" }).catch((problem) => say(problem.message));
  if (text === undefined) return;
  const href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  Object.assign(document.createElement("a"), { href, download: `${run.run_id}.txt` }).click();
  URL.revokeObjectURL(href);
}

/** @param {{ run: any }} given */
export function Output({ run }) {
  const { lines, error, asked } = useLines(run);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [follows, setFollows] = useState(true);
  const target = Number(/^#L(\d+)$/.exec(place.value.hash)?.[1] ?? 0);
  const blocks = useMemo(() => blocksOf(lines), [lines]);
  useEffect(() => {
    if (target) box.current?.querySelector(".target")?.scrollIntoView({ block: "center" });
    else if (follows && run.state === "running" && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines.length, target]);
  const scrolled = () => box.current && setFollows(box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < 40);
  if (error && !lines.length) return html`<${Trouble} error=${error} />`;
  if (!asked && !lines.length) return html`<div class="skeleton" aria-busy="true" aria-label="reading the output"></div>`;
  if (!lines.length) return html`<${Empty}>${run.state === "running" ? "It has not written anything yet." : "It wrote nothing."}</${Empty}>`;
  return html`<div class="stack">
    <div class="spread"><span class="muted">${lines.length.toLocaleString("en-GB")} ${lines.length === 1 ? "line" : "lines"}${run.state === "running" ? (follows ? ", following" : ", paused while you read") : ""}${error ? `, ${error.message}` : ""}</span>
      <button onClick=${() => download(run)}>Download</button></div>
    <div class="log" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-label="output">${blocks.map((block) => html`<${Block} key=${block.first} block=${block} target=${target} />`)}</div></div>`;
}
