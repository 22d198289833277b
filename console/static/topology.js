/** The picture: nodes as columns, partitions as lines through the nodes that have a replica, groups at their end. */
import { html } from "./html.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { bytes, count, cut, perSecond, plural, short } from "./format.js";
import { NodeButtons } from "./playground.js";
import { all, behind, copied, detail, end, groups, isLed, move, nodes, partitions, role, sentence, shareOfLag, sum, topics } from "./model.js";
import { to, useAddress, withParameters } from "./router.js";
import { store } from "./store.js";
import { Table } from "./table.js";

/** More lines than this are left out, and the picture says so: the console asks the ends of as many. */
export const MOST_LINES = 64;
const HUES = 6;
/** Heights: of the crown that stands out above a card, of a topic's heading, of a partition, of what is below. */
const TOP = 9, HEAD = 40, LINE = 34, FOOT = 14;
/** The space on the left: wide enough for a line of the last minute where there is room. */
const gutterOf = (width) => (width < 700 ? 104 : 200);
/** The space of the offsets at which partitions end, where there is room. */
const endsOf = (width) => (width < 900 ? 0 : 72);
const GAP = 24;
/** Widths of a node's column, with buttons or without, and of a group's. */
const NODE = { narrowest: 124, withButtons: 172, widest: 260 };
const GROUP = { narrowest: 150, usual: 172, widest: 240 };
/** How high a node's card is: higher where a node may be killed. */
const cardHeight = (things) => (things.has("playground") ? 118 : 84);
const BOX = { width: 48, height: 20 };
const bounded = (value, least, most) => Math.max(least, Math.min(most, value));

/** The topics that are drawn: those that the address names, otherwise the first ones that fit. */
export function drawnTopics(things, query) {
  const named = query.getAll("topic");
  const shown = [];
  let lines = 0;
  for (const topic of topics(things)) {
    if (named.length ? !named.includes(topic.name) : topic.internal) continue;
    if (lines >= MOST_LINES) break;
    shown.push(topic);
    lines += topic.partitions;
  }
  return shown;
}

/** @param {{things: Map<string, any>}} props */
export function Topology({ things }) {
  const { query } = useAddress();
  const [frame, width] = useWidth();
  const asTable = query.get("as") === "table";
  const drawn = drawnTopics(things, query);
  const lines = drawn.flatMap((topic) => partitions(things, topic.name)).slice(0, MOST_LINES);
  const ours = topics(things).filter((topic) => !topic.internal);
  const existing = sum(ours.map((topic) => topic.partitions)) ?? 0;
  return html`<section class="topology" aria-labelledby="topology">
    <header>
      <h2 id="topology">Topology</h2>
      <${Legend} />
      <a class="switch" href=${withParameters({ as: asTable ? null : "table" })}>${asTable ? "As a picture" : "As a table"}</a>
    </header>
    ${lines.length < existing && html`<p class="note">${lines.length} of ${count(existing)} partitions:
      ${drawn.map((topic) => topic.name).join(", ")}. <a href=${to("topics")}>All topics</a></p>`}
    <div ref=${frame} class="frame">
      ${!lines.length && query.has("topic") && !drawn.length
        ? html`<p class="nothing">There is no topic ${query.getAll("topic").join(", ")}. <a href=${to("topics")}>What there is</a></p>`
        : !lines.length
        ? html`<p class="nothing">There are no topics yet. <code>quorumlog topics create orders --partitions 3</code></p>`
        : asTable
          ? html`<${PartitionTable} things=${things} rows=${lines} />`
          : html`<${Picture} things=${things} topics=${drawn} lines=${lines} width=${width} />`}
    </div>
  </section>`;
}

function useWidth() {
  const frame = useRef(null);
  const [width, setWidth] = useState(1100);
  useEffect(() => {
    const look = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    look.observe(frame.current);
    return () => look.disconnect();
  }, []);
  return [frame, width];
}

function Legend() {
  const item = (kind, text) => html`<li><svg width="30" height="16" aria-hidden="true">
    <rect x="1" y="1" width="28" height="14" rx="5" class="box ${kind} hue-0" /></svg>${text}</li>`;
  return html`<ul class="legend">
    ${item("leads", "leads (its epoch)")} ${item("follows", "in sync")} ${item("behind", "behind, or down")}
  </ul>`;
}

/** Where everything is, from what there is. */
function layout(things, drawn, lines, width) {
  const gutter = gutterOf(width), ends = endsOf(width);
  const columns = nodes(things).map((node) => node.id);
  const readers = readGroups(things, lines);
  const narrowest = things.has("playground") ? NODE.withButtons : NODE.narrowest;
  const room = Math.floor((width - gutter - ends - GAP - columns.length * narrowest) / GROUP.narrowest);
  const shownGroups = readers.slice(0, bounded(room, 1, 4));
  const shared = width - gutter - ends - (shownGroups.length ? GAP : 0);
  const column = bounded((shared - shownGroups.length * GROUP.usual) / columns.length, narrowest, NODE.widest);
  const groupWidth = bounded((shared - columns.length * column) / Math.max(1, shownGroups.length), GROUP.narrowest, GROUP.widest);
  const endsAt = gutter + columns.length * column + ends;
  const groupsAt = endsAt + GAP;
  const card = TOP + cardHeight(things);
  let y = card + 8;
  const heads = [], rows = [];
  for (const [hue, topic] of drawn.entries()) {
    const its = lines.filter((line) => line.topic === topic.name);
    if (!its.length) continue;
    heads.push({ topic, its, hue: hue % HUES, y: y + HEAD / 2 + 4 });
    y += HEAD;
    for (const partition of its) {
      rows.push({ partition, hue: hue % HUES, y: y + LINE / 2 });
      y += LINE;
    }
  }
  return {
    card, gutter, columns, column, heads, rows, groups: shownGroups, leftOut: readers.length - shownGroups.length,
    ends, endsAt, groupsAt, groupWidth,
    center: (node) => gutter + (columns.indexOf(node) + 0.5) * column,
    width: Math.floor(shownGroups.length ? groupsAt + shownGroups.length * groupWidth : endsAt),
    height: y + FOOT,
  };
}

/** Groups that read something of what is drawn. */
function readGroups(things, lines) {
  const drawn = new Set(lines.map((line) => line.topic));
  return groups(things)
    .map((group) => detail(things, group.id))
    .filter((group) => group?.rows.some((row) => drawn.has(row.topic)));
}

function Picture({ things, topics: drawn, lines, width }) {
  const at = layout(things, drawn, lines, width);
  const label = `${plural(at.columns.length, "node")}, ${plural(lines.length, "partition")}`;
  return html`${at.width > width && html`<p class="note sideways">Scroll the picture sideways: ${plural(at.columns.length, "node")}${at.groups.length > 0 && `, ${plural(at.groups.length, "group")}`}.</p>`}
  <svg class="picture" role="group" aria-label=${label} width=${at.width} height=${at.height}
      viewBox="0 0 ${at.width} ${at.height}">
    <${Writers} things=${things} at=${at} />
    ${at.columns.map((id) => html`<${NodeColumn} key=${id} things=${things} at=${at} node=${things.get(`node/${id}`)} />`)}
    ${at.ends > 0 && html`<text class="name" x=${at.endsAt} y=${TOP + 23} text-anchor="end">end</text>
      <text class="quiet" x=${at.endsAt} y=${TOP + 41} text-anchor="end">offset</text>`}
    ${at.heads.map((head) => html`<${TopicHead} key=${head.topic.name} things=${things} at=${at} head=${head} />`)}
    ${at.groups.map((group, place) => html`<${GroupHead} key=${group.id} group=${group} x=${at.groupsAt + place * at.groupWidth} />`)}
    ${at.rows.map((row) => html`<${Line} key=${`${row.partition.topic}/${row.partition.partition}`} things=${things} at=${at} row=${row} />`)}
  </svg>
  ${at.leftOut > 0 && html`<p class="note">${plural(at.leftOut, "more group")} on <a href=${to("groups")}>Groups</a>.</p>`}`;
}

/** The total rate of all that is drawn. */
function Writers({ things, at }) {
  const rate = sum(at.rows.map(({ partition }) => end(things, partition)?.rate));
  return html`<g><text class="name" x="14" y=${TOP + 23}>producers</text>
    <text class="quiet" x="14" y=${TOP + 41}>write ${perSecond(rate)}</text></g>`;
}

function NodeColumn({ things, at, node }) {
  const x = at.center(node.id) - at.column / 2 + 5, width = at.column - 10, middle = x + width / 2;
  const its = all(things, "partition/");
  const leads = its.filter((each) => each.leader === node.id).length;
  const has = its.filter((each) => each.replicas.includes(node.id)).length;
  const controls = things.get("cluster")?.controller === node.id;
  const up = node.state === "up", kind = { up: "up", down: "down" }[node.state] ?? "silent";
  const second = up ? cut(node.address, Math.floor(width / 7)) : node.state === "no answer" ? `no answer, ${node.silent_s} s` : node.state;
  const said = `node ${node.id}, ${node.state}${controls ? ", active controller" : ""}: leads ${leads}, ${has} replicas`;
  return html`<g class="node ${kind}" data-node=${node.id} data-state=${node.state}>
    <rect class="band" x=${x} y=${TOP} width=${width} height=${at.height - TOP - 1} rx="14" />
    <a href=${to("nodes")} aria-label=${said}>
      <title>${node.reason || said}</title>
      <rect class="card" x=${x} y=${TOP} width=${width} height=${at.card - TOP} rx="14" />
      <circle class="dot" cx=${middle - 34} cy=${TOP + 18} r="4.5" />
      <text class="name" x=${middle + 4} y=${TOP + 23} text-anchor="middle">node ${node.id}</text>
      <text class=${{ up: "quiet", down: "alarm" }[kind] ?? "doubt"} x=${middle} y=${TOP + 41} text-anchor="middle">${second}</text>
      <text class="quiet" x=${middle} y=${TOP + 57} text-anchor="middle">leads ${leads} of ${has}</text>
      ${up && node.free_bytes && html`<text class="quiet" x=${middle} y=${TOP + 73} text-anchor="middle">${bytes(node.free_bytes)} free</text>`}
      ${controls && html`<g class="crown"><rect x=${middle - 38} y="1" width="76" height="16" rx="8" />
        <text x=${middle} y="12.5" text-anchor="middle">controller</text></g>`}
    </a>
    ${things.has("playground") && html`<foreignObject x=${x} y=${TOP + 80} width=${width} height="36">
      <${NodeButtons} node=${node.id} playground=${things.get("playground")} />
    </foreignObject>`}
  </g>`;
}

function TopicHead({ things, at, head }) {
  const rate = sum(head.its.map((each) => end(things, each)?.rate));
  const { name } = head.topic, fits = at.gutter > 150 && name.length <= 12;
  return html`<a href=${to("topics", name)} class="topic hue-${head.hue}">
    <rect class="swatch" x="0" y=${head.y - 9} width="5" height="16" rx="2.5" />
    <text class="name" x="14" y=${head.y + 4}>${cut(name, 40)}<title>${name}</title>
      ${!fits && html`<tspan class="quiet rate" dx="10">${perSecond(rate)}</tspan>`}</text>
    ${fits && html`<text class="quiet rate" x=${at.gutter - 18} y=${head.y + 4} text-anchor="end">${perSecond(rate)}</text>`}
  </a>`;
}

function GroupHead({ group, x }) {
  const state = group.state.toLowerCase();
  return html`<a href=${to("groups", group.id)} class="group" data-group=${group.id}>
    <text class="name" x=${x + 4} y=${TOP + 23}>${cut(group.id, 16)}<title>${group.id}</title></text>
    <text class="quiet" x=${x + 4} y=${TOP + 41}>${state}, ${plural(group.members.length, "member")}</text>
    <text class="quiet" x=${x + 4} y=${TOP + 57}>${group.lag === null ? "lag unknown" : `${short(group.lag)} behind`}</text>
  </a>`;
}

function Line({ things, at, row: { partition, hue, y } }) {
  const growth = end(things, partition), late = behind(partition), moving = move(things, partition);
  const from = partition.leader === null ? null : at.center(partition.leader);
  // Nothing runs to a node that is down, though it counts as in sync until its time is over.
  const synced = partition.isr.filter((node) => things.get(`node/${node}`)?.state === "up" && at.columns.includes(node)).map(at.center);
  const flows = Boolean(growth?.rate) && from !== null, led = isLed(things, partition);
  const rates = store.rates.get(`end/${partition.topic}/${partition.partition}`) ?? [];
  const ends = from === null ? [] : [Math.min(from, ...synced), Math.max(from, ...synced)].filter((x) => x !== from);
  return html`<a class="line hue-${hue} ${from === null ? "leaderless" : ""}" href=${to("topics", partition.topic, partition.partition)}
      aria-label=${sentence(things, partition)} data-partition="${partition.topic}-${partition.partition}"
      data-leader=${partition.leader ?? "none"} data-epoch=${partition.epoch} data-behind=${late.join(",")}>
    <title>${sentence(things, partition)}</title>
    <rect class="hit" x="0" y=${y - LINE / 2 + 1} width=${at.width} height=${LINE - 2} rx="8" />
    <text class="number" x="14" y=${y + 4}>${partition.partition}</text>
    ${at.gutter > 150 && html`<${Spark} rates=${rates} x=${38} y=${y} />`}
    <text class="quiet rate" x=${at.gutter - 18} y=${y + 4} text-anchor="end">${perSecond(growth?.rate)}</text>
    ${flows && html`<path class="rail" d="M${at.gutter - 12},${y}H${at.gutter + 2}" /><path class="flow" d="M${at.gutter - 12},${y}H${at.gutter + 2}" />`}
    ${at.ends > 0 && html`<text class="quiet end" x=${at.endsAt} y=${y + 4} text-anchor="end">${growth ? whereItEnds(growth.end) : "–"}</text>`}
    ${from !== null && late.filter((node) => at.columns.includes(node)).map((node) => html`<path key=${`late-${node}`}
      class="rail broken" d="M${from},${y}H${at.center(node)}" />`)}
    ${ends.map((x) => html`<path key=${x < from ? "left" : "right"} class="rail" d="M${from},${y}H${x}" />`)}
    ${flows && ends.map((x) => html`<path key=${x < from ? "flow-left" : "flow-right"} class="flow" d="M${from},${y}H${x}" />`)}
    ${partition.replicas.filter((node) => at.columns.includes(node)).map((node) => {
      const lags = role(partition, node) === "behind" || moving?.adding.includes(node) || things.get(`node/${node}`).state !== "up";
      const kind = lags ? "behind" : "follows", said = moving ? inMove(moving, node) : "";
      return html`<rect key=${`box-${node}`} class="box ${kind}" data-replica=${node} data-role=${role(partition, node)}
        x=${at.center(node) - BOX.width / 2} y=${y - BOX.height / 2} width=${BOX.width} height=${BOX.height} rx="7" />
        ${said && html`<text key=${`move-${node}`} class="moves" x=${at.center(node)} y=${y + 4} text-anchor="middle">${said}</text>`}`;
    })}
    ${from === null
      ? html`<text class="alarm" x=${at.gutter + 12} y=${y + 4}>no leader</text>`
      : html`<g key=${`lead-${partition.leader}`} class="lead ${led ? "" : "gone"}" style=${{ transform: `translate(${from}px, ${y}px)` }}>
          <rect class="box leads" x=${-BOX.width / 2} y=${-BOX.height / 2} width=${BOX.width} height=${BOX.height} rx="7" />
          <text class="epoch" y="4" text-anchor="middle">${partition.epoch}</text>
        </g>`}
    ${at.groups.map((group, place) => html`<${Position} key=${group.id} group=${group} partition=${partition}
      x=${at.groupsAt + place * at.groupWidth} y=${y} width=${at.groupWidth} />`)}
  </a>`;
}

/** An offset in the space that there is. @param {string} offset */
const whereItEnds = (offset) => (offset.length > 9 ? short(offset) : count(offset));

/** Text of a replica's box while its partition is moved: its copied share, or that it is removed. */
function inMove(moving, node) {
  if (moving.removing.includes(node)) return "leaves";
  if (!moving.adding.includes(node)) return "";
  const done = copied(moving, node);
  return done === null ? "comes" : `${Math.floor(100 * done)} %`;
}

/** Records per second of the last seconds, as a line. */
export function Spark({ rates, x, y, width = 72, height = 20 }) {
  if (rates.length < 2) return null;
  const most = Math.max(1, ...rates), step = width / 47, first = x + width - (rates.length - 1) * step;
  const points = rates.map((rate, place) => `${(first + place * step).toFixed(1)},${(y + height / 2 - (rate / most) * height).toFixed(1)}`);
  return html`<g class="spark" aria-hidden="true">
    <polygon points="${first.toFixed(1)},${y + height / 2} ${points.join(" ")} ${x + width},${y + height / 2}" />
    <polyline points=${points.join(" ")} />
  </g>`;
}

/** A group's progress in a partition, and the member that reads it. */
function Position({ group, partition, x, y, width: whole }) {
  const row = group.rows.find((each) => each.topic === partition.topic && each.partition === partition.partition);
  if (!row) return null;
  const owner = row.owner === null ? null : group.members[row.owner];
  const width = whole - 24, lag = row.lag === null ? "–" : row.lag === "0" ? "at the end" : short(row.lag);
  return html`<g class="position ${owner ? "" : "unowned"}">
    <rect class="track" x=${x + 4} y=${y + 8} width=${width} height="3" rx="1.5" />
    <rect class="lag" x=${x + 4} y=${y + 8} width=${width * shareOfLag(row.lag)} height="3" rx="1.5" />
    <text x=${x + 4} y=${y + 2}>${owner ? cut(owner.client || owner.id, Math.floor((width - 6.6 * lag.length) / 6.6)) : "none"}</text>
    <text class="quiet" x=${x + 4 + width} y=${y + 2} text-anchor="end">${lag}</text>
  </g>`;
}

/** Partitions as rows. @param {{things: Map<string, any>, rows: any[]}} props */
export function PartitionTable({ things, rows, plain = false }) {
  const columns = [
    { key: "partition", label: "Partition", value: (row) => `${row.topic}-${row.partition}`,
      cell: (row) => html`<a href=${to("topics", row.topic, row.partition)}>${row.topic}-${row.partition}</a>` },
    { key: "leader", label: "Leader", value: (row) => row.leader,
      cell: (row) => row.leader === null ? html`<span class="alarm">none</span>` : row.leader, number: true },
    { key: "epoch", label: "Epoch", value: (row) => row.epoch, number: true },
    { key: "replicas", label: "Replicas", value: (row) => row.replicas.join(", ") },
    { key: "behind", label: "Behind", optional: true, value: (row) => behind(row).join(", "),
      cell: (row) => behind(row).length ? html`<span class="alarm">${behind(row).join(", ")}</span>` : "–" },
    { key: "end", label: "End", value: (row) => (end(things, row) ? BigInt(end(things, row).end) : null),
      cell: (row) => count(end(things, row)?.end), number: true },
    { key: "rate", label: "Records/s", value: (row) => end(things, row)?.rate ?? null,
      cell: (row) => perSecond(end(things, row)?.rate), number: true },
  ];
  return html`<${Table} caption="Partitions" columns=${columns} rows=${rows} plain=${plain}
    id=${(row) => `${row.topic}-${row.partition}`} nothing="There are no partitions." />`;
}
