/** Keys. They never fire in a field, and can be turned off. */
import { go, place, siblings, to } from "./router.js";
import { clock, keys } from "./state/settings.js";
import { paused } from "./live.js";

/** @type {Record<string, string>} */
export const PLACES = {
  o: "/", j: "/jobs", r: "/runs", f: "/failures", l: "/load", t: "/timeline", q: "/queues", w: "/workers", c: "/cluster", e: "/events", d: "/calendars", a: "/audit", s: "/settings",
};

const CLOCKS = ["browser", "utc", "job"];

/** @type {Record<string, () => unknown>} */
const ACTIONS = {
  n: () => dispatchEvent(new Event("mainspring-namespace")),
  "?": () => import("./parts/help.js").then(({ open }) => open()),
  y: () => import("./parts/dialog.js").then(({ copy }) => copy(decodeURIComponent(place.value.path.split("/")[2] ?? "") || location.href)),
  Y: () => import("./parts/dialog.js").then(({ copy }) => copy(location.href)),
  a: () => /** @type {HTMLElement | null} */ (document.querySelector(".toolbar button:not(.fresh), .page-head .actions :is(button:enabled, a)"))?.focus(),
  e: () => /^\/(jobs)\/[^/]+$/.test(place.value.path) && go(to(place.value.path, { tab: "edit" })),
  "[": () => step(-1),
  "]": () => step(1),
  p: () => (paused.value = !paused.value),
  t: () => (clock.value = CLOCKS[(CLOCKS.indexOf(clock.value) + 1) % CLOCKS.length]),
};

/** Open the object before or after this one in the list from which it was opened.
 * @param {number} by */
function step(by) {
  const at = siblings.findIndex((each) => each.split("?")[0] === location.pathname);
  if (at >= 0 && siblings[at + by]) go(siblings[at + by], { replace: true });
}

let waiting = false;
/** What was typed while the palette loads. */
let typed = /** @type {string | null} */ (null);

/** Open the palette. It is loaded when it is first needed. */
export async function openPalette() {
  typed ??= "";
  const { open } = await import("./parts/palette.js");
  open(typed ?? "");
  typed = null;
}

/** @param {EventTarget | null} target */
function isField(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("textarea, select, input:not([type=checkbox], [type=radio])"));
}

addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (typed !== null && event.key.length === 1 && !event.metaKey && !event.ctrlKey) {
    event.preventDefault();
    typed += event.key;
    return;
  }
  if (keys.value === "off" || event.metaKey || event.ctrlKey || event.altKey || isField(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (waiting && PLACES[event.key]) {
    go(to(PLACES[event.key]));
    waiting = false;
    return;
  }
  waiting = event.key === "g";
  if (event.key === "/") {
    const field = /** @type {HTMLInputElement | null} */ (document.querySelector("input[type=search]"));
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (ACTIONS[event.key]) {
    event.preventDefault();
    ACTIONS[event.key]();
  }
  else if (event.key === "Enter" && event.target instanceof HTMLElement && event.target.closest("a, button, summary")) return;
  else dispatchEvent(new CustomEvent("mainspring-key", { detail: event.key }));
});
