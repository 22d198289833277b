/** Topics created and deleted, ACLs and users. The cluster decides what the console may see and do. */
import { html } from "./html.js";
import { useState } from "./vendor/hooks.js";
import { post } from "./ask.js";
import { Outcome, useAttempt } from "./attempt.js";
import { Delete, useAnswer } from "./changes.js";
import { count, moment, plural } from "./format.js";
import { go, to } from "./router.js";
import { Table } from "./table.js";

const ReadOnly = () => html`<p class="note">This console was started without <code>--allow-changes</code>.</p>`;

/** A form whose fields are state. @param {Record<string, string>} first */
function useFields(first) {
  const [fields, setFields] = useState(first);
  const field = (name) => ({ value: fields[name], onInput: (event) => setFields({ ...fields, [name]: event.target.value }) });
  return [fields, field, () => setFields(first)];
}

/** Settings as they are typed, one in a line. @param {string} text */
const settingsOf = (text) => Object.fromEntries(text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
  const at = line.indexOf("=");
  return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}));

export function NewTopic() {
  const [fields, field] = useFields({ name: "", partitions: "3", replicas: "", settings: "" });
  const [state, attempt] = useAttempt();
  const submit = (event) => {
    event.preventDefault();
    const check = event.submitter?.dataset.action === "check", { name, partitions, replicas } = fields;
    const topic = { name, partitions, replicas: replicas || null, settings: settingsOf(fields.settings), validate_only: check };
    attempt(post("/changes/topics", topic), check ? `${name} can be created.` : "").then((result) => result === null && !check && go(to("topics", name)));
  };
  return html`<details class="change new"><summary>Create a topic</summary>
    <form onSubmit=${submit}>
      <label>Name <input ...${field("name")} required maxlength="249" pattern="[a-zA-Z0-9._\\-]+" spellcheck="false" /></label>
      <label>Partitions <input ...${field("partitions")} required inputmode="numeric" pattern="[0-9]+" size="6" /></label>
      <label>Replicas <input ...${field("replicas")} inputmode="numeric" pattern="[0-9]*" size="6" placeholder="usual" /></label>
      <label class="wide">Settings <textarea rows="2" ...${field("settings")} placeholder="retention.ms=86400000" spellcheck="false"></textarea></label>
      <button type="submit" data-action="check" disabled=${state.busy}>Check</button>
      <button type="submit" class="main" disabled=${state.busy}>Create</button>
    </form>
    <${Outcome} state=${state} />
  </details>`;
}

/** @param {{topic: any}} props */
export const DeleteTopic = ({ topic }) => html`<${Delete} what="topic ${topic.name}" name=${topic.name}
  says="All of its records go, for good, and groups lose their offsets in it."
  remove=${(typed) => post("/changes/topics/delete", { name: topic.name, typed })} done=${() => go(to("topics"))} />`;

const OPERATIONS = ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "ALL"];
const TYPES = ["TOPIC", "GROUP", "CLUSTER", "PRODUCER_NAME"];

/** @param {{allowed: boolean}} props */
export function AclList({ allowed }) {
  const { answer, error, again } = useAnswer("/changes/acls");
  const columns = [
    { key: "principal", label: "Principal", value: (rule) => rule.principal },
    { key: "permission", label: "Permission", value: (rule) => rule.permission,
      cell: (rule) => html`<span class="state ${rule.permission === "ALLOW" ? "good" : "bad"}">${rule.permission}</span>` },
    { key: "operation", label: "Operation", value: (rule) => rule.operation },
    { key: "type", label: "On", value: (rule) => rule.type },
    { key: "name", label: "Name", value: (rule) => rule.name, cell: (rule) => html`<code>${rule.name}</code>` },
    { key: "pattern", label: "Pattern", value: (rule) => rule.pattern },
    ...(allowed ? [{ key: "do", label: "Change", value: () => "", cell: (rule) => html`<${Delete} what="this ACL" name=${rule.principal}
      remove=${(typed) => post("/changes/acls/delete", { ...rule, typed })} done=${again} />` }] : []),
  ];
  const id = (rule) => [rule.principal, rule.permission, rule.operation, rule.type, rule.name, rule.pattern].join(" ");
  return html`${answer && !answer.enforced && html`<p class="note" role="status">Authorization is off: the nodes do not apply these ACLs.</p>`}
    ${error && html`<p class="trouble" role="alert">${error}</p>`}
    ${answer && answer.total > answer.acls.length && html`<p class="note">The first ${count(answer.acls.length)} of ${count(answer.total)}.</p>`}
    <${Table} caption="ACLs" columns=${columns} rows=${answer?.acls ?? []} id=${id} nothing=${answer ? "There are no ACLs." : error ? "They cannot be shown." : "They are being asked for."} />
    ${allowed ? html`<${NewAcl} created=${again} />` : html`<${ReadOnly} />`}`;
}

function NewAcl({ created }) {
  const [fields, field, clear] = useFields({ principal: "User:", permission: "ALLOW", operation: "READ", type: "TOPIC", name: "", pattern: "LITERAL" });
  const [state, attempt] = useAttempt();
  const submit = (event) => {
    event.preventDefault();
    attempt(post("/changes/acls", fields), `${fields.principal}: ${fields.permission} ${fields.operation}.`).then((result) => result === null && (clear(), created()));
  };
  const choice = (name, label, values) => html`<label>${label} <select onChange=${field(name).onInput}>
    ${values.map((value) => html`<option key=${value} value=${value} selected=${value === fields[name]}>${value}</option>`)}</select></label>`;
  return html`<details class="change new"><summary>Create an ACL</summary>
    <form onSubmit=${submit}>
      <label>Principal <input ...${field("principal")} required pattern="[^:]+:.+" spellcheck="false" /></label>
      ${choice("permission", "Permission", ["ALLOW", "DENY"])} ${choice("operation", "Operation", OPERATIONS)} ${choice("type", "On", TYPES)}
      ${fields.type !== "CLUSTER" && html`<label>Name <input ...${field("name")} required spellcheck="false" placeholder="orders, or *" /></label>
        ${choice("pattern", "Pattern", ["LITERAL", "PREFIXED"])}`}
      <button type="submit" class="main" disabled=${state.busy}>Create</button>
    </form>
    <${Outcome} state=${state} />
  </details>`;
}

/** @param {{allowed: boolean}} props */
export function UserList({ allowed }) {
  const { answer, error, again } = useAnswer("/changes/users");
  const columns = [
    { key: "user", label: "User", value: (each) => each.user },
    { key: "mechanism", label: "Mechanism", value: (each) => each.mechanism },
    { key: "iterations", label: "Iterations", value: (each) => each.iterations, cell: (each) => count(each.iterations), number: true },
    { key: "super", label: "Super user", optional: true, value: (each) => (each.for_super_user ? "yes" : ""), cell: (each) => (each.for_super_user ? "yes" : "–") },
    { key: "changed", label: "Password set (UTC)", value: (each) => each.changed_ms, cell: (each) => moment(each.changed_ms) },
    ...(allowed ? [{ key: "do", label: "Change", value: () => "", cell: (each) => html`<${Delete} what="user ${each.user}" name=${each.user}
      remove=${(typed) => post("/changes/users/delete", { user: each.user, typed })} done=${again} />` }] : []),
  ];
  return html`${error && html`<p class="trouble" role="alert">${error}</p>`}
    ${answer && answer.total > answer.users.length && html`<p class="note">The first ${count(answer.users.length)} of ${plural(answer.total, "password")}.</p>`}
    <${Table} caption="Users with a password" columns=${columns} rows=${answer?.users ?? []} id=${(each) => `${each.user} ${each.mechanism}`} nothing=${answer ? "There are no users with a password." : error ? "They cannot be shown." : "They are being asked for."} />
    ${allowed ? html`<${NewUser} created=${again} />` : html`<${ReadOnly} />`}`;
}

function NewUser({ created }) {
  const [fields, field, clear] = useFields({ user: "", password: "" });
  const [state, attempt] = useAttempt();
  const submit = (event) => {
    event.preventDefault();
    attempt(post("/changes/users", fields), `${fields.user} has this password from now on.`).then((result) => result === null && (clear(), created()));
  };
  return html`<details class="change new"><summary>Create a user, or set a password</summary>
    <form onSubmit=${submit}>
      <label>User <input ...${field("user")} required spellcheck="false" autocomplete="off" /></label>
      <label>Password <input type="password" ...${field("password")} required autocomplete="new-password" /></label>
      <button type="submit" class="main" disabled=${state.busy}>Set the password</button>
    </form>
    <${Outcome} state=${state} />
  </details>`;
}
