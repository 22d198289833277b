/** Transactions: which are open, for how long, what readers cannot read because of them, and how one is aborted. */
import { html } from "./html.js";
import { post } from "./ask.js";
import { Delete } from "./changes.js";
import { count, duration, passed, plural } from "./format.js";
import { all, detail, groups } from "./model.js";
import { to } from "./router.js";
import { Table } from "./table.js";
import { Heading, Missing, mayChange, state } from "./views.js";

/** Share of its timeout after which an open transaction is marked. */
const NEAR = 0.8;

/** How long a transaction has been open (ms); null if none is. @param {any} row */
const age = (row) => (row.started_ms === null ? null : Math.max(0, Date.now() - row.started_ms));

/** Share of its timeout that has passed; null if none is open, or the timeout is not known. @param {any} row */
const share = (row) => (age(row) === null || !row.timeout_ms ? null : Math.min(1, age(row) / row.timeout_ms));
const isNear = (row) => (share(row) ?? 0) >= NEAR;
/** True if a timeout has passed. The coordinator does not count a time in which it has not run. @param {any} row */
const isOver = (row) => share(row) === 1;

/** True if a transaction is decided, and participants miss the outcome. @param {any} row */
const isDue = (row) => row.state.startsWith("Prepare");

const parts = (its) => its?.partitions ?? [];
const whole = (value) => (value === null || value === undefined ? null : BigInt(value));

/** Offsets that are held back in all partitions of a transaction; null if that is not known of any. @param {any} its */
function heldBy(its) {
  const known = parts(its).map((part) => whole(part.held)).filter((held) => held !== null);
  return known.length ? known.reduce((sum, held) => sum + held, 0n) : null;
}

/** Lag of each consumer group that is behind the last stable offset of a partition. @param {Map<string, any>} things @param {any} part */
function waiting(things, part) {
  if (!part.stable || !part.held || part.held === "0") return [];
  return groups(things).flatMap((group) => (detail(things, group.id)?.rows ?? [])
    .filter((row) => row.topic === part.topic && row.partition === part.partition && row.committed !== null)
    .map((row) => {
      const from = whole(row.committed) > whole(part.stable) ? whole(row.committed) : whole(part.stable);
      return { id: group.id, lag: whole(part.end) - from };
    })
    .filter((each) => each.lag > 0n));
}

function State({ row }) {
  const near = isNear(row), undecided = [...parts(row), ...(row.groups ?? [])].filter((each) => each.missing).length;
  return html`${state(row.state, near ? "warn" : undecided ? "bad" : row.state === "Ongoing" ? "good" : "")}
    ${near && html` <small>${isOver(row) ? "past" : "near"} its timeout</small>`}
    ${undecided > 0 && html` <small>${plural(undecided, "participant")} without the outcome</small>`}`;
}

function Age({ row }) {
  const done = share(row);
  if (age(row) === null) return "–";
  return html`${passed(age(row))}${done !== null && html` <small>of ${duration(row.timeout_ms)}</small> <svg class="lagbar ${isNear(row) ? "near" : ""}" width="96" height="6" aria-hidden="true">
      <rect class="track" width="96" height="4" y="1" rx="2" /><rect class="lag" width=${96 * done} height="4" y="1" rx="2" /></svg>`}`;
}

const link = (id) => html`<a href=${to("transactions", id)}>${id}</a>`;

const held = (things) => [
  { key: "partition", label: "Partition", value: (part) => `${part.topic}-${part.partition}`,
    cell: (part) => things.has(`partition/${part.topic}/${part.partition}`)
      ? html`<a href=${to("topics", part.topic, part.partition)}>${part.topic}-${part.partition}</a>` : `${part.topic}-${part.partition}` },
  { key: "stable", label: "Last stable offset", value: (part) => whole(part.stable), cell: (part) => count(part.stable), number: true },
  { key: "end", label: "End", value: (part) => whole(part.end), cell: (part) => count(part.end), number: true },
  { key: "held", label: "Held back", value: (part) => whole(part.held), cell: (part) => count(part.held), number: true },
  { key: "waiting", label: "Lag that it causes", value: (part) => waiting(things, part).map((each) => each.id).join(", "),
    cell: (part) => {
      const readers = waiting(things, part);
      return readers.length ? readers.map((each, at) => html`${at > 0 && ", "}<a href=${to("groups", each.id)}>${each.id}</a> ${count(String(each.lag))}`) : "–";
    } },
];

/** @param {{things: Map<string, any>}} props */
export function Transactions({ things }) {
  const summary = things.get("transactions");
  if (!summary) return html`<p class="nothing" role="status">Asking the coordinators …</p>`;
  const known = (id) => things.get(`participants/${id}`);
  const rank = (row) => (row.started_ms !== null ? 0 : isDue(row) ? 1 : 2);
  const rows = all(things, "transaction/").map((row) => ({ ...row, ...known(row.id) }))
    .sort((a, b) => rank(a) - rank(b) || (a.started_ms ?? 0) - (b.started_ms ?? 0) || (a.id < b.id ? -1 : 1));
  const near = rows.filter(isNear);
  const columns = [
    { key: "id", label: "Transactional ID", value: (row) => row.id, cell: (row) => link(row.id) },
    { key: "state", label: "State", value: (row) => row.state, cell: (row) => html`<${State} row=${row} />` },
    { key: "open", label: "Open for", value: age, cell: (row) => html`<${Age} row=${row} />` },
    { key: "producer", label: "Producer", value: (row) => whole(row.producer), cell: (row) => html`${row.producer} <small>epoch ${row.epoch}</small>`, number: true },
    { key: "participants", label: "Participants", value: (row) => row.participants ?? null, cell: (row) => count(row.participants), number: true },
    { key: "held", label: "Held back", value: heldBy, cell: (row) => count(heldBy(row)?.toString()), number: true },
  ];
  return html`${near.length > 0 && html`<p class="trouble" role="status">${near.map((row) => html`<span key=${row.id}>${link(row.id)} has been open for ${passed(age(row))}: ${isOver(row) ? "longer than its timeout of" : "it is aborted after"} ${duration(row.timeout_ms)}.</span>`)}</p>`}
    ${summary.total > rows.length && html`<p class="note">The first ${count(rows.length)} of ${plural(summary.total, "transactional ID")}.</p>`}
    ${summary.unfinished > summary.described && html`<p class="note">Partitions are shown of ${count(summary.described)} of ${count(summary.unfinished)} transactions that have not ended. Open the others by their links.</p>`}
    <${Table} caption="Transactional IDs" columns=${columns} rows=${rows} id=${(row) => row.id} nothing="There are no transactional IDs yet." />
    <${Held} things=${things} />`;
}

/** The partitions that open transactions hold back. */
function Held({ things }) {
  const found = new Map();
  for (const its of all(things, "participants/")) {
    if (its.place === null && !isDue(its)) continue;
    for (const part of parts(its)) {
      const key = `${part.topic}-${part.partition}`;
      found.set(key, { ...part, ...found.get(key), by: [...(found.get(key)?.by ?? []), its.id] });
    }
  }
  const columns = [...held(things),
    { key: "by", label: "Transactions in it", value: (part) => part.by.join(", "), cell: (part) => part.by.map((id, at) => html`${at > 0 && ", "}${link(id)}`) }];
  return html`<${Table} plain caption="Partitions with open transactions" columns=${columns} rows=${[...found.values()]}
    id=${(part) => `${part.topic}-${part.partition}`} nothing="No transaction is open." />`;
}

/** @param {{things: Map<string, any>, name: string}} props */
export function Transaction({ things, name }) {
  const its = things.get(`participants/${name}`);
  if (!its) {
    return things.has("transactions") && !things.has(`transaction/${name}`)
      ? html`<${Missing} what="transactional ID" name=${name} back="transactions" />`
      : html`<${Heading} trail=${[["Transactions", to("transactions")]]} title=${name} /><p class="nothing" role="status">Asking its coordinator …</p>`;
  }
  const outcome = (each) => (each.missing ? "missing" : its.place ? "open" : "written");
  const is = { key: "outcome", label: "Outcome", value: outcome, cell: (each) => (each.missing ? html`<span class="alarm">missing</span>` : outcome(each)) };
  const [partition, ...offsets] = held(things), shown = parts(its).length + its.groups.length;
  return html`<${Heading} trail=${[["Transactions", to("transactions")]]} title=${name} />
    <dl class="facts">
      <dt>State</dt><dd><${State} row=${its} /></dd>
      ${its.place && html`<dt>Open for</dt><dd><${Age} row=${its} /></dd>`}
      <dt>Timeout</dt><dd>${duration(its.timeout_ms)}</dd>
      <dt>Producer</dt><dd>${its.producer} <small>epoch ${its.epoch}</small></dd>
      ${its.writers > 1 && html`<dt>Writers</dt><dd>${count(its.writers)}</dd>`}
      ${its.cause && html`<dt>Decided by</dt><dd>${its.cause}</dd>`}
      <dt>Coordinator</dt><dd>node ${its.coordinator}</dd>
    </dl>
    ${its.participants > shown && html`<p class="note">The first ${count(shown)} of ${count(its.participants)} participants.</p>`}
    <${Table} plain caption="Partitions" columns=${[partition, is, ...offsets]} rows=${parts(its)} id=${(part) => `${part.topic}-${part.partition}`}
      nothing="No partition takes part." />
    ${its.groups.length > 0 && html`<${Table} plain caption="Consumer groups" rows=${its.groups} id=${(group) => group.id} nothing=""
      columns=${[{ key: "group", label: "Group", value: (group) => group.id, cell: (group) => html`<a href=${to("groups", group.id)}>${group.id}</a>` }, is]} />`}
    ${its.place && (mayChange(things)
      ? html`<${Delete} key=${`${its.place.term} ${its.place.index}`} verb="Abort" what="the transaction of ${name}" name=${name}
          says="Its records are never read, and its producer is fenced: its commit fails. The producer's next instance starts anew."
          remove=${(typed) => post("/changes/transactions/abort", { id: name, ...its.place, typed })} done=${() => {}} />`
      : html`<p class="note">This console was started without <code>--allow-changes</code>.</p>`)}`;
}
