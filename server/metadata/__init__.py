"""What all nodes know: the image of the cluster, the records that change it, and the client of the controller.

May import: `server` itself.

- `image`: the state machine of the metadata group.
- `records`: what the image is made of, and how it stands in a snapshot.
- `topic_table`: topics and their partitions.
- `topic_config`: the keys of a topic's configuration.
- `moves`: partitions that are being moved.
- `departures`: nodes that leave the cluster.
- `quorum`: who is to vote in the metadata quorum.
- `producer_names`: named producers, their ids and epochs.
- `acl_rules`: rules of who may do what, as values.
- `acls`: all of them.
- `credentials`: users who sign in by password, and what was revoked.
- `credential_checks`: what makes sense of those.
- `client_quotas`: how much principals may do in a second.
- `quota_checks`: what makes sense of that.
- `controller_client`: requests to the active controller, or to leaders.
"""
