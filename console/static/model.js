/** What the views ask of the picture. */

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

/** What is known of a group in detail. @param {Things} things @param {string} id */
export const detail = (things, id) => things.get(`detail/${id}`);

/** Whether somebody leads a partition who is up. Who is dead leads until another one says that it does. @param {Things} things @param {any} partition */
export const isLed = (things, partition) => partition.leader !== null && things.get(`node/${partition.leader}`)?.state !== "down";

/** Where a partition ends. Nothing is written where nobody leads. @param {Things} things @param {any} partition */
export function end(things, partition) {
  const known = things.get(`end/${partition.topic}/${partition.partition}`);
  return known && !isLed(things, partition) ? { ...known, rate: null } : known;
}

/** How full a bar of this lag is: ten thousand fills it, each tenth of it takes a quarter off. @param {string|null} lag */
export const shareOfLag = (lag) => (lag === null ? 0 : Math.min(1, Math.log10(1 + Number(lag)) / 4));

/** What is known of the move of a partition, if it is being moved. @param {Things} things @param {any} partition */
export const move = (things, partition) => things.get(`move/${partition.topic}/${partition.partition}`);

/** How much of a replica that is being added is there, 0 to 1; null if that is not known. */
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

/** The sum of what is known; null if nothing is. @param {(number|null|undefined)[]} values */
export function sum(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
}

/** What needs a look, each with where to look. @param {Things} things @returns {{text: string, path: string[]}[]} */
export function worries(things) {
  const found = [], list = partitions(things);
  for (const node of nodes(things))
    if (node.state !== "up") found.push({ text: `node ${node.id} is ${node.state}`, path: ["nodes"] });
  const leaderless = list.filter((each) => !isLed(things, each)).length;
  if (leaderless) found.push({ text: `${leaderless} without a leader that is up`, path: ["partitions"] });
  const late = list.filter((each) => behind(each).length).length;
  if (late) found.push({ text: `${late} with a replica behind`, path: ["partitions"] });
  if (things.get("cluster")?.controller === null) found.push({ text: "no active controller", path: ["quorum"] });
  for (const node of nodes(things))
    if (node.damaged_entries) found.push({ text: `node ${node.id} has damaged entries`, path: ["nodes"] });
  return found;
}
