"""Nodes that returned with an empty data directory, and the command to run for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, BrokerDescription

#: Part of the controller's error for a disk that cannot be replaced because of witnesses.
_ANOTHER_ID = "start a node with another id"


def nodes_returned_empty(admin: Admin, brokers: Sequence[BrokerDescription]) -> dict[int, str]:
    """Returns the nodes that count as down and answer with another data directory than they registered, mapped to the
    id of the registered one.
    """
    from quorumlog.sdk import NodeDescription

    suspects = {each.node_id: each for each in brokers if each.fenced and each.directory_id and not each.lost}
    answers = [each for each in admin.describe_nodes() if isinstance(each, NodeDescription)] if suspects else []
    return {
        each.node_id: suspects[each.node_id].directory_id
        for each in answers
        if each.node_id in suspects and each.directory_id != suspects[each.node_id].directory_id and not each.ready
    }


def what_to_type(admin: Admin, node: int, directory_id: str) -> str:
    """Returns the command to run if the former disk of a node is lost. The node itself cannot decide it: it depends on
    where other nodes have the replicas.

    Arguments:
        directory_id: id of the lost data directory.
    """
    from quorumlog.sdk import QuorumlogError
    from quorumlog.sdk.errors import InvalidRequestError

    try:
        admin.replace_disk(node, directory_id=directory_id, validate_only=True)
    except InvalidRequestError as refused:
        if _ANOTHER_ID in refused.message:
            return f"partitions with a witness need a node with another id: quorumlog nodes replace {node} --with ID"
        return f"it cannot be its own replacement: {refused.message}"
    except QuorumlogError:
        # Without a controller the disk can neither be checked nor replaced.
        pass
    return f"quorumlog nodes replace {node} --with {node}"
