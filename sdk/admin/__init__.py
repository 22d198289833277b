"""The admin client: topics, partitions, consumer groups, producer names, the cluster.

May import: `sdk` itself, `runtime`, `records`, `cluster`.

- ``admin``, ``async_admin``: what users call, from threads and from asyncio.
- ``config``: what an admin client can be told.
- ``topics_for_tests``: the pytest fixture ``quorumlog_topic``.
- ``topic_changes``: creates, changes and deletes topics.
- ``partition_admin``: elects leaders, moves replicas, deletes records.
- ``cluster_admin``: changes nodes, their disks, the metadata quorum and features.
- ``group_admin``: lists, describes and deletes consumer groups and their committed offsets.
- ``node_admin``: has nodes emptied, kept or struck off.
- ``quorum_admin``: describes and changes the metadata quorum.
- ``acl_admin``: creates, lists and deletes rules of who may do what.
- ``credential_admin``: users who sign in by password, and revocations.
- ``quota_admin``: how much principals may do.
- ``cluster_watch``: what changes in the cluster, as a node hears of it.
- ``producer_names``: lists and deletes producer names.
- ``descriptions``: answers of nodes as values for administrators.
- ``lost_answers``: repeats changes whose answer was lost until it is known whether they were made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorumlog.sdk.admin.admin import Admin

__all__ = ["Admin"]


def __getattr__(name: str) -> Any:
    # Loaded when first used: whoever needs only the options must not wait for all of the client.
    if name == "Admin":
        from quorumlog.sdk.admin.admin import Admin

        return Admin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
