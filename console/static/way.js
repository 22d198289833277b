/** The path of one record: its stages as bars on one time line, and in numbers. */
import { html } from "./html.js";
import { count } from "./format.js";

/** Marks of the time line, besides its beginning and end. */
const MARKS = [25, 50, 75];

/** @param {number} us microseconds */
const ms = (us) => (us / 1000).toFixed(2);

/** The kind of process of a stage, for its colour. @param {string} who */
const kind = (who) => (who === "producer" ? "producer" : who.endsWith("leader") ? "leader" : "follower");

/** @param {{stage: any, whole: number}} props */
function Bar({ stage, whole }) {
  const at = (us) => (100 * us) / Math.max(1, whole);
  const begin = at(stage.begin_us), length = stage.end_us === null ? 100 - begin : at(stage.end_us - stage.begin_us);
  const disk = stage.sync_us === null ? 0 : Math.min(length, at(stage.sync_us));
  // The leader notes its own disk at the end of the sync; when in between a follower's was at work is not known.
  const from = kind(stage.who) === "leader" ? begin + length - disk : begin + (length - disk) / 2;
  return html`<svg class="bar ${kind(stage.who)} ${stage.end_us === null ? "open" : ""}" width="100%" height="30" aria-hidden="true">
    ${MARKS.map((place) => html`<line key=${place} class="mark" x1="${place}%" x2="${place}%" y1="0" y2="30" />`)}
    <rect class="all" x="${begin}%" y="6" width="${Math.max(0.4, length)}%" height="18" rx="4" />
    ${disk > 0 && html`<rect class="disk" x="${from}%" y="10" width="${Math.max(0.4, disk)}%" height="10" rx="2.5" />`}
  </svg>`;
}

/** The times of the marks, above them. @param {{whole: number}} props */
const Scale = ({ whole }) => html`<svg class="scale" width="100%" height="16" aria-hidden="true">
  <text x="0" y="12">0</text>
  ${MARKS.map((place) => html`<text key=${place} x="${place}%" y="12" text-anchor="middle">${ms((whole * place) / 100)}</text>`)}
  <text x="100%" y="12" text-anchor="end">${ms(whole)} ms</text></svg>`;

/** @param {{told: any}} props the explanation of a record from `/changes/records` */
export function Way({ told }) {
  const { stages, rule, untraced, answered_us: whole, on_the_way_us: way, attempts } = told;
  const took = (stage) => stage.end_us === null ? html`<span class="none">not by then</span>` : ms(stage.end_us - stage.begin_us);
  return html`<section class="way" aria-label="Path of the record">
    <p class="rule">Acknowledged after <strong>${ms(whole)} ms</strong>. The acknowledgement waited for ${rule}.</p>
    ${attempts > 1 && html`<p class="note">It was sent ${count(attempts)} times; this is the last.</p>`}
    ${untraced && html`<p class="note">The times of the leader are unknown: ${untraced}.</p>`}
    <div class="scroll" tabindex="0" role="region" aria-label="Stages of the record"><table>
      <thead><tr><th scope="col">Where</th><th scope="col">What</th>
        <th scope="col" class="line"><span class="unseen">From 0 to ${ms(whole)} ms</span><${Scale} whole=${whole} /></th>
        <th scope="col" class="number">From, ms</th><th scope="col" class="number">Took, ms</th><th scope="col" class="number">Its disk, ms</th></tr></thead>
      <tbody>${stages.map((stage) => html`<tr key=${`${stage.who}: ${stage.what}`} data-row=${`${stage.who}: ${stage.what}`}>
        <th scope="row"><span class="who ${kind(stage.who)}" aria-hidden="true"></span>${stage.who}</th>
        <td class="what">${stage.what}${stage.decided && html` <strong class="decided">the last that was needed</strong>`}</td>
        <td class="line"><${Bar} stage=${stage} whole=${whole} /></td>
        <td class="number">${ms(stage.begin_us)}</td><td class="number">${took(stage)}</td>
        <td class="number">${stage.sync_us === null ? "–" : ms(stage.sync_us)}</td></tr>`)}</tbody>
    </table></div>
    ${way !== null && html`<p class="note">Request and response spent ${ms(way)} ms on the network together. Their shares are unknown:
      clocks of two machines are not compared. The bars of the nodes are centred. The dark part of a bar is the time of its disk, by its own clock.</p>`}
  </section>`;
}
