/** The caller and its permissions. The server decides; pages only avoid offering what it would refuse. */
import { get, session } from "../api.js";
import { computed, signal } from "../html.js";
import { place } from "../router.js";

export const me = signal(/** @type {any} */ (null));
export const signedOut = signal(false);

session.onMissing = () => {
  signedOut.value = true;
};

export async function whoAmI() {
  me.value = await get("/v1/me");
  signedOut.value = false;
}

export const namespace = computed(() => place.value.query.get("ns") ?? me.value?.home ?? "default");

const allowed = computed(() => new Set(me.value?.permissions?.[namespace.value] ?? me.value?.permissions?.["*"] ?? []));

/** @param {string} permission */
export function may(permission) {
  return allowed.value.has(permission) || allowed.value.has("*");
}
