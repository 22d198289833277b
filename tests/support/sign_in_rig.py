"""A node's part in signing clients in, with a clock of its own and users in an image."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TypeVar

from google.protobuf.message import Message as ProtoMessage
from rights import holder

from quorumlog.sdk.runtime.scram_client import number_of
from quorumlog.server.access.audit import AuditTrail
from quorumlog.server.access.request_authentication import Admission
from quorumlog.server.access.scram_sign_in import ScramSignIns
from quorumlog.server.access.sessions import Sessions
from quorumlog.server.access.sign_in_rules import SignInRules
from quorumlog.server.access.token_sign_in import TokenSignIns
from quorumlog.server.config.options import SESSION_LIFETIME_US, AuthorizationOptions
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.step.bearer_tokens import TokenKeys, TokenVerifier
from quorumlog.server.step.events import ClientRequest, EndedStream
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.v1 import admin_pb2, metadata_log_pb2
from quorumlog.v1.credentials_pb2 import Revocation, ScramCredential
from quorumlog.v1.credentials_pb2 import ScramMechanism as ScramNumber
from quorumlog.v1.errors_pb2 import Error
from quorumlog.v1.sign_in_pb2 import (
    BeginScramRequest,
    BeginScramResponse,
    FinishScramRequest,
    FinishScramResponse,
    SignInByTokenRequest,
    SignInByTokenResponse,
)
from quorumlog.wire.scram import (
    ClientFinal,
    ClientFirst,
    ScramMechanism,
    ServerFirst,
    auth_message,
    client_proof,
    salted_keys,
)

ResponseT = TypeVar("ResponseT", bound=ProtoMessage)
#: Few, so that tests are fast.
ITERATIONS = 4_096


class SignInRig:
    """Users, sign-ins and requests at one node. Times are in microseconds.

    Arguments:
        verifier: of bearer tokens; None: the node accepts none.
        token_users: whom a token may name although there is another client of that name.
    """

    def __init__(
        self,
        seed: int = 7,
        image: MetadataImage | None = None,
        verifier: TokenVerifier | None = None,
        token_users: frozenset[str] = frozenset(),
    ) -> None:
        self.image = MetadataImage() if image is None else image
        self.rng = random.Random(seed)
        self.time = StepTime(1_000_000, 1_700_000_000_000)
        self.replies = Replies()
        options = AuthorizationOptions(True, frozenset({"User:root"}), audited=True, token_users=token_users)
        current = holder(self.image)
        self.audit = AuditTrail(True, self.time, current, SimpleNamespace(bound_ms=lambda now: 0))
        self.sessions = Sessions(self.rng, SESSION_LIFETIME_US)
        rules = SignInRules(options, current, self.sessions, self.audit)
        self.sign_ins = ScramSignIns(rules, self.replies, self.rng)
        self.keys = TokenKeys()
        self.keys.verifier = verifier
        self.token_sign_ins = TokenSignIns(rules, self.keys, self.replies)
        self.admission = Admission(current, self.sessions, token_users)

    # -- metadata ---------------------------------------------------------------------------------------------

    def set_password(
        self, user: str, password: bytes, *, for_super_user: bool = False, mechanism: ScramMechanism | None = None
    ) -> None:
        """The log brings a user, or another password.

        Arguments:
            mechanism: None: as a client without mechanisms sets it.
        """
        salt = self.rng.randbytes(16)
        keys = salted_keys(mechanism or ScramMechanism.SHA_256, password, salt, ITERATIONS)
        credential = ScramCredential(
            user=user,
            salt=salt,
            stored_key=keys.stored_key,
            server_key=keys.server_key,
            iterations=ITERATIONS,
            for_super_user=for_super_user,
            mechanism=_number(mechanism),
        )
        self._apply(users_altered=metadata_log_pb2.UsersAltered(upsertions=[credential], salt_key=b"k" * 32))

    def delete(self, user: str, mechanism: ScramMechanism | None = None) -> None:
        """The log takes a user away, or its password for one mechanism."""
        command = metadata_log_pb2.UsersAltered(deletions=[user], deletion_mechanisms=[_number(mechanism)])
        self._apply(users_altered=command)

    def revoke(self, *, serial: str = "", principal: str = "") -> None:
        """The log revokes something."""
        subject = Revocation(serial=serial) if serial else Revocation(principal=principal)
        self._apply(revocations_altered=metadata_log_pb2.RevocationsAltered(revoke=[subject]))

    def _apply(self, **body: object) -> None:
        self.image.apply(self.image.applied_index + 1, metadata_log_pb2.MetadataCommand(**body))  # type: ignore[arg-type]
        self.admission.metadata_changed()

    def wait(self, microseconds: int) -> None:
        """Time passes."""
        self.time.now += microseconds
        self.time.wall_ms += self.time.now // 1_000 - (self.time.now - microseconds) // 1_000
        for service in (self.sign_ins, self.admission, self.audit):
            due = service.next_deadline
            if due is not None and due <= self.time.now:
                service.on_time(self.time.now, self.time.wall_ms)

    # -- clients ----------------------------------------------------------------------------------------------

    def begin(
        self, user: str, host: str = "10.0.0.7", mechanism: ScramMechanism | None = None
    ) -> tuple[ClientFirst, BeginScramResponse]:
        """The first call."""
        first = ClientFirst(user, f"client-{self.rng.randbytes(9).hex()}")
        request = BeginScramRequest(client_first=first.text, mechanism=_number(mechanism))
        self.sign_ins.begin(self.time, _asked(request, host), request)
        return first, self._answer(BeginScramResponse)

    def finish(
        self,
        first: ClientFirst,
        begun: BeginScramResponse,
        password: bytes,
        host: str = "10.0.0.7",
        token: str = "",
        mechanism: ScramMechanism | None = None,
    ) -> FinishScramResponse:
        """The second call."""
        answer = ServerFirst.of(begun.server_first, first.nonce)
        final = ClientFinal(answer.nonce, b"")
        keys = salted_keys(mechanism or ScramMechanism.SHA_256, password, answer.salt, answer.iterations)
        final = final._replace(proof=client_proof(keys, auth_message(first, answer, final)))
        return self.send_final(first.text, final.text, host, token, mechanism)

    def send_final(
        self, first: str, final: str, host: str = "10.0.0.7", token: str = "", mechanism: ScramMechanism | None = None
    ) -> FinishScramResponse:
        """The second call with messages as they are."""
        number = _number(mechanism)
        request = FinishScramRequest(client_first=first, client_final=final, session_token=token, mechanism=number)
        self.sign_ins.finish(self.time, _asked(request, host), request)
        return self._answer(FinishScramResponse)

    def sign_in(
        self,
        user: str,
        password: bytes,
        host: str = "10.0.0.7",
        token: str = "",
        mechanism: ScramMechanism | None = None,
    ) -> FinishScramResponse:
        """Both calls."""
        first, begun = self.begin(user, host, mechanism)
        return self.finish(first, begun, password, host, token, mechanism)

    def show(
        self,
        bearer: str,
        host: str = "10.0.0.7",
        token: str = "",
        listener: Listener = Listener.PASSWORD,
        wanted: str = "",
    ) -> SignInByTokenResponse:
        """Sign-in by bearer token, as a wanted user."""
        request = SignInByTokenRequest(bearer_token=bearer, session_token=token, authorization_id=wanted)
        part = ClientRequest(1, request, client=RequestContext(host=host, listener=listener))
        self.token_sign_ins.sign_in(self.time, part, request)
        return self._answer(SignInByTokenResponse)

    def ask(self, token: str, stream: int = 0) -> Error | str:
        """A request on the listener for passwords: why it is not served, or the principal for which it is."""
        client = RequestContext(host="10.0.0.7", listener=Listener.PASSWORD, token=token)
        return self._admitted(ClientRequest(1, admin_pb2.DescribeQuorumRequest(), stream=stream, client=client))

    def ask_by_certificate(self, serial: str, user: str, stream: int = 0) -> Error | str:
        """The same on the listener for certificates."""
        client = RequestContext(principal=f"User:{user}", listener=Listener.CLIENT, serial=serial)
        return self._admitted(ClientRequest(1, admin_pb2.DescribeQuorumRequest(), stream=stream, client=client))

    def _admitted(self, asked: ClientRequest) -> Error | str:
        refused = self.admission.admit(self.time.now, asked)
        return asked.principal if refused is None else refused

    def ended(self) -> list[EndedStream]:
        """Streams that the node has ended since it was asked last."""
        return self.admission.take_ended()

    def _answer(self, kind: type[ResponseT]) -> ResponseT:
        (reply,) = self.replies.take_gathered()
        assert isinstance(reply.message, kind)
        return reply.message


def _number(mechanism: ScramMechanism | None) -> ScramNumber.ValueType:
    return ScramNumber.SCRAM_MECHANISM_UNSPECIFIED if mechanism is None else number_of(mechanism)


def _asked(request: ProtoMessage, host: str) -> ClientRequest:
    return ClientRequest(1, request, client=RequestContext(host=host, listener=Listener.PASSWORD))
