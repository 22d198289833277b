"""Cluster metadata on every node: the image, the records that change it, and the client of the controller.

May import: `server` itself.

- `image`: the state machine of the metadata group.
- `records`: the image's records, and their form in a snapshot.
- `topic_table`: topics and their partitions.
- `topic_config`: the keys of a topic's configuration.
- `moves`: partitions that are being moved to other nodes.
- `departures`: nodes that are leaving the cluster, and those that have left.
- `lost_disks`: disks that nodes have lost.
- `replica_index`: the partitions of each node.
- `quorum`: the wanted voters of the metadata quorum.
- `producer_names`: named producers, their ids and epochs.
- `acl_rules`: single ACLs as values, and their validation.
- `acls`: all ACLs of a cluster.
- `credentials`: users with a password and revocations, and the checks of requests that change them.
- `client_quotas`: quotas of principals, and the checks of requests that change them.
- `node_settings`: settings of nodes that are changed at run time.
- `controller_client`: requests to the active controller, or to leaders.
"""
