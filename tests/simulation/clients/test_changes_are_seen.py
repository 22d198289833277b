"""Changes of topics by the SDK's admin client, on virtual time: it waits for all nodes as long as its call may take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from quiet_cluster import Quiet

from quorumlog.sdk.admin.async_admin import AsyncAdmin
from quorumlog.sdk.errors import RequestTimedOutError
from quorumlog.sdk.types import NewTopic
from quorumlog.simulator.clients.client_network import SimClientNetwork

#: Of a call, as the SDK has it.
DEFAULT_S = 30.0


class Administered(Quiet):
    """A quiet cluster, and an administrator who makes a topic whose only replica is on a node that has just died."""

    def __init__(self, seed: int, request_timeout_ms: float | None = None) -> None:
        super().__init__(seed)
        self.network = SimClientNetwork(self.cluster, self.scheduler)
        for process in self.cluster.processes.values():
            assert process.make_door is not None
            process.door = process.make_door()
        self.run(2)
        self.outcome: BaseException | str | None = None
        self.host = self.network.host("admin", 0)
        self._options = {} if request_timeout_ms is None else {"request_timeout_ms": request_timeout_ms}
        self.host.run(self._create())

    async def _create(self) -> None:
        servers = self.network.bootstrap_servers
        admin = AsyncAdmin(runtime=self.host.runtime, bootstrap_servers=servers, **self._options)
        await admin.describe_cluster()
        self.cluster.processes[3].die(silent=False)
        try:
            await admin.create_topics([NewTopic("late", replica_assignments={0: [3]})])
            self.outcome = "created"
        except RequestTimedOutError as late:
            self.outcome = late
        await admin.close()


@pytest.fixture
def administered(request: pytest.FixtureRequest) -> Iterator[Administered]:
    made = Administered(1, getattr(request, "param", None))
    yield made
    made.network.dispose()


def test_a_topic_may_take_longer_to_be_served_than_is_usual(administered: Administered) -> None:
    administered.run(12)
    assert administered.outcome is None, "no node serves it yet"
    administered.cluster.start(3)
    administered.until(lambda: administered.outcome is not None, DEFAULT_S)
    assert administered.outcome == "created"


@pytest.mark.parametrize("administered", [3_000], indirect=True)
def test_a_call_ends_when_its_time_is_over_and_says_that_the_topic_is_there(administered: Administered) -> None:
    took_s = administered.until(lambda: administered.outcome is not None, 10)
    assert 2.9 < took_s < 4.5
    assert isinstance(administered.outcome, RequestTimedOutError) and not administered.outcome.definite
    assert "topic 'late' was created, but is not served everywhere yet" in str(administered.outcome)
