/** What the views ask of the picture. */
import { clock } from "./format.js";

/** @typedef {Map<string, any>} Things */

/** Things whose keys begin with a prefix. @param {Things} things @param {string} prefix @returns {any[]} */
export function all(things, prefix) {
  const found = [];
  for (const [key, thing] of things) if (key.startsWith(prefix)) found.push(thing);
  return found;
}

/** @param {Things} things */
export const nodes = (things) => all(things, "node/").sort((a, b) => a.id - b.id);

const byName = new Intl.Collator("en", { numeric: true }).compare;

/** Topics by name, the cluster's own last. @param {Things} things */
export const topics = (things) =>
  all(things, "topic/").sort((a, b) => a.internal - b.internal || byName(a.name, b.name));

/** Partitions of a topic, or of all, in order, the cluster's own last. @param {Things} things @param {string} [topic] */
export const partitions = (things, topic) =>
  all(things, topic === undefined ? "partition/" : `partition/${topic}/`).sort(
    (a, b) => isInternal(things, a) - isInternal(things, b) || byName(a.topic, b.topic) || a.partition - b.partition,
  );
const isInternal = (things, partition) => Boolean(things.get(`topic/${partition.topic}`)?.internal);

/** @param {Things} things */
export const groups = (things) => all(things, "group/").sort((a, b) => byName(a.id, b.id));

/** The known details of a group. @param {Things} things @param {string} id */
export const detail = (things, id) => things.get(`detail/${id}`);

/** True if a node answers, so that its report is current. @param {any} node */
export const isHeard = (node) => node?.state === "up" || node?.state === "not ready";

/** True if a partition has a leader that is not down. A dead leader is listed until another one is elected. @param {Things} things @param {any} partition */
export const isLed = (things, partition) => partition.leader !== null && things.get(`node/${partition.leader}`)?.state !== "down";

/** The end of a partition. Its rate is not known while its leader does not answer. @param {Things} things @param {any} partition */
export function end(things, partition) {
  const known = things.get(`end/${partition.topic}/${partition.partition}`);
  return known && !isHeard(things.get(`node/${partition.leader}`)) ? { ...known, rate: null } : known;
}

/** How full a bar of this lag is: ten thousand fills it, each tenth of it takes a quarter off. @param {string|null} lag */
export const shareOfLag = (lag) => (lag === null ? 0 : Math.min(1, Math.log10(1 + Number(lag)) / 4));

/** The known move of a partition, if it is being moved. @param {Things} things @param {any} partition */
export const move = (things, partition) => things.get(`move/${partition.topic}/${partition.partition}`);

/** Copied share of a replica that is being added, 0 to 1; null if that is not known. */
export function copied(moving, node) {
  const copy = moving.copies?.[node];
  if (!copy) return null;
  const size = Number(copy.size);
  return size ? Math.max(0, Math.min(1, 1 - Number(copy.left) / size)) : 1;
}

/** Replicas that are not in sync. @param {any} partition */
export const behind = (partition) => partition.replicas.filter((node) => !partition.isr.includes(node));

/** How a replica is: "leads", "follows" or "behind". @param {any} partition @param {number} node */
export function role(partition, node) {
  if (partition.leader === node) return "leads";
  return partition.isr.includes(node) ? "follows" : "behind";
}

/** A partition in one sentence, for who does not see the picture. @param {Things} things @param {any} partition */
export function sentence(things, partition) {
  const late = behind(partition), at = end(things, partition);
  return [
    `${partition.topic} partition ${partition.partition}:`,
    partition.leader === null ? "no leader;"
      : isLed(things, partition) ? `node ${partition.leader} leads in epoch ${partition.epoch};`
      : `node ${partition.leader}, which is down, led last;`,
    `replicas on ${partition.replicas.join(", ")},`,
    late.length ? `behind on ${late.join(", ")}` : "all in sync",
    at?.rate ? `; ${at.rate} records a second` : "",
  ].join(" ");
}

/** Records, bytes and rate of a topic; null where that is not known of all of its partitions. @param {Things} things @param {string} topic */
export function sizes(things, topic) {
  const ends = partitions(things, topic).map((each) => end(things, each));
  const whole = (of) => (ends.length && ends.every((each) => each && of(each) !== null) ? String(ends.reduce((all, each) => all + of(each), 0n)) : null);
  return {
    records: whole((each) => (each.start === undefined ? null : BigInt(each.end) - BigInt(each.start))),
    bytes: whole((each) => (each.bytes === undefined ? null : BigInt(each.bytes))),
    rate: sum(ends.map((each) => each?.rate)),
  };
}

/** The sum of what is known; null if nothing is. @param {(number|null|undefined)[]} values */
export function sum(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
}

/**
 * The status of everything, the only one on the page. What is not known comes first: nothing is well, or down, as long
 * as no node says so.
 * @param {Things} things
 * @param {{state: string, heardAt: Date}} stream of events from the console
 * @returns {{level: "unknown"|"bad"|"warn"|"good", notice: string, items: {text: string, path: string[], level: string}[]}}
 *   `notice`: that what is shown is not current.
 */
export function status(things, stream) {
  const unknown = (text, notice = "") => ({ level: "unknown", notice, items: [{ text, path: [], level: "unknown" }] });
  if (stream.state === "connecting") return unknown("connecting");
  if (stream.state !== "live") {
    return unknown(`no news since ${clock(stream.heardAt)}`, `The console does not answer. The page shows the state at ${clock(stream.heardAt)}.
      If it has ended, start it again and open the address that it prints.`);
  }
  if (!things.has("cluster")) return things.has("trouble") ? unknown("the cluster does not answer", Object.values(things.get("trouble"))[0]) : unknown("asking");
  const list = nodes(things);
  if (list.length && list.some((node) => node.state === "no answer") && !list.some(isHeard)) {
    const silent = Math.min(...list.filter((node) => node.state === "no answer").map((node) => node.silent_s));
    return unknown(`no answer for ${silent} s`, `No node has answered for ${silent} s. The page shows the state before that.`);
  }
  const items = [...worries(things), ...unanswered(things)];
  return { level: items[0]?.level ?? "good", notice: "", items };
}

/** What the cluster says is wrong, each with where to look. @param {Things} things */
function worries(things) {
  const found = [], list = partitions(things);
  const add = (text, ...path) => found.push({ text, path, level: "bad" });
  for (const node of nodes(things))
    if (node.state === "down" || node.state === "not ready") add(`node ${node.id} is ${node.state}`, "nodes");
  const leaderless = list.filter((each) => !isLed(things, each)).length;
  if (leaderless) add(`${leaderless} without a leader that is up`, "partitions");
  const late = list.filter((each) => behind(each).length).length;
  if (late) add(`${late} with a replica behind`, "partitions");
  if (things.get("cluster")?.controller === null) add("no active controller", "quorum");
  for (const node of nodes(things)) if (node.damaged_entries) add(`node ${node.id} has damaged entries`, "nodes");
  return found;
}

/** Information that is missing because a node or a request was not answered. @param {Things} things */
function unanswered(things) {
  const silent = nodes(things).filter((node) => node.state === "no answer");
  const failed = Object.keys(things.get("trouble") ?? {});
  return [
    ...silent.map((node) => ({ text: `node ${node.id}: no answer for ${node.silent_s} s`, path: ["nodes"], level: "warn" })),
    ...failed.map((what) => ({ text: `${what} not known`, path: [], level: "warn" })),
  ];
}
