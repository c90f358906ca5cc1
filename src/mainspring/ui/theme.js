/* Before the first paint, so that a dark page never flashes white. */
(() => {
  let theme = "system";
  try {
    theme = JSON.parse(localStorage.getItem("mainspring-ui") ?? "{}").theme ?? theme;
  } catch {
    // A browser that keeps nothing follows the system.
  }
  const dark = theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
