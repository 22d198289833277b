"""A change applies to the topic or claim that had the name when it was requested, and to no later one."""

from __future__ import annotations

import pytest
from test_controller import Cluster, new_topic

from quorumlog.server.metadata.records import NO_TOPIC_ID
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Named(Cluster):
    """A controller that receives changes by name and id."""

    def topic_id(self) -> bytes:
        return self.image.topics["orders"].topic_id

    def change(self, kind: str, topic_id: bytes) -> errors_pb2.Error:
        """Requests one change of the topic ``orders``, and returns the error."""
        request: object
        if kind == "delete_topics":
            ids = [topic_id] if topic_id else []
            request = admin_pb2.DeleteTopicsRequest(names=["orders"], topic_ids=ids)
        elif kind == "create_partitions":
            wanted = admin_pb2.NewPartitions(name="orders", topic_id=topic_id, total_count=7)
            request = admin_pb2.CreatePartitionsRequest(topics=[wanted])
        elif kind == "alter_configs":
            altered = admin_pb2.AlterTopicConfig(name="orders", topic_id=topic_id, set={"retention.ms": "60000"})
            request = admin_pb2.AlterConfigsRequest(topics=[altered])
        else:
            reassignment = admin_pb2.Reassignment(topic="orders", topic_id=topic_id, replicas=[2, 3, 1])
            request = admin_pb2.ReassignPartitionsRequest(reassignments=[reassignment])
        answer = self.ask(**{kind: request})
        error = getattr(answer, kind).results[0].error
        assert isinstance(error, errors_pb2.Error)
        return error


@pytest.fixture
def cluster() -> Named:
    made = Named()
    assert made.create(new_topic())[0].error.code == ErrorCode.NONE
    return made


KINDS = ("delete_topics", "create_partitions", "alter_configs", "reassign_partitions")


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_that_comes_late_does_not_hit_the_next_topic_of_the_name(cluster: Named, kind: str) -> None:
    former = cluster.topic_id()
    assert cluster.change("delete_topics", former).code == ErrorCode.NONE
    assert cluster.change(kind, former).code == UNKNOWN, "no topic has the name"
    cluster.create(new_topic())
    before = cluster.image.to_snapshot()
    assert cluster.change(kind, former).code == UNKNOWN, "there is another one"
    assert cluster.change(kind, NO_TOPIC_ID).code == UNKNOWN, "it was asked for when there was none"
    assert cluster.image.to_snapshot() == before
    assert cluster.change(kind, cluster.topic_id()).code == ErrorCode.NONE


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_of_a_version_that_sends_names_only_is_served(cluster: Named, kind: str) -> None:
    assert cluster.change(kind, b"").code == ErrorCode.NONE


def test_ids_that_do_not_fit_the_names_are_refused_as_a_whole(cluster: Named) -> None:
    request = admin_pb2.DeleteTopicsRequest(names=["orders"], topic_ids=[cluster.topic_id()] * 2)
    answer = cluster.ask(delete_topics=request)
    assert "1 names come with 2 ids" in answer.error.message
    assert "orders" in cluster.image.topics


# -- producer names ---------------------------------------------------------------------------------------------------


def claim(cluster: Named, known_epoch: int = -1) -> admin_pb2.ProducerClaim:
    request = peer_pb2.ClaimProducer(name="etl", epoch=-1, known_epoch=known_epoch)
    made = cluster.ask(claim_producer=request).producer_claimed
    return admin_pb2.ProducerClaim(producer_id=made.producer_id, producer_epoch=made.producer_epoch)


def delete(cluster: Named, *claims: admin_pb2.ProducerClaim) -> int:
    request = admin_pb2.DeleteProducersRequest(names=["etl"], claims=claims)
    code = cluster.ask(delete_producers=request).delete_producers.results[0].error.code
    assert isinstance(code, int)
    return code


def test_a_deletion_that_comes_late_does_not_take_the_name_from_who_has_claimed_it_since(cluster: Named) -> None:
    former = claim(cluster)
    late = cluster.decide(delete_producers=admin_pb2.DeleteProducersRequest(names=["etl"], claims=[former]))
    assert delete(cluster, former) == ErrorCode.NONE
    anew = claim(cluster)
    assert anew.producer_id != former.producer_id
    assert delete(cluster, former) == ErrorCode.PRODUCER_NAME_NOT_FOUND
    assert delete(cluster, admin_pb2.ProducerClaim(producer_id=-1)) == ErrorCode.PRODUCER_NAME_NOT_FOUND
    # One that was in the log already is decided there.
    code = cluster.commit(late).delete_producers.results[0].error.code
    assert code == ErrorCode.PRODUCER_NAME_NOT_FOUND
    assert cluster.image.named_producers.claim_of("etl") == anew
    assert delete(cluster, anew) == ErrorCode.NONE


def test_a_deletion_that_comes_late_does_not_end_a_later_claim_of_the_name(cluster: Named) -> None:
    former = claim(cluster)
    now = claim(cluster, known_epoch=0)
    assert (now.producer_id, now.producer_epoch) == (former.producer_id, 1)
    assert delete(cluster, former) == ErrorCode.PRODUCER_NAME_IN_USE
    assert cluster.image.named_producers.claim_of("etl") == now


def test_a_node_of_a_version_that_sends_producer_names_only_is_served(cluster: Named) -> None:
    claim(cluster)
    decision = cluster.decide(delete_producers=admin_pb2.DeleteProducersRequest(names=["etl"]))
    assert [command.WhichOneof("body") for command in decision.commands] == ["delete_producers"]
    assert delete(cluster) == ErrorCode.NONE


def test_claims_are_deleted_by_a_command_of_their_own(cluster: Named) -> None:
    """Claims are deleted by a command of their own: a node of a version without it stops, and does not delete the
    present claim of the name."""
    request = admin_pb2.DeleteProducersRequest(names=["etl"], claims=[claim(cluster)])
    decision = cluster.decide(delete_producers=request)
    assert [command.WhichOneof("body") for command in decision.commands] == ["delete_producer_claims"]


def test_claims_that_do_not_fit_the_names_are_refused_as_a_whole(cluster: Named) -> None:
    made = claim(cluster)
    answer = cluster.ask(delete_producers=admin_pb2.DeleteProducersRequest(names=["etl"], claims=[made, made]))
    assert "1 producer names come with 2 claims" in answer.error.message
