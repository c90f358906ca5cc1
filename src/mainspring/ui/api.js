/** Requests to the server: the caller's namespace, problems as errors, and integers that are shown as they are. */
import { signal } from "./html.js";
import { base, place } from "./router.js";

/** "Now" is the server's: its clock less ours, in milliseconds, where they differ by more than the header of an answer can hide. */
export const skew = signal(0);
const EXACT_MS = 2_000;

/** The header says when the server answered, to the second: after the question was sent, and before the answer arrived. A slow answer is no
 * sign that the clocks differ.
 * @param {Response} response @param {number} sent */
function learnClock(response, sent) {
  const answered = Date.parse(response.headers.get("date") ?? "");
  const [least, most] = [answered - Date.now(), answered + 1000 - sent];
  const isPossible = (/** @type {number} */ value) => value > least - EXACT_MS && value < most + EXACT_MS;
  if (!Number.isNaN(answered) && !isPossible(skew.value)) skew.value = isPossible(0) ? 0 : (least + most) / 2;
}

/** A refusal: what the server says, and what to do about it. */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} document */
  constructor(status, document) {
    super(document.detail || document.title || `the server answered ${status}`);
    this.status = status;
    this.title = document.title ?? "";
    this.remedy = document.remedy ?? "";
    this.request = document.request_id ?? "";
    /** @type {{ field: string, fault: string, remedy?: string }[]} */
    this.faults = document.errors ?? [];
    /** What the ledger knows of a run that is no longer kept.
     * @type {import("./records.d.ts").GoneFiring | null} */
    this.firing = document.firing ?? null;
  }
}

/** An integer that a JavaScript number cannot hold. */
export class Exact {
  /** @param {string} digits */
  constructor(digits) {
    this.digits = digits;
  }
  toString() {
    return this.digits;
  }
  /** What was read exactly is sent exactly. A browser that cannot keep the text of a number cannot write one, either. */
  toJSON() {
    const json = /** @type {any} */ (JSON);
    return json.rawJSON ? json.rawJSON(this.digits) : Number(this.digits);
  }
}

/** @param {string} text */
export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  /** @type {any} */
  const keep = (/** @type {string} */ _, /** @type {any} */ value, /** @type {{ source?: string } | undefined} */ context) => {
    const source = context?.source ?? "";
    return typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? new Exact(source) : value;
  };
  return JSON.parse(text, keep);
}

/** What is called when the server no longer knows the caller. */
export const session = { onMissing: () => {} };

/** @param {HeadersInit} [more] */
export function headers(more) {
  const namespace = place.value.query.get("ns");
  return { "Mainspring-UI": "1", ...(namespace ? { "Mainspring-Namespace": namespace } : {}), ...more };
}

/** @param {string} path @param {Record<string, any>} [query] */
export function address(path, query = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) if (each !== undefined && each !== null && each !== "") words.append(name, String(each));
  }
  const text = words.toString();
  return `${base}${path}${text ? `?${text}` : ""}`;
}

/** @param {string} url @param {RequestInit} init */
async function asked(url, init) {
  const sent = Date.now();
  const response = await fetch(url, init);
  learnClock(response, sent);
  return response;
}

/** @param {Response} response */
async function read(response) {
  const text = await response.text();
  const body = text && /json/.test(response.headers.get("content-type") ?? "") ? parse(text) : text;
  if (response.ok) return body;
  if (response.status === 401) session.onMissing();
  throw new Problem(response.status, typeof body === "object" ? body : { detail: body.slice(0, 300) });
}

/** The answer to what `first.js` asked before the modules had arrived: once, and in the namespace in which it was asked.
 * A refusal or a failure is asked for again: perhaps the caller has signed in since.
 * @param {string} path @returns {Promise<Response | null>} */
async function answered(path) {
  const early = /** @type {any} */ (globalThis).early;
  const answer = early?.answers[path];
  if (!answer) return null;
  delete early.answers[path];
  if (early.namespace !== place.value.query.get("ns")) return null;
  const response = await answer.catch(() => null);
  if (response) learnClock(response, early.sent);
  return response?.ok ? response : null;
}

/** @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] */
export async function get(path, query, signal) {
  return read((await answered(path)) ?? (await asked(address(path, query), { headers: headers(), signal })));
}

/** @param {string} method @param {string} path @param {unknown} [body] @param {Record<string, string>} [more] */
export async function send(method, path, body, more) {
  const json = body === undefined ? undefined : JSON.stringify(body);
  const sent = headers({ ...(json === undefined ? {} : { "Content-Type": "application/json" }), ...more });
  return read(await asked(base + path, { method, headers: sent, body: json }));
}

/** Server-sent events of a stream, until it ends or is aborted.
 * @param {string} path @param {Record<string, any>} query @param {AbortSignal} signal
 * @param {(event: { id: string, kind: string, data: any }) => void} take @param {() => void} [heard] called for whatever arrives */
export async function stream(path, query, signal, take, heard) {
  const response = await fetch(address(path, query), { headers: headers({ Accept: "text/event-stream" }), signal });
  if (!response.ok || !response.body) return read(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard?.();
    const parts = (rest + value).split("\n\n");
    rest = parts.pop() ?? "";
    for (const part of parts) {
      const event = { id: "", kind: "message", data: /** @type {any} */ (null) };
      for (const line of part.split("\n")) {
        if (line.startsWith("data:")) event.data = parse(line.slice(5).trim());
        else if (line.startsWith("event:")) event.kind = line.slice(6).trim();
        else if (line.startsWith("id:")) event.id = line.slice(3).trim();
      }
      if (event.data !== null) take(event);
    }
  }
}
