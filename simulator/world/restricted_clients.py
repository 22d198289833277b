"""Clients in virtual time that need ACLs, and the administrator who keeps changing these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.step.request_context import RequestContext
from quorumlog.simulator.world.clients import Directory, PartitionName, Unanswered
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.operators import Wisher
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import acls_pb2, admin_pb2, groups_pb2
from quorumlog.v1 import data_plane_pb2 as pb

#: Principals of clients that need ACLs; the administrator and all other clients of the simulation need none.
PRINCIPALS = ("User:alice", "User:bob")
GROUPS = ("readers", "writers")
_OPERATIONS = (
    acls_pb2.ACL_OPERATION_ALL,
    acls_pb2.ACL_OPERATION_READ,
    acls_pb2.ACL_OPERATION_READ,
    acls_pb2.ACL_OPERATION_WRITE,
    acls_pb2.ACL_OPERATION_DESCRIBE,
    acls_pb2.ACL_OPERATION_DELETE,
    acls_pb2.ACL_OPERATION_DESCRIBE_CONFIGS,
)
#: Timeout of most requests: longer waits would show changes in the meantime.
_TIMEOUT_MS = 700


class RightsChanger(Wisher):
    """Creates and deletes ACLs, at any node and time.

    Arguments:
        topics: topics of the ACLs.
    """

    def __init__(
        self,
        topics: Sequence[str],
        cluster: SimCluster,
        scheduler: Scheduler,
        stopped: Callable[[], bool],
        interval_us: tuple[int, int],
    ) -> None:
        self._topics = topics
        self._wishes = 0
        super().__init__("rights changer", cluster, scheduler, stopped, interval_us)

    def wish(self) -> ProtoMessage:
        """Returns a request that creates or deletes ACLs."""
        rng = self.rng
        self._wishes += 1
        if self._wishes % 4 == 1:
            # Otherwise most topics would be hidden, and there would be little to judge.
            return acls_pb2.CreateAclsRequest(acls=map(_sees_all, PRINCIPALS), timeout_ms=_TIMEOUT_MS)
        if rng.random() < 0.7:
            rules = [self._rule() for _ in range(rng.choice((1, 1, 2, 5)))]
            return acls_pb2.CreateAclsRequest(acls=rules, timeout_ms=_TIMEOUT_MS)
        wanted = acls_pb2.AclFilter(
            resource_type=acls_pb2.ACL_RESOURCE_ANY,
            pattern_type=acls_pb2.ACL_PATTERN_ANY,
            operation=acls_pb2.ACL_OPERATION_ANY,
            permission=rng.choice((acls_pb2.ACL_PERMISSION_ANY, acls_pb2.ACL_PERMISSION_DENY)),
        )
        if rng.random() < 0.8:
            wanted.principal = rng.choice(PRINCIPALS)
        return acls_pb2.DeleteAclsRequest(filters=[wanted], timeout_ms=_TIMEOUT_MS)

    def _rule(self) -> acls_pb2.Acl:
        rng = self.rng
        rule = acls_pb2.Acl(
            principal=rng.choice((*PRINCIPALS, "User:*")),
            pattern_type=acls_pb2.ACL_PATTERN_LITERAL,
            permission=rng.choice((*4 * (acls_pb2.ACL_PERMISSION_ALLOW,), acls_pb2.ACL_PERMISSION_DENY)),
        )
        if rng.random() < 0.15:
            rule.resource_type, rule.resource_name = acls_pb2.ACL_RESOURCE_GROUP, rng.choice((*GROUPS, "*"))
            rule.operation = rng.choice((acls_pb2.ACL_OPERATION_READ, acls_pb2.ACL_OPERATION_DESCRIBE))
            return rule
        rule.resource_type, rule.operation = acls_pb2.ACL_RESOURCE_TOPIC, rng.choice(_OPERATIONS)
        name = rng.choice(self._topics)
        kind = rng.random()
        if kind < 0.6:
            rule.resource_name = name
        elif kind < 0.8:
            rule.resource_name, rule.pattern_type = name[: rng.randint(1, len(name))], acls_pb2.ACL_PATTERN_PREFIXED
        else:
            rule.resource_name = "*"
        return rule


def _sees_all(principal: str) -> acls_pb2.Acl:
    return acls_pb2.Acl(
        principal=principal,
        resource_type=acls_pb2.ACL_RESOURCE_TOPIC,
        resource_name="*",
        pattern_type=acls_pb2.ACL_PATTERN_LITERAL,
        operation=acls_pb2.ACL_OPERATION_DESCRIBE,
        permission=acls_pb2.ACL_PERMISSION_ALLOW,
    )


class RestrictedClient:
    """Sends all kinds of requests, allowed or not, to any node, on streams and without.

    Arguments:
        name: name of its random stream, by which the cluster finds its principal.
        partitions: partitions to choose from.
        stopped: returns True when to end.
    """

    def __init__(
        self,
        name: str,
        principal: str,
        partitions: Sequence[PartitionName],
        cluster: SimCluster,
        scheduler: Scheduler,
        stopped: Callable[[], bool],
        interval_us: tuple[int, int],
    ) -> None:
        cluster.clients[name] = RequestContext(name, "10.0.0.1", principal)
        self._name = name
        self._partitions = partitions
        self._cluster = cluster
        self._scheduler = scheduler
        self._stopped = stopped
        self._interval_us = interval_us
        self._rng = scheduler.stream(name)
        # It locates partitions with a principal that may see all of them: it also requests what it may not do.
        self._directory = Directory(f"{name}/sees all", cluster, scheduler, scheduler.stream(f"{name}/directory"))
        self._stream: tuple[int, int] | None = None
        self._epoch = 0
        self._tick()

    def _tick(self) -> None:
        if self._stopped():
            self._close_stream()
            return
        self._scheduler.after(self._rng.randint(*self._interval_us), self._tick)
        partition = self._rng.choice(self._partitions)
        known = self._directory.partitions.get(partition)
        if known is None or self._rng.random() < 0.1:
            self._directory.refresh()
        if known is None:
            return
        leader = known.leader if known.leader > 0 and self._rng.random() < 0.8 else 0
        self._ask(leader or self._rng.choice(self._cluster.node_ids), partition, known.topic_id)

    def _ask(self, node: int, partition: PartitionName, topic_id: bytes) -> None:
        rng, number = self._rng, partition.number
        kind = rng.choice(("produce", "fetch", "session", "session", "offsets", "metadata", "configs", "group"))
        if kind == "session":
            self._fetch_in_session(node, topic_id, number)
            return
        request: ProtoMessage
        if kind == "produce":
            # An invalid batch is rejected only after the authorization check.
            batch = pb.PartitionBatch(topic_id=topic_id, partition=number, batch=b"no batch")
            request = pb.ProduceRequest(correlation_id=1, acks=-1, timeout_ms=_TIMEOUT_MS, batches=[batch])
        elif kind == "fetch":
            request = pb.FetchRequest(correlation_id=1, max_wait_ms=rng.choice((0, 300)), max_bytes=2_000)
            request.partitions.add(topic_id=topic_id, partition=number, leader_epoch=-1)
        elif kind == "offsets":
            request = pb.ListOffsetsRequest(timeout_ms=_TIMEOUT_MS)
            for timestamp_ms in (-2, -1, 0):
                request.partitions.add(topic_id=topic_id, partition=number, timestamp_ms=timestamp_ms, leader_epoch=-1)
        elif kind == "metadata":
            request = pb.MetadataRequest(topics=[partition.topic, "nothing"], all_topics=rng.random() < 0.5)
        elif kind == "configs":
            request = admin_pb2.DescribeConfigsRequest(names=[partition.topic, "nothing"])
        else:
            request = groups_pb2.FindCoordinatorsRequest(group_ids=GROUPS)
        self._cluster.request(self._name, node, request, lambda answer: None)

    def _fetch_in_session(self, node: int, topic_id: bytes, number: int) -> None:
        """Continues a session, which may have been authorized long ago; or starts one."""
        if self._stream is None or self._rng.random() < 0.05:
            self._close_stream()
            self._stream, self._epoch = (node, self._cluster.open_stream(node)), 0
        at, stream = self._stream
        self._epoch += 1
        request = pb.FetchRequest(
            correlation_id=self._epoch,
            session_epoch=self._epoch,
            max_wait_ms=self._rng.choice((0, 100, 2_000)),
            max_bytes=2_000,
        )
        if self._epoch == 1 or self._rng.random() < 0.3:
            request.partitions.add(topic_id=topic_id, partition=number, leader_epoch=-1)

        def answered(answer: ProtoMessage | Unanswered) -> None:
            lost = not isinstance(answer, pb.FetchResponse) or answer.HasField("error")
            if lost and self._stream == (at, stream):
                self._stream = None

        self._cluster.request(self._name, at, request, answered, stream=stream)

    def _close_stream(self) -> None:
        if self._stream is not None:
            node, stream = self._stream
            self._stream = None
            self._cluster.close_stream(self._name, node, stream)
