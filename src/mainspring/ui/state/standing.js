/** How the namespace stands, for the header of every page: asked for every five seconds while the page is visible. */
import { get } from "../api.js";
import { signal } from "../html.js";
import { paused } from "../live.js";
import { place } from "../router.js";
import { me } from "./me.js";

const EVERY_MS = 5_000;

export const standing = signal(/** @type {import("../records.d.ts").Overview | null} */ (null));

async function ask() {
  if (!me.value || document.hidden || paused.value) return;
  const namespace = place.value.query.get("ns");
  const found = await get("/v1/overview").catch(() => null);
  if (found && namespace === place.value.query.get("ns")) standing.value = found;
}

setInterval(ask, EVERY_MS);
me.subscribe(() => void ask());
let namespace = place.value.query.get("ns");
place.subscribe((now) => {
  if (now.query.get("ns") === namespace) return;
  namespace = now.query.get("ns");
  standing.value = null;
  ask();
});
