"""``quorumlog acls``: access control lists, with the options of Kafka's tool where it has them."""

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

app = typer.Typer()

Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="Topic name; '*' for all topics.")]
Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="Consumer group; '*' for all groups.")
]
Names = Annotated[
    list[str] | None, typer.Option("--producer-name", metavar="NAME", help="Producer name; '*' for all names.")
]
WholeCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="NAME", help="Operation, such as Read, Write or DescribeConfigs; repeatable."),
]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="Match all names that start with the given one.")]


@app.callback()
def acls() -> None:
    """Access control lists (ACLs)."""


@app.command("create", epilog="Example: quorumlog acls create --allow User:alice --operation Read --topic orders")
def create(
    *,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="User:NAME", help="Principal to allow; 'User:*' for every user."),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option("--deny", metavar="User:NAME", help="Principal to deny; takes precedence over every allow."),
    ] = None,
    operation: Operations = None,
    producer: Annotated[
        bool, typer.Option("--producer", help="Add what a producer needs: Write on topics and on its name.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="Add what a consumer needs: Read on topics and groups.")
    ] = False,
    topic: Topics = None,
    group: Groups = None,
    producer_name: Names = None,
    cluster: WholeCluster = False,
    prefixed: Prefixed = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Creates an ACL for each principal, operation and resource. Existing ACLs are kept."""
    from quorumlog.sdk import ACL, ACLPermissionType

    if not allow and not deny:
        raise CommandError("no principal given: add --allow User:NAME or --deny User:NAME", WRONG_USAGE)
    resources = _resources(topic, group, producer_name, cluster, prefixed)
    if not resources:
        raise CommandError("no resource given: add --topic, --group, --producer-name or --cluster", WRONG_USAGE)
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
    print(f"Created {plural(created, 'ACL')}" + (f"; {there} already existed." if there else "."))


@app.command("list", epilog="Example: quorumlog acls list --topic orders --principal User:alice")
def list_acls(
    *,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="User:NAME", help="Principal whose ACLs are listed.")
    ] = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    producer_name: Names = None,
    cluster: WholeCluster = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Lists ACLs; with a resource, all ACLs that apply to it, including those for prefixes and for all names."""
    filters = _filters(principal, operation, _resources(topic, group, producer_name, cluster, False), matching=True)
    with connect(bootstrap_servers) as admin:
        found = list(dict.fromkeys(rule for each in filters for rule in admin.describe_acls(each)))
    if output is OutputFormat.JSON:
        print_json([_plain(rule) for rule in found])
    elif found:
        _print_rules(found)
    else:
        print("No ACL matches." if any(map(_is_narrow, filters)) else "No ACLs exist.")


@app.command("delete", epilog="Example: quorumlog acls delete --principal User:alice --topic orders --dry-run")
def delete(
    *,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="User:NAME", help="Principal whose ACLs are deleted.")
    ] = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    producer_name: Names = None,
    cluster: WholeCluster = False,
    prefixed: Prefixed = False,
    everything: Annotated[bool, typer.Option("--all", help="Delete all ACLs of the cluster.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; required without a terminal.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Deletes ACLs with exactly the given resource: those of a topic, not those of its prefixes."""
    resources = _resources(topic, group, producer_name, cluster, prefixed)
    filters = _filters(principal, operation, resources, matching=False)
    if everything is any(map(_is_narrow, filters)):
        raise CommandError(
            "no ACLs chosen: add --topic NAME, --principal User:NAME or another filter, or --all", WRONG_USAGE
        )
    with connect(bootstrap_servers) as admin:
        matched = list(dict.fromkeys(rule for each in filters for rule in admin.describe_acls(each)))
        if matched and not dry_run:
            what = _shown(matched[0]) if len(matched) == 1 else plural(len(matched), "ACL")
            confirm(f"Delete {what}? Principals that it denies may gain access.", yes=yes)
            matched = admin.delete_acls(filters)
    if output is OutputFormat.JSON:
        print_json([{**_plain(rule), "deleted": not dry_run} for rule in matched])
        return
    for rule in matched:
        print(f"{'Would delete' if dry_run else 'Deleted'}: {_shown(rule)}")
    if not matched:
        print("No ACL matches.")


@app.command("check", epilog="Example: quorumlog acls check --as User:alice --operation Write --topic orders")
def check(
    *,
    who: Annotated[
        str | None, typer.Option("--as", metavar="User:NAME", help="Principal to check; by default the caller.")
    ] = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    producer_name: Names = None,
    cluster: WholeCluster = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Checks if a principal may do an operation, according to the contacted node, and prints the ACL that decides.
    Exits with 1 if it may not, except with --output json.
    """
    resources = _resources(topic, group, producer_name, cluster, False)
    if len(resources) != 1 or len(operation or ()) != 1:
        raise CommandError("give one --operation, and one of --topic, --group, --producer-name, --cluster", WRONG_USAGE)
    (requested,) = _operations(operation)
    with connect(bootstrap_servers) as admin:
        decision = admin.check_acl(requested, resources[0], principal=who)
    if output is OutputFormat.JSON:
        plain = None if decision.rule is None else _plain(decision.rule)
        print_json({**asdict(decision), "rule": plain})
        return
    rule = None if decision.rule is None else _shown(decision.rule)
    off = "" if decision.enforced else " (not enforced: authorization is off on this node)"
    if not decision.allowed:
        what = f"{_camel(requested)} on {_camel(resources[0].resource_type)} {resources[0].resource_name}"
        raise CommandError(f"{who or 'the caller'} may not {what}: {rule or 'no ACL allows it'}{off}")
    print(f"allowed: {'a super user' if decision.super_user else rule}{off}")


# -- arguments -------------------------------------------------------------------------------------------------------


def _resources(
    topics: list[str] | None, groups: list[str] | None, names: list[str] | None, cluster: bool, prefixed: bool
) -> list[ResourcePattern]:
    from quorumlog.sdk import ACLResourcePatternType, ResourcePattern, ResourceType
    from quorumlog.sdk.acls import CLUSTER_NAME

    pattern = ACLResourcePatternType.PREFIXED if prefixed else ACLResourcePatternType.LITERAL
    if prefixed and cluster:
        raise CommandError(
            "--prefixed does not apply to --cluster: use it with --topic, --group or --producer-name", WRONG_USAGE
        )
    kinds = ((ResourceType.TOPIC, topics), (ResourceType.GROUP, groups), (ResourceType.PRODUCER_NAME, names))
    found = [ResourcePattern(kind, name, pattern) for kind, kind_names in kinds for name in kind_names or ()]
    return [*found, ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)] if cluster else found


def _operations(names: list[str] | None) -> list[ACLOperation]:
    from quorumlog.sdk import ACLOperation

    known = {each.value.replace("_", ""): each for each in ACLOperation if each is not ACLOperation.ANY}
    operations: list[ACLOperation] = []
    for name in names or ():
        found = known.get(name.upper().replace("_", "").replace("-", ""))
        if found is None:
            possible = ", ".join(_camel(each) for each in known.values())
            raise CommandError(f"--operation '{name}' does not exist: choose from {possible}", WRONG_USAGE)
        operations.append(found)
    return operations


def _operations_on(
    resources: list[ResourcePattern], names: list[str] | None, *, producer: bool, consumer: bool
) -> list[tuple[ResourcePattern, list[ACLOperation]]]:
    """Returns the operations for which each resource needs an ACL."""
    from quorumlog.sdk import ACLOperation, ResourceType

    parsed = _operations(names)
    usual: dict[ResourceType, list[ACLOperation]] = {}
    if producer:
        usual = {ResourceType.TOPIC: [ACLOperation.WRITE]}
        usual[ResourceType.PRODUCER_NAME] = [ACLOperation.WRITE]
    if consumer:
        usual[ResourceType.TOPIC] = [*usual.get(ResourceType.TOPIC, ()), ACLOperation.READ]
        usual[ResourceType.GROUP] = [ACLOperation.READ]
    wanted = [(each, list(dict.fromkeys((*parsed, *usual.get(each.resource_type, ()))))) for each in resources]
    if any(not operations for _, operations in wanted):
        raise CommandError("no operation given: add --operation NAME, --producer or --consumer", WRONG_USAGE)
    return wanted


def _filters(
    principal: str | None, names: list[str] | None, resources: list[ResourcePattern], *, matching: bool
) -> list[ACLFilter]:
    """Returns filters for the ACLs of one principal or all, on some resources or all."""
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
    """True if the filter excludes some ACLs."""
    return wanted != type(wanted)()


# -- output -----------------------------------------------------------------------------------------------------------


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
