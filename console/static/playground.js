/** The playground: controls of its nodes, the rate of records, and the check that all of them exist. */
import { html } from "./html.js";
import { useState } from "./vendor/hooks.js";
import { post } from "./ask.js";
import { count, plural } from "./format.js";
import { LESSONS, Lesson } from "./lessons.js";
import { useAddress, withParameters } from "./router.js";

const ACTIONS = {
  running: [["kill", "Kill"], ["pause", "Pause"], ["cut", "Cut off"]],
  paused: [["resume", "Resume"]],
  killed: [["start", "Start"]],
  cut: [["rejoin", "Rejoin"]],
};
const PACES = [0, 50, 150, 500, 2000];

/** @param {{node: number, playground: any}} props */
export function NodeButtons({ node, playground }) {
  const [busy, setBusy] = useState("");
  const [trouble, setTrouble] = useState("");
  const act = (action) => {
    setBusy(action);
    setTrouble("");
    post(`/playground/nodes/${node}/${action}`).catch((error) => setTrouble(error.message)).finally(() => setBusy(""));
  };
  const offered = (ACTIONS[playground.nodes[node]] ?? []).filter(([action]) => action !== "cut" || playground.cuts_links);
  return html`<div class="buttons" title=${trouble}>
    ${offered.map(([action, label]) => html`<button key=${action} disabled=${busy !== ""} data-action=${action}
      aria-label="${label} node ${node}" onClick=${() => act(action)}>${busy === action ? "…" : label}</button>`)}
    ${trouble && html`<span class="alarm" role="alert">${trouble}</span>`}
  </div>`;
}

/** @param {{things: Map<string, any>}} props */
export function Playground({ things }) {
  const playground = things.get("playground");
  const { query } = useAddress();
  const lesson = LESSONS[query.get("lesson")] ? query.get("lesson") : null;
  const [checks, setChecks] = useState(0);
  const [found, setFound] = useState(null);
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const attempt = (work) => {
    setTrouble("");
    return work.catch((error) => setTrouble(error.message));
  };
  const check = () => {
    setBusy(true);
    setFound(null);
    attempt(post("/playground/check").then((result) => (setFound(result), setChecks((before) => before + (result.missing ? 0 : 1))))).finally(() => setBusy(false));
  };
  return html`<section class="playground" aria-labelledby="playground">
    <header><h2 id="playground">Playground</h2>
      <p>Kill a node, pause it, or cut it off. Acknowledged records are kept.</p></header>
    <div class="controls">
      <label>Records per second
        <select value=${playground.per_second} onChange=${(event) => attempt(post(`/playground/pace/${event.target.value}`))}>
          ${PACES.map((pace) => html`<option value=${pace} selected=${pace === playground.per_second}>${count(pace)}</option>`)}
        </select></label>
      <p class="ledger"><strong>${count(playground.sent)}</strong>${" sent, "}<strong>${count(playground.acknowledged)}</strong>${" acknowledged"}${playground.failed !== "0" && html`, <strong class="alarm">${count(playground.failed)}</strong> failed`}</p>
      <button class="main" onClick=${check} disabled=${busy} data-action="check">${busy ? "Reading …" : "Read everything back"}</button>
      <p role="status" class="verdict">
        ${found && (found.missing
          ? html`<span class="alarm">${plural(found.missing, "acknowledged record")} of ${count(found.compared)} missing</span>`
          : html`<span class="state good">all ${count(found.compared)} acknowledged records found</span>`)}
        ${found && found.removed > 0 && html` <small>${count(found.removed)} more were removed by retention</small>`}
        ${trouble && html`<span class="alarm">${trouble}</span>`}
      </p>
    </div>
    ${playground.kafka && html`<p class="kafka">Kafka clients: <code>bootstrap.servers=${playground.kafka}</code></p>`}
    <nav aria-label="Lessons"><span>Lessons</span>${Object.entries(LESSONS).filter(([, { needs }]) => !needs || needs(things)).map(([name, { title }]) => html`<a key=${name} href=${withParameters({ lesson: name })}
      aria-current=${name === lesson ? "true" : null}>${title}</a>`)}</nav>
    ${lesson && html`<${Lesson} things=${things} checks=${checks} name=${lesson} />`}
  </section>`;
}
