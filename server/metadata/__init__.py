"""What all nodes know: the image of the cluster, the records that change it, and the client of the controller.

May import: `server` itself.

- `image`: the state machine of the metadata group.
- `records`: what the image is made of, and how it stands in a snapshot.
- `topic_table`: topics and their partitions.
- `topic_config`: the keys of a topic's configuration.
- `moves`: partitions that are being moved.
- `departures`: nodes that leave the cluster.
- `lost_disks`: disks that nodes have lost.
- `replica_index`: which partitions each node has to do with.
- `quorum`: who is to vote in the metadata quorum.
- `producer_names`: named producers, their ids and epochs.
- `acl_rules`: rules of who may do what, as values.
- `acls`: all of them.
- `credentials`: users with a password and revocations, and the checks of requests that change them.
- `client_quotas`: quotas of principals, and the checks of requests that change them.
- `controller_client`: requests to the active controller, or to leaders.
"""
