/** The page: what is on every view of it, and which view is shown. */
import { render } from "./vendor/preact.js";
import { useEffect, useState } from "./vendor/hooks.js";
import { html } from "./html.js";
import { clock, count, perSecond, plural, short } from "./format.js";
import { detail, end, groups, isLed, nodes, partitions, status, sum, topics } from "./model.js";
import { followLinks, to, useAddress, withParameters } from "./router.js";
import { Playground } from "./playground.js";
import { store } from "./store.js";
import { Topology } from "./topology.js";

/** A view that is loaded when it is shown first: the picture does not wait for it. @param {string} name */
function view(name) {
  return function Later(props) {
    const [View, setView] = useState(null);
    useEffect(() => {
      import(name.startsWith("Transaction") ? "./transactions.js" : "./views.js").then((views) => setView(() => views[name]));
    }, []);
    return View ? html`<${View} ...${props} />` : null;
  };
}

const [Nodes, Topics, Topic, Partitions, Partition, OneRecord, Groups, Group, Transactions, Transaction, Quorum, Acls, Users] = [
  "Nodes", "Topics", "Topic", "Partitions", "Partition", "OneRecord", "Groups", "Group", "Transactions", "Transaction", "Quorum", "Acls", "Users",
].map(view);

const VIEWS = [
  ["Topology", ""], ["Nodes", "nodes"], ["Topics", "topics"], ["Partitions", "partitions"],
  ["Groups", "groups"], ["Transactions", "transactions"], ["Quorum", "quorum"], ["ACLs", "acls"], ["Users", "users"],
];

function usePicture() {
  const [, setTurn] = useState(0);
  useEffect(() => store.listen(() => setTurn((turn) => turn + 1)), []);
  return store.things;
}

/** What the present view shows of what the console does not ask for at large. */
function wish([view, name], query) {
  if (view === "topics" && name) return `topic=${encodeURIComponent(name)}`;
  if (view === "groups" && name) return `topic=&group=${encodeURIComponent(name)}`;
  if (view === "transactions") return `topic=&transaction=${encodeURIComponent(name ?? "")}`;
  return query.getAll("topic").map((topic) => `topic=${encodeURIComponent(topic)}`).join("&");
}

function App() {
  const things = usePicture();
  const { path, query } = useAddress();
  const wanted = wish(path, query), health = status(things, store);
  const theme = query.get("theme");
  useEffect(() => store.show(wanted), [wanted]);
  useEffect(() => {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  }, [theme]);
  const title = path.length ? path.join("-") : "topology";
  useEffect(() => {
    document.title = `${title} · quorumlog`;
  }, [title]);
  return html`<a class="skip" href="#content">To the content</a>
    <${Masthead} things=${things} view=${path[0] ?? ""} health=${health} />
    <${Trouble} things=${things} health=${health} />
    <main id="content" tabindex="-1">
      ${things.has("cluster") ? html`<${View} things=${things} path=${path} />` : html`<p class="nothing" role="status">Asking the cluster …</p>`}
    </main>
    <${Foot} things=${things} />`;
}

/** True if a path may lead to a view: the parts for numbers are numbers. @param {string[]} path */
function leadsSomewhere([view, name, number, offset, ...more]) {
  if (more.length || !VIEWS.some(([, where]) => where === (view ?? ""))) return false;
  if (view === "topics") return [number, offset].every((each) => each === undefined || /^[0-9]+$/.test(each));
  return number === undefined && (name === undefined || view === "groups" || view === "transactions");
}

function View({ things, path }) {
  if (!leadsSomewhere(path)) return html`<p class="nothing" role="status">There is nothing at this address. <a href=${to("")}>The cluster</a></p>`;
  const [view, name, number, offset] = path;
  if (view === undefined) return html`<${Summary} things=${things} />${things.has("playground") && html`<${Playground} things=${things} />`}<${Topology} things=${things} /><${Happenings} />`;
  if (view === "nodes") return html`<${Nodes} things=${things} />`;
  if (view === "partitions") return html`<${Partitions} things=${things} />`;
  if (view === "quorum") return html`<${Quorum} things=${things} />`;
  if (view === "acls") return html`<${Acls} things=${things} />`;
  if (view === "users") return html`<${Users} things=${things} />`;
  if (view === "transactions") return name === undefined ? html`<${Transactions} things=${things} />` : html`<${Transaction} things=${things} name=${name} />`;
  if (view === "groups") return name === undefined ? html`<${Groups} things=${things} />` : html`<${Group} things=${things} name=${name} />`;
  if (name === undefined) return html`<${Topics} things=${things} />`;
  if (offset !== undefined) return html`<${OneRecord} name=${name} number=${Number(number)} offset=${String(BigInt(offset))} />`;
  return number === undefined
    ? html`<${Topic} things=${things} name=${name} />`
    : html`<${Partition} things=${things} name=${name} number=${Number(number)} />`;
}

function Masthead({ things, view, health }) {
  const { query } = useAddress();
  const theme = query.get("theme");
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return html`<header class="masthead">
    <a class="brand" href=${to("")}><img src="/static/icon.svg" alt="" width="26" height="26" />quorumlog</a>
    <nav aria-label="Views">${VIEWS.map(([label, where]) => html`<a href=${to(where)}
      aria-current=${view === where ? "page" : null}>${label}</a>`)}</nav>
    <div class="health" role="status" data-level=${health.level}>
      ${health.items.slice(0, 2).map((each) => html`<a class="badge ${each.level}" href=${to(...each.path)}>${each.text}</a>`)}
      ${health.items.length > 2 && html`<span class="badge ${health.items[2].level}">and ${health.items.length - 2} more</span>`}
      ${!health.items.length && html`<span class="badge good">all well</span>`}
    </div>
    <a class="switch" href=${withParameters({ theme: dark ? "light" : "dark" })}>${dark ? "Light" : "Dark"}</a>
  </header>`;
}

/** A sentence about outdated or missing information. */
function Trouble({ things, health }) {
  const trouble = things.get("trouble");
  if (health.notice) return html`<p class="notice" role="alert">${health.notice}</p>`;
  if (!trouble) return null;
  return html`<p class="notice" role="alert">${Object.entries(trouble).map(([what, why]) => html`<span key=${what}><strong>${what}</strong>: ${why}</span>`)}</p>`;
}

function Summary({ things }) {
  const list = nodes(things), up = list.filter((node) => node.state === "up").length;
  const silent = list.filter((node) => node.state === "no answer").length;
  const ours = topics(things).filter((topic) => !topic.internal);
  const lines = partitions(things), led = lines.filter((each) => isLed(things, each)).length;
  const known = lines.map((each) => end(things, each)).filter(Boolean);
  const lags = groups(things).map((group) => detail(things, group.id)?.lag).filter((lag) => lag !== null && lag !== undefined);
  return html`<dl class="tiles">
    <div><dt>Nodes up</dt><dd>${up}<small>of ${list.length}${silent > 0 && `, ${silent} without an answer`}</small></dd></div>
    <div><dt>Partitions led</dt><dd>${count(led)}<small>of ${count(lines.length)}, ${plural(ours.length, "topic")}</small></dd></div>
    <div><dt>Records per second</dt><dd>${perSecond(sum(known.map((each) => each.rate))).replace("/s", "")}<small>in ${plural(known.length, "partition")} shown</small></dd></div>
    <div><dt>Groups behind by</dt><dd>${lags.length ? short(sum(lags.map(Number))) : "–"}<small>${plural(groups(things).length, "group")}</small></dd></div>
  </dl>`;
}

function Happenings() {
  return html`<section class="happenings" aria-labelledby="happenings">
    <h2 id="happenings">What has happened</h2>
    <div role="log" aria-labelledby="happenings"><ol>${store.happened.slice(0, 14).map((each) => html`<li key=${`${each.at.getTime()}${each.text}`} class=${each.kind}>
      <time>${clock(each.at)}</time> ${each.text}${each.times > 1 && html` <small>${each.times} times</small>`}</li>`)}
      ${!store.happened.length && html`<li class="nothing">Nothing since this page was opened.</li>`}
    </ol></div>
  </section>`;
}

function Foot({ things }) {
  const cluster = things.get("cluster"), own = things.get("console");
  return html`<footer>
    ${cluster && html`<span>Cluster <code>${cluster.id}</code>, feature level ${cluster.feature_level}</span>`}
    ${own && html`<span>This console${things.has("playground") && ", with its producers and consumers"}: ${plural(own.pages, "page")}, ${own.cpu_percent} % of a core, ${own.memory_mb} MB</span>`}
  </footer>`;
}

addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest?.("input, textarea, select")) return;
  const filter = document.querySelector("[data-filter]");
  if (filter) {
    event.preventDefault();
    filter.focus();
  }
});
followLinks();
render(html`<${App} />`, document.body);
