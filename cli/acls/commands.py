"""``quorumlog acls``: rules of who may do what, in the words of Kafka's tool where it has some."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.confirmation import confirm
from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Output, OutputFormat, connect
from quorumlog.cli.rendering import plural, print_json, print_table

if TYPE_CHECKING:
    from quorumlog.sdk import ACL, ACLFilter, ACLOperation, ResourcePattern, ResourceType

app = typer.Typer(no_args_is_help=True, help="Who may do what: create, list, delete and check rules.")

Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic; '*' for all.")]
Groups = Annotated[list[str] | None, typer.Option("--group", metavar="NAME", help="A consumer group; '*' for all.")]
Names = Annotated[
    list[str] | None, typer.Option("--producer-name", metavar="NAME", help="A producer name; '*' for all.")
]
WholeCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="NAME", help="Such as Read, Write or DescribeConfigs; more than once."),
]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="All names that begin with the one given.")]


@app.callback()
def acls() -> None:
    """Rules of who may do what."""


@app.command("create", epilog="Example: quorumlog acls create --allow User:alice --operation Read --topic orders")
def create(
    *,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="User:NAME", help="Who may; 'User:*' for everybody.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option("--deny", metavar="User:NAME", help="Who may not, whatever else allows it.")
    ] = None,
    operation: Operations = None,
    producer: Annotated[
        bool, typer.Option("--producer", help="What a producer needs: Write on topics and on its name.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer needs: Read on topics and groups.")
    ] = False,
    topic: Topics = None,
    group: Groups = None,
    producer_name: Names = None,
    cluster: WholeCluster = False,
    prefixed: Prefixed = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Creates a rule for each principal, operation and resource. Rules that are there already stay as they are."""
    from quorumlog.sdk import ACL, ACLPermissionType

    if not allow and not deny:
        raise CommandError("say whom: --allow User:NAME or --deny User:NAME", WRONG_USAGE)
    resources = _resources(topic, group, producer_name, cluster, prefixed)
    if not resources:
        raise CommandError("say to what: --topic, --group, --producer-name or --cluster", WRONG_USAGE)
    wanted = _operations_on(resources, operation, producer=producer, consumer=consumer)
    permissions = ((ACLPermissionType.ALLOW, allow or ()), (ACLPermissionType.DENY, deny or ()))
    rules = [
        ACL(principal, each, permission, resource)
        for permission, principals in permissions
        for principal in principals
        for resource, operations in wanted
        for each in operations
    ]
    with connect(bootstrap_servers) as admin:
        created = admin.create_acls(rules)
    if output is OutputFormat.JSON:
        print_json({"rules": [_plain(rule) for rule in rules], "created": created})
        return
    for rule in rules:
        print(_shown(rule))
    there = len(set(rules)) - created
    print(f"Created {plural(created, 'rule')}" + (f"; {there} there already." if there else "."))


@app.command("list", epilog="Example: quorumlog acls list --topic orders --principal User:alice")
def list_acls(
    *,
    principal: Annotated[str | None, typer.Option("--principal", metavar="User:NAME", help="Only theirs.")] = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    producer_name: Names = None,
    cluster: WholeCluster = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Rules; of a resource all that concern it, those of prefixes and of all names included."""
    filters = _filters(principal, operation, _resources(topic, group, producer_name, cluster, False), matching=True)
    with connect(bootstrap_servers) as admin:
        found = list(dict.fromkeys(rule for each in filters for rule in admin.describe_acls(each)))
    if output is OutputFormat.JSON:
        print_json([_plain(rule) for rule in found])
    elif found:
        _print_rules(found)
    else:
        print("There are no such rules." if any(map(_is_narrow, filters)) else "There are no rules.")


@app.command("delete", epilog="Example: quorumlog acls delete --principal User:alice --topic orders --dry-run")
def delete(
    *,
    principal: Annotated[str | None, typer.Option("--principal", metavar="User:NAME", help="Only theirs.")] = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    producer_name: Names = None,
    cluster: WholeCluster = False,
    prefixed: Prefixed = False,
    everything: Annotated[bool, typer.Option("--all", help="All rules that there are.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Deletes the rules that are given exactly: those of a topic, not those of its prefixes."""
    resources = _resources(topic, group, producer_name, cluster, prefixed)
    filters = _filters(principal, operation, resources, matching=False)
    if everything is any(map(_is_narrow, filters)):
        raise CommandError("say which rules, such as --topic NAME or --principal User:NAME; or --all", WRONG_USAGE)
    with connect(bootstrap_servers) as admin:
        meant = list(dict.fromkeys(rule for each in filters for rule in admin.describe_acls(each)))
        if meant and not dry_run:
            what = _shown(meant[0]) if len(meant) == 1 else plural(len(meant), "rule")
            confirm(f"Delete {what}? Who was denied by it may be allowed then.", yes=yes)
            meant = admin.delete_acls(filters)
    if output is OutputFormat.JSON:
        print_json([{**_plain(rule), "deleted": not dry_run} for rule in meant])
        return
    for rule in meant:
        print(f"{'Would delete' if dry_run else 'Deleted'}: {_shown(rule)}")
    if not meant:
        print("There are no such rules.")


@app.command("check", epilog="Example: quorumlog acls check --as User:alice --operation Write --topic orders")
def check(
    *,
    who: Annotated[
        str | None, typer.Option("--as", metavar="User:NAME", help="Who would do it; by default who asks.")
    ] = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    producer_name: Names = None,
    cluster: WholeCluster = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Says what somebody may do, as the node decides that is asked, and by which rule. It fails if they may not, but
    for --output json."""
    resources = _resources(topic, group, producer_name, cluster, False)
    if len(resources) != 1 or len(operation or ()) != 1:
        raise CommandError("say one --operation, and one of --topic, --group, --producer-name, --cluster", WRONG_USAGE)
    (asked,) = _operations(operation)
    with connect(bootstrap_servers) as admin:
        decision = admin.check_acl(asked, resources[0], principal=who)
    if output is OutputFormat.JSON:
        plain = None if decision.rule is None else _plain(decision.rule)
        print_json({**asdict(decision), "rule": plain})
        return
    rule = None if decision.rule is None else _shown(decision.rule)
    off = "" if decision.enforced else " (but the node asks nobody for permission: authorization is off)"
    if not decision.allowed:
        what = f"{_camel(asked)} on {_camel(resources[0].resource_type)} {resources[0].resource_name}"
        raise CommandError(f"{who or 'who asks'} may not {what}: {rule or 'no rule allows it'}{off}")
    print(f"allowed: {'a super user' if decision.super_user else rule}{off}")


# -- what was typed ---------------------------------------------------------------------------------------------------


def _resources(
    topics: list[str] | None, groups: list[str] | None, names: list[str] | None, cluster: bool, prefixed: bool
) -> list[ResourcePattern]:
    from quorumlog.sdk import ACLResourcePatternType, ResourcePattern, ResourceType
    from quorumlog.sdk.acls import CLUSTER_NAME

    pattern = ACLResourcePatternType.PREFIXED if prefixed else ACLResourcePatternType.LITERAL
    if prefixed and cluster:
        raise CommandError("there is one cluster: --prefixed is for names of topics, groups and producers", WRONG_USAGE)
    kinds = ((ResourceType.TOPIC, topics), (ResourceType.GROUP, groups), (ResourceType.PRODUCER_NAME, names))
    found = [ResourcePattern(kind, name, pattern) for kind, given in kinds for name in given or ()]
    return [*found, ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)] if cluster else found


def _operations(names: list[str] | None) -> list[ACLOperation]:
    from quorumlog.sdk import ACLOperation

    known = {each.value.replace("_", ""): each for each in ACLOperation if each is not ACLOperation.ANY}
    operations: list[ACLOperation] = []
    for name in names or ():
        found = known.get(name.upper().replace("_", "").replace("-", ""))
        if found is None:
            possible = ", ".join(_camel(each) for each in known.values())
            raise CommandError(f"--operation '{name}' is none: choose from {possible}", WRONG_USAGE)
        operations.append(found)
    return operations


def _operations_on(
    resources: list[ResourcePattern], names: list[str] | None, *, producer: bool, consumer: bool
) -> list[tuple[ResourcePattern, list[ACLOperation]]]:
    """What rules are wanted on each resource."""
    from quorumlog.sdk import ACLOperation, ResourceType

    given = _operations(names)
    usual: dict[ResourceType, list[ACLOperation]] = {}
    if producer:
        usual = {ResourceType.TOPIC: [ACLOperation.WRITE]}
        usual[ResourceType.PRODUCER_NAME] = [ACLOperation.WRITE]
    if consumer:
        usual[ResourceType.TOPIC] = [*usual.get(ResourceType.TOPIC, ()), ACLOperation.READ]
        usual[ResourceType.GROUP] = [ACLOperation.READ]
    wanted = [(each, list(dict.fromkeys((*given, *usual.get(each.resource_type, ()))))) for each in resources]
    if any(not operations for _, operations in wanted):
        raise CommandError("say what: --operation NAME, or --producer or --consumer for what these need", WRONG_USAGE)
    return wanted


def _filters(
    principal: str | None, names: list[str] | None, resources: list[ResourcePattern], *, matching: bool
) -> list[ACLFilter]:
    """Filters for the rules of one principal or all, on some resources or all."""
    from quorumlog.sdk import ACLFilter, ACLOperation, ACLResourcePatternType, ResourcePatternFilter

    operations = _operations(names) or [ACLOperation.ANY]
    patterns = [
        ResourcePatternFilter(
            each.resource_type,
            each.resource_name,
            ACLResourcePatternType.MATCH if matching else each.pattern_type,
        )
        for each in resources
    ] or [ResourcePatternFilter()]
    return [
        ACLFilter(principal, operation, resource_pattern=pattern) for pattern in patterns for operation in operations
    ]


def _is_narrow(wanted: ACLFilter) -> bool:
    """Whether it leaves out some rules."""
    return wanted != type(wanted)()


# -- what is shown ----------------------------------------------------------------------------------------------------


def _camel(kind: Enum) -> str:
    return "".join(word.capitalize() for word in str(kind.value).split("_"))


def _name(resource: ResourcePattern) -> str:
    return resource.resource_name + ("*" if resource.pattern_type.value == "PREFIXED" else "")


def _shown(rule: ACL) -> str:
    resource = rule.resource_pattern
    permission = rule.permission_type.value.lower()
    what = f"{_camel(resource.resource_type)} {_name(resource)}"
    return f"{permission} {rule.principal} {_camel(rule.operation)} on {what}"


def _print_rules(rules: list[ACL]) -> None:
    rows = (
        (
            _camel(rule.resource_pattern.resource_type),
            rule.resource_pattern.resource_name,
            _camel(rule.resource_pattern.pattern_type),
            rule.principal,
            _camel(rule.operation),
            _camel(rule.permission_type),
        )
        for rule in rules
    )
    print_table(("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "OPERATION", "PERMISSION"), rows)


def _plain(rule: ACL) -> dict[str, str]:
    resource = rule.resource_pattern
    return {
        "principal": rule.principal,
        "operation": rule.operation.value,
        "permission_type": rule.permission_type.value,
        "resource_type": resource.resource_type.value,
        "resource_name": resource.resource_name,
        "pattern_type": resource.pattern_type.value,
    }
