"""``quorumlog quorum``: the Raft group that replicates the cluster's metadata."""

from __future__ import annotations

import typer

from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Output, OutputFormat, connect
from quorumlog.cli.rendering import print_json

app = typer.Typer(no_args_is_help=True, help="The metadata quorum.")


@app.callback()
def quorum() -> None:
    """The metadata quorum."""


@app.command("describe", epilog="Example: quorumlog quorum describe --output json")
def describe(
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS, output: Output = OutputFormat.TABLE
) -> None:
    """Who leads the metadata quorum, who votes in it, and how far its followers are behind."""
    with connect(bootstrap_servers) as admin:
        state = admin.describe_quorum()
    replicas = [*state.voters, *state.observers]
    ends = {replica.node_id: replica.log_end_index for replica in replicas}
    leader_end = ends.get(-1 if state.leader_id is None else state.leader_id, state.high_watermark)
    fields: dict[str, object] = {
        "LeaderId": state.leader_id,
        "LeaderEpoch": state.leader_epoch,
        "HighWatermark": state.high_watermark,
        "MaxFollowerLag": max((leader_end - end for end in ends.values()), default=0),
        "CurrentVoters": sorted(replica.node_id for replica in state.voters),
        "CurrentObservers": sorted(replica.node_id for replica in state.observers),
    }
    if output is OutputFormat.JSON:
        replica_states = [
            {
                "NodeId": replica.node_id,
                "DirectoryId": replica.directory_id,
                "LogEndIndex": replica.log_end_index,
                "Lag": leader_end - replica.log_end_index,
                "LastContactMs": replica.last_contact_ms,
            }
            for replica in replicas
        ]
        print_json(fields | {"Replicas": replica_states})
        return
    for name, value in fields.items():
        text = "[" + ",".join(map(str, value)) + "]" if isinstance(value, list) else "none" if value is None else value
        print(f"{name + ':':<24}{text}")
