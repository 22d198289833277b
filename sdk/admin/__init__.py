"""The admin client: topics, partitions, consumer groups, producer names, the cluster.

May import: `sdk` itself, `runtime`, `records`, `cluster`.

- ``admin``, ``async_admin``: the public clients, for threads and for asyncio.
- ``config``: options of an admin client.
- ``topics_for_tests``: the pytest fixture ``quorumlog_topic``.
- ``topic_changes``: creates, changes and deletes topics.
- ``partition_admin``: elects leaders, moves replicas, deletes records.
- ``cluster_admin``: changes nodes, their disks, the metadata quorum and features.
- ``group_admin``: lists, describes and deletes consumer groups and their committed offsets.
- ``transaction_admin``: lists, describes and aborts transactions; producers of partitions.
- ``node_admin``: drains, replaces, removes and describes nodes.
- ``quorum_admin``: describes and changes the metadata quorum.
- ``acl_admin``: creates, lists, deletes and checks ACLs.
- ``credential_admin``: users with passwords, and revocations.
- ``quota_admin``: sets and describes quotas of principals.
- ``settings_admin``: changes and describes settings of nodes.
- ``cluster_watch``: changes of the cluster, as a node reports them.
- ``producer_names``: lists and deletes producer names.
- ``descriptions``: converts responses of nodes into values for users.
- ``lost_answers``: repeats changes whose response was lost until their outcome is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorumlog.sdk.admin.admin import Admin

__all__ = ["Admin"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: a caller that needs only the options must not wait for the whole client.
    if name == "Admin":
        from quorumlog.sdk.admin.admin import Admin

        return Admin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
