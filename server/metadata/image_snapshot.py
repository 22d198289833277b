"""A metadata image as a snapshot holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorumlog.server.metadata.acls import AccessControlLists
from quorumlog.server.metadata.client_quotas import ClientQuotas
from quorumlog.server.metadata.credentials import Credentials
from quorumlog.server.metadata.producer_names import NamedProducers
from quorumlog.server.metadata.quorum import WantedQuorum
from quorumlog.server.metadata.records import broker_of, broker_record, topic_of, topic_record
from quorumlog.v1 import metadata_log_pb2

if TYPE_CHECKING:
    from quorumlog.server.metadata.image import MetadataImage


def encode_image(image: MetadataImage) -> bytes:
    """The whole image; equal images give equal bytes."""
    snapshot = metadata_log_pb2.MetadataSnapshot(
        brokers=[broker_record(broker) for _, broker in sorted(image.brokers.items())],
        topics=[topic_record(topic) for topic in image.topics.values()],
        next_group=image.topic_table.next_group,
        next_producer_id=image.next_producer_id,
        named_producers=image.named_producers.records(),
        next_named_producer_id=image.named_producers.next_id,
        producers_deleted_index=image.named_producers.deleted_index,
        wanted_voters=image.quorum.voters,
        quorum_wishes=image.quorum.wishes,
        removed_nodes=[
            metadata_log_pb2.RemovedNode(node_id=node, directory_id=directory)
            for node, directory in sorted(image.departures.removed.items())
        ],
        lost_disks=image.lost_disks.records(),
        former_cluster_ids=image.former_cluster_ids,
        acls=image.acls.records(),
        acls_index=image.acls.index,
        users=image.credentials.user_records(),
        user_salt_key=image.credentials.salt_key,
        revocations=image.credentials.revocations,
        credentials_index=image.credentials.index,
        client_quotas=image.client_quotas.shown(),
        client_quotas_index=image.client_quotas.index,
        feature_level=image.feature_level,
        applied_index=image.applied_index,
    )
    return snapshot.SerializeToString(deterministic=True)


def decode_into(image: MetadataImage, data: bytes) -> None:
    """Fills an empty image with what :func:`encode_image` wrote.

    Raises:
        DecodeError: bytes that are no snapshot.
    """
    snapshot = metadata_log_pb2.MetadataSnapshot()
    snapshot.ParseFromString(data)
    for record in snapshot.brokers:
        image.brokers[record.registration.node_id] = broker_of(record)
    for row in snapshot.topics:
        image.topic_table.add(topic_of(row))
    image.moves.restored()
    image.departures.restored({each.node_id: each.directory_id for each in snapshot.removed_nodes})
    image.lost_disks.restored(snapshot.lost_disks)
    image.topic_table.next_group = snapshot.next_group
    image.next_producer_id = snapshot.next_producer_id
    image.named_producers = NamedProducers.from_snapshot(snapshot)
    image.quorum = WantedQuorum(tuple(snapshot.wanted_voters), snapshot.quorum_wishes)
    image.acls = AccessControlLists.from_snapshot(snapshot)
    image.credentials = Credentials.from_snapshot(snapshot)
    image.client_quotas = ClientQuotas.from_snapshot(snapshot)
    image.feature_level = snapshot.feature_level
    image.applied_index = snapshot.applied_index
    image.former_cluster_ids = tuple(snapshot.former_cluster_ids)
