"""Users and revocations in the metadata: validation, limits, protection of super users, and snapshots."""

from __future__ import annotations

import random

import pytest

from quorumlog.server.controller.access_decisions import CredentialDecisions
from quorumlog.server.metadata import credentials
from quorumlog.server.metadata.credentials import MAX_REVOCATIONS, MAX_USERS, check_revocations, check_users
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL, THIRD_FEATURE_LEVEL
from quorumlog.v1 import metadata_log_pb2
from quorumlog.v1.credentials_pb2 import (
    AlterRevocationsRequest,
    AlterRevocationsResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    Revocation,
    ScramCredential,
)
from quorumlog.v1.credentials_pb2 import ScramMechanism as ScramNumber
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.scram import ScramMechanism

SHA_256, SHA_512 = ScramMechanism
ROOT, ALICE = "User:root", "User:alice"


def credential(user: str = "alice", **fields: object) -> ScramCredential:
    made = {"salt": b"s" * 16, "stored_key": b"k" * 32, "server_key": b"v" * 32, "iterations": 100_000, **fields}
    return ScramCredential(user=user, **made)  # type: ignore[arg-type]


def users(*upsertions: ScramCredential, deletions: tuple[str, ...] = ()) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(upsertions=upsertions, deletions=deletions)


class Controller:
    """A controller's decisions, applied at once."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.image.feature_level = SECOND_FEATURE_LEVEL
        self._decisions = CredentialDecisions(self.image, [ROOT], random.Random(5))

    def alter_users(
        self, request: AlterUserScramCredentialsRequest, principal: str = ALICE
    ) -> AlterUserScramCredentialsResponse:
        decision = self._decisions.alter_users(1_000, 7, principal, request)
        if decision.response is not None:
            return decision.response.alter_user_scram_credentials
        return self._apply(decision.commands[0]).alter_user_scram_credentials

    def alter_revocations(self, request: AlterRevocationsRequest) -> AlterRevocationsResponse:
        decision = self._decisions.alter_revocations(2_000, 7, request)
        if decision.response is not None:
            return decision.response.alter_revocations
        return self._apply(decision.commands[0]).alter_revocations

    def _apply(self, command: metadata_log_pb2.MetadataCommand):  # type: ignore[no-untyped-def]
        return self.image.apply(self.image.applied_index + 1, command).response


@pytest.fixture
def controller() -> Controller:
    return Controller()


# -- users ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (users(), "0 users in the request"),
        (users(credential("")), "1 to 249 printable characters"),
        (users(credential("ﬁsh")), "use 'fish'"),
        (users(credential("ma\u0308rz")), "use 'märz'"),
        (users(credential("a\nb")), "printable"),
        (users(credential("x" * 250)), "1 to 249"),
        (users(credential("User:alice")), "without User:"),
        (users(credential("ANONYMOUS")), "user name ANONYMOUS is reserved"),
        (users(credential("*")), "user name * is reserved"),
        (users(credential(), credential()), "'alice' is named twice"),
        (users(credential(), deletions=("alice",)), "'alice' is named twice"),
        (users(deletions=("a\nb",)), "printable"),
        (users(credential(salt=b"short")), "salt of alice is not 16 to 64 bytes"),
        (users(credential(stored_key=b"k" * 20)), "32 bytes each"),
        (users(credential(server_key=b"")), "32 bytes each"),
        (users(credential(iterations=4_095)), "give 4096 to 1000000"),
        (users(credential(iterations=1_000_001)), "give 4096 to 1000000"),
        (users(*(credential(f"u{i}") for i in range(1_001))), "give 1 to 1000"),
    ],
)
def test_users_that_make_no_sense_are_refused_in_one_line(
    request_: AlterUserScramCredentialsRequest, said: str
) -> None:
    problem = check_users(request_)
    assert problem is not None
    assert (problem.code, problem.definite, problem.retriable) == (ErrorCode.INVALID_REQUEST, True, False)
    assert said in problem.message
    assert problem.message.isprintable()


def test_users_come_change_and_go(controller: Controller) -> None:
    assert controller.alter_users(users(credential("alice"), credential("größe, O=gmbh"))).created == 2
    first = controller.image.credentials.users["alice"][SHA_256]
    changed = controller.alter_users(users(credential("alice", salt=b"t" * 16), deletions=("größe, O=gmbh", "nobody")))
    assert (changed.created, changed.deleted) == (0, 1)
    second = controller.image.credentials.users["alice"][SHA_256]
    assert second.changed_index > first.changed_index, "it shows that the password changed"
    assert second.salt == b"t" * 16
    assert list(controller.image.credentials.users) == ["alice"]


def test_the_index_tells_of_changes_only(controller: Controller) -> None:
    controller.alter_users(users(credential()))
    before = controller.image.credentials.index
    assert before == controller.image.applied_index
    assert controller.alter_users(users(deletions=("nobody",))).deleted == 0
    assert controller.image.credentials.index == before
    controller.alter_revocations(AlterRevocationsRequest(revoke=[Revocation(serial="1f")]))
    assert controller.image.credentials.index > before


def test_salts_are_made_up_of_the_same_secret_for_ever(controller: Controller) -> None:
    controller.alter_users(users(credential()))
    key = controller.image.credentials.salt_key
    assert len(key) == 32
    controller.alter_users(users(credential("bob")))
    controller.alter_users(users(deletions=("alice", "bob")))
    assert controller.image.credentials.salt_key == key


def test_there_are_so_many_users_and_no_more(controller: Controller) -> None:
    for part in range(0, MAX_USERS, 1_000):
        assert controller.alter_users(users(*(credential(f"u{part + i}") for i in range(1_000)))).created == 1_000
    refused = controller.alter_users(users(credential("one-more"))).error
    assert refused.code == ErrorCode.POLICY_VIOLATION
    assert "of 10000" in refused.message
    assert controller.alter_users(users(credential("u0"))).created == 0, "a password may still be changed"
    assert controller.alter_users(users(credential("one-more"), deletions=("u0",))).created == 1


def test_the_log_decides_which_of_two_users_was_the_last_one(controller: Controller) -> None:
    for part in range(0, MAX_USERS, 1_000):
        count = min(1_000, MAX_USERS - 1 - part)
        controller.alter_users(users(*(credential(f"u{part + i}") for i in range(count))))
    body = metadata_log_pb2.UsersAltered(upsertions=[credential("last")])
    late = metadata_log_pb2.UsersAltered(upsertions=[credential("too-late")])
    outcomes = [controller._apply(metadata_log_pb2.MetadataCommand(users_altered=each)) for each in (body, late)]
    codes = [each.alter_user_scram_credentials.error.code for each in outcomes]
    assert codes == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]


def test_only_a_super_user_sets_a_password_for_a_super_user_and_says_so(controller: Controller) -> None:
    intended = credential("root", for_super_user=True)
    for refused, who in (
        (users(credential("root")), ALICE),
        (users(intended), ALICE),
        (users(credential("root")), ROOT),
        (users(credential("later-super", for_super_user=True)), ALICE),
    ):
        assert controller.alter_users(refused, who).error.code == ErrorCode.POLICY_VIOLATION
    assert controller.alter_users(users(intended), ROOT).created == 1
    assert controller.alter_users(users(deletions=("root",)), ALICE).error.code == ErrorCode.POLICY_VIOLATION
    assert controller.alter_users(users(intended), ALICE).error.code == ErrorCode.POLICY_VIOLATION
    assert controller.alter_users(users(deletions=("root",)), ROOT).deleted == 1


def test_what_is_kept_of_passwords_is_in_no_description_and_no_repr(controller: Controller) -> None:
    controller.alter_users(users(credential(stored_key=b"K" * 32, server_key=b"V" * 32, salt=b"S" * 16)))
    user = controller.image.credentials.users["alice"][SHA_256]
    for reported in (repr(user), str(user), repr(user.shown), str(user.shown)):
        assert not any(secret in reported for secret in ("KKKK", "VVVV", "SSSS"))


# -- revocations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("revocation", "said"),
    [
        (Revocation(), "say which"),
        (Revocation(serial=""), "hexadecimal digits"),
        (Revocation(serial="1F"), "small letters"),
        (Revocation(serial="01f"), "without leading zeros"),
        (Revocation(serial="f" * 41), "1 to 40"),
        (Revocation(principal="alice"), "not User: and a name"),
        (Revocation(principal="User:"), "1 to 249"),
        (Revocation(principal="User:*"), "user name * is reserved"),
        (Revocation(principal="User:ANONYMOUS"), "user name ANONYMOUS is reserved"),
    ],
)
def test_revocations_that_make_no_sense_are_refused_in_one_line(revocation: Revocation, said: str) -> None:
    problem = check_revocations(AlterRevocationsRequest(revoke=[revocation]), [ROOT])
    assert problem is not None
    assert (problem.code, problem.definite) == (ErrorCode.INVALID_REQUEST, True)
    assert said in problem.message


def test_what_is_revoked_counts_no_more_until_it_is_restored(controller: Controller) -> None:
    serial, principal = Revocation(serial="1f"), Revocation(principal=ALICE)
    answer = controller.alter_revocations(AlterRevocationsRequest(revoke=[serial, principal]))
    assert (answer.revoked, answer.restored) == (2, 0)
    credentials = controller.image.credentials
    assert credentials.is_revoked("1f", "User:bob")
    assert credentials.is_revoked("2e", ALICE)
    assert not credentials.is_revoked("2e", "User:bob")
    assert not credentials.is_revoked("", "User:bob")
    answer = controller.alter_revocations(AlterRevocationsRequest(revoke=[principal], restore=[serial]))
    assert (answer.revoked, answer.restored) == (0, 1)
    assert not credentials.is_revoked("1f", "User:bob")


def test_nobody_locks_a_super_user_out(controller: Controller) -> None:
    refused = controller.alter_revocations(AlterRevocationsRequest(revoke=[Revocation(principal=ROOT)]))
    assert refused.error.code == ErrorCode.POLICY_VIOLATION
    assert "super user" in refused.error.message
    assert controller.alter_revocations(AlterRevocationsRequest(restore=[Revocation(principal=ROOT)])).restored == 0


def test_there_are_so_many_revocations_and_no_more(controller: Controller) -> None:
    for part in range(0, MAX_REVOCATIONS, 1_000):
        revoke = [Revocation(serial=f"{1 + part + i:x}") for i in range(1_000)]
        assert controller.alter_revocations(AlterRevocationsRequest(revoke=revoke)).revoked == 1_000
    more = Revocation(serial="abcdef")
    refused = controller.alter_revocations(AlterRevocationsRequest(revoke=[more]))
    assert refused.error.code == ErrorCode.POLICY_VIOLATION
    restoring = AlterRevocationsRequest(revoke=[more], restore=[Revocation(serial="1")])
    assert controller.alter_revocations(restoring).revoked == 1


# -- both ----------------------------------------------------------------------------------------------------------


def test_a_snapshot_keeps_all_of_it(controller: Controller) -> None:
    controller.alter_users(users(credential("alice"), credential("root", for_super_user=True)), ROOT)
    revoke = [Revocation(serial="1f"), Revocation(principal="User:carol")]
    controller.alter_revocations(AlterRevocationsRequest(revoke=revoke))
    data = controller.image.to_snapshot()
    restored = MetadataImage.from_snapshot(data)
    assert restored.to_snapshot() == data
    ours, theirs = controller.image.credentials, restored.credentials
    assert (theirs.users, theirs.salt_key, theirs.index) == (ours.users, ours.salt_key, ours.index)
    assert theirs.is_revoked("1f", "User:bob")
    assert theirs.is_revoked("", "User:carol")


def test_nothing_of_it_is_written_before_all_nodes_are_upgraded(controller: Controller) -> None:
    controller.image.feature_level = 1
    for answer in (
        controller.alter_users(users(credential())),
        controller.alter_revocations(AlterRevocationsRequest(revoke=[Revocation(serial="1f")])),
    ):
        assert answer.error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.SERVER_BUSY)


# -- mechanisms ----------------------------------------------------------------------------------------------------

OF_256, OF_512 = (ScramNumber.Value(f"SCRAM_MECHANISM_{each.name}") for each in ScramMechanism)


def long_credential(user: str = "alice", **fields: object) -> ScramCredential:
    """A credential for SCRAM-SHA-512."""
    keys = {"stored_key": b"k" * 64, "server_key": b"v" * 64, "mechanism": OF_512}
    return credential(user, **{**keys, **fields})


def held(controller: Controller) -> dict[str, list[ScramMechanism]]:
    """Returns the mechanisms of each user."""
    return {name: sorted(passwords) for name, passwords in controller.image.credentials.users.items()}


@pytest.fixture
def third(controller: Controller) -> Controller:
    """A controller at the feature level that stores mechanisms."""
    controller.image.feature_level = THIRD_FEATURE_LEVEL
    return controller


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (users(credential(mechanism=OF_512)), "64 bytes each, as SCRAM-SHA-512 needs"),
        (users(long_credential(mechanism=OF_256)), "32 bytes each, as SCRAM-SHA-256 needs"),
        (users(long_credential(mechanism=0)), "32 bytes each, as SCRAM-SHA-256 needs"),
        (users(credential(mechanism=3)), "no SCRAM mechanism 3: use SCRAM-SHA-256 or SCRAM-SHA-512"),
        (users(long_credential(), long_credential()), "'alice' is named twice"),
        (users(credential(), long_credential()), "'alice' is named twice"),
        (users(long_credential(), deletions=("alice",)), "'alice' is named twice"),
        (AlterUserScramCredentialsRequest(deletions=["a", "b"], deletion_mechanisms=[OF_256]), "one for each, or none"),
        (AlterUserScramCredentialsRequest(deletions=["a"], deletion_mechanisms=[9]), "no SCRAM mechanism 9"),
        (users(*(each(f"u{i}") for i in range(1_001) for each in (credential, long_credential))), "give 1 to 1000"),
    ],
)
def test_impossible_mechanisms_are_refused(request_: AlterUserScramCredentialsRequest, said: str) -> None:
    """Keys must be of the mechanism's size, and no password may be changed twice at once."""
    problem = check_users(request_)
    assert problem is not None and problem.code == ErrorCode.INVALID_REQUEST
    assert said in problem.message


def test_user_has_a_password_for_each_mechanism(third: Controller) -> None:
    """A password with a mechanism leaves the other one, and one without replaces both."""
    first = users(credential(mechanism=OF_256), long_credential(), long_credential("bob"))
    assert (third.alter_users(first).created, held(third)) == (2, {"alice": [SHA_256, SHA_512], "bob": [SHA_512]})
    assert third.alter_users(users(credential("bob", mechanism=OF_256))).created == 0
    assert held(third)["bob"] == [SHA_256, SHA_512]
    before = third.image.credentials.users["alice"]
    third.alter_users(users(long_credential(salt=b"t" * 16)))
    after = third.image.credentials.users["alice"]
    assert after[SHA_256] == before[SHA_256] and after[SHA_512].version != before[SHA_512].version
    third.alter_users(users(credential()))
    assert held(third)["alice"] == [SHA_256]


def test_last_password_goes_with_its_user(third: Controller) -> None:
    """The deletion of a password that does not exist has no effect."""
    third.alter_users(users(credential(mechanism=OF_256), long_credential()))

    def delete(number: int) -> tuple[int, list[ScramMechanism] | None]:
        request = AlterUserScramCredentialsRequest(deletions=["alice"], deletion_mechanisms=[number])
        return third.alter_users(request).deleted, held(third).get("alice")

    assert delete(OF_256) == (1, [SHA_512])
    assert delete(OF_256) == (0, [SHA_512])
    assert delete(OF_512) == (1, None)
    third.alter_users(users(credential(mechanism=OF_256), long_credential()))
    assert delete(0) == (1, None)


def test_limit_counts_users_not_passwords(third: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further password of a known user is always accepted, and a deletion makes room in the same request."""
    monkeypatch.setattr(credentials, "MAX_USERS", 2)
    assert third.alter_users(users(credential("a", mechanism=OF_256), credential("b", mechanism=OF_256))).created == 2
    assert not third.alter_users(users(long_credential("a"))).HasField("error")
    assert third.alter_users(users(long_credential("c"))).error.code == ErrorCode.POLICY_VIOLATION
    partly = AlterUserScramCredentialsRequest(
        upsertions=[long_credential("c")], deletions=["a"], deletion_mechanisms=[OF_256]
    )
    assert third.alter_users(partly).error.code == ErrorCode.POLICY_VIOLATION
    assert third.alter_users(users(long_credential("c"), deletions=("a",))).created == 1
    assert set(held(third)) == {"b", "c"}


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_every_password_of_a_super_user_is_guarded(third: Controller, mechanism: ScramMechanism) -> None:
    """Only a super user may change or delete a password of a user that has one for a super user's rights."""
    kinds = {SHA_256: credential, SHA_512: long_credential}
    meant = kinds[mechanism]("later", for_super_user=True, mechanism=int(mechanism))
    assert third.alter_users(users(meant), ROOT).created == 1
    for kind, number in ((credential, OF_256), (long_credential, OF_512)):
        refused = third.alter_users(users(kind("later", mechanism=number)), ALICE).error
        assert refused.code == ErrorCode.POLICY_VIOLATION
    request = AlterUserScramCredentialsRequest(deletions=["later"], deletion_mechanisms=[int(mechanism)])
    assert third.alter_users(request, ALICE).error.code == ErrorCode.POLICY_VIOLATION


def test_mechanisms_wait_for_feature_level_three(controller: Controller) -> None:
    """Before, no entry has a password that a node of the former version would misread, and deletions fit it."""
    assert controller.alter_users(users(credential(mechanism=OF_256))).created == 1
    refused = controller.alter_users(users(credential("bob"), long_credential())).error
    assert refused.code == ErrorCode.SERVER_BUSY, "the level is about to rise: there are no topics"
    assert set(held(controller)) == {"alice"}
    request = AlterUserScramCredentialsRequest(deletions=["alice"], deletion_mechanisms=[OF_512])
    assert controller.alter_users(request).deleted == 0
    assert set(held(controller)) == {"alice"}, "a node of the former version would have deleted the user"
    request = AlterUserScramCredentialsRequest(deletions=["alice"], deletion_mechanisms=[OF_256])
    assert (controller.alter_users(request).deleted, held(controller)) == (1, {})


def test_snapshot_keeps_both_mechanisms(third: Controller) -> None:
    """Passwords for SCRAM-SHA-256 are written as nodes of the former version write them."""
    third.alter_users(users(credential(mechanism=OF_256), long_credential(), credential("bob")))
    data = third.image.to_snapshot()
    restored = MetadataImage.from_snapshot(data)
    assert restored.to_snapshot() == data and restored.credentials.users == third.image.credentials.users
    numbers = [each.credential.mechanism for each in third.image.credentials.user_records()]
    assert numbers == [0, OF_512, 0]
