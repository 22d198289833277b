"""Topics, ACLs, users and transactions on the page: what is changed, what is refused, and what deleting asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from browsing import Look, broken_rules, chromium, looking, needs_chromium
from playwright.sync_api import Browser, expect
from raw_browser import HOST, RawBrowser
from scripted_page import ScriptedPage, scripted_page, whole_cluster

from quorumlog.console.access import ConsoleGate
from quorumlog.console.application import ConsoleEndpoints
from quorumlog.console.assets import Assets
from quorumlog.console.changes.administration import AdministrationEndpoints
from quorumlog.console.page_stream import PageStreams
from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    ACL,
    ACLDecision,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    AlteredUsers,
    NewTopic,
    QuorumlogError,
    ResourcePattern,
    ResourceType,
    TransactionPlace,
    UserScramCredential,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quorumlog.sdk.aio import AsyncAdmin
from quorumlog.sdk.errors import ClusterAuthorizationFailedError

READ = ACL("User:anna", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, "orders"))
RULE = {
    "principal": "User:anna",
    "operation": "READ",
    "permission": "ALLOW",
    "type": "TOPIC",
    "name": "orders",
    "pattern": "LITERAL",
}
TOPIC = {"name": "orders", "partitions": 3, "replicas": None, "settings": {}}
PLACE = {"id": "billing", "term": "4", "index": str(2**53 + 1), "typed": "billing"}
CHANGES = ("topics", "topics/delete", "acls", "acls/delete", "users", "users/delete", "transactions/abort")


@dataclass
class ScriptedAdmin:
    """An admin client that keeps its requests, or refuses everything."""

    rules: list[ACL] = field(default_factory=lambda: [READ])
    passwords: dict[str, str] = field(default_factory=lambda: {"anna": "secret"})
    created: list[NewTopic] = field(default_factory=list)
    checked: list[NewTopic] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    aborted: list[tuple[str, TransactionPlace]] = field(default_factory=list)
    refusal: QuorumlogError | None = None

    def _check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool) -> None:
        self._check()
        (self.checked if validate_only else self.created).extend(topics)

    async def delete_topics(self, topics: Sequence[str]) -> None:
        self._check()
        self.deleted.extend(topics)

    async def describe_acls(self) -> list[ACL]:
        self._check()
        return list(self.rules)

    async def check_acl(self, operation: ACLOperation, resource: ResourcePattern) -> ACLDecision:
        return ACLDecision(True, None, False, enforced=False)

    async def create_acls(self, rules: Iterable[ACL]) -> int:
        self._check()
        new = [rule for rule in rules if rule not in self.rules]
        self.rules += new
        return len(new)

    async def delete_acls(self, filters: Iterable[ACLFilter]) -> list[ACL]:
        self._check()
        (wanted,) = filters
        pattern = wanted.resource_pattern
        intended = [
            rule
            for rule in self.rules
            if (rule.principal, rule.operation, rule.permission_type)
            == (wanted.principal, wanted.operation, wanted.permission_type)
            and rule.resource_pattern
            == ResourcePattern(pattern.resource_type, cast(str, pattern.resource_name), pattern.pattern_type)
        ]
        self.rules = [rule for rule in self.rules if rule not in intended]
        return intended

    async def describe_user_scram_credentials(self) -> list[UserScramCredential]:
        self._check()
        return [UserScramCredential(user, 4_096, False, 1_795_780_800_000) for user in sorted(self.passwords)]

    async def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion]
    ) -> AlteredUsers:
        self._check()
        (change,) = alterations
        if isinstance(change, UserScramCredentialDeletion):
            return AlteredUsers(0, 1 if self.passwords.pop(change.user, None) else 0)
        is_new = change.user not in self.passwords
        self.passwords[change.user] = change.password
        return AlteredUsers(int(is_new), 0)

    async def abort_transaction(self, transactional_id: str, place: TransactionPlace) -> bool:
        self._check()
        self.aborted.append((transactional_id, place))
        return False


class Operator(RawBrowser):
    """Asks a console for changes."""

    def __init__(self, admin: ScriptedAdmin | AsyncAdmin, *, allowed: bool = True) -> None:
        super().__init__()
        made = AdministrationEndpoints(cast(AsyncAdmin, admin), allowed=allowed)
        endpoints = ConsoleEndpoints(PageStreams(self.picture, self.pages), Assets(), made.routes())
        self.gate = ConsoleGate(endpoints.application(), [HOST], 7000)

    async def change(self, path: str, body: Any, **headers: str) -> tuple[int, str]:
        sent = {"origin": f"http://{HOST}", "content-type": "application/json"} | headers
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self.ask(f"/changes/{path}", "POST", *sent.items(), body=content)
        return answer.status, answer.text

    async def listed(self, path: str) -> dict[str, Any]:
        return cast(dict[str, Any], json.loads((await self.ask(f"/changes/{path}")).text))


@pytest.fixture
def admin() -> ScriptedAdmin:
    return ScriptedAdmin()


@pytest.fixture
async def operator(admin: ScriptedAdmin) -> Operator:
    made = Operator(admin)
    await made.enter()
    return made


async def test_a_topic_is_created_or_only_checked(operator: Operator, admin: ScriptedAdmin) -> None:
    wanted = TOPIC | {"partitions": "12", "replicas": "3", "settings": {"retention.ms": "1"}}
    assert await operator.change("topics", wanted | {"validate_only": True}) == (204, "")
    assert (admin.created, len(admin.checked)) == ([], 1)
    assert await operator.change("topics", wanted) == (204, "")
    assert admin.created == admin.checked == [NewTopic("orders", 12, 3, {"retention.ms": "1"})]
    assert (await operator.change("topics", TOPIC))[0] == 204
    assert admin.created[-1].replication_factor == -1


@pytest.mark.parametrize("typed", [None, "", "order", "orders ", "ORDERS", ["orders"]])
async def test_deleting_asks_for_the_name(operator: Operator, admin: ScriptedAdmin, typed: object) -> None:
    status, why = await operator.change("topics/delete", {"name": "orders", "typed": typed})
    assert (status, why, admin.deleted) == (400, "type 'orders' to delete it\n", [])
    status, _ = await operator.change("users/delete", {"user": "anna", "typed": typed})
    assert (status, list(admin.passwords)) == (400, ["anna"])
    status, _ = await operator.change("acls/delete", RULE | {"typed": typed})
    assert (status, admin.rules) == (400, [READ])
    status, why = await operator.change("transactions/abort", PLACE | {"typed": typed})
    assert (status, why, admin.aborted) == (400, "type 'billing' to abort its transaction\n", [])


async def test_exactly_the_shown_transaction_is_aborted(operator: Operator, admin: ScriptedAdmin) -> None:
    status, said = await operator.change("transactions/abort", PLACE)
    assert (status, json.loads(said)) == (200, {"everywhere": False})
    assert admin.aborted == [("billing", TransactionPlace(4, 2**53 + 1))]


async def test_what_was_typed_is_deleted(operator: Operator, admin: ScriptedAdmin) -> None:
    admin.rules += [ACL("User:anna", ACLOperation.WRITE, READ.permission_type, READ.resource_pattern)]
    assert (await operator.change("topics/delete", {"name": "orders", "typed": "orders"}))[0] == 204
    assert (await operator.change("users/delete", {"user": "anna", "typed": "anna"}))[0] == 204
    assert (await operator.change("acls/delete", RULE | {"typed": "User:anna"}))[0] == 204
    assert (admin.deleted, admin.passwords) == (["orders"], {})
    assert [rule.operation for rule in admin.rules] == [ACLOperation.WRITE], "this one alone"
    for path, again in (("users", {"user": "anna", "typed": "anna"}), ("acls", RULE | {"typed": "User:anna"})):
        status, why = await operator.change(f"{path}/delete", again)
        assert status == 400 and why.count("\n") == 1, "it does not exist any longer"


async def test_acls_are_listed_and_created(operator: Operator, admin: ScriptedAdmin) -> None:
    assert await operator.listed("acls") == {"acls": [RULE], "total": 1, "enforced": False}
    cluster = RULE | {"operation": "ALTER", "permission": "DENY", "type": "CLUSTER", "name": ""}
    assert (await operator.change("acls", cluster))[0] == 204
    assert admin.rules[-1].resource_pattern == ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
    status, why = await operator.change("acls", cluster)
    assert (status, why) == (400, "this ACL exists already\n")


async def test_passwords_are_set_and_never_told(operator: Operator, admin: ScriptedAdmin) -> None:
    assert (await operator.change("users", {"user": "ben", "password": "hunter2"}))[0] == 204
    assert admin.passwords["ben"] == "hunter2"
    shown = await operator.ask("/changes/users")
    assert "hunter2" not in shown.text and "secret" not in shown.text
    assert [each["user"] for each in json.loads(shown.text)["users"]] == ["anna", "ben"]
    status, why = await operator.change("users", {"user": "", "password": "hunter2"})
    assert status == 400 and "hunter2" not in why


async def test_the_cluster_decides_who_may(operator: Operator, admin: ScriptedAdmin) -> None:
    admin.refusal = ClusterAuthorizationFailedError("User:console may not ALTER the cluster")
    named = {"topics/delete": {"name": "a", "typed": "a"}, "users/delete": {"user": "a", "typed": "a"}}
    bodies: dict[str, Any] = named | {
        "topics": TOPIC,
        "acls": RULE,
        "acls/delete": RULE | {"typed": "User:anna"},
        "users": {"user": "a", "password": "b"},
        "transactions/abort": PLACE,
    }
    for path in CHANGES:
        assert await operator.change(path, bodies[path]) == (409, "User:console may not ALTER the cluster\n"), path
    for path in ("acls", "users"):
        assert (await operator.ask(f"/changes/{path}")).status == 409


async def test_a_console_that_may_not_changes_nothing(admin: ScriptedAdmin) -> None:
    visitor = Operator(admin, allowed=False)
    await visitor.enter()
    for path in CHANGES:
        assert (await visitor.change(path, {}))[0] in (404, 405), path
    assert (await visitor.listed("acls"))["total"] == 1, "what exists is shown"
    assert (await visitor.listed("users"))["total"] == 1


async def test_no_other_page_changes_anything(operator: Operator, admin: ScriptedAdmin) -> None:
    for path in CHANGES:
        assert (await operator.change(path, TOPIC, origin="http://evil.example"))[0] == 403
        assert (await operator.change(path, TOPIC, **{"content-type": "text/plain"}))[0] == 400
    stranger = Operator(admin)
    for path in CHANGES:
        assert (await stranger.change(path, TOPIC))[0] == 401
    assert (admin.created, admin.deleted, admin.rules, admin.aborted) == ([], [], [READ], [])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("topics", TOPIC | {"name": None}),
        ("topics", TOPIC | {"partitions": 0}),
        ("topics", TOPIC | {"partitions": 2**80}),
        ("topics", TOPIC | {"partitions": True}),
        ("topics", TOPIC | {"replicas": "x"}),
        ("topics", TOPIC | {"settings": ["a"]}),
        ("topics", TOPIC | {"settings": {"retention.ms": 1}}),
        ("topics", TOPIC | {"settings": {str(number): "" for number in range(1_000)}}),
        ("topics", b'{"name": "\\ud800", "partitions": 1}'),
        ("topics/delete", {"name": 3, "typed": 3}),
        ("acls", RULE | {"operation": "ANY"}),
        ("acls", RULE | {"type": "ANY"}),
        ("acls", RULE | {"pattern": "MATCH"}),
        ("acls", RULE | {"permission": "MAYBE"}),
        ("acls", RULE | {"principal": ""}),
        ("acls/delete", RULE | {"operation": "ANY", "typed": "User:anna"}),
        ("acls/delete", RULE | {"name": None, "typed": "User:anna"}),
        ("users", {"user": "a"}),
        ("users", {"user": "a", "password": 5}),
        ("transactions/abort", PLACE | {"term": None}),
        ("transactions/abort", PLACE | {"index": -1}),
        ("transactions/abort", PLACE | {"index": "x"}),
        ("transactions/abort", PLACE | {"id": "", "typed": ""}),
        ("transactions/abort", PLACE | {"id": ["billing"], "typed": ["billing"]}),
    ],
)
async def test_a_bad_change_is_refused_in_a_line(
    operator: Operator, admin: ScriptedAdmin, path: str, body: Any
) -> None:
    status, why = await operator.change(path, body)
    assert (status, why.count("\n")) == (400, 1)
    assert (admin.created, admin.deleted, admin.rules, list(admin.passwords)) == ([], [], [READ], ["anna"])
    assert admin.aborted == []


@pytest.mark.cluster
async def test_a_cluster_takes_what_the_page_sends(quorumlog_cluster: LocalCluster) -> None:
    async with AsyncAdmin(bootstrap_servers=quorumlog_cluster.bootstrap_servers) as client:
        operator = Operator(client)
        await operator.enter()
        assert await operator.change("topics", TOPIC | {"settings": {"retention.ms": "60000"}}) == (204, "")
        (made,) = await client.describe_topics(["orders"])
        assert (len(made.partitions), dict(made.configs)) == (3, {"retention.ms": "60000"})
        status, why = await operator.change("topics", TOPIC)
        assert status == 409 and "orders" in why
        status, why = await operator.change("topics", TOPIC | {"name": "no good/name"})
        assert status == 409 and why.count("\n") == 1
        assert await operator.change("topics/delete", {"name": "orders", "typed": "orders"}) == (204, "")
        assert await client.list_topics() == []
        assert await operator.change("acls", RULE) == (204, "")
        assert await operator.listed("acls") == {"acls": [RULE], "total": 1, "enforced": False}
        assert await operator.change("acls/delete", RULE | {"typed": "User:anna"}) == (204, "")
        assert await operator.change("users", {"user": "anna", "password": "pencil"}) == (204, "")
        users = (await operator.listed("users"))["users"]
        assert [(each["user"], each["mechanism"]) for each in users] == [
            ("anna", "SCRAM-SHA-256"),
            ("anna", "SCRAM-SHA-512"),
        ]
        assert not any(each["for_super_user"] for each in users)
        assert await operator.change("users/delete", {"user": "anna", "typed": "anna"}) == (204, "")
        assert (await operator.listed("users"))["total"] == 0
        status, why = await operator.change("topics/delete", {"name": "gone", "typed": "gone"})
        assert status == 409 and "gone" in why


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def console(admin: ScriptedAdmin) -> Iterator[ScriptedPage]:
    def routes() -> Sequence[Any]:
        return AdministrationEndpoints(cast(AsyncAdmin, admin), allowed=True).routes()

    with scripted_page(whole_cluster(), routes) as made:
        yield made


@pytest.fixture
def look(browser: Browser, console: ScriptedPage) -> Iterator[Look]:
    with looking(browser, console.url, bypass_csp=True) as opened:
        expect(opened.page.locator(".health")).to_have_text("all well")
        yield opened
        assert opened.strangers() == []


@pytest.mark.browser
@needs_chromium
def test_a_topic_is_created_from_the_page(look: Look, admin: ScriptedAdmin) -> None:
    page = look.at("/topics")
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name", exact=True).fill("payments")
    page.get_by_label("Settings").fill("retention.ms = 60000\ncleanup.policy=compact")
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".new .outcome")).to_have_text("payments can be created.")
    assert admin.created == []
    page.get_by_role("button", name="Create").click()
    expect(page).to_have_url(f"{look.origin}/topics/payments")
    assert admin.created == [NewTopic("payments", 3, -1, {"retention.ms": "60000", "cleanup.policy": "compact"})]


@pytest.mark.browser
@needs_chromium
def test_the_page_deletes_what_was_typed(look: Look, admin: ScriptedAdmin) -> None:
    page = look.at("/acls")
    page.get_by_text("Delete this ACL").click()
    button, field = page.get_by_role("button", name="Delete"), page.get_by_label("Type User:anna to delete this ACL")
    expect(button).to_be_disabled()
    field.fill("User:ann")
    expect(button).to_be_disabled()
    field.fill("User:anna")
    button.click()
    expect(page.locator("main")).to_contain_text("There are no ACLs.")
    assert admin.rules == []
    page = look.at("/topics/orders")
    page.get_by_text("Delete topic orders").click()
    page.get_by_label("Type orders to delete topic orders").fill("orders")
    page.get_by_role("button", name="Delete").click()
    expect(page).to_have_url(f"{look.origin}/topics")
    assert admin.deleted == ["orders"]


@pytest.mark.browser
@needs_chromium
def test_users_and_acls_are_created_from_the_page(look: Look, admin: ScriptedAdmin) -> None:
    page = look.at("/users")
    page.get_by_text("Create a user, or set a password").click()
    page.get_by_label("User", exact=True).fill("ben")
    page.get_by_label("Password", exact=True).fill("hunter2")
    page.get_by_role("button", name="Set the password").click()
    expect(page.locator("[data-row^='ben ']")).to_contain_text("2026-11-27 12:00:00.000")
    expect(page.get_by_label("Password", exact=True)).to_have_value("")
    assert broken_rules(page, "users") == []
    page = look.at("/acls")
    expect(page.locator("main")).to_contain_text("Authorization is off")
    page.get_by_text("Create an ACL").click()
    page.get_by_label("Principal", exact=True).fill("User:ben")
    page.get_by_label("Operation").select_option("ALL")
    page.get_by_label("Name", exact=True).fill("pay")
    page.get_by_label("Pattern").select_option("PREFIXED")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("[data-row]")).to_have_count(2)
    assert broken_rules(page, "ACLs") == []


@pytest.mark.browser
@needs_chromium
def test_a_refusal_is_shown_where_it_was_asked(look: Look, admin: ScriptedAdmin) -> None:
    admin.refusal = ClusterAuthorizationFailedError("User:console may not DESCRIBE the cluster")
    for view in ("/acls", "/users"):
        page = look.at(view)
        expect(page.locator(".trouble")).to_have_text("User:console may not DESCRIBE the cluster")
        expect(page.locator("td.nothing")).to_have_text("They cannot be shown.")
