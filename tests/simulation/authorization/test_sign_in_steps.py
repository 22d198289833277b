"""Sign-in and revocation in the steps of simulated nodes: on every node, without a quorum, after a restart."""

from __future__ import annotations

import pytest
from quiet_cluster import TOPIC
from restricted_cluster import Restricted
from rights import rule
from token_issuer import claims, file_of, options, public
from token_issuer import token as signed_token

from quorumlog.raft.types import NO_NODE
from quorumlog.server.access.jwt_verifier import JwtVerifier
from quorumlog.server.access.key_set import parse_keys
from quorumlog.server.step.events import TokenKeysRead
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.v1 import credentials_pb2, sign_in_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.acls_pb2 import ACL_OPERATION_READ, ACL_RESOURCE_TOPIC
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.wire.scram import (
    ClientFinal,
    ClientFirst,
    ScramMechanism,
    ServerFirst,
    auth_message,
    client_proof,
    salted_keys,
)

PASSWORD, ITERATIONS = b"right and long", 4_096
NODES = (1, 2, 3)


class SigningIn(Restricted):
    """A cluster with the user carol, who has a password and may read the topic."""

    def __init__(self, seed: int, checkpoint_entries: int = 2_000) -> None:
        super().__init__(seed, checkpoint_entries=checkpoint_entries)
        self.allow(rule("User:carol", ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, TOPIC))
        salt = b"salt of carol's."
        keys = salted_keys(ScramMechanism.SHA_256, PASSWORD, salt, ITERATIONS)
        carol = credentials_pb2.ScramCredential(
            user="carol", salt=salt, stored_key=keys.stored_key, server_key=keys.server_key, iterations=ITERATIONS
        )
        self.alter(upsertions=[carol])

    def alter(self, **users: object) -> None:
        request = credentials_pb2.AlterUserScramCredentialsRequest(timeout_ms=5_000, **users)  # type: ignore[arg-type]
        answer = self.ask("admin", request, credentials_pb2.AlterUserScramCredentialsResponse)
        assert not answer.HasField("error"), answer
        self.run(1)

    def come(self, token: str = "", serial: str = "") -> None:
        """From now on carol calls with this token, or with a certificate."""
        listener, principal = (Listener.CLIENT, "User:carol") if serial else (Listener.PASSWORD, "User:ANONYMOUS")
        self.cluster.clients["carol"] = RequestContext(
            host="10.0.0.7", principal=principal, listener=listener, serial=serial, token=token
        )

    def sign_in(self, node: int) -> str:
        """Signs carol in at a node; returns the token."""
        self.come()
        first = ClientFirst("carol", f"nonce-of-carol-{self.scheduler.now}")
        begun = self.ask(
            "carol", sign_in_pb2.BeginScramRequest(client_first=first.text), sign_in_pb2.BeginScramResponse, node
        )
        answer = ServerFirst.of(begun.server_first, first.nonce)
        keys = salted_keys(ScramMechanism.SHA_256, PASSWORD, answer.salt, answer.iterations)
        final = ClientFinal(answer.nonce, b"")
        final = final._replace(proof=client_proof(keys, auth_message(first, answer, final)))
        request = sign_in_pb2.FinishScramRequest(client_first=first.text, client_final=final.text)
        finished = self.ask("carol", request, sign_in_pb2.FinishScramResponse, node)
        assert not finished.HasField("error"), finished
        self.come(finished.session_token)
        return finished.session_token

    def show_token(self, node: int, user: str, lifetime_s: float) -> sign_in_pb2.SignInByTokenResponse:
        """Authenticates a user at a node with a token that expires after ``lifetime_s``, and returns the answer."""
        process = self.cluster.processes[node]
        process.deliver(TokenKeysRead(JwtVerifier(parse_keys(file_of(public("first")), ("ES256",)), options())))
        self.come()
        bearer = signed_token(claims(user, now_s=process.wall_ms / 1_000, lifetime_s=lifetime_s))
        request = sign_in_pb2.SignInByTokenRequest(bearer_token=bearer)
        answer = self.ask("carol", request, sign_in_pb2.SignInByTokenResponse, node)
        self.come(answer.session_token)
        return answer

    def sees(self, node: int) -> list[str]:
        """The topics that a node shows to carol."""
        answer = self.ask("carol", pb.MetadataRequest(all_topics=True), pb.MetadataResponse, node)
        return [topic.name for topic in answer.topics]

    def refusal(self, node: int) -> int:
        """Why a node does not serve carol."""
        return self.ask("carol", pb.MetadataRequest(all_topics=True), Error, node).code

    def wait_for_records(self, node: int) -> list[object]:
        """A fetch on a stream of a node that waits; its answer comes into the list."""
        stream = self.cluster.open_stream(node)
        named = [pb.FetchPartition(topic_id=self.topic_id(TOPIC), leader_epoch=-1)]
        request = pb.FetchRequest(correlation_id=1, session_epoch=1, max_wait_ms=600_000, partitions=named)
        answers: list[object] = []
        self.cluster.request("carol", node, request, answers.append, stream=stream)
        self.run(0.5)  # Until it has arrived, with who she is now.
        return answers


def test_a_session_is_of_one_node_and_ends_with_its_user_on_all_of_them() -> None:
    cluster = SigningIn(3)
    tokens = {node: cluster.sign_in(node) for node in NODES}
    waiting = []
    for node, token in tokens.items():
        cluster.come(token)
        assert cluster.sees(node) == [TOPIC]
        for other in set(NODES) - {node}:
            assert cluster.refusal(other) == ErrorCode.SASL_SESSION_EXPIRED
        if node == cluster.leader().node_id:
            waiting.append(cluster.wait_for_records(node))
    cluster.run(1)
    assert waiting == [[]]
    cluster.alter(deletions=["carol"])
    assert waiting == [[Unanswered.LOST]], "her stream has ended"
    for node, token in tokens.items():
        cluster.come(token)
        assert cluster.refusal(node) == ErrorCode.SASL_SESSION_EXPIRED


def test_a_session_by_token_is_of_one_node_and_ends_with_the_token_and_so_do_its_streams() -> None:
    cluster = SigningIn(11)
    cluster.allow(rule("User:dora", ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, TOPIC))
    node = cluster.leader().node_id
    given = cluster.show_token(node, "dora", lifetime_s=30)
    assert 0 < given.lifetime_ms <= 30_000
    assert cluster.sees(node) == [TOPIC]
    for other in set(NODES) - {node}:
        assert cluster.refusal(other) == ErrorCode.SASL_SESSION_EXPIRED
    waiting = cluster.wait_for_records(node)
    cluster.run(20)
    assert (waiting, cluster.sees(node)) == ([], [TOPIC])
    cluster.run(15)
    assert waiting == [Unanswered.LOST], "her stream has ended"
    assert cluster.refusal(node) == ErrorCode.SASL_SESSION_EXPIRED


def test_a_token_does_not_become_a_user_with_a_password_and_a_revoked_one_is_out_everywhere() -> None:
    cluster = SigningIn(13)
    assert cluster.show_token(1, "carol", lifetime_s=600).error.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    sessions = {node: cluster.show_token(node, "dora", lifetime_s=600).session_token for node in NODES}
    revocation = credentials_pb2.Revocation(principal="User:dora")
    request = credentials_pb2.AlterRevocationsRequest(revoke=[revocation], timeout_ms=5_000)
    assert cluster.ask("admin", request, credentials_pb2.AlterRevocationsResponse).revoked == 1
    cluster.run(1)
    for node, session in sessions.items():
        cluster.come(session)
        assert cluster.refusal(node) == ErrorCode.SASL_SESSION_EXPIRED
        assert cluster.show_token(node, "dora", lifetime_s=600).HasField("error")


@pytest.mark.parametrize("subject", [{"serial": "1f"}, {"principal": "User:carol"}])
def test_a_revoked_certificate_ends_its_streams_on_the_node_that_has_them(subject: dict[str, str]) -> None:
    cluster = SigningIn(5)
    cluster.come(serial="1f")
    node = cluster.leader().node_id
    waiting = cluster.wait_for_records(node)
    cluster.run(1)
    assert waiting == []
    revocation = credentials_pb2.Revocation(**subject)
    request = credentials_pb2.AlterRevocationsRequest(revoke=[revocation], timeout_ms=5_000)
    assert cluster.ask("admin", request, credentials_pb2.AlterRevocationsResponse).revoked == 1
    cluster.run(1)
    assert waiting == [Unanswered.LOST]
    assert {cluster.refusal(each) for each in NODES} == {ErrorCode.SASL_AUTHENTICATION_FAILED}
    cluster.come(serial="2e")
    if "serial" in subject:
        assert cluster.sees(node) == [TOPIC], "another certificate of hers is as good as before"
    else:
        assert cluster.refusal(node) == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_without_a_metadata_quorum_sessions_go_on_and_users_sign_in() -> None:
    cluster = SigningIn(7)
    token = cluster.sign_in(1)
    for node in (2, 3):
        cluster.cluster.processes[node].die(silent=False)
    raft = cluster.cluster.processes[1].replicas[0].raft
    cluster.until(lambda: raft.leader_id == NO_NODE, 30)
    cluster.come(token)
    assert cluster.sees(1) == [TOPIC]
    cluster.sign_in(1)
    assert cluster.sees(1) == [TOPIC]


def test_a_node_that_restarts_knows_its_users_from_a_snapshot_and_no_session() -> None:
    cluster = SigningIn(9, checkpoint_entries=5)
    token = cluster.sign_in(1)
    process = cluster.cluster.processes[1]
    process.die(silent=False)
    cluster.run(1)
    cluster.cluster.start(1)
    cluster.run(2)
    cluster.until(lambda: process.image is not None and "carol" in process.image.credentials.users, 30)
    cluster.come(token)
    assert cluster.refusal(1) == ErrorCode.SASL_SESSION_EXPIRED
    cluster.sign_in(1)
    cluster.until(lambda: TOPIC in cluster.sees(1), 30)
