/** Signing in: a token is exchanged for a cookie that scripts cannot read. */
import { Problem, send } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { start } from "../live.js";
import { Trouble } from "../parts/page.js";
import { go, to } from "../router.js";
import { whoAmI } from "../state/me.js";

/** @param {{ over?: boolean }} given */
export function Login({ over = false }) {
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const before = document.activeElement;
    if (over) dialog.current?.showModal();
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (given) {
      go(to("/"), { replace: true });
      signIn(given);
    }
    return () => over && before instanceof HTMLElement && before.focus();  // It is where the caller typed.
  }, []);
  const signIn = async (/** @type {string} */ token) => {
    try {
      await send("POST", "/v1/session", { token: token.trim() });
      await whoAmI();
      start();
    } catch (problem) {
      setError(problem instanceof Problem ? Object.assign(problem, { remedy: "" }) : /** @type {Error} */ (problem));  // The remedy is for programs.
    }
  };
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    signIn(event.target.elements.token.value);
  };
  const plain = location.protocol === "http:" && !/^(localhost|127\.|\[::1\])/.test(location.hostname);
  const form = html`<form class="login" onSubmit=${submit}>
    <h1>Sign in</h1>
    <div class="field"><label for="token">Token</label><textarea id="token" name="token" required autocomplete="off" spellcheck="false"></textarea></div>
    ${plain && html`<p class="s-warning">This connection is not encrypted: others on the network can read the token.</p>`}
    ${error && html`<${Trouble} error=${error} />`}
    <button class="primary">Sign in</button>
    <p class="muted">Make one with <code>mainspring token create --role operator</code>, or open this page with <code>mainspring ui</code>.</p>
  </form>`;
  return over ? html`<dialog ref=${dialog} onCancel=${(/** @type {Event} */ e) => e.preventDefault()}><div class="content">${form}</div></dialog>` : form;
}
