/** Values as people read them. 64-bit numbers come as text and stay exact. */

const thousands = new Intl.NumberFormat("en");

/** A whole number, given as text or number: 1,234,567. @param {string|number|null|undefined} value */
export function count(value) {
  if (value === null || value === undefined) return "–";
  return thousands.format(typeof value === "string" ? BigInt(value) : value);
}

/** "1 node", "3 nodes". @param {number} number @param {string} noun */
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A number in little space: 950, 12.3k, 4.1M. @param {string|number|null|undefined} value */
export function short(value) {
  if (value === null || value === undefined) return "–";
  const number = Number(value);
  if (number < 999.5) return String(number < 10 ? Math.round(number * 10) / 10 : Math.round(number));
  const power = Math.min(4, Math.floor(Math.log10(number * 1.0005) / 3));
  const scaled = number / 1000 ** power;
  return `${scaled < 100 ? scaled.toFixed(1) : Math.round(scaled)}${"kMGT"[power - 1]}`;
}

/** Records per second. @param {number|null|undefined} rate */
export const perSecond = (rate) => (rate === null || rate === undefined ? "–" : `${short(rate)}/s`);

/** Bytes: 1.4 GB. @param {string|null|undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const number = Number(value);
  if (number < 1000) return `${number} B`;
  const power = Math.min(4, Math.floor(Math.log10(number) / 3));
  return `${(number / 1000 ** power).toFixed(1)} ${["kB", "MB", "GB", "TB"][power - 1]}`;
}

/** A record's time in UTC: 2026-11-27 16:11:47.396. One that no calendar has, which clients may write, as a number. @param {number|null} ms */
export function moment(ms) {
  if (ms === null) return "–";
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? `${count(ms)} ms` : date.toISOString().replace("T", " ").replace("Z", "");
}

/** A duration: 7 d, 12 h, 90 s. @param {number} ms */
export function duration(ms) {
  for (const [unit, size] of [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000]])
    if (ms >= size && ms % size === 0) return `${count(ms / size)} ${unit}`;
  return `${count(ms)} ms`;
}

/** Time that has passed: 12 s, 3 min 12 s, 1 h 5 min. @param {number|null} ms */
export function passed(ms) {
  if (ms === null) return "–";
  const seconds = Math.max(0, Math.floor(ms / 1000)), minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${seconds} s`;
  return minutes < 60 ? `${minutes} min ${seconds % 60} s` : `${count(Math.floor(minutes / 60))} h ${minutes % 60} min`;
}

/** A time of day. @param {Date} at */
export const clock = (at) => at.toTimeString().slice(0, 8);

/** Text that fits, its end cut off. @param {string} text @param {number} most characters */
export const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
