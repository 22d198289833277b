/** Describes the changes between two states of the cluster in words. */

const name = (partition) => `${partition.topic}-${partition.partition}`;

/** A few names, and how many more. @param {string[]} names */
const listed = (names) => names.slice(0, 4).join(", ") + (names.length > 4 ? ` and ${names.length - 4} more` : "");

/** @template T @param {Map<string, T[]>} groups @param {string} key @param {T} item */
function add(groups, key, item) {
  groups.set(key, [...(groups.get(key) ?? []), item]);
}

/**
 * @param {Map<string, any>} before
 * @param {Map<string, any>} after
 * @param {string[]} changed keys that were set
 * @returns {{kind: "good"|"bad"|"warn"|"news", text: string}[]} the newest first
 */
export function happenings(before, after, changed) {
  const news = [];
  const say = (kind, text) => news.unshift({ kind, text });
  const led = new Map(), left = new Map(), joined = new Map(), leaderless = [];
  for (const key of changed) {
    const was = before.get(key), is = after.get(key);
    if (key.startsWith("node/")) {
      if (!was) say("good", `node ${is.id} is new`);
      else if (was.state !== is.state) {
        const why = is.reason ? `: ${is.reason}` : "";
        if (is.state === "no answer") say("warn", `node ${is.id} does not answer`);
        else if (is.state === "up") say("good", `node ${is.id} ${was.state === "no answer" ? "answers again" : "is up"}`);
        else say("bad", `node ${is.id} is ${is.state}${why}`);
      }
    } else if (key.startsWith("partition/") && was && !after.get(`topic/${is.topic}`)?.internal) {
      if (was.leader !== is.leader) {
        if (is.leader === null) leaderless.push(name(is));
        else add(led, String(is.leader), { name: name(is), from: was.leader });
      }
      for (const node of was.isr) if (!is.isr.includes(node)) add(left, String(node), name(is));
      for (const node of is.isr) if (!was.isr.includes(node)) add(joined, String(node), name(is));
    } else if (key.startsWith("topic/") && !was && !is.internal) {
      say("news", `topic ${is.name} was created`);
    } else if (key.startsWith("group/") && was && was.state !== is.state) {
      say("news", `group ${is.id} is ${is.state.toLowerCase()}`);
    } else if (key.startsWith("move/") && !was) {
      say("news", `${name(is)} is being moved${is.adding.length ? ` to node ${is.adding.join(", ")}` : ""}`);
    } else if (key === "cluster" && was && was.controller !== is.controller) {
      if (is.controller === null) say("bad", "no controller is active");
      else say("news", `node ${is.controller} is the active controller`);
    }
  }
  for (const [key, was] of before) {
    if (key.startsWith("topic/") && !after.has(key) && !was.internal) say("bad", `topic ${was.name} was deleted`);
    if (key.startsWith("node/") && !after.has(key)) say("bad", `node ${was.id} was removed`);
    if (key.startsWith("move/") && !after.has(key)) say("news", `the move of ${name(was)} has ended`);
  }
  if (leaderless.length) say("bad", `no leader: ${listed(leaderless)}`);
  for (const [node, its] of left) say("bad", `node ${node} fell behind in ${listed(its)}`);
  for (const [node, its] of joined) say("good", `node ${node} is in sync again in ${listed(its)}`);
  for (const [node, its] of led) {
    const from = [...new Set(its.map((each) => each.from))].filter((each) => each !== null);
    const whom = from.length === 1 ? `, after node ${from[0]}` : "";
    say("news", `node ${node} leads ${listed(its.map((each) => each.name))}${whom}`);
  }
  return news;
}

/** Time within which a repeated event is counted instead of listed again (ms). */
const COUNTED_WITHIN_MS = 60_000;

/**
 * Returns the list of events with new ones added. An event that repeats within a minute is one line with a count, so that
 * a node that restarts repeatedly does not fill the list.
 * @typedef {{at: Date, kind: string, text: string, times: number}} Happening
 * @param {Happening[]} listed the newest first @param {{kind: string, text: string}[]} news @param {Date} at
 * @param {number} most maximum number of events
 * @returns {Happening[]}
 */
export function withNews(listed, news, at, most) {
  const kept = [...listed], added = [];
  for (const each of news) {
    const before = kept.findIndex((one) => one.text === each.text && at.getTime() - one.at.getTime() < COUNTED_WITHIN_MS);
    const times = before < 0 ? 1 : kept.splice(before, 1)[0].times + 1;
    added.push({ at, ...each, times });
  }
  return [...added, ...kept].slice(0, most);
}
