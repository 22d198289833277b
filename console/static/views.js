/** Views: all items as tables, and details of each. */
import { html } from "./html.js";
import { bytes, count, duration, perSecond, plural } from "./format.js";
import { behind, detail, end, groups, isLed, move, nodes, partitions, shareOfLag, sizes, topics } from "./model.js";
import { Hops, Record, Records } from "./records.js";
import { AclList, DeleteTopic, NewTopic, UserList } from "./administration.js";
import { ResetOffsets, SendRecord, Settings, useSettings } from "./changes.js";
import { MovePartition, Moves } from "./moves.js";
import { to, useAddress, withParameters } from "./router.js";
import { SECONDS, store } from "./store.js";
import { Table } from "./table.js";
import { PartitionTable, Spark } from "./topology.js";

export const state = (text, level) => html`<span class="state ${level}">${text}</span>`;

/** True if this console may change the cluster. */
export const mayChange = (things) => Boolean(things.get("options")?.changes);

/** @typedef {{things: Map<string, any>}} Props */

/** @param {Props} props */
export function Nodes({ things }) {
  const list = partitions(things);
  const voters = new Set((things.get("quorum")?.replicas ?? []).filter((each) => each.votes).map((each) => each.id));
  const controller = things.get("cluster")?.controller;
  const columns = [
    { key: "node", label: "Node", value: (node) => node.id },
    { key: "address", label: "Address", value: (node) => node.address },
    { key: "rack", label: "Rack", optional: true, value: (node) => node.rack, cell: (node) => node.rack ?? "–" },
    { key: "machine", label: "Machine", optional: true, value: (node) => node.machine, cell: (node) => node.machine ?? "–" },
    { key: "state", label: "State", value: (node) => node.state,
      cell: (node) => html`${state(node.state, { up: "good", "no answer": "warn" }[node.state] ?? "bad")}
        ${node.state === "no answer" ? html` <small>for ${node.silent_s} s</small>` : node.reason && html` <small>${node.reason}</small>`}
        ${node.leaving && html`<small>is being drained</small>`} ${node.lost && html`<small>its disk was given up</small>`}` },
    { key: "metadata", label: "Metadata", value: (node) => node.id === controller ? "active controller" : voters.has(node.id) ? "votes" : "–" },
    { key: "leads", label: "Leads", value: (node) => list.filter((each) => each.leader === node.id).length, number: true },
    { key: "replicas", label: "Replicas", value: (node) => list.filter((each) => each.replicas.includes(node.id)).length, number: true },
    { key: "used", label: "Used", value: (node) => Number(node.used_bytes ?? 0), cell: (node) => bytes(node.used_bytes), number: true },
    { key: "free", label: "Free", value: (node) => Number(node.free_bytes ?? 0), cell: (node) => bytes(node.free_bytes), number: true },
    { key: "damaged", label: "Damaged", value: (node) => node.damaged_entries ?? 0, number: true },
    { key: "version", label: "Version", value: (node) => node.version },
  ];
  return html`<${Table} caption="Nodes" columns=${columns} rows=${nodes(things)} id=${(node) => String(node.id)}
    nothing="No node is registered yet." />`;
}

/** @param {Props} props */
export function Topics({ things }) {
  const [shown, toggle] = useInternal(things);
  const rows = topics(things).filter(shown).map((topic) => {
    const its = partitions(things, topic.name);
    return { ...topic, ...sizes(things, topic.name), late: its.filter((each) => behind(each).length).length,
      leaderless: its.filter((each) => !isLed(things, each)).length, replication: its[0]?.replicas.length ?? 0 };
  });
  const bad = (number) => (number ? html`<span class="alarm">${number}</span>` : "0");
  const columns = [
    { key: "topic", label: "Topic", value: (topic) => topic.name,
      cell: (topic) => html`<a href=${to("topics", topic.name)}>${topic.name}</a>${topic.internal && html` <small>internal</small>`}` },
    { key: "partitions", label: "Partitions", value: (topic) => topic.partitions, number: true },
    { key: "replicas", label: "Replicas", value: (topic) => topic.replication, number: true },
    { key: "behind", label: "With one behind", optional: true, value: (topic) => topic.late || null, cell: (topic) => bad(topic.late), number: true },
    { key: "leaderless", label: "Without leader", optional: true, value: (topic) => topic.leaderless || null, cell: (topic) => bad(topic.leaderless), number: true },
    { key: "records", label: "Records", value: (topic) => whole(topic.records), cell: (topic) => count(topic.records), number: true },
    { key: "size", label: "Size", value: (topic) => whole(topic.bytes), cell: (topic) => bytes(topic.bytes), number: true },
    { key: "rate", label: "Records/s", value: (topic) => topic.rate, cell: (topic) => perSecond(topic.rate), number: true },
    { key: "set", label: "Set on it", optional: true, value: (topic) => Object.entries(topic.configs).map(([key, value]) => `${key}=${value}`).join(", "),
      cell: (topic) => Object.keys(topic.configs).length ? html`<small>${Object.entries(topic.configs).map(([key, value]) => `${key}=${value}`).join(", ")}</small>` : "–" },
  ];
  return html`<${Table} caption="Topics" columns=${columns} rows=${rows} id=${(topic) => topic.name} nothing="There are no topics yet." />${toggle}
    ${mayChange(things) && html`<${NewTopic} />`}`;
}

/** Returns if a topic is shown, internal ones only if the address requests them, and the control that switches that. @param {Map<string, any>} things */
function useInternal(things) {
  const all = useAddress().query.get("internal") === "1", own = topics(things).filter((topic) => topic.internal).length;
  const toggle = own > 0 && html`<p class="note"><a href=${withParameters({ internal: all ? null : "1" })}>${all ? "Hide" : "Show"} ${plural(own, "internal topic")}</a></p>`;
  return [(topic) => all || !topic?.internal, toggle];
}

/** @param {Props} props */
export function Partitions({ things }) {
  const [shown, toggle] = useInternal(things);
  const rows = partitions(things).filter((each) => shown(things.get(`topic/${each.topic}`)));
  return html`<${Moves} things=${things} allowed=${mayChange(things)} /><${PartitionTable} things=${things} rows=${rows} />${toggle}`;
}

/** @param {Props & {name: string}} props */
export function Topic({ things, name }) {
  const topic = things.get(`topic/${name}`);
  return topic ? html`<${KnownTopic} things=${things} topic=${topic} />` : html`<${Missing} what="topic" name=${name} back="topics" />`;
}

function KnownTopic({ things, topic }) {
  const { name } = topic, its = partitions(things, name), { records, bytes: kept, rate } = sizes(things, name);
  const settings = useSettings(name), rates = ratesOf(its), allowed = mayChange(things);
  return html`<${Heading} trail=${[["Topics", to("topics")]]} title=${name} />
    <dl class="facts">
      <dt>Partitions</dt><dd>${topic.partitions}</dd>
      <dt>Records</dt><dd title="Counted by offsets">${count(records)}</dd>
      <dt>Size</dt><dd>${bytes(kept)}</dd>
      <dt>Records/s</dt><dd>${perSecond(rate)}</dd>
      <dt>Kept for</dt><dd><${Retention} settings=${settings.answer} /></dd>
      <dt>Id</dt><dd><code>${topic.id}</code></dd>
    </dl>
    ${rates.length > 1 && html`<${Rates} rates=${rates} />`}
    <${PartitionTable} things=${things} rows=${its} />
    <${Settings} topic=${name} settings=${settings} allowed=${allowed} />
    <${Records} topic=${name} />
    ${allowed && html`<${SendRecord} topic=${name} />`}
    <${Readers} things=${things} reads=${(row) => row.topic === name} />
    ${allowed && !topic.internal && html`<${DeleteTopic} topic=${topic} />`}`;
}

/** @param {Props} props */
export const Acls = ({ things }) => html`<${AclList} allowed=${mayChange(things)} />`;

/** @param {Props} props */
export const Users = ({ things }) => html`<${UserList} allowed=${mayChange(things)} />`;

/** For how long, and how many bytes of each partition, a topic keeps its records. */
function Retention({ settings }) {
  const one = (name) => settings?.find((row) => row.name === name);
  const [policy, ms, most] = ["cleanup.policy", "retention.ms", "retention.bytes"].map(one);
  if (!ms) return "–";
  const limits = [
    ...(policy?.value.includes("delete") === false ? [] : [ms.value === "-1" ? "ever" : duration(Number(ms.value))]),
    ...(most && most.value !== "-1" && most.value !== "" ? [`at most ${bytes(most.value)} of each partition`] : []),
    ...(policy?.value.includes("compact") ? ["the newest record of each key"] : []),
  ];
  return html`${limits.join(", ")}${[policy, ms, most].every((row) => !row || row.is_default) && html` <small>by default</small>`}`;
}

/** The rates of the last seconds of some partitions together. @param {any[]} its */
function ratesOf(its) {
  const all = its.map((each) => store.rates.get(`end/${each.topic}/${each.partition}`) ?? []);
  const length = Math.max(0, ...all.map((each) => each.length));
  return Array.from({ length }, (_, place) => Math.round(10 * all.reduce((rate, each) => rate + (each[each.length - length + place] ?? 0), 0)) / 10);
}

/** @param {{name: string, number: number, offset: string}} props */
export function OneRecord({ name, number, offset }) {
  const trail = [["Topics", to("topics")], [name, to("topics", name)], [String(number), to("topics", name, number)]];
  return html`<div class="whereabouts"><${Heading} trail=${trail} title=${offset} /><${Hops} topic=${name} partition=${number} offset=${offset} /></div>
    <${Record} topic=${name} partition=${number} offset=${offset} />`;
}

/** @param {Props & {name: string, number: number}} props */
export function Partition({ things, name, number }) {
  const partition = things.get(`partition/${name}/${number}`);
  if (!partition) return html`<${Missing} what="partition" name="${name}-${number}" back="topics" />`;
  const growth = end(things, partition), late = behind(partition), moving = move(things, partition);
  const rates = ratesOf([partition]);
  return html`<${Heading} trail=${[["Topics", to("topics")], [name, to("topics", name)]]} title=${String(number)} />
    <dl class="facts">
      <dt>Leader</dt><dd>${partition.leader === null ? html`<span class="alarm">none</span>` : `node ${partition.leader}`}</dd>
      <dt>Leader epoch</dt><dd>${partition.epoch}</dd>
      <dt>Replicas</dt><dd>${partition.replicas.join(", ")}</dd>
      ${late.length > 0 && html`<dt>Behind</dt><dd><span class="alarm">${late.join(", ")}</span></dd>`}
      ${partition.witness !== null && html`<dt>Witness</dt><dd>${partition.witness}</dd>`}
      ${growth?.start != null && html`<dt>Begins at</dt><dd>${count(growth.start)}</dd>`}
      <dt>End</dt><dd>${count(growth?.end)}</dd>
      ${growth?.bytes != null && html`<dt>Kept</dt><dd>${bytes(growth.bytes)}</dd>`}
      <dt>Records/s</dt><dd>${perSecond(growth?.rate)}</dd>
    </dl>
    ${moving && html`<${Moves} things=${things} only=${partition} allowed=${mayChange(things)} />`}
    ${rates.length > 1 && html`<${Rates} rates=${rates} />`}
    <${Readers} things=${things} reads=${(row) => row.topic === name && row.partition === number} />
    <${Records} topic=${name} partition=${number} />
    <${MovePartition} key=${`${name}-${number}`} partition=${partition} allowed=${mayChange(things)} />`;
}

/** Records per second of the last seconds, with its scale. @param {{rates: number[]}} props */
function Rates({ rates }) {
  const most = Math.max(...rates);
  return html`<svg class="rates" role="img" viewBox="0 0 620 112" aria-label="Records per second of the last ${rates.length} seconds, ${most} at most">
    <line x1="16" x2="604" y1="24.5" y2="24.5" /><line x1="16" x2="604" y1="86.5" y2="86.5" />
    <text x="16" y="19">${perSecond(Math.max(1, most))}</text>
    <text x="16" y="102">${SECONDS} s ago</text><text x="604" y="102" text-anchor="end">now</text>
    <${Spark} rates=${rates} x=${16} y=${56} width=${588} height=${61} /></svg>`;
}

/** The groups that read something. */
function Readers({ things, reads }) {
  const rows = groups(things).flatMap((group) =>
    (detail(things, group.id)?.rows ?? []).filter(reads).map((row) => ({ ...row, group: detail(things, group.id) })));
  const columns = [
    { key: "group", label: "Group", value: (row) => row.group.id, cell: (row) => html`<a href=${to("groups", row.group.id)}>${row.group.id}</a>` },
    { key: "partition", label: "Partition", value: (row) => row.partition, number: true },
    ...position,
    { key: "reader", label: "Read by", value: (row) => row.group.members[row.owner]?.client ?? "none" },
  ];
  return html`<${Table} plain caption="Read by" columns=${columns} rows=${rows} id=${(row) => `${row.group.id}/${row.partition}`} nothing="No group that is shown reads it." />`;
}

const whole = (value) => (value === null ? null : BigInt(value));
const position = [
  { key: "committed", label: "Committed", value: (row) => whole(row.committed), cell: (row) => count(row.committed), number: true },
  { key: "end", label: "End", value: (row) => whole(row.end), cell: (row) => count(row.end), number: true },
  { key: "lag", label: "Behind by", value: (row) => whole(row.lag), number: true,
    cell: (row) => html`${count(row.lag)} <svg class="lagbar" width="96" height="6" aria-hidden="true">
      <rect class="track" width="96" height="4" y="1" rx="2" /><rect class="lag" width=${96 * shareOfLag(row.lag)} height="4" y="1" rx="2" /></svg>` },
];

/** @param {Props} props */
export function Groups({ things }) {
  const columns = [
    { key: "group", label: "Group", value: (group) => group.id, cell: (group) => html`<a href=${to("groups", group.id)}>${group.id}</a>` },
    { key: "state", label: "State", value: (group) => group.state },
    { key: "members", label: "Members", value: (group) => group.members, number: true },
    { key: "partitions", label: "Partitions", value: (group) => detail(things, group.id)?.rows.length ?? null,
      cell: (group) => detail(things, group.id)?.rows.length ?? "–", number: true },
    { key: "lag", label: "Behind by", value: (group) => whole(detail(things, group.id)?.lag ?? null),
      cell: (group) => count(detail(things, group.id)?.lag), number: true },
  ];
  return html`<${Table} caption="Groups" columns=${columns} rows=${groups(things)} id=${(group) => group.id} nothing="There are no consumer groups yet." />`;
}

/** @param {Props & {name: string}} props */
export function Group({ things, name }) {
  const group = detail(things, name);
  if (!group) {
    return things.has(`group/${name}`)
      ? html`<${Heading} trail=${[["Groups", to("groups")]]} title=${name} />
        <dl class="facts"><dt>State</dt><dd>${things.get(`group/${name}`).state}</dd><dt>Members</dt><dd>${things.get(`group/${name}`).members}</dd></dl>
        <p class="nothing" role="status">Waiting for the group's coordinator …</p>`
      : html`<${Missing} what="group" name=${name} back="groups" />`;
  }
  const members = [
    { key: "client", label: "Client", value: (member) => member.client, cell: (member) => html`${member.client} <small>${member.id}</small>` },
    { key: "instance", label: "Instance", optional: true, value: (member) => member.instance, cell: (member) => member.instance ?? "–" },
    { key: "host", label: "Host", value: (member) => member.host },
    { key: "epoch", label: "Epoch", value: (member) => member.epoch, number: true },
    { key: "has", label: "Has", value: (member) => member.partitions, number: true },
    { key: "is-to-have", label: "Is to have", value: (member) => member.target, number: true },
  ];
  const rows = [
    { key: "partition", label: "Partition", value: (row) => `${row.topic}-${row.partition}`,
      cell: (row) => html`<a href=${to("topics", row.topic, row.partition)}>${row.topic}-${row.partition}</a>` },
    ...position,
    { key: "reader", label: "Read by", value: (row) => group.members[row.owner]?.client ?? "none" },
  ];
  return html`<${Heading} trail=${[["Groups", to("groups")]]} title=${name} />
    <dl class="facts">
      <dt>State</dt><dd>${group.state}</dd>
      <dt>Behind by</dt><dd>${group.lag === null ? "not known" : plural(Number(group.lag), "record")}${group.unknown > 0 && html` <small>${group.unknown} of ${group.rows.length} partitions not known</small>`}</dd>
      <dt>Coordinator</dt><dd>node ${group.coordinator}</dd>
      <dt>Kind</dt><dd>${group.kind}</dd>
      <dt>${group.kind === "Classic" ? "Generation" : "Epoch"}</dt><dd>${group.epoch}</dd>
      <dt>Assignor</dt><dd>${group.assignor ?? "–"}</dd>
    </dl>
    <${Table} caption="Partitions" columns=${rows} rows=${group.rows} id=${(row) => `${row.topic}-${row.partition}`} nothing="It has committed nothing and reads nothing." />
    <${Table} plain caption="Members" columns=${members} rows=${group.members} id=${(member) => member.id} nothing="It has no members." />
    <${ResetOffsets} group=${group} allowed=${mayChange(things)} />`;
}

/** @param {Props} props */
export function Quorum({ things }) {
  const quorum = things.get("quorum");
  if (!quorum) return html`<p class="nothing" role="status">Asking the quorum …</p>`;
  const last = quorum.replicas.reduce((most, each) => (whole(each.end) > most ? whole(each.end) : most), 0n);
  const columns = [
    { key: "node", label: "Node", value: (each) => each.id },
    { key: "role", label: "Role", value: (each) => each.id === quorum.leader ? "leader" : each.votes ? "votes" : "observes" },
    { key: "heard", label: "Heard from", value: (each) => (each.heard || each.id === quorum.leader ? "just now" : "not recently"),
      cell: (each) => (each.heard || each.id === quorum.leader ? state("just now", "good") : state("not recently", "warn")) },
    { key: "end", label: "Log end", value: (each) => whole(each.end), cell: (each) => count(each.end), number: true },
    { key: "behind", label: "Behind by", value: (each) => (each.end === null ? null : last - whole(each.end)),
      cell: (each) => (each.end === null ? "–" : count(String(last - whole(each.end)))), number: true },
  ];
  return html`<dl class="facts">
      <dt>Leader</dt><dd>${quorum.leader === null ? html`<span class="alarm">none: no majority of the voters is up</span>` : `node ${quorum.leader}`}</dd>
      <dt>Epoch</dt><dd>${quorum.epoch}</dd>
      <dt>High watermark</dt><dd>${count(quorum.high_watermark)}</dd>
      ${quorum.wanted_voters.length > 0 && html`<dt>To vote soon</dt><dd>${quorum.wanted_voters.join(", ")}</dd>`}
      ${quorum.outgoing_voters.length > 0 && html`<dt>On their way out</dt><dd>${quorum.outgoing_voters.join(", ")}</dd>`}
    </dl>
    <${Table} caption="Metadata quorum" columns=${columns} rows=${quorum.replicas} id=${(each) => String(each.id)} nothing="Nobody votes." />`;
}

export function Heading({ trail, title }) {
  return html`<nav class="trail" aria-label="Where you are">
    ${trail.map(([text, address]) => html`<a href=${address}>${text}</a><span aria-hidden="true">/</span>`)}<strong aria-current="page">${title}</strong>
  </nav>`;
}

export function Missing({ what, name, back }) {
  return html`<p class="nothing" role="status">There is no ${what} ${name}. <a href=${to(back)}>What there is</a></p>`;
}
