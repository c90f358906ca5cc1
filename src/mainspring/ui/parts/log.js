/** What a run wrote: as text, so that the browser's own search finds it; followed while it runs; each line has an address. */
import { address, get, stream } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { place } from "../router.js";
import { Empty, Trouble } from "./page.js";

const MOST = 10_000;
const AGAIN_MS = 1_000;

/** Lines so far, then those to come; after a broken connection it goes on behind the last line, so none is lost or doubled.
 * @param {any} run */
function useLines(run) {
  const [lines, setLines] = useState(/** @type {any[]} */ ([]));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  useEffect(() => {
    const abort = new AbortController();
    let last = 0;
    const take = (/** @type {any[]} */ some) => {
      const fresh = some.filter((line) => line.number > last);
      if (!fresh.length) return;
      last = fresh[fresh.length - 1].number;
      setLines((old) => [...old, ...fresh].slice(-MOST));
    };
    const follow = async () => {
      const found = await get(`/v1/runs/${run.run_id}/logs`, { tail: MOST }, abort.signal);
      take(found.items);
      while (!abort.signal.aborted && run.state === "running") {
        await stream(`/v1/runs/${run.run_id}/logs`, { follow: true, after: last }, abort.signal, (event) => event.data?.text !== undefined && take([event.data])).catch(() => {});
        await new Promise((wake) => setTimeout(wake, AGAIN_MS));
      }
    };
    follow().catch((problem) => abort.signal.aborted || setError(problem));
    return () => abort.abort();
  }, [run.run_id, run.state === "running"]);
  return { lines, error };
}

/** @param {{ run: any }} given */
export function Output({ run }) {
  const { lines, error } = useLines(run);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [follows, setFollows] = useState(true);
  const target = place.value.hash;
  useEffect(() => {
    if (target) box.current?.querySelector(`[id="${target.slice(1)}"]`)?.scrollIntoView({ block: "center" });
    else if (follows && run.state === "running" && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines.length, target]);
  const scrolled = () => box.current && setFollows(box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < 40);
  if (error) return html`<${Trouble} error=${error} />`;
  if (!lines.length) return html`<${Empty}>${run.state === "running" ? "It has not written anything yet." : "It wrote nothing."}</${Empty}>`;
  return html`<div class="stack">
    <div class="spread"><span class="muted">${lines.length} lines${run.state === "running" ? (follows ? ", following" : ", paused while you read") : ""}</span>
      <a class="button" href=${address(`/v1/runs/${run.run_id}/logs`, { limit: MOST })} download=${`${run.run_id}.json`}>Download</a></div>
    <div class="log" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-label="output">
      ${lines.map((line, n) => html`<div key=${line.number} id=${`L${n + 1}`} class=${`${line.stream === "stderr" ? "stderr" : ""} ${target === `#L${n + 1}` ? "target" : ""}`}>
        <a href=${`#L${n + 1}`} tabindex="-1" aria-label=${`line ${n + 1}`}>${n + 1}</a><span>${line.text}</span></div>`)}
    </div></div>`;
}
