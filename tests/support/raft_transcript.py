"""A small language for Raft transcripts: one command a line, what it printed indented below it.

::

    voters 1 2 3 [learners 4] [option=value ...]     a new cluster (first command); witness=3: node 3 is a witness,
                                                     spare=4: node 4 is there and no member yet
    elect 1                                          a campaign in which nothing goes wrong
    campaign 1 / timeout 1 / wait 5ms                an election now; at its deadline; let time pass
    propose 1 text / learners 1 4 5                  an entry; a change of the learners
    replace 1 2 3 4 [learners 5] [witness=4]         node 1 proposes other voters
    destroy 4 voters 1 2 3 [from=9]                  a removed replica is destroyed, and remade as a learner, which
                                                     has a say once it has learned that index 9 is committed; with
                                                     ``data`` it is no longer a witness
    deliver [filters] / drop [filters]               what is under way now, not what that causes
    keep NAME [filters] / replay NAME                copies of messages under way, to be delivered again later
    persist 1 [n] / crash 1 [synced=n] / restart 1   sync the oldest n writes (all); lose what is not synced
    settle [drop=2,3]                                carry on until nothing is under way; 2 and 3 are cut off
    heartbeat 1 / transfer 1 2 / compact 1 5
    quiesce 1 [reachable=2,3] / wake 2 [heard=100ms]   a heartbeat's turn; the lease has been invalid for 100 ms
    read 1 NAME                                      a linearizable read is asked for
    lost 1 2 / unreachable 1 2                       1's connection to 2 broke; its data stream was reset
    state / log 1 / progress 1 / network / deadline 1  print
    expect leader 1|none, expect commit 1 5, expect role 1 follower, expect term 1 2, expect log 1 1/1 2/1,
    expect applied 1 a b, expect durable 1 5, expect vote 1 2, expect uncommitted 1 0, expect refused 1 text,
    expect members 1 1,2,3->1,2,4+5 (joint, with a learner; 3w is a witness),
    expect everywhere 1, expect elsewhere 1 (whether a removed replica may be destroyed),
    expect engaged 1, expect disengaged 1 (whether its witnesses are sent what not all data replicas have),
    expect quiescent 1, expect awake 1, expect readable 1 NAME 5, expect unreadable 1 NAME

Filters: ``to=2``, ``from=1``, ``type=Append`` (a prefix of the message's name). Lines with ``#`` are comments. An
``expect`` that does not hold fails the test whatever the file says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from raft_cluster import Cluster, Sealer

from quorumlog.raft.errors import RaftError
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.types import (
    NO_NODE,
    AppendRequest,
    AppendResponse,
    Configuration,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    Ready,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)


def run(text: str) -> str:
    """Carries out the commands of a transcript and returns it with what they print now."""
    script = Script()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        command = line.split("#")[0].split()
        if command:
            try:
                lines += [f"  {printed}" for printed in script.execute(command)]
            except AssertionError as error:
                raise AssertionError(f"{line!r}: {error}\n" + "\n".join(lines)) from error
    return "\n".join(lines) + "\n"


class Script:
    """The state of one transcript."""

    def __init__(self) -> None:
        self.cluster = Cluster((1,))
        self.kept: dict[str, list[Message]] = {}
        #: By name: the heartbeat round that must be confirmed, and the commit index that may then be read.
        self.reads: dict[str, tuple[int, int]] = {}

    def execute(self, command: list[str]) -> list[str]:
        name, words = command[0], [word for word in command[1:] if "=" not in word]
        options = dict(word.split("=", 1) for word in command[1:] if "=" in word)
        action: Callable[[list[str], dict[str, str]], list[str] | None] = getattr(self, f"do_{name}")
        try:
            printed = action(words, options) or []
        except RaftError as error:
            printed = [f"{type(error).__name__}: {error}"]
        if name != "voters":
            for node_id in self.cluster.up:
                self.cluster.drain(node_id)
        return printed

    # -- the cluster ------------------------------------------------------------------------------------------

    def do_voters(self, words: list[str], options: dict[str, str]) -> None:
        voters, learners = split(words)
        limits = RaftOptions(
            **{name: int(value) for name, value in options.items() if name not in ("spare", "witness")}
        )
        self.cluster = Cluster(
            voters, learners, options=limits, spare=nodes(options, "spare"), witnesses=nodes(options, "witness")
        )

    def do_elect(self, words: list[str], options: dict[str, str]) -> None:
        self.cluster.elect(int(words[0]))

    def do_campaign(self, words: list[str], options: dict[str, str]) -> None:
        self.cluster.core(int(words[0])).campaign(self.cluster.now)

    def do_timeout(self, words: list[str], options: dict[str, str]) -> None:
        core = self.cluster.core(int(words[0]))
        self.cluster.now = max(self.cluster.now, core.next_deadline)
        core.on_time(self.cluster.now)

    def do_wait(self, words: list[str], options: dict[str, str]) -> None:
        self.cluster.now += int(words[0].removesuffix("ms")) * 1000

    def do_propose(self, words: list[str], options: dict[str, str]) -> None:
        self.cluster.propose(int(words[0]), words[1].encode())

    def do_learners(self, words: list[str], options: dict[str, str]) -> None:
        core = self.cluster.core(int(words[0]))
        learners = tuple(map(int, words[1:]))
        witnesses = nodes(options, "witness") or core.configuration.witnesses
        wanted = Configuration(core.configuration.voters, learners, witnesses=witnesses)
        core.propose_configuration(self.cluster.now, wanted)

    def do_replace(self, words: list[str], options: dict[str, str]) -> None:
        core = self.cluster.core(int(words[0]))
        voters, learners = split(words[1:])
        wanted = Configuration(voters, learners, witnesses=nodes(options, "witness"))
        core.propose_configuration(self.cluster.now, wanted)

    def do_destroy(self, words: list[str], options: dict[str, str]) -> None:
        if "data" in words:
            words.remove("data")
            self.cluster.witnesses.discard(int(words[0]))
        configuration = Configuration(tuple(map(int, words[2:])), (int(words[0]),))
        self.cluster.destroy(int(words[0]), configuration, int(options.get("from", "0")))

    def do_heartbeat(self, words: list[str], options: dict[str, str]) -> None:
        self.cluster.core(int(words[0])).heartbeat(self.cluster.now)

    def do_quiesce(self, words: list[str], options: dict[str, str]) -> list[str]:
        core = self.cluster.core(int(words[0]))
        named = options.get("reachable", ",".join(map(str, core.configuration.members)))
        asleep = core.quiesce(self.cluster.now, {int(node_id) for node_id in named.split(",") if node_id})
        return [f"{core.node_id} {'sleeps' if asleep else 'stays awake'}"]

    def do_wake(self, words: list[str], options: dict[str, str]) -> None:
        core = self.cluster.core(int(words[0]))
        heard = self.cluster.now - int(options.get("heard", "0ms").removesuffix("ms")) * 1000
        core.wake(self.cluster.now, dict.fromkeys(self.cluster.replicas, heard))

    def do_read(self, words: list[str], options: dict[str, str]) -> list[str]:
        core = self.cluster.core(int(words[0]))
        if not core.leads_committed:
            return [f"{core.node_id} has not committed an entry of its term"]
        index = core.commit_index
        self.reads[words[1]] = (core.heartbeat(self.cluster.now), index)
        return [f"{words[1]} reads up to {index} once round {self.reads[words[1]][0]} is confirmed"]

    def do_transfer(self, words: list[str], options: dict[str, str]) -> None:
        self.cluster.core(int(words[0])).transfer_leadership(self.cluster.now, int(words[1]))

    def do_compact(self, words: list[str], options: dict[str, str]) -> None:
        self.cluster.compact(int(words[0]), int(words[1]))

    def do_lost(self, words: list[str], options: dict[str, str]) -> None:
        self.cluster.core(int(words[0])).peer_lost(self.cluster.now, int(words[1]))

    def do_unreachable(self, words: list[str], options: dict[str, str]) -> None:
        self.cluster.core(int(words[0])).peer_unreachable(self.cluster.now, int(words[1]))

    # -- disks and network ------------------------------------------------------------------------------------

    def do_persist(self, words: list[str], options: dict[str, str]) -> list[str]:
        node_id = int(words[0])
        replica = self.cluster.replicas[node_id]
        printed = []
        for _ in range(int(words[1]) if len(words) > 1 else len(replica.unsynced)):
            printed.append(f"{node_id} synced {describe_write(replica.unsynced[0])}")
            self.cluster.persist(node_id)
        return printed

    def do_crash(self, words: list[str], options: dict[str, str]) -> list[str]:
        node_id = int(words[0])
        lost = self.cluster.replicas[node_id].unsynced[int(options.get("synced", "0")) :]
        printed = [f"{node_id} lost {describe_write(ready)}" for ready in lost]
        self.cluster.crash(node_id, synced=int(options.get("synced", "0")))
        return printed

    def do_restart(self, words: list[str], options: dict[str, str]) -> None:
        self.cluster.start(int(words[0]))

    def matching(self, options: dict[str, str]) -> list[Message]:
        return [
            message
            for message in self.cluster.network
            if options.get("to") in (None, str(message.to))
            and options.get("from") in (None, str(message.sender))
            and type(message).__name__.startswith(options.get("type", ""))
        ]

    def take(self, options: dict[str, str]) -> list[Message]:
        taken = self.matching(options)
        self.cluster.network = [m for m in self.cluster.network if not any(m is other for other in taken)]
        return taken

    def do_deliver(self, words: list[str], options: dict[str, str]) -> list[str]:
        dropped = options.pop("drop", "").split(",")
        printed = []
        for message in self.take(options):
            lost = str(message.to) in dropped or self.cluster.replicas[message.to].core is None
            printed.append(describe(message) + (" lost" if lost else ""))
            if lost:
                self.cluster.lose(message)
            else:
                self.cluster.deliver(message)
        return printed

    def do_drop(self, words: list[str], options: dict[str, str]) -> list[str]:
        lost = self.take(options)
        for message in lost:
            self.cluster.lose(message)
        return [describe(message) + " lost" for message in lost]

    def do_keep(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.kept[words[0]] = [replace(message) for message in self.matching(options)]
        return [describe(message) for message in self.kept[words[0]]]

    def do_replay(self, words: list[str], options: dict[str, str]) -> list[str]:
        for message in self.kept[words[0]]:
            self.cluster.deliver(replace(message))
        return [describe(message) for message in self.kept[words[0]]]

    def do_settle(self, words: list[str], options: dict[str, str]) -> None:
        cut = {int(node_id) for node_id in options.get("drop", "").split(",") if node_id}
        self.cluster.settle(cut=cut)

    # -- printing ---------------------------------------------------------------------------------------------

    def do_state(self, words: list[str], options: dict[str, str]) -> list[str]:
        printed = []
        for node_id, replica in self.cluster.replicas.items():
            core = replica.core
            if core is None:
                printed.append(f"{node_id} down")
                continue
            leader, vote = (str(n) if n != NO_NODE else "-" for n in (core.leader_id, core.vote))
            printed.append(
                f"{node_id} {core.role.value} term={core.term} vote={vote} leader={leader} log={core.first_index}.."
                f"{core.last_id.index} commit={core.commit_index} durable={core.durable_index}"
            )
        return printed

    def do_log(self, words: list[str], options: dict[str, str]) -> list[str]:
        return [" ".join(self.log_of(int(words[0]))) or "empty"]

    def log_of(self, node_id: int) -> list[str]:
        core = self.cluster.core(node_id)
        if core.last_id.index < core.first_index:
            return []
        entries = core.entries_between(core.first_index, core.last_id.index, 1 << 30)
        return [describe_entry(entry) for entry in entries]

    def do_progress(self, words: list[str], options: dict[str, str]) -> list[str]:
        return [
            f"{peer} {progress.state.value} match={progress.match_index} next={progress.next_index} "
            f"inflight={len(progress.inflights)}/{progress.inflights.bytes}B"
            for peer, progress in self.cluster.core(int(words[0])).progress.items()
            if peer != int(words[0])
        ]

    def do_deadline(self, words: list[str], options: dict[str, str]) -> list[str]:
        return [f"in {(self.cluster.core(int(words[0])).next_deadline - self.cluster.now) // 1000} ms"]

    def do_network(self, words: list[str], options: dict[str, str]) -> list[str]:
        return [describe(message) for message in self.cluster.network]

    # -- expectations -----------------------------------------------------------------------------------------

    def do_expect(self, words: list[str], options: dict[str, str]) -> None:
        what, rest = words[0], words[1:]
        if what == "leader":
            leaders = [str(n) for n in self.cluster.up if self.cluster.core(n).is_leader] or ["none"]
            assert leaders == rest, f"leaders: {leaders}"
            return
        core = self.cluster.core(int(rest[0]))
        if what == "refused":
            try:
                self.cluster.propose(core.node_id, rest[1].encode())
            except RaftError:
                return
            raise AssertionError("the proposal was taken")
        if what in ("readable", "unreadable"):
            wanted, index = self.reads[rest[1]]
            assert (core.confirmed_round >= wanted) == (what == "readable"), f"round {core.confirmed_round} confirmed"
            assert [str(index)] == rest[2:] or what == "unreadable", f"up to {index}"
            return
        found = {
            "commit": lambda: [str(core.commit_index)],
            "durable": lambda: [str(core.durable_index)],
            "term": lambda: [str(core.term)],
            "vote": lambda: [str(core.vote) if core.vote != NO_NODE else "-"],
            "role": lambda: [core.role.value],
            "log": lambda: [entry.split(":")[0] for entry in self.log_of(core.node_id)],
            "applied": lambda: [
                e.data.decode() for e in self.cluster.replicas[core.node_id].applied if e.kind is EntryKind.COMMAND
            ],
            "members": lambda: [describe_members(core.configuration)],
            "everywhere": lambda: [] if core.is_configuration_everywhere else ["not everywhere"],
            "elsewhere": lambda: ["everywhere"] if core.is_configuration_everywhere else [],
            "uncommitted": lambda: [str(core.uncommitted_bytes)],
            "engaged": lambda: [] if core.witnesses_engaged else ["disengaged"],
            "disengaged": lambda: ["engaged"] if core.witnesses_engaged else [],
            "quiescent": lambda: [] if core.quiescent else ["awake"],
            "awake": lambda: ["quiescent"] if core.quiescent else [],
        }[what]()
        assert found == rest[1:], f"found {found}"


def split(words: list[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Voters and learners of a command."""
    parts = " ".join(words).split("learners")
    voters, learners = (tuple(map(int, part.split())) for part in (*parts, "")[:2])
    return voters, learners


def nodes(options: dict[str, str], name: str) -> tuple[int, ...]:
    """The nodes that an option names."""
    return tuple(map(int, options[name].split(","))) if name in options else ()


def describe_members(configuration: Configuration) -> str:
    outgoing, voters, learners = (
        ",".join(f"{node}{'w' * (node in configuration.witnesses)}" for node in part)
        for part in (configuration.outgoing, configuration.voters, configuration.learners)
    )
    return f"{outgoing}->" * bool(outgoing) + voters + f"+{learners}" * bool(learners)


def describe_entry(entry: Entry) -> str:
    match entry.kind:
        case EntryKind.NOOP:
            return f"{entry.index}/{entry.term}"
        case EntryKind.CONFIG:
            return f"{entry.index}/{entry.term}:{describe_members(Sealer().configuration_of(entry))}"
        case EntryKind.TRACE:
            return f"{entry.index}/{entry.term}:trace"
    return f"{entry.index}/{entry.term}:{entry.data.decode()}"


def describe_write(ready: Ready) -> str:
    parts = []
    if ready.hard_state is not None:
        vote = ready.hard_state.vote if ready.hard_state.vote != NO_NODE else "-"
        parts.append(f"term={ready.hard_state.term} vote={vote}")
    if ready.snapshot is not None:
        parts.append(f"snapshot={ready.snapshot.last.index}/{ready.snapshot.last.term}")
    if ready.truncate_from is not None:
        parts.append(f"truncate_from={ready.truncate_from}")
    if ready.entries:
        parts.append("[" + " ".join(map(describe_entry, ready.entries)) + "]")
    return " ".join(parts)


def describe(message: Message) -> str:
    text = f"{message.sender}->{message.to} {type(message).__name__} term={message.term}"
    match message:
        case VoteRequest():
            flags = " pre-vote" * message.pre_vote + " transfer" * message.transfer
            return f"{text}{flags} last={message.last_index}/{message.last_term}"
        case VoteResponse():
            return f"{text}{' pre-vote' * message.pre_vote} {'granted' if message.granted else 'refused'}"
        case AppendRequest():
            entries = " ".join(map(describe_entry, message.entries))
            return f"{text} prev={message.prev_index}/{message.prev_term} commit={message.commit} [{entries}]"
        case AppendResponse() if message.rejected:
            return f"{text} rejected={message.index} hint={message.hint_index}/{message.hint_term}"
        case AppendResponse() | SnapshotResponse():
            return f"{text} index={message.index}"
        case Heartbeat():
            return f"{text} commit={message.commit}{' quiesce' * message.quiesce}"
        case HeartbeatResponse():
            return f"{text}{' quiescent' * message.quiescent}"
        case InstallSnapshot():
            return f"{text} last={message.snapshot.last.index}/{message.snapshot.last.term}"
        case TimeoutNow():
            return f"{text} last={message.last_index}"
    return text
