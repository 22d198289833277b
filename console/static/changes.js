/** Changes: what each would do is shown first. Without --allow-changes that is all. */
import { html } from "./html.js";
import { useEffect, useState } from "./vendor/hooks.js";
import { get, post } from "./ask.js";
import { Outcome, useAttempt } from "./attempt.js";
import { count, plural } from "./format.js";
import { Table } from "./table.js";
import { Way } from "./way.js";

const TARGETS = [
  ["earliest", "the beginning"], ["latest", "the end"], ["time", "a time"], ["shift", "so many records further"], ["offset", "an offset"],
];

/** @param {{group: any, allowed: boolean}} props */
export function ResetOffsets({ group, allowed }) {
  const [to, setTo] = useState("earliest");
  const [by, setBy] = useState("");
  const [plan, setPlan] = useState(null);
  const [state, attempt] = useAttempt();
  const choose = (wanted) => {
    setTo(wanted);
    setBy(wanted === "time" ? new Date(Date.now() - 3_600_000).toISOString().slice(0, 16) : wanted === "shift" ? "-100" : "0");
    setPlan(null);
  };
  const preview = (event) => {
    event.preventDefault();
    const number = to === "time" ? String(Date.parse(`${by}Z`)) : by;
    const query = new URLSearchParams({ group: group.id, to, ...(["time", "shift", "offset"].includes(to) && { by: number }) });
    attempt(get(`/changes/reset?${query}`), "").then(setPlan);
  };
  const execute = () => {
    const steps = plan.steps.map(({ topic, partition, target }) => ({ topic, partition, target }));
    attempt(post("/changes/reset", { group: group.id, steps }), `${group.id} now continues there.`).then((result) => result === undefined || setPlan(null));
  };
  const moved = plan ? plan.steps.filter((each) => each.committed !== each.target).length : 0;
  return html`<section class="change" aria-labelledby="reset">
    <h2 id="reset">Go on elsewhere</h2>
    <form onSubmit=${preview}>
      <label>at <select value=${to} onChange=${(event) => choose(event.target.value)}>
        ${TARGETS.map(([key, label]) => html`<option key=${key} value=${key} selected=${key === to}>${label}</option>`)}</select></label>
      ${to === "time" && html`<label>in UTC <input type="datetime-local" value=${by} onInput=${(event) => setBy(event.target.value)} required /></label>`}
      ${(to === "shift" || to === "offset") && html`<label><span class="unseen">${to === "shift" ? "How many" : "Offset"}</span>
        <input inputmode="numeric" pattern="-?[0-9]+" value=${by} onInput=${(event) => setBy(event.target.value)} required /></label>`}
      <button type="submit" disabled=${state.busy}>Show what it would do</button>
    </form>
    <${Outcome} state=${state} />
    ${plan && html`<${Table} plain caption="What it would do" rows=${plan.steps} id=${(row) => `${row.topic}-${row.partition}`} nothing="Nothing."
      columns=${[
        { key: "partition", label: "Partition", value: (row) => `${row.topic}-${row.partition}` },
        { key: "committed", label: "Committed", value: (row) => row.committed, cell: (row) => count(row.committed), number: true },
        { key: "target", label: "Goes on at", value: (row) => row.target, cell: (row) => html`<strong>${count(row.target)}</strong>`, number: true },
        { key: "again", label: "Read again, or passed over", value: (row) => row.target, number: true,
          cell: (row) => (row.committed === null ? "–" : signed(BigInt(row.committed) - BigInt(row.target))) },
        { key: "note", label: "", value: (row) => row.note, cell: (row) => html`<small>${row.note}</small>` },
      ]} />
      ${plan.members > 0
        ? html`<p class="note">The group has ${plural(plan.members, "member")}, who would not notice: stop them first.</p>`
        : allowed
          ? html`<button data-action="execute" onClick=${execute} disabled=${state.busy || !moved}>Apply the reset</button>`
          : html`<p class="note">This console was started without <code>--allow-changes</code>.</p>`}`}
  </section>`;
}

/** The number of records that are read again, or skipped. @param {bigint} number */
const signed = (number) => (number === 0n ? "–" : number > 0n ? `${count(String(number))} read again` : `${count(String(-number))} skipped`);

/** A request that is sent when something is shown first, and again after a change. @param {string} address */
export function useAnswer(address) {
  const [found, setFound] = useState({ of: null, answer: null });
  const [turn, setTurn] = useState(0);
  const [state, attempt] = useAttempt();
  useEffect(() => {
    let wanted = true;
    attempt(get(address), "").then((answer) => wanted && answer !== undefined && setFound({ of: address, answer }));
    return () => (wanted = false);
  }, [address, turn]);
  return { answer: found.of === address ? found.answer : null, error: state.error, again: () => setTurn((before) => before + 1) };
}

/** The settings of a topic. @param {string} topic */
export const useSettings = (topic) => useAnswer(`/changes/configs/${encodeURIComponent(topic)}`);

/** @param {{topic: string, settings: ReturnType<typeof useSettings>, allowed: boolean}} props */
export function Settings({ topic, settings, allowed }) {
  const [edited, setEdited] = useState(null);
  const [state, attempt] = useAttempt();
  const rows = settings.answer ?? [], set = rows.filter((row) => !row.is_default);
  const put = (name, value) =>
    attempt(post(`/changes/configs/${encodeURIComponent(topic)}`, { name, value }), "").then((result) => {
      if (result === null) settings.again(), setEdited(null);
    });
  const value = (row) => edited?.name === row.name
    ? html`<form class="inline" onSubmit=${(event) => (event.preventDefault(), put(row.name, edited.value))}>
        <input aria-label=${row.name} value=${edited.value} onInput=${(event) => setEdited({ name: row.name, value: event.target.value })} />
        <button type="submit">Set</button> <button type="button" onClick=${() => setEdited(null)}>Leave</button></form>`
    : html`<code>${row.value || "–"}</code>`;
  const columns = [
    { key: "name", label: "Setting", value: (row) => row.name },
    { key: "value", label: "Value", value: (row) => row.value, cell: value },
    { key: "default", label: "Default", value: (row) => row.default, cell: (row) => html`<code>${row.default || "–"}</code>` },
    { key: "about", label: "What it is for", value: (row) => row.documentation, cell: (row) => html`<small class="about">${row.documentation}</small>` },
    ...(allowed ? [{ key: "do", label: "Change", value: () => "", cell: (row) => html`
      <button aria-label="Change ${row.name}" onClick=${() => setEdited({ name: row.name, value: row.value })}>Change</button>
      ${!row.is_default && html` <button aria-label="Clear ${row.name}" onClick=${() => put(row.name, null)}>Clear</button>`}` }] : []),
  ];
  return html`<details class="change settings"><summary>Settings <small>${set.length ? set.map((row) => `${row.name}=${row.value}`).join(", ") : "all are the defaults"}</small></summary>
    <${Outcome} state=${state.error ? state : { error: settings.error, done: state.done }} />
    <${Table} plain caption="Settings" columns=${columns} rows=${rows} id=${(row) => row.name} nothing="They are being asked for." />
  </details>`;
}

/**
 * A deletion, or another change that cannot be undone, which must be confirmed by typing the name.
 * @param {{what: string, name: string, says?: string, verb?: string, remove: (typed: string) => Promise<any>, done: () => void}} props
 */
export function Delete({ what, name, says, verb = "Delete", remove, done }) {
  const [typed, setTyped] = useState("");
  const [state, attempt] = useAttempt();
  const submit = (event) => {
    event.preventDefault();
    attempt(remove(typed), "").then((result) => result === undefined || done());
  };
  return html`<details class="change delete"><summary>${verb} ${what}</summary>
    ${says && html`<p class="note">${says}</p>`}
    <form onSubmit=${submit}>
      <label>Type <code>${name}</code> <input aria-label="Type ${name} to ${verb.toLowerCase()} ${what}" value=${typed} autocomplete="off" spellcheck="false" onInput=${(event) => setTyped(event.target.value)} /></label>
      <button type="submit" class="danger" disabled=${state.busy || typed !== name}>${verb}</button>
    </form>
    <${Outcome} state=${state} />
  </details>`;
}

/** @param {{topic: string}} props */
export function SendRecord({ topic }) {
  const [record, setRecord] = useState({ key: "", value: "", partition: "" });
  const [told, setTold] = useState(null);
  const [state, attempt] = useAttempt();
  const field = (name) => (event) => setRecord({ ...record, [name]: event.target.value });
  const send = (event) => {
    event.preventDefault();
    const { key, value, partition } = record, explain = event.submitter?.dataset.action === "explain";
    setTold(null);
    attempt(
      post(`/changes/records/${encodeURIComponent(topic)}`, { key: key || null, value, partition: partition === "" ? null : partition, explain }),
      (place) => `Acknowledged: partition ${place.partition}, offset ${count(place.offset)}.`,
    ).then((place) => setTold(place?.way ?? null));
  };
  return html`<details class="change send"><summary>Send a record</summary>
    <form onSubmit=${send}>
      <label>Key <input value=${record.key} onInput=${field("key")} /></label>
      <label>Partition <input inputmode="numeric" pattern="[0-9]*" placeholder="by the key" value=${record.partition} onInput=${field("partition")} /></label>
      <label class="wide">Value <textarea rows="3" value=${record.value} onInput=${field("value")}></textarea></label>
      <button type="submit" disabled=${state.busy}>Send</button>
      <button type="submit" data-action="explain" disabled=${state.busy}>Send and explain</button>
    </form>
    <${Outcome} state=${state} />
    ${told && html`<${Way} told=${told} />`}
  </details>`;
}
