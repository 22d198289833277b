/** Templates: `html` makes Preact's nodes of tagged text, so that nothing has to be compiled. */
import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
