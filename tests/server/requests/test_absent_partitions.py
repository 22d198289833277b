"""Topics that do not exist for a client, as nodes find out by topic id."""

from __future__ import annotations

from rights import RESTRICTED, allow, holder, refusals_by, rule

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.step.request_context import RequestContext
from quorumlog.v1 import metadata_log_pb2
from quorumlog.v1.acls_pb2 import ACL_OPERATION_READ, ACL_RESOURCE_TOPIC
from quorumlog.v1.errors_pb2 import ErrorCode

KNOWN, UNKNOWN = b"k" * 16, b"u" * 16
ALICE, ROOT = RequestContext(principal="User:alice"), RequestContext(principal="User:root")


def partitions(*, restricted: bool = True) -> PartitionErrors:
    image = MetadataImage()
    body = metadata_log_pb2.CreateTopic(
        name="known", topic_id=KNOWN, partitions=[metadata_log_pb2.ReplicaSet(replicas=[1])]
    )
    image.apply(1, metadata_log_pb2.MetadataCommand(create_topic=body))
    allow(image, rule("User:alice", ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, "*"))
    return PartitionErrors(holder(image), refusals_by(image, RESTRICTED) if restricted else refusals_by(image))


def test_of_an_id_that_the_metadata_do_not_have_nobody_is_served() -> None:
    """A topic id that is not in the metadata is refused, even if its replica is on disk: the node's metadata may be
    old."""
    absent = partitions()
    assert absent.refusal(ALICE, ACL_OPERATION_READ, KNOWN) is None
    for client in (ALICE, ROOT):
        refused = absent.refusal(client, ACL_OPERATION_READ, UNKNOWN)
        assert refused is not None
        assert refused == absent.problem(UNKNOWN, 0)
        assert refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not absent.allows(client, ACL_OPERATION_READ, UNKNOWN)


def test_where_nobody_is_asked_for_permission_such_a_replica_is_found_as_ever() -> None:
    absent = partitions(restricted=False)
    assert absent.refusal(ALICE, ACL_OPERATION_READ, UNKNOWN) is None
    assert absent.allows(ALICE, ACL_OPERATION_READ, UNKNOWN)
