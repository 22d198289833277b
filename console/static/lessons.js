/** Lessons as data: the steps, a check that detects each step, and a conclusion. */
import { html } from "./html.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { withParameters } from "./router.js";

const line = (things) => things.get("partition/orders/0");
const condition = (things, node) => things.get("playground").nodes[node];
const inCondition = (things, wanted) => Object.entries(things.get("playground").nodes).filter(([, is]) => is === wanted).map(([node]) => node);
const acknowledged = (things) => Number(things.get("playground").acknowledged);

/** True if no record has been acknowledged for this time. */
function standsStill(things, memory, seconds) {
  const now = acknowledged(things);
  if (memory.last !== now) Object.assign(memory, { last: now, since: Date.now() });
  return Date.now() - memory.since > seconds * 1000;
}

/**
 * @typedef {object} Step
 * @property {string|((memory: any) => string)} say what to do
 * @property {(things: Map<string, any>, memory: any) => boolean} until it is done
 */

/** @type {Record<string, {title: string, needs?: (things: Map<string, any>) => boolean, steps: Step[], shows: string}>} */
export const LESSONS = {
  leader: {
    title: "A leader dies",
    steps: [
      { say: (memory) => `Node ${memory.leader} leads orders-0: all of its records go there first. Kill it.`,
        until: (things, memory) => condition(things, memory.leader) === "killed" },
      { say: "The other nodes elect one of them, on their own: no third party is involved.",
        until: (things, memory) => ![null, memory.leader].includes(line(things).leader) },
      { say: "Is any acknowledged record missing? Read everything back.",
        until: (things, memory) => memory.checks > 0 },
      { say: (memory) => `Start node ${memory.leader} again. It copies the records that were written while it was down.`,
        until: (things) => line(things).isr.length === line(things).replicas.length && !inCondition(things, "killed").length },
    ],
    shows: "None is missing. A record is acknowledged only once a majority has it on disk, and any two majorities share a node: every elected leader has it.",
  },
  minority: {
    title: "Two of three are down",
    steps: [
      { say: "Kill two nodes.", until: (things) => inCondition(things, "killed").length >= 2 },
      { say: "Watch the counter of acknowledged records: it stops. Wait three seconds.",
        until: (things, memory) => standsStill(things, memory, 3) },
      { say: "Start one of them. Two of three are a majority.",
        until: (things, memory) => inCondition(things, "killed").length < 2 && acknowledged(things) > memory.last + 20 },
      { say: "Read everything back, and start the other one.",
        until: (things, memory) => memory.checks > 0 && !inCondition(things, "killed").length },
    ],
    shows: "One node of three acknowledges nothing: the two others might have elected a leader, so that its acknowledgements could be lost. Records that were sent in the meantime have waited in the producer.",
  },
  paused: {
    title: "Paused is worse than dead",
    steps: [
      { say: (memory) => `Pause node ${memory.leader}, which leads orders-0. It believes that it leads, and does not answer.`,
        until: (things, memory) => condition(things, memory.leader) === "paused" },
      { say: "The others receive nothing from it, and elect another leader in a higher epoch.",
        until: (things, memory) => line(things).leader !== memory.leader && line(things).epoch > memory.epoch },
      { say: (memory) => `Resume node ${memory.leader}. Its pending requests are of an old epoch, and are rejected.`,
        until: (things, memory) => condition(things, memory.leader) === "running" },
      { say: "Read everything back.", until: (things, memory) => memory.checks > 0 },
    ],
    shows: "Two leaders at once cannot both be effective. The epoch in the box is a number that only rises, and followers reject requests with a lower one.",
  },
  cut: {
    title: "Alone on the wrong side",
    needs: (things) => things.get("playground").cuts_links,
    steps: [
      { say: (memory) => `Cut off node ${memory.leader}, which leads orders-0. It keeps running, but no message reaches it or leaves it.`,
        until: (things, memory) => condition(things, memory.leader) === "cut" },
      { say: "The others elect another leader. The isolated one is not in contact with a majority, and resigns automatically.",
        until: (things, memory) => line(things).leader !== null && line(things).leader !== memory.leader && line(things).epoch > memory.epoch },
      { say: (memory) => `Let node ${memory.leader} rejoin. It discards records that no majority has, and copies the missing ones.`,
        until: (things) => line(things).isr.length === line(things).replicas.length && !inCondition(things, "cut").length },
      { say: "Read everything back.", until: (things, memory) => memory.checks > 0 },
    ],
    shows: "Only one side of a cut has a majority, so only one side acknowledges. Records that the other side received were never acknowledged: their producers send them again.",
  },
};

/** @param {{things: Map<string, any>, checks: number}} props `checks`: how often everything was read back without a missing record */
export function Lesson({ things, checks, name }) {
  const [done, setDone] = useState(0);
  const memory = useRef(null);
  const lesson = LESSONS[name];
  useEffect(() => {
    memory.current = null;
    setDone(0);
  }, [name]);
  const ready = line(things)?.leader !== undefined && line(things).leader !== null;
  if (!memory.current && ready) {
    memory.current = { leader: line(things).leader, epoch: line(things).epoch, checksBefore: checks };
  }
  const now = memory.current;
  if (now) now.checks = checks - now.checksBefore;
  const step = lesson.steps[done];
  const reached = Boolean(now && step && step.until(things, now));
  useEffect(() => {
    if (reached) {
      // What was read back before a step that asks for it does not count.
      now.checksBefore = checks;
      setDone(done + 1);
    }
  }, [reached, done]);
  if (!now) return null;
  return html`<section class="lesson" aria-labelledby="lesson" data-lesson=${name} data-done=${done}>
    <h2 id="lesson">${lesson.title}</h2>
    <ol aria-live="polite">${lesson.steps.slice(0, done + 1).map((each, place) => html`<li key=${place} class=${place < done ? "done" : "now"}>
      <span class="tick" aria-label=${place < done ? "Done" : "Now"}>${place < done ? "✓" : "→"}</span>${typeof each.say === "function" ? each.say(now) : each.say}</li>`)}</ol>
    ${done >= lesson.steps.length && html`<p class="shows"><strong>${lesson.shows}</strong> <a href=${withParameters({ lesson: null })}>Leave</a></p>`}
  </section>`;
}
