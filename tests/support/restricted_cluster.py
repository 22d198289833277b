"""A quiet simulated cluster in which clients are asked for permission."""

from __future__ import annotations

import dataclasses
from typing import TypeVar, cast

from google.protobuf.message import Message as ProtoMessage
from quiet_cluster import Quiet
from rights import RESTRICTED

from quorumlog.v1 import acls_pb2
from quorumlog.v1.acls_pb2 import Acl, AclFilter, CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest

#: Clients by what the simulation calls them. The super user also makes the topics.
PRINCIPALS = {"admin": "User:root", "alice": "User:alice", "bob": "User:bob"}
ResponseT = TypeVar("ResponseT", bound=ProtoMessage)


class Restricted(Quiet):
    """A cluster whose super user is "admin", with alice and bob, who may do nothing at first."""

    def __init__(
        self,
        seed: int,
        nodes: int = 3,
        *,
        audited: bool = False,
        checkpoint_entries: int = 2_000,
        image_max_age_ms: int = 0,
        kafka: tuple[int, ...] = (),
    ) -> None:
        options = dataclasses.replace(RESTRICTED, audited=audited, image_max_age_ms=image_max_age_ms)
        super().__init__(
            seed,
            nodes=nodes,
            authorization=options,
            clients=PRINCIPALS,
            checkpoint_entries=checkpoint_entries,
            kafka=kafka,
        )

    def ask(
        self, client: str, request: ProtoMessage, kind: type[ResponseT], node: int = 1, stream: int = 0
    ) -> ResponseT:
        """Asks a node, and waits for its answer."""
        answers: list[object] = []
        self.cluster.request(client, node, request, answers.append, stream=stream)
        self.until(lambda: bool(answers), 10)
        assert isinstance(answers[0], kind), answers
        return answers[0]

    def allow(self, *rules: Acl) -> None:
        """The super user creates rules; every node has them afterwards."""
        answer = self.ask("admin", CreateAclsRequest(acls=rules, timeout_ms=5_000), CreateAclsResponse)
        assert not answer.HasField("error"), answer
        self.settle()

    def withdraw(self, principal: str) -> int:
        """The super user takes all rules of a principal away, and returns how many there were."""
        wanted = AclFilter(
            resource_type=acls_pb2.ACL_RESOURCE_ANY,
            pattern_type=acls_pb2.ACL_PATTERN_ANY,
            principal=principal,
            operation=acls_pb2.ACL_OPERATION_ANY,
            permission=acls_pb2.ACL_PERMISSION_ANY,
        )
        request = DeleteAclsRequest(filters=[wanted], timeout_ms=5_000)
        answer = self.ask("admin", request, acls_pb2.DeleteAclsResponse)
        assert not answer.HasField("error"), answer
        self.settle()
        return answer.deleted

    def settle(self) -> None:
        """Waits until all nodes have the same rules."""

        def is_settled() -> bool:
            images = [each.image for each in self.cluster.processes.values() if each.running]
            return all(image is not None for image in images) and len({image.acls.index for image in images}) == 1  # type: ignore[union-attr]

        self.run(0.3)
        self.until(is_settled, 10)

    def topic_id(self, name: str) -> bytes:
        """The id of a topic that exists."""
        image = self.cluster.processes[1].image
        assert image is not None
        return cast(bytes, image.topics[name].topic_id)
