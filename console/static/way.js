/** The way of one record: when it was where, as bars on one time line, and in numbers. */
import { html } from "./html.js";
import { count } from "./format.js";
import { Table } from "./table.js";

/** @param {number} us microseconds */
const ms = (us) => (us / 1000).toFixed(2);

/** Who a stage is of, for its colour. @param {string} who */
const kind = (who) => (who === "producer" ? "producer" : who.endsWith("leader") ? "leader" : "follower");

/** @param {{stage: any, whole: number}} props */
function Bar({ stage, whole }) {
  const at = (us) => (100 * us) / Math.max(1, whole);
  const begin = at(stage.begin_us), length = stage.end_us === null ? 100 - begin : at(stage.end_us - stage.begin_us);
  const disk = stage.sync_us === null ? 0 : Math.min(length, at(stage.sync_us));
  // The leader notes its own disk at the end of the sync; when in between a follower's was at work is not known.
  const from = kind(stage.who) === "leader" ? begin + length - disk : begin + (length - disk) / 2;
  return html`<svg class="bar ${kind(stage.who)} ${stage.end_us === null ? "open" : ""}" width="100%" height="20" aria-hidden="true">
    <rect class="all" x="${begin}%" y="3" width="${Math.max(0.4, length)}%" height="14" rx="3" />
    ${disk > 0 && html`<rect class="disk" x="${from}%" y="6" width="${Math.max(0.4, disk)}%" height="8" rx="2" />`}
  </svg>`;
}

/** @param {{told: any}} props what `/changes/records` said of a record that was to be explained */
export function Way({ told }) {
  const { stages, rule, untraced, answered_us: whole, on_the_way_us: way, attempts } = told;
  const columns = [
    { key: "who", label: "Where", value: (stage) => stage.who },
    { key: "what", label: "What", value: (stage) => stage.what,
      cell: (stage) => html`${stage.what}${stage.decided && html` <strong class="decided">the last that was needed</strong>`}` },
    { key: "from", label: "From, ms", value: (stage) => stage.begin_us, cell: (stage) => ms(stage.begin_us), number: true },
    { key: "took", label: "Took, ms", value: (stage) => stage.end_us, number: true,
      cell: (stage) => (stage.end_us === null ? html`<span class="none">not by then</span>` : ms(stage.end_us - stage.begin_us)) },
    { key: "disk", label: "Its disk, ms", value: (stage) => stage.sync_us, number: true,
      cell: (stage) => (stage.sync_us === null ? "–" : ms(stage.sync_us)) },
    { key: "line", label: `0 to ${ms(whole)} ms`, value: () => "", cell: (stage) => html`<${Bar} stage=${stage} whole=${whole} />` },
  ];
  return html`<div class="way">
    <p class="rule">Acknowledged after <strong>${ms(whole)} ms</strong>. The answer waited for ${rule}.</p>
    ${attempts > 1 && html`<p class="note">It was sent ${count(attempts)} times; this is the last.</p>`}
    ${untraced && html`<p class="note">The leader's part is not known: ${untraced}.</p>`}
    <${Table} plain caption="Its way" columns=${columns} rows=${stages} id=${(stage) => `${stage.who}: ${stage.what}`} nothing="" />
    ${way !== null && html`<p class="note">Request and answer were on their way for ${ms(way)} ms together. How that divides is not known:
      clocks of two machines are not compared. The bars of the nodes are laid into the middle. The dark part of a bar is the time of its disk, by its own clock.</p>`}
  </div>`;
}
