/* What does not wait for the modules: the theme, so that a dark page never flashes white, and the two questions with which every page begins. */
(() => {
  const root = document.documentElement;
  let theme = "system";
  try {
    theme = JSON.parse(localStorage.getItem("mainspring-ui") ?? "{}").theme ?? theme;
  } catch {
    // A browser that keeps nothing follows the system.
  }
  const dark = theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = dark ? "dark" : "light";

  const namespace = new URLSearchParams(location.search).get("ns");
  const headers = { "Mainspring-UI": "1", ...(namespace ? { "Mainspring-Namespace": namespace } : {}) };
  const ask = (/** @type {string} */ path) => fetch(`${root.dataset.base ?? ""}${path}`, { headers });
  const sent = Date.now();
  const [me, overview] = [ask("/v1/me"), ask("/v1/overview")];  // At once: while modules run, no answer can cause another question.
  for (const answer of [me, overview]) answer.catch(() => {});  // What needs the answer asks again, and reports a failure.
  /** @type {any} */ (globalThis).early = { namespace, sent, answers: { "/v1/me": me, "/v1/overview": overview } };
})();
