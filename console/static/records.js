/** Records of a topic: the newest, found by a filter, or as they are written. */
import { html } from "./html.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { bytes, count, moment, plural } from "./format.js";
import { go, to, useAddress, withParameters } from "./router.js";

/** Rows that are kept while following. */
const MOST_ROWS = 500;
/** Rows of the newest: of each partition as many are read, so that these are the newest of all. */
const NEWEST = 50;
/** Ranges of a search, by their names in the address. */
const REACH = {
  newest: ["Newest", `last=${NEWEST}&limit=500`],
  recent: ["Last 10,000 of each partition", "last=10000&limit=200"],
  all: ["From the beginning", "limit=200"],
};

/**
 * Lines of JSON as they come.
 * @param {string} address @param {AbortSignal} signal @param {(event: any) => void} take
 */
async function readLines(address, signal, take) {
  const answer = await fetch(address, { signal });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) take(JSON.parse(line));
  }
}

/** The gathered response of an address; requested again for each address, and aborted when it is no longer shown. */
function useLines(address, gather, nothing) {
  const [{ of, state }, keep] = useState({ of: null, state: nothing });
  const setState = (state) => keep({ of: address, state });
  const control = useRef(null);
  useEffect(() => {
    setState(nothing);
    if (!address) return undefined;
    const aborting = (control.current = new AbortController());
    let now = { ...nothing, busy: true };
    const show = (next) => setState((now = next));
    show(now);
    readLines(address, aborting.signal, (event) => show(gather(now, event)))
      .catch((error) => show({ ...now, error: error.name === "AbortError" ? null : error.message, stopped: error.name === "AbortError" }))
      .finally(() => show({ ...now, busy: false }));
    return () => aborting.abort();
  }, [address]);
  // What another address has answered is nothing to this one.
  return [of === address ? state : nothing, () => control.current?.abort()];
}

/** How keys and values may be written, by their names in the address. */
const FORMATS = [["auto", "by content"], ["text", "text"], ["json", "JSON"], ["hex", "hexadecimal"], ["base64", "base64"]];
/** Columns of the table, by their names in the address, and those that are shown unless others are chosen. */
const COLUMNS = {
  time: { label: "Time (UTC)", cell: (row) => html`<${When} at=${row.timestamp_ms} />` },
  key: { label: "Key", kind: "content", cell: (row) => html`<${Content} content=${row.key} />` },
  value: { label: "Value", kind: "content", cell: (row) => html`<${Content} content=${row.value} />` },
  headers: { label: "Headers", kind: "number", cell: (row) => html`<span title=${row.headers.map(([name]) => name).join(", ")}>${count(row.header_count)}</span>`,
    isEmpty: (row) => !row.header_count },
  size: { label: "Size", kind: "number", cell: (row) => bytes(String(row.size)) },
  keysize: { label: "Key size", kind: "number", cell: (row) => bytes(String(row.key.size)) },
  valuesize: { label: "Value size", kind: "number", cell: (row) => bytes(String(row.value.size)) },
};
const USUAL = ["time", "key", "value", "headers", "size"];
/** Records of a download at most. */
const MOST_DOWNLOADED = 10_000;

/** The formats of keys and values that an address names, as a query. @param {URLSearchParams} query */
const formatsOf = (query) => ["key", "value"].filter((each) => query.get(each)).map((each) => `&${each}=${encodeURIComponent(query.get(each))}`).join("");

/** How far back a search looks that begins with a filter, or ends with it. */
const fromFor = (filter, from) => (filter ? (from ?? "recent") : from === "recent" ? null : from);

const NOTHING = { rows: [], busy: false, error: null, end: null, partitions: [], leftOut: 0, seen: 0, unreadable: [], stopped: false };

/** Batches that are named; the newest of more. */
const MOST_UNREADABLE = 20;

function gather(state, event) {
  if (event.kind === "error") return { ...state, error: event.message };
  if (event.kind === "follows") return state;
  if (event.kind === "end") return { ...state, end: event, partitions: event.partitions };
  const rows = event.rows ? [...state.rows, ...event.rows] : state.rows;
  return {
    ...state, rows: rows.slice(-MOST_ROWS), partitions: event.partitions ?? state.partitions,
    leftOut: state.leftOut + (Number(event.left_out) || 0), seen: state.seen + (event.seen ?? 0),
    unreadable: [...state.unreadable, ...(event.unreadable ?? [])].slice(-MOST_UNREADABLE),
  };
}

/** @param {{topic: string, partition?: number}} props */
export function Records({ topic, partition }) {
  const { query } = useAddress();
  const reach = REACH[query.get("from")] ? query.get("from") : "newest";
  const filter = query.get("filter") ?? "", following = query.get("from") === "follow";
  const [typed, setTyped] = useState(filter);
  const [turn, setTurn] = useState(0);
  useEffect(() => setTyped(filter), [filter]);
  const where = `/records/${encodeURIComponent(topic)}`;
  const which = (partition === undefined ? "" : `&partition=${partition}`) + (filter ? `&filter=${encodeURIComponent(filter)}` : "")
    + (query.get("everywhere") ? "&everywhere=1" : "");
  const formats = formatsOf(query);
  const address = following ? `${where}/follow?${(which + formats).slice(1)}` : `${where}/search?${REACH[reach][1]}${which}${formats}&turn=${turn}`;
  const [state, stop] = useLines(address, gather, NOTHING);
  const submit = (event) => {
    event.preventDefault();
    setTurn(turn + 1);
    go(withParameters({ filter: typed, from: fromFor(typed, query.get("from")), everywhere: null }));
  };
  // What was looked through for the page is looked through for the file, of which more is kept.
  const download = `${where}/download?${REACH[reach][1].replace(/limit=[0-9]+/, `limit=${MOST_DOWNLOADED}`)}${which}`;
  const rows = following || reach === "newest" ? newestFirst(state.rows).slice(0, following ? MOST_ROWS : NEWEST) : state.rows;
  return html`<section class="records" aria-labelledby="records">
    <header>
      <h2 id="records">Records</h2>
      <nav aria-label="Which records">
        ${Object.entries(REACH).map(([key, [label]]) => html`<a key=${key} href=${withParameters({ from: key === "newest" ? null : key })}
          aria-current=${!following && reach === key ? "true" : null}>${label}</a>`)}
        <a href=${withParameters({ from: "follow" })} aria-current=${following ? "true" : null}>Follow</a>
      </nav>
      <form onSubmit=${submit} role="search">
        <input type="search" aria-label="Filter of records" placeholder='key = anna and value/pounds > 3' value=${typed}
          spellcheck="false" onInput=${(event) => setTyped(event.target.value)} />
        <button type="submit">Search</button>
        ${state.busy && html`<button type="button" onClick=${stop} data-action="stop">Stop</button>`}
      </form>
    </header>
    ${state.error && html`<p class="trouble" role="alert">${state.error}</p>`}
    ${!state.error && html`<${Result} state=${state} following=${following} newest=${reach === "newest"} />`}
    <${Choices} query=${query} download=${!following && state.end?.found > 0 ? download : null} />
    ${state.unreadable.length > 0 && html`<p class="note" role="status" data-result="unreadable">
       <strong class="alarm">Cannot be read</strong> and left out: ${state.unreadable.map((each) =>
         `partition ${each.partition}, offsets ${each.first} to ${each.last}`).join("; ")}.</p>`}
    ${rows.length > 0 && html`<${Rows} topic=${topic} rows=${rows} columns=${chosen(query)} />`}
  </section>`;
}

/** The columns that an address names. @param {URLSearchParams} query */
function chosen(query) {
  const named = (query.get("columns") ?? "").split(",").filter((each) => COLUMNS[each]);
  return named.length ? named : USUAL;
}

/** A choice of the format of keys, or of values. */
function Format({ what, label, query }) {
  const choose = (wanted) => go(withParameters({ [what]: wanted === "auto" ? null : wanted }), true);
  return html`<label>${label} <select onChange=${(event) => choose(event.target.value)}>
    ${FORMATS.map(([key, text]) => html`<option key=${key} value=${key} selected=${key === (query.get(what) ?? "auto")}>${text}</option>`)}</select></label>`;
}

/** Which columns there are, how keys and values are written, and what was found as a file. */
function Choices({ query, download }) {
  const columns = chosen(query);
  const toggle = (name) => {
    const kept = Object.keys(COLUMNS).filter((each) => (each === name) !== columns.includes(each));
    go(withParameters({ columns: kept.join() === USUAL.join() ? null : kept.join() }), true);
  };
  return html`<div class="choices">
    <${Format} what="key" label="Keys as" query=${query} /><${Format} what="value" label="Values as" query=${query} />
    <details class="columns"><summary>Columns</summary><fieldset><legend class="unseen">Columns</legend>
      ${Object.entries(COLUMNS).map(([name, { label }]) => html`<label key=${name}><input type="checkbox" checked=${columns.includes(name)}
        disabled=${columns.length === 1 && columns[0] === name} onChange=${() => toggle(name)} /> ${label}</label>`)}</fieldset></details>
    ${download && html`<span class="download">Download <a href=${`${download}&format=jsonl`} download>JSON lines</a> <a href=${`${download}&format=csv`} download>CSV</a>
      <small>${count(MOST_DOWNLOADED)} records at most</small></span>`}
  </div>`;
}

const newestFirst = (rows) =>
  [...rows].sort((a, b) => b.timestamp_ms - a.timestamp_ms || b.partition - a.partition || Number(BigInt(b.offset) - BigInt(a.offset)));

/** What was searched, and what was not. */
function Result({ state, following, newest }) {
  if (following) {
    return html`<p class="note" role="status" data-result="follow">${state.busy ? "Following" : "No longer following"}:
      ${" "}${plural(state.seen, "record")} came, ${count(state.leftOut)} left out.</p>`;
  }
  const searched = state.partitions.reduce((all, each) => all + BigInt(each.at) - BigInt(each.start), 0n);
  const wanted = state.partitions.reduce((all, each) => all + BigInt(each.end) - BigInt(each.start), 0n);
  if (!state.end) {
    return html`<p class="note" role="status" data-result="busy">${state.stopped ? "Stopped" : state.busy ? "Searching" : ""}:
      ${" "}${count(String(searched))} of ${count(String(wanted))} offsets, ${plural(state.rows.length, "row")}.</p>`;
  }
  const { why, found, seconds, read_bytes: read, away, left_out: leftOut } = state.end;
  const missing = state.partitions.filter((each) => each.at !== each.end);
  const because = { rows: "enough rows were found", bytes: "enough bytes were read", seconds: "enough time has passed" }[why];
  const cut = newest && found > NEWEST ? `The newest ${NEWEST} of ` : "";
  return html`<p class="note" role="status" data-result="end">
    ${cut}${plural(found, "row")} in ${count(String(searched))} offsets, ${bytes(String(read))}, ${seconds} s.
    ${missing.length > 0 && html` <strong>Not searched</strong>, because ${because}: ${missing.map((each) =>
      `partition ${each.partition} from ${count(each.at)} to ${count(each.end)}`).join("; ")}.`}
    ${away.length > 0 && html` <strong class="alarm">Not searched</strong>, because they have no leader or it does not answer: partitions ${away.join(", ")}.`}
    ${leftOut.length > 0 && html` A producer puts this key into partition ${state.partitions[0]?.partition ?? "–"} and no other:
      ${" "}<a href=${withParameters({ everywhere: "1" })}>search the other ${leftOut.length} too</a>.`}
  </p>`;
}

function Rows({ topic, rows, columns }) {
  // Without a choice, an empty column is not shown.
  const shown = columns.map((name) => COLUMNS[name]).filter(({ isEmpty }) => columns !== USUAL || !isEmpty || !rows.every(isEmpty));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Records"><table class="rows">
    <thead><tr><th scope="col">Record</th>${shown.map(({ label, kind }) => html`<th key=${label} scope="col" class=${kind === "number" ? "number" : ""}>${label}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${`${row.partition}/${row.offset}`} data-record="${row.partition}/${row.offset}">
      <th scope="row"><a href=${to("topics", topic, row.partition, row.offset)}>${row.partition}<span class="at"> @ </span>${row.offset}</a></th>
      ${shown.map(({ label, kind, cell }) => html`<td key=${label} class=${kind ?? ""}>${cell(row)}</td>`)}
    </tr>`)}</tbody>
  </table></div>`;
}

function When({ at }) {
  const date = new Date(at ?? NaN);
  return Number.isNaN(date.getTime()) ? moment(at) : html`<time dateTime=${date.toISOString()} title=${date.toLocaleString()}>${moment(at)}</time>`;
}

/** A key or a value. It is text, whatever is in it. */
function Content({ content, whole = false }) {
  if (content.kind === "null") return html`<span class="none">none</span>`;
  if (content.kind === "hidden") return html`<span class="none">hidden, ${bytes(String(content.size))}</span>`;
  const text = whole ? content.text : content.text.replace(/\s+/g, " ");
  return html`<bdi class=${content.kind}>${text}</bdi>${content.cut && html`<small> … ${bytes(String(content.size))}</small>`}`;
}

/** The records before and after one. @param {{topic: string, partition: number, offset: string}} props */
export function Hops({ topic, partition, offset }) {
  const next = (step) => to("topics", topic, partition, String(BigInt(offset) + BigInt(step)));
  return html`<nav class="pages" aria-label="Other records">
    ${offset !== "0" && html`<a href=${next(-1)}>Before</a>`}<a href=${next(1)}>After</a></nav>`;
}

/** One record, all of it. @param {{topic: string, partition: number, offset: string}} props */
export function Record({ topic, partition, offset }) {
  const { query } = useAddress();
  const [state] = useLines(`/records/${encodeURIComponent(topic)}/search?partition=${partition}&offset=${offset}&limit=1${formatsOf(query)}`, gather, NOTHING);
  const row = state.rows[0];
  if (state.error) return html`<p class="trouble" role="alert">${state.error}</p>`;
  if (!row) return html`<p class="nothing" role="status">${state.end ? `There is no record at offset ${count(offset)} or after it.` : "Reading …"}</p>`;
  return html`${row.offset !== offset && html`<p class="note" role="status">The record at offset ${count(offset)} no longer exists. This is the next one, ${count(row.offset)}.</p>`}
    <dl class="facts">
      <dt>Offset</dt><dd>${count(row.offset)}</dd>
      <dt>Time</dt><dd>${moment(row.timestamp_ms)}${row.timestamp_ms !== null && " UTC"}</dd>
      <dt>Key</dt><dd>${bytes(String(row.key.size))}</dd>
      <dt>Value</dt><dd>${bytes(String(row.value.size))}</dd>
      <dt>Headers</dt><dd>${count(row.header_count)}</dd>
    </dl>
    <div class="choices"><${Format} what="key" label="Key as" query=${query} /><${Format} what="value" label="Value as" query=${query} /></div>
    <section class="record"><h2>Key</h2><pre data-part="key"><${Content} content=${row.key} whole /></pre>
      <h2>Value</h2><pre data-part="value"><${Content} content=${row.value} whole /></pre>
      ${row.headers.length > 0 && html`<h2>Headers</h2><dl class="facts">${row.headers.map(([name, content], place) => html`<dt key=${`${place}n`}><bdi>${name}</bdi></dt><dd key=${place}><${Content} content=${content} /></dd>`)}</dl>`}
    </section>`;
}
