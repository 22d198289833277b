/** The shared state from the console: one stream of events, closed while the page is hidden. */
import { happenings, withNews } from "./happenings.js";
import { isHeard } from "./model.js";

/** Seconds of rates that are drawn, and maximum number of events that are kept. */
export const SECONDS = 48;
const MOST_HAPPENINGS = 60;

/** @typedef {Record<string, any>} Thing */

class Store {
  constructor() {
    /** @type {Map<string, Thing>} */
    this.things = new Map();
    /** @type {Map<string, number[]>} records per second of each partition, the newest last */
    this.rates = new Map();
    /** @type {{at: Date, kind: string, text: string, times: number}[]} the newest first */
    this.happened = [];
    this.state = "connecting";
    this.heardAt = new Date();
    this.listeners = new Set();
    this.wish = "";
    this.lastId = null;
    this.source = null;
    this.retry = 0;
    document.addEventListener("visibilitychange", () => this.reopen());
    setInterval(() => this.sample(), 1000);
  }

  /** Says what the page shows of what is not asked for at large. @param {string} wish a query */
  show(wish) {
    if (this.wish === wish && this.source) return;
    this.wish = wish;
    this.reopen();
  }

  reopen() {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
    if (document.visibilityState === "hidden") return;
    const since = this.lastId ? `since=${encodeURIComponent(this.lastId)}` : "";
    this.source = new EventSource(`/events?${[this.wish, since].filter(Boolean).join("&")}`);
    this.source.onmessage = (event) => this.take(event);
    this.source.onerror = () => {
      this.state = "lost";
      this.tell();
      // A browser gives up permanently on a response that is not a stream, such as that of a restarted console.
      if (this.source?.readyState === EventSource.CLOSED) this.retry = setTimeout(() => this.reopen(), 1500);
    };
  }

  /** @param {MessageEvent} event */
  take(event) {
    const change = JSON.parse(event.data);
    this.lastId = event.lastEventId;
    this.state = "live";
    this.heardAt = new Date();
    const before = this.things;
    this.things = new Map(change.all ? [] : before);
    for (const [key, thing] of Object.entries(change.set)) this.things.set(key, thing);
    for (const key of change.gone) this.things.delete(key);
    // A console that has just started knows no cluster yet: that is no deletion of everything.
    if (before.has("cluster") && this.things.has("cluster")) {
      const news = happenings(before, this.things, change.all ? [...this.things.keys()] : Object.keys(change.set));
      this.happened = withNews(this.happened, news, this.heardAt, MOST_HAPPENINGS);
    }
    this.tell();
  }

  sample() {
    for (const key of this.rates.keys()) if (!this.things.has(key)) this.rates.delete(key);
    for (const [key, thing] of this.things) {
      if (!key.startsWith("end/") || thing.rate === null) continue;
      const rate = this.isQuiet(key) ? 0 : thing.rate;
      const rates = this.rates.get(key) ?? [];
      this.rates.set(key, [...rates.slice(1 - SECONDS), rate]);
    }
    if (this.state === "live") this.tell();
  }

  /** True if a partition's rate is unknown, because its leader does not answer. @param {string} key of its end */
  isQuiet(key) {
    const leader = this.things.get(key.replace("end/", "partition/"))?.leader;
    return !isHeard(this.things.get(`node/${leader}`));
  }

  /** @param {() => void} listener */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

export const store = new Store();
