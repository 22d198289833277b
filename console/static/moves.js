/** Moves of partitions to other nodes: those that are under way, and how one is begun. */
import { html } from "./html.js";
import { useState } from "./vendor/hooks.js";
import { get, post } from "./ask.js";
import { Outcome, useAttempt } from "./attempt.js";
import { bytes } from "./format.js";
import { all, copied } from "./model.js";
import { to } from "./router.js";
import { Table } from "./table.js";

const address = ({ topic, partition }) => `/changes/moves/${encodeURIComponent(topic)}/${partition}`;
const nodes = (list) => (list.length ? list.join(", ") : "none");
/** Bytes of all copies of a move. @param {any} moving @param {"size"|"left"} which */
const bytesOf = (moving, which) => Object.values(moving.copies).reduce((all, copy) => all + Number(copy[which]), 0);

/** The moves under way; renders nothing without any. @param {{things: Map<string, any>, only?: any, allowed: boolean}} props */
export function Moves({ things, only, allowed }) {
  const rows = all(things, "move/").filter((each) => !only || (each.topic === only.topic && each.partition === only.partition));
  if (!rows.length) return null;
  const columns = [
    { key: "partition", label: "Partition", value: (row) => `${row.topic}-${row.partition}`,
      cell: (row) => html`<a href=${to("topics", row.topic, row.partition)}>${row.topic}-${row.partition}</a>` },
    { key: "to", label: "Copied to", value: (row) => nodes(row.adding) },
    { key: "from", label: "Deleted on", value: (row) => nodes(row.removing) },
    { key: "done", label: "Copied", value: (row) => bytesOf(row, "size") - bytesOf(row, "left"), cell: (row) => html`<${Copied} moving=${row} />` },
    { key: "limit", label: "At most", value: (row) => row.throttle, cell: (row) => (row.throttle ? `${bytes(String(row.throttle))}/s` : "–") },
    ...(allowed ? [{ key: "do", label: "Change", value: () => "", cell: (row) => html`<${CallOff} moving=${row} />` }] : []),
  ];
  return html`<${Table} plain caption="Being moved" columns=${columns} rows=${rows} id=${(row) => `${row.topic}-${row.partition}`} nothing="" />`;
}

function Copied({ moving }) {
  const shares = moving.adding.map((node) => copied(moving, node)).filter((share) => share !== null);
  if (!shares.length) return moving.adding.length ? html`<small>not begun</small>` : "–";
  const share = shares.reduce((all, each) => all + each, 0) / moving.adding.length, size = bytesOf(moving, "size");
  return html`<svg class="moved" width="140" height="8" aria-hidden="true"><rect class="track" width="140" height="6" y="1" rx="3" />
    <rect class="done" width=${140 * share} height="6" y="1" rx="3" /></svg>${bytes(String(size - bytesOf(moving, "left")))} <small>of ${bytes(String(size))}</small>`;
}

function CallOff({ moving }) {
  const [state, attempt] = useAttempt();
  return html`<button data-action="cancel" disabled=${state.busy} aria-label="Call the move of ${moving.topic}-${moving.partition} off"
    onClick=${() => attempt(post(address(moving), { replicas: null }), "It goes back to where it was.")}>Call it off</button> <${Outcome} state=${state} />`;
}

/** @param {{partition: any, allowed: boolean}} props */
export function MovePartition({ partition, allowed }) {
  const [replicas, setReplicas] = useState(partition.replicas.join(", "));
  const [plan, setPlan] = useState(null);
  const [state, attempt] = useAttempt();
  const check = (event) => {
    event.preventDefault();
    attempt(get(`${address(partition)}?${new URLSearchParams({ replicas })}`), "").then(setPlan);
  };
  const go = () => attempt(post(address(partition), { replicas: plan.replicas }), "It is being moved.").then((result) => result === undefined || setPlan(null));
  return html`<details class="change move"><summary>Move to other nodes</summary>
    <form onSubmit=${check}>
      <label>Replicas, the preferred leader first <input value=${replicas} pattern="[0-9, ]+" required
        onInput=${(event) => (setReplicas(event.target.value), setPlan(null))} /></label>
      <button type="submit" disabled=${state.busy}>Show what it would do</button>
    </form>
    <${Outcome} state=${state} />
    ${plan && html`<p class="planned">Copied to: ${nodes(plan.adding)}. Deleted on: ${nodes(plan.removing)}. Producers and consumers keep running.</p>
      ${allowed
        ? html`<button data-action="move" onClick=${go} disabled=${state.busy}>Move it</button>`
        : html`<p class="note">This console was started without <code>--allow-changes</code>.</p>`}`}
  </details>`;
}
