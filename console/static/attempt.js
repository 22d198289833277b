/** One change at a time: whether it is under way, what came of it. */
import { html } from "./html.js";
import { useState } from "./vendor/hooks.js";

/** A request and its outcome. The result of a failed attempt is `undefined`. */
export function useAttempt() {
  const [state, setState] = useState({ busy: false, error: "", done: "" });
  const attempt = (work, done) => {
    setState({ busy: true, error: "", done: "" });
    return work.then(
      (result) => (setState({ busy: false, error: "", done: typeof done === "function" ? done(result) : done }), result),
      (error) => (setState({ busy: false, error: error.message, done: "" }), undefined),
    );
  };
  return [state, attempt];
}

/** @param {{state: {error: string, done: string}}} props */
export const Outcome = ({ state }) => html`<p role="status" class="outcome">${state.error && html`<span class="alarm">${state.error}</span>`}${state.done}</p>`;
