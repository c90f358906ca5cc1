/** What a person chose on this machine: theme, times, density, keys. The only file that touches `localStorage`. */
import { effect, signal } from "../html.js";

const NAME = "mainspring-ui";

/** @returns {Record<string, string>} */
function load() {
  try {
    return JSON.parse(localStorage.getItem(NAME) ?? "{}");
  } catch {
    return {};
  }
}

const kept = load();
export const theme = signal(kept.theme ?? "system");
/** Whose clocks instants are written in: `browser`, `utc` or `job`. */
export const clock = signal(kept.clock ?? "browser");
export const density = signal(kept.density ?? "compact");
export const keys = signal(kept.keys ?? "on");

const dark = matchMedia("(prefers-color-scheme: dark)");

function apply() {
  const root = document.documentElement;
  root.dataset.theme = theme.value === "system" ? (dark.matches ? "dark" : "light") : theme.value;
  root.dataset.density = density.value;
}

dark.addEventListener("change", apply);
effect(() => {
  apply();
  const text = JSON.stringify({ theme: theme.value, clock: clock.value, density: density.value, keys: keys.value });
  try {
    localStorage.setItem(NAME, text);
  } catch {
    // A browser that keeps nothing works all the same.
  }
});
