"""``quorumlog quorum``: the Raft group that replicates the cluster's metadata."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import CommandError
from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Output, OutputFormat, connect
from quorumlog.cli.progress import waiting
from quorumlog.cli.rendering import node_list, print_json

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, QuorumDescription

app = typer.Typer()

_LOOK_EVERY_S = 0.2

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the voters have changed.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the request, and change nothing.")]


@app.callback()
def quorum() -> None:
    """The metadata quorum."""


@app.command("describe", epilog="Example: quorumlog quorum describe --output json")
def describe(
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS, output: Output = OutputFormat.TABLE
) -> None:
    """Shows the leader and the voters of the metadata quorum, and the lag of its followers."""
    with connect(bootstrap_servers) as admin:
        state = admin.describe_quorum()
    replicas = [*state.voters, *state.observers]
    ends = {replica.node_id: replica.log_end_index for replica in replicas}
    leader_end = None if state.leader_id is None else ends.get(state.leader_id)
    lags = {node: leader_end - end for node, end in ends.items() if leader_end is not None and end is not None}
    fields: dict[str, object] = {
        "LeaderId": state.leader_id,
        "LeaderEpoch": state.leader_epoch,
        "HighWatermark": state.high_watermark,
        "MaxFollowerLag": max(lags.values(), default=0) if leader_end is not None else None,
        "CurrentVoters": sorted(replica.node_id for replica in state.voters),
        "CurrentObservers": sorted(replica.node_id for replica in state.observers),
    }
    if state.wanted_voters or state.outgoing_voters:
        fields["WantedVoters"] = sorted(state.wanted_voters)
    if output is OutputFormat.JSON:
        replica_states = [
            {
                "NodeId": replica.node_id,
                "DirectoryId": replica.directory_id,
                "LogEndIndex": replica.log_end_index,
                "Lag": lags.get(replica.node_id),
                "LastContactMs": replica.last_contact_ms,
            }
            for replica in replicas
        ]
        print_json(fields | {"Replicas": replica_states})
    else:
        for name, value in fields.items():
            text = (
                "[" + ",".join(map(str, value)) + "]" if isinstance(value, list) else "none" if value is None else value
            )
            print(f"{name + ':':<24}{text}")
    if state.leader_id is None:
        raise CommandError(_lost(state))


@app.command("add", epilog="Example: quorumlog quorum add 4")
def add(
    nodes: Annotated[list[int], typer.Argument(metavar="NODE…", help="Nodes to add as voters; they must be up.")],
    *,
    wait: Wait = True,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Adds voters to the metadata quorum, once they have copied the metadata."""
    _alter(bootstrap_servers, output, add=nodes, remove=[], wait=wait, dry_run=dry_run)


@app.command("remove", epilog="Example: quorumlog quorum remove 3")
def remove(
    nodes: Annotated[list[int], typer.Argument(metavar="NODE…", help="Voters to remove.")],
    *,
    wait: Wait = True,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Removes voters, running or not. They stay in the cluster with their partitions."""
    _alter(bootstrap_servers, output, add=[], remove=nodes, wait=wait, dry_run=dry_run)


@app.command("replace", epilog="Example: quorumlog quorum replace 3 --with 4")
def replace(
    node: Annotated[int, typer.Argument(metavar="NODE", help="Voter to replace.")],
    *,
    successor: Annotated[int, typer.Option("--with", metavar="NODE", help="Node that votes instead.")],
    wait: Wait = True,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Replaces a voter by another node in one step: the number of voters never drops."""
    _alter(bootstrap_servers, output, add=[successor], remove=[node], wait=wait, dry_run=dry_run)


def _alter(
    bootstrap_servers: str, output: OutputFormat, *, add: list[int], remove: list[int], wait: bool, dry_run: bool
) -> None:
    with connect(bootstrap_servers) as admin:
        before = sorted(voter.node_id for voter in admin.describe_quorum().voters)
        voters = sorted(admin.alter_quorum(add=add, remove=remove, validate_only=dry_run))
        if wait and not dry_run:
            _wait(admin, voters)
    result = "could vote" if dry_run else "vote" if wait else "will vote"
    if output is OutputFormat.JSON:
        print_json({"former_voters": before, "voters": voters, "result": result})
        return
    print(f"nodes {node_list(voters)} {result}; before: {node_list(before)}")
    if len(voters) % 2 == 0:
        print(f"{len(voters)} voters survive the loss of {(len(voters) - 1) // 2}, as {len(voters) - 1} would")


def _wait(admin: Admin, voters: list[int]) -> None:
    with waiting(f"nodes {node_list(voters)} will vote"):
        while True:
            state = admin.describe_quorum()
            if not state.wanted_voters and not state.outgoing_voters and state.leader_id is not None:
                voting = sorted(voter.node_id for voter in state.voters)
                if voting == voters:
                    return
                raise CommandError(f"the quorum was changed by another command: nodes {node_list(voting)} vote")
            time.sleep(_LOOK_EVERY_S)


def _lost(state: QuorumDescription) -> str:
    """Returns that the quorum has no leader, and which of its voters the contacted node can reach."""
    heard = [voter.node_id for voter in state.voters if voter.last_contact_ms is not None]
    voters = sorted(voter.node_id for voter in state.voters)
    return (
        f"the metadata quorum is lost: of its voters {node_list(voters)} only {node_list(sorted(heard)) or 'none'} can"
        " be reached, which is not a majority; start the others"
        if 2 * len(heard) <= len(voters)
        else f"the metadata quorum has no leader at the moment, of its voters {node_list(voters)}; try again"
    )
