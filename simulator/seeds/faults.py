"""The kinds of fault: their effect on a simulated cluster, and their end.

A fault draws from a random stream of its own. So leaving one out does not change the others, and a failing seed can be
reduced to the few that matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from quorumlog.server.hosting.entry_repair import MIN_VOTERS
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.network import Unruliness
from quorumlog.simulator.world.operators import newest_image
from quorumlog.simulator.world.process import SimProcess
from quorumlog.simulator.world.replica_sets import is_enough_without, is_same_entry
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import admin_pb2

SECOND = 1_000_000
#: Time after which a node that was asked to stop counts as stuck (µs).
STOP_TIMEOUT_US = 20 * SECOND


class FaultInjection:
    """One fault as it happens.

    Arguments:
        rng: random stream of this fault alone.
        tempo: factor of the usual durations.
        active: True while faults are enabled; afterwards the cluster has been healed, and nothing may be undone twice.
        say: called with a line that describes the fault.
    """

    def __init__(
        self,
        cluster: SimCluster,
        scheduler: Scheduler,
        rng: random.Random,
        tempo: float,
        active: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        self.cluster = cluster
        self.scheduler = scheduler
        self.rng = rng
        self.say = say
        self._tempo = tempo
        self._active = active

    def node(self) -> int:
        """Returns any node; usually one that leads something."""
        leading = [
            number
            for number, process in self.cluster.processes.items()
            if any(replica.raft.is_leader for replica in process.replicas.values())
        ]
        if leading and self.rng.random() < 0.6:
            return self.rng.choice(leading)
        return self.rng.choice(self.cluster.node_ids)

    def process(self) -> SimProcess:
        """Returns the machine of any node."""
        return self.cluster.processes[self.node()]

    def machine(self) -> tuple[int, ...]:
        """Returns all nodes of the machine of any node."""
        return self.cluster.on_machine_of(self.node())

    def others(self, node: int) -> list[int]:
        """Returns all nodes but one."""
        return [other for other in self.cluster.node_ids if other != node]

    def length(self, least: int, most: int) -> int:
        """Returns a duration (µs) at the seed's tempo, skewed towards the short end."""
        spread = int((most - least) * self.rng.random() ** 2)
        return int((least + spread) * self._tempo) + 1

    def after(self, delay: int, action: Callable[[], None]) -> None:
        """Runs an action in ``delay`` µs, if faults are still enabled then."""

        def if_active() -> None:
            if self._active():
                action()

        self.scheduler.after(delay, if_active)

    def start(self, node: int) -> None:
        """Starts the node's process unless it is running."""
        if not self.cluster.processes[node].running:
            self.say(f"node {node} restarts")
            self.cluster.start(node)

    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Drops all messages from the one to the other node of each pair, for a while."""
        cut = list(pairs)
        for sender, receiver in cut:
            self.cluster.network.cut(sender, receiver)

        def mend() -> None:
            self.say(f"mended: {arrows(cut)}")
            for sender, receiver in cut:
                self.cluster.network.mend(sender, receiver)

        self.say(f"cut: {arrows(cut)}")
        self.after(self.length(50_000, 5 * SECOND), mend)


def arrows(pairs: Iterable[tuple[int, int]]) -> str:
    """Formats pairs of nodes for people."""
    return " ".join(f"{sender}→{receiver}" for sender, receiver in sorted(set(pairs)))


# -- processes --------------------------------------------------------------------------------------------------------


def kill(strike: FaultInjection, node: int | None = None, silent: bool = False) -> None:
    """Kills a node with SIGKILL."""
    process = strike.cluster.processes[strike.node() if node is None else node]
    if process.running:
        strike.say(f"node {process.node_id} dies")
        process.die(silent)
        strike.after(strike.length(5_000, 3 * SECOND), lambda: strike.start(process.node_id))


def power_loss(strike: FaultInjection) -> None:
    """Cuts a machine's power without notifying anyone: its peers detect it by keepalive."""
    kill(strike, silent=True)


def kill_all(strike: FaultInjection) -> None:
    """Kills every process at once, or cuts the power of all machines."""
    silent = strike.rng.random() < 0.5
    for node in strike.cluster.node_ids:
        kill(strike, node, silent)


def kill_at_sync(strike: FaultInjection) -> None:
    """Kills a node between the end of a sync and the moment when the node is notified of it."""
    node = strike.node()
    strike.say(f"node {node} dies after its next sync")
    # Not immediately: the sync has to end first.
    strike.cluster.processes[node].disk.after_sync = lambda: strike.after(0, lambda: kill(strike, node))


def slow_start(strike: FaultInjection) -> None:
    """Kills and restarts a node; its sockets are open long before it does anything."""
    process = strike.process()
    if process.running:
        strike.say(f"node {process.node_id} is restarted, and slow to start")
        process.die(silent=False)
        strike.cluster.start(process.node_id)
        process.pause()
        life = process.life
        strike.after(strike.length(50_000, 3 * SECOND), lambda: process.resume() if process.life == life else None)


def pause(strike: FaultInjection) -> None:
    """Pauses a node with SIGSTOP, and resumes it later."""
    process = strike.process()
    if process.running and not process.paused:
        strike.say(f"node {process.node_id} is paused")
        process.pause()
        strike.after(strike.length(20_000, 4 * SECOND), process.resume)


def stop(strike: FaultInjection, node: int | None = None) -> None:
    """Stops a node with SIGTERM, so that it hands its leaderships over; restarts it later."""
    process = strike.cluster.processes[strike.node() if node is None else node]
    if not process.running or process.paused:
        return
    stopping = process.node
    strike.say(f"node {process.node_id} is asked to stop")
    process.stop()

    def gone() -> None:
        if process.node is stopping and not process.paused:
            waited = STOP_TIMEOUT_US // SECOND
            raise Violation(f"node {process.node_id} was asked to stop, but is still running after {waited} s")
        strike.start(process.node_id)

    def restart() -> None:
        if process.node is stopping:
            strike.after(STOP_TIMEOUT_US, gone)
        else:
            strike.start(process.node_id)

    strike.after(strike.length(200_000, 6 * SECOND), restart)


def rolling_stop(strike: FaultInjection) -> None:
    """Stops one node after the other with SIGTERM: a storm of leadership transfers."""
    nodes = list(strike.cluster.node_ids)
    strike.rng.shuffle(nodes)
    for place, node in enumerate(nodes):
        strike.after(place * strike.length(100_000, 2 * SECOND), lambda node=node: stop(strike, node))  # type: ignore[misc]


def elect_leaders(strike: FaultInjection) -> None:
    """Requests an election of preferred leaders, regardless of other faults."""
    node = strike.node()
    strike.say(f"node {node} is asked to bring the leaderships to the preferred leaders")
    request = admin_pb2.ElectLeadersRequest(timeout_ms=500)
    strike.cluster.request("operator", node, request, lambda answer: None)


def reassign(strike: FaultInjection) -> None:
    """Moves a partition to other nodes, or changes its preferred leader."""
    contacted = strike.process()
    partitions = list(contacted.image.partitions.values()) if contacted.image is not None else []
    if not partitions:
        return
    partition = strike.rng.choice(partitions)
    replicas = strike.rng.sample(strike.cluster.node_ids, len(partition.replicas))
    if strike.rng.random() < 0.1:
        replicas = []
    name = f"{partition.topic.name}-{partition.number}"
    strike.say(f"node {contacted.node_id} is asked to move {name} to {replicas or 'where it was'}")
    request = admin_pb2.ReassignPartitionsRequest(timeout_ms=500)
    request.reassignments.add(topic=partition.topic.name, partition=partition.number, replicas=replicas)
    strike.cluster.request("operator", contacted.node_id, request, lambda answer: None)


def alter_retention(strike: FaultInjection) -> None:
    """Changes a topic's retention."""
    contacted = strike.process()
    topics = contacted.image.topics.values() if contacted.image is not None else ()
    # The topics of the metadata probe are excluded: it would take the change for a stale read.
    names = [t.name for t in topics if "cleanup.policy" not in t.configs and not t.name.startswith("probed")]
    if not names:
        return
    key, value = strike.rng.choice((("retention.bytes", "300"), ("retention.bytes", "3000"), ("retention.ms", "200")))
    request = admin_pb2.AlterConfigsRequest(timeout_ms=500)
    topic = request.topics.add(name=strike.rng.choice(sorted(names)))
    if strike.rng.random() < 0.5:
        topic.set[key] = value
    else:
        topic.clear.append(key)
    strike.say(f"node {contacted.node_id} is asked to keep of {topic.name} {key} {topic.set.get(key, 'by default')}")
    strike.cluster.request("operator", contacted.node_id, request, lambda answer: None)


# -- machines ---------------------------------------------------------------------------------------------------------


def machine_kill(strike: FaultInjection) -> None:
    """Kills all nodes of a machine at once."""
    for node in strike.machine():
        kill(strike, node)


def machine_power_loss(strike: FaultInjection) -> None:
    """Cuts a machine's power: all of its nodes die, and their peers detect it by keepalive."""
    for node in strike.machine():
        kill(strike, node, silent=True)


def machine_pause(strike: FaultInjection) -> None:
    """Suspends a machine with all of its nodes, and resumes it later."""
    suspended = [strike.cluster.processes[node] for node in strike.machine()]
    suspended = [process for process in suspended if process.running and not process.paused]
    strike.say(f"the machine of nodes {[process.node_id for process in suspended]} is suspended")
    lives = {process.node_id: process.life for process in suspended}
    for process in suspended:
        process.pause()

    def resume() -> None:
        for process in suspended:
            if process.life == lives[process.node_id]:
                process.resume()

    strike.after(strike.length(20_000, 4 * SECOND), resume)


def machine_isolate(strike: FaultInjection) -> None:
    """Isolates all nodes of a machine from all others; they reach each other."""
    inside = strike.machine()
    outside = [node for node in strike.cluster.node_ids if node not in inside]
    strike.cut([pair for one in inside for other in outside for pair in ((one, other), (other, one))])


# -- network ----------------------------------------------------------------------------------------------------------


def isolate(strike: FaultInjection) -> None:
    """Isolates a node from all others."""
    node = strike.node()
    strike.cut([pair for other in strike.others(node) for pair in ((node, other), (other, node))])


def split(strike: FaultInjection) -> None:
    """Splits the cluster into two sides."""
    nodes = list(strike.cluster.node_ids)
    strike.rng.shuffle(nodes)
    place = strike.rng.randint(1, len(nodes) - 1)
    sides = [(one, other) for one in nodes[:place] for other in nodes[place:]]
    strike.cut([pair for one, other in sides for pair in ((one, other), (other, one))])


def one_way(strike: FaultInjection) -> None:
    """Cuts the links between a node and some others in one direction."""
    node = strike.node()
    others = strike.others(node)
    others = strike.rng.sample(others, strike.rng.randint(1, len(others)))
    outwards = strike.rng.random() < 0.5
    strike.cut((node, other) if outwards else (other, node) for other in others)


def link(strike: FaultInjection) -> None:
    """Cuts a single link in both directions; all other links work."""
    one, other = strike.rng.sample(strike.cluster.node_ids, 2)
    strike.cut([(one, other), (other, one)])


def link_one_way(strike: FaultInjection) -> None:
    """Cuts a single link in one direction."""
    one, other = strike.rng.sample(strike.cluster.node_ids, 2)
    strike.cut([(one, other)])


def sever(strike: FaultInjection) -> None:
    """Breaks a node's connections so that its peers notice immediately, while it believes itself connected."""
    node = strike.node()
    strike.say(f"node {node} is severed")
    cut = strike.cluster.network.sever(node)

    def mend() -> None:
        strike.say(f"node {node} is no longer severed")
        for sender, receiver in cut:
            strike.cluster.network.mend(sender, receiver)

    strike.after(strike.length(50_000, 5 * SECOND), mend)


def reset(strike: FaultInjection) -> None:
    """Breaks a link's connections, which are opened again."""
    one, other = strike.rng.sample(strike.cluster.node_ids, 2)
    strike.say(f"the link {one}-{other} breaks")
    strike.cluster.network.reset(one, other)


def slow_network(strike: FaultInjection) -> None:
    """Slows the whole network down."""
    network = strike.cluster.network
    network.slowdown = strike.rng.choice((5, 20, 100))
    strike.say(f"the network is {network.slowdown} times slower")

    def fast() -> None:
        network.slowdown = 1

    strike.after(strike.length(100_000, 2 * SECOND), fast)


def unruly_network(strike: FaultInjection) -> None:
    """Loses, duplicates and reorders frames, while the streams stay up."""
    rng = strike.rng
    unruliness = Unruliness(rng.choice((0.0, 0.02, 0.2)), rng.choice((0.0, 0.02, 0.2)), rng.choice((0.0, 0.05, 0.3)))
    strike.say(
        f"frames are {unruliness.loss:.0%} lost, {unruliness.doubling:.0%} doubled, {unruliness.overtaking:.0%}"
        " overtaken"
    )
    strike.cluster.network.unruliness = unruliness

    def orderly() -> None:
        strike.cluster.network.unruliness = Unruliness()

    strike.after(strike.length(200_000, 4 * SECOND), orderly)


# -- disks and clocks -------------------------------------------------------------------------------------------------


def disk_full(strike: FaultInjection) -> None:
    """Fills a disk for a while."""
    process = strike.process()
    strike.say(f"the disk of node {process.node_id} is full")
    process.disk.full = True

    def room() -> None:
        process.disk.full = False

    strike.after(strike.length(100_000, 3 * SECOND), room)


def disk_stall(strike: FaultInjection) -> None:
    """Blocks syncs for a while."""
    process = strike.process()
    length = strike.length(50_000, 4 * SECOND)
    strike.say(f"the disk of node {process.node_id} stalls for {length // 1_000} ms")
    process.disk.stalled_until = strike.scheduler.now + length


def disk_error(strike: FaultInjection) -> None:
    """Fails the next commit, so that it is unknown if it is on the disk. The process must exit."""
    process = strike.process()
    if process.running:
        strike.say(f"the next commit of node {process.node_id} fails")
        process.disk.next_sync_fails = True
        strike.after(strike.length(SECOND // 2, 3 * SECOND), lambda: strike.start(process.node_id))


def disk_read_error(strike: FaultInjection) -> None:
    """Makes the next read of the log report damage: the process must exit with a line; the next one reads it
    correctly.
    """
    process = strike.process()
    if process.running:
        strike.say(f"the next read of node {process.node_id} finds damage")
        process.disk.next_read_fails = True
        strike.after(strike.length(SECOND // 2, 3 * SECOND), lambda: strike.start(process.node_id))


def flipped_bits(strike: FaultInjection) -> None:
    """Damages some entries on one disk. Another disk has each of them, without damage of that group; and the others are
    enough without this replica: if they compact such an entry in the meantime, it starts from scratch.
    """
    process = strike.process()
    cluster, node = strike.cluster, process.node_id
    synced, image = process.disk.synced, newest_image(strike.cluster)
    # A node that gives its copy up has just read another one completely.
    moving = {group for group, record in image.partitions.items() if record.is_moving} if image is not None else set()
    groups = [
        group
        for group, durable in synced.items()
        if len(durable.entries) > 1
        and group not in moving
        and is_enough_without(cluster, node, group)
        and (group != METADATA_GROUP or (_may_begin_anew(cluster, node) and _is_no_vote_of_two(image, node)))
    ]
    if not groups:
        return
    group = strike.rng.choice(groups)
    durable = synced[group]
    # A non-voter may be removed, and a node without metadata may start from scratch: neither is a permanent source of
    # an entry.
    voters = {node_id for half in durable.configuration.halves for node_id in half}
    others = [
        other.disk
        for other in cluster.processes.values()
        if other is not process and other.node_id in voters and not other.disk.damaged.get(METADATA_GROUP)
    ]
    struck = []
    first = strike.rng.randrange(len(durable.entries) - 1)
    for entry in durable.entries[first : first + strike.rng.choice((1, 1, 2, 10))][: len(durable.entries) - 1 - first]:
        elsewhere = [
            disk
            for disk in others
            if group in disk.synced and is_same_entry(entry, disk.synced[group].entry(entry.index))
        ]
        is_whole = any(not disk.damaged.get(group) and group not in disk.broken for disk in elsewhere)
        # If two replicas lost the same entry, no source would remain once the third has compacted its log.
        if is_whole and not any(entry.index in disk.damaged.get(group, ()) for disk in others):
            struck.append(entry.index)
    if struck:
        strike.say(f"entries {struck} of group {group} are damaged on node {process.node_id}")
        process.disk.damaged.setdefault(group, set()).update(struck)


def _is_no_vote_of_two(image: MetadataImage | None, node: int) -> bool:
    """True if a node is not about to be one of two metadata voters, which are both indispensable."""
    return image is not None and (node not in image.quorum.voters or len(image.quorum.voters) >= MIN_VOTERS)


def _may_begin_anew(cluster: SimCluster, node: int) -> bool:
    """True if a node may lose its metadata. It cannot start without them, and moves its whole storage aside. Beside a
    witness an operator would have to replace it.
    """
    options, held = cluster.options, cluster.processes[node].disk.synced
    replicated = options.replication_factor % 2 == 1 and options.min_insync_replicas >= 2
    beside_a_witness = any(durable.configuration.witnesses for durable in held.values())
    return replicated and not beside_a_witness and all(is_enough_without(cluster, node, group) for group in held)


def broken_replica(strike: FaultInjection) -> None:
    """Restarts a node, which finds rows of one replica damaged. No other replica of it is broken, and the others are
    enough without it.
    """
    process = strike.process()
    groups = [
        group
        for group in process.disk.synced
        if group != METADATA_GROUP
        and not any(group in other.disk.broken for other in strike.cluster.processes.values())
        and is_enough_without(strike.cluster, process.node_id, group)
    ]
    if not groups or not process.running:
        return
    group = strike.rng.choice(groups)
    strike.say(f"node {process.node_id} dies, and its replica of group {group} breaks")
    process.die(silent=strike.rng.random() < 0.5)
    process.disk.broken.add(group)
    strike.after(strike.length(SECOND // 10, SECOND), lambda: strike.start(process.node_id))


def clock_jump(strike: FaultInjection) -> None:
    """Makes the wall clock jump, within the hour by which nodes allow a producer's clock to be ahead of theirs."""
    process = strike.process()
    process.wall_offset_ms = strike.rng.randint(-1_800_000, 1_800_000)
    strike.say(f"the wall clock of node {process.node_id} is {process.wall_offset_ms / 1_000:.0f} s off")


class FaultKind(NamedTuple):
    """A kind of fault. ``needs_peers``: it is meaningless for a single node. ``apart``: seeds draw it separately."""

    strike: Callable[[FaultInjection], None]
    needs_peers: bool = False
    apart: bool = False


KINDS: dict[str, FaultKind] = {
    "kill": FaultKind(kill),
    "power-loss": FaultKind(power_loss),
    "kill-all": FaultKind(kill_all),
    "kill-at-sync": FaultKind(kill_at_sync),
    "slow-start": FaultKind(slow_start),
    "pause": FaultKind(pause),
    "stop": FaultKind(stop),
    "rolling-stop": FaultKind(rolling_stop),
    "elect-leaders": FaultKind(elect_leaders, needs_peers=True),
    "reassign": FaultKind(reassign, needs_peers=True),
    "alter-retention": FaultKind(alter_retention),
    "isolate": FaultKind(isolate, needs_peers=True),
    "split": FaultKind(split, needs_peers=True),
    "one-way": FaultKind(one_way, needs_peers=True),
    "link": FaultKind(link, needs_peers=True),
    "link-one-way": FaultKind(link_one_way, needs_peers=True),
    "sever": FaultKind(sever, needs_peers=True),
    "reset": FaultKind(reset, needs_peers=True),
    "slow-network": FaultKind(slow_network, needs_peers=True),
    "unruly-network": FaultKind(unruly_network, needs_peers=True),
    "disk-full": FaultKind(disk_full),
    "disk-stall": FaultKind(disk_stall),
    "disk-error": FaultKind(disk_error),
    "disk-read-error": FaultKind(disk_read_error),
    "clock-jump": FaultKind(clock_jump),
    "machine-kill": FaultKind(machine_kill, needs_peers=True, apart=True),
    "machine-power-loss": FaultKind(machine_power_loss, needs_peers=True, apart=True),
    "machine-pause": FaultKind(machine_pause, needs_peers=True, apart=True),
    "machine-isolate": FaultKind(machine_isolate, needs_peers=True, apart=True),
    "flipped-bits": FaultKind(flipped_bits, needs_peers=True, apart=True),
    "broken-replica": FaultKind(broken_replica, needs_peers=True, apart=True),
}
