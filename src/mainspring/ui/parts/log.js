/** What a run wrote: as text, so that the browser's own search finds it; followed while it runs; each line has an address. */
import { address, get, stream } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { place } from "../router.js";
import { Empty, Trouble } from "./page.js";
import { now } from "./when.js";

const MOST = 10_000;
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
  useEffect(() => {
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
  }, [run.run_id, run.state]);
  return { lines, error, asked };
}

/** @param {{ run: any }} given */
export function Output({ run }) {
  const { lines, error, asked } = useLines(run);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [follows, setFollows] = useState(true);
  const target = place.value.hash;
  useEffect(() => {
    if (target) box.current?.querySelector(`[id="${target.slice(1)}"]`)?.scrollIntoView({ block: "center" });
    else if (follows && run.state === "running" && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines.length, target]);
  const scrolled = () => box.current && setFollows(box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < 40);
  if (error && !lines.length) return html`<${Trouble} error=${error} />`;
  if (!asked && !lines.length) return html`<div class="skeleton" aria-busy="true" aria-label="reading the output"></div>`;
  if (!lines.length) return html`<${Empty}>${run.state === "running" ? "It has not written anything yet." : "It wrote nothing."}</${Empty}>`;
  return html`<div class="stack">
    <div class="spread"><span class="muted">${lines.length} lines${run.state === "running" ? (follows ? ", following" : ", paused while you read") : ""}${error ? `, ${error.message}` : ""}</span>
      <a class="button" href=${address(`/v1/runs/${run.run_id}/logs`, { limit: MOST, format: "text" })} download=${`${run.run_id}.txt`}>Download</a></div>
    <div class="log" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-label="output">
      ${lines.map((line, n) => html`${n > 0 && line.attempt !== lines[n - 1].attempt && html`<p class="rule" key=${`attempt ${line.attempt}`}>attempt ${line.attempt}</p>`}<div key=${line.number} id=${`L${n + 1}`} class=${`${line.stream === "stderr" ? "stderr" : ""} ${target === `#L${n + 1}` ? "target" : ""}`}>
        <a href=${`#L${n + 1}`} tabindex="-1" aria-label=${`line ${n + 1}`}>${n + 1}</a><span>${line.text}</span></div>`)}
    </div></div>`;
}
