/** Templates and state: the only file that imports the libraries' view layer, and says which types its parts have. */
import { hooks, htm, preact, signals } from "./libraries/view.js";

/** @template T @typedef {{ value: T, subscribe: (listener: (value: T) => void) => () => void }} Signal */
/** @typedef {() => void | (() => void)} Act */

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(preact.h);
/** @type {(view: any, into: Element) => void} */
export const render = preact.render;
/** @type {<T>(first: T) => [T, (next: T | ((old: T) => T)) => void]} */
export const useState = hooks.useState;
/** @type {(act: Act, on?: unknown[]) => void} */
export const useEffect = hooks.useEffect;
/** Like `useEffect`, but before the browser paints: what asks the server does not wait for a frame.
 * @type {(act: Act, on?: unknown[]) => void} */
export const useEffectAtOnce = hooks.useLayoutEffect;
/** @type {<T>(make: () => T, on: unknown[]) => T} */
export const useMemo = hooks.useMemo;
/** @type {<T>(first: T) => { current: T }} */
export const useRef = hooks.useRef;
/** @type {<T>(first: T) => Signal<T>} */
export const signal = signals.signal;
/** @type {<T>(compute: () => T) => { readonly value: T }} */
export const computed = signals.computed;
/** @type {(act: () => void) => () => void} */
export const effect = signals.effect;

/** Show a part beside the page, once and for good: dialogs and messages belong to no page, and are loaded when they are first needed.
 * @param {any} view */
export function mount(view) {
  const room = document.createElement("div");
  document.body.append(room);
  render(view, room);
}
