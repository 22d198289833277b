/** Tables: sorted, filtered and turned over by the address. */
import { html } from "./html.js";
import { go, useAddress, withParameters } from "./router.js";

const ROWS = 100;
const compareText = new Intl.Collator("en", { numeric: true }).compare;

/** Values as they are ordered: nothing last, numbers by size whatever their length. */
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === "number" || typeof a === "bigint") return a < b ? -1 : 1;
  return compareText(String(a), String(b));
}

/**
 * @typedef {object} Column
 * @property {string} key names it in the address
 * @property {string} label
 * @property {(row: any) => any} value that it is sorted and filtered by
 * @property {(row: any) => any} [cell] what is shown, if that is something else
 * @property {boolean} [number] aligned to the right
 * @property {boolean} [optional] left out while no row has anything in it
 */

/**
 * @param {object} props
 * @param {string} props.caption what the rows are
 * @param {Column[]} props.columns
 * @param {any[]} props.rows
 * @param {(row: any) => string} props.id
 * @param {string} props.nothing said without rows
 * @param {boolean} [props.plain] without filter and pages: a second table of its page
 */
export function Table({ caption, columns: all, rows, id, nothing, plain = false }) {
  const { query } = useAddress();
  const sort = (!plain && query.get("sort")) || "";
  const down = sort.startsWith("-");
  const isFilled = (column) => rows.some((row) => ![null, undefined, "", "–"].includes(column.value(row)));
  const columns = all.filter((column) => !column.optional || isFilled(column));
  const sorted = columns.find((column) => column.key === sort.replace("-", ""));
  const filter = plain ? "" : (query.get("q") ?? "");
  let shown = rows;
  if (filter) {
    const wanted = filter.toLowerCase();
    shown = shown.filter((row) => columns.some((each) => String(each.value(row) ?? "").toLowerCase().includes(wanted)));
  }
  if (sorted) shown = [...shown].sort((a, b) => compare(sorted.value(a), sorted.value(b)) * (down ? -1 : 1));
  const pages = Math.max(1, Math.ceil(shown.length / ROWS));
  const page = plain ? 1 : Math.min(pages, Math.max(1, Number(query.get("page")) || 1));
  const onPage = shown.slice((page - 1) * ROWS, page * ROWS);
  return html`<section class="table">
    <header>
      <h2>${caption} <small>${shown.length === rows.length ? rows.length : `${shown.length} of ${rows.length}`}</small></h2>
      ${!plain && html`<label class="filter"><span class="unseen">Filter ${caption}</span>
        <input type="search" placeholder="Filter" value=${filter} data-filter
          onInput=${(event) => go(withParameters({ q: event.target.value, page: null }), true)} /></label>`}
    </header>
    <div class="scroll" tabindex="0" role="region" aria-label=${caption}>
      <table>
        <thead><tr>${columns.map((column) => html`<${Heading} key=${column.key} column=${column} plain=${plain}
          direction=${sorted === column ? (down ? "descending" : "ascending") : "none"} />`)}</tr></thead>
        <tbody>${onPage.map((row) => html`<tr key=${id(row)} data-row=${id(row)}>${columns.map(
          (column, place) => place === 0
            ? html`<th scope="row">${(column.cell ?? column.value)(row)}</th>`
            : html`<td class=${column.number ? "number" : ""}>${(column.cell ?? column.value)(row)}</td>`,
        )}</tr>`)}
        ${!onPage.length && html`<tr><td class="nothing" colspan=${columns.length}>${filter ? "Nothing fits the filter." : nothing}</td></tr>`}
        </tbody>
      </table>
    </div>
    ${pages > 1 && html`<nav class="pages" aria-label="Pages">
      ${page > 1 && html`<a href=${withParameters({ page: String(page - 1) })}>Previous</a>`}
      <span>Page ${page} of ${pages}</span>
      ${page < pages && html`<a href=${withParameters({ page: String(page + 1) })}>Next</a>`}
    </nav>`}
  </section>`;
}

function Heading({ column, direction, plain }) {
  if (plain) return html`<th scope="col" class=${column.number ? "number" : ""}>${column.label}</th>`;
  const next = direction === "ascending" ? `-${column.key}` : direction === "descending" ? null : column.key;
  return html`<th scope="col" class=${column.number ? "number" : ""} aria-sort=${direction}>
    <a href=${withParameters({ sort: next })}>${column.label}<span aria-hidden="true">${
      { ascending: " ↑", descending: " ↓", none: "" }[direction]
    }</span></a></th>`;
}
