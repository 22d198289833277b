"""Recovery plan: which survivor continues with what, computed from all surveys; the same on every machine."""

from __future__ import annotations

import binascii
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from quorumlog.raft.types import Configuration, EntryId
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP, PartitionRecord
from quorumlog.server.recovery.recovered_metadata import Continuation, Recovered, recovered_snapshot
from quorumlog.server.recovery.survey import (
    FORMAT,
    RecoveryError,
    ReplicaKind,
    Survey,
    SurveyedGroup,
    packed,
    unpacked,
)
from quorumlog.wire.topic_names import GROUPS_TOPIC, TRANSACTIONS_TOPIC

#: Upper bound on terms that the lost nodes reached unknown to the survivors: the new terms are above all of them, or
#: clients would mistake its leaders for former ones.
UNHEARD_TERMS = 1_000
#: Upper bound on entries of the metadata log, likewise: broker epochs are their indexes.
UNHEARD_ENTRIES = 1_000_000


class Loss(Enum):
    """Extent of a partition's data loss."""

    NOTHING = "nothing"
    NEWEST = "newest"
    ALL = "all"


@dataclass(slots=True, frozen=True)
class PartitionOutcome:
    """Outcome of the recovery for a partition.

    Arguments:
        name: topic and number.
        why: what is lost or not, as text.
    """

    name: str
    goes_on: Continuation
    loss: Loss
    why: str


@dataclass(slots=True, frozen=True)
class RecoveryPlan:
    """The state that every survivor's directory is to have.

    Arguments:
        cluster_id: of the recovered cluster; ``former_cluster_id`` is not used again.
        survivors: the fingerprint of each survivor's survey, by node.
        lost: the nodes that are given up.
        metadata_node: the node whose metadata log continues.
        voter: node, data directory and address of the first voter of the recovered metadata.
        last: position that replaces the log before the recovered metadata.
        configuration: the members of the recovered metadata group.
        snapshot: the recovered metadata.
        outcomes: of all partitions, by their Raft group.
        report: what is lost or may be lost, as text.
    """

    former_cluster_id: str
    cluster_id: str
    survivors: dict[int, str]
    lost: tuple[int, ...]
    metadata_node: int
    voter: tuple[int, str, str]
    last: EntryId
    configuration: Configuration
    snapshot: bytes
    outcomes: dict[int, PartitionOutcome]
    report: tuple[str, ...]

    @property
    def plan_id(self) -> str:
        """Hash of the whole content."""
        content = self._content() | {"metadata_image": hashlib.blake2b(self.snapshot).hexdigest()}
        return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()

    def to_json(self) -> dict[str, object]:
        """Returns the form for a file, with the readable part first."""
        return self._content() | {"metadata_image": packed(self.snapshot), "plan_id": self.plan_id}

    def _content(self) -> dict[str, object]:
        return {
            "plan_format": FORMAT,
            "report": list(self.report),
            "former_cluster_id": self.former_cluster_id,
            "cluster_id": self.cluster_id,
            "lost_nodes": list(self.lost),
            "survivors": [
                {"node_id": node, "fingerprint": fingerprint} for node, fingerprint in sorted(self.survivors.items())
            ],
            "metadata": {
                "node_id": self.metadata_node,
                "index": self.last.index,
                "term": self.last.term,
                "hash": f"{self.last.hash:016x}",
                "voter": list(self.voter),
                "voters": list(self.configuration.voters),
                "learners": list(self.configuration.learners),
            },
            "partitions": [_outcome_json(group, each) for group, each in sorted(self.outcomes.items())],
        }

    @classmethod
    def from_json(cls, row: Any, where: str) -> RecoveryPlan:
        """Parses the result of ``to_json``.

        Arguments:
            where: name of its source, for error messages.

        Raises:
            RecoveryError: it is not a plan.
        """
        try:
            if row["plan_format"] != FORMAT:
                raise RecoveryError(f"{where} is a plan of another version: make a new plan with this version")
            metadata = row["metadata"]
            node, directory, address = metadata["voter"]
            last = EntryId(int(metadata["index"]), int(metadata["term"]), int(metadata["hash"], 16))
            plan = cls(
                str(row["former_cluster_id"]),
                str(row["cluster_id"]),
                {int(each["node_id"]): str(each["fingerprint"]) for each in row["survivors"]},
                tuple(map(int, row["lost_nodes"])),
                int(metadata["node_id"]),
                (int(node), str(directory), str(address)),
                last,
                Configuration(tuple(map(int, metadata["voters"])), tuple(map(int, metadata["learners"]))),
                unpacked(row["metadata_image"]),
                {int(each["group"]): _outcome_of(each) for each in row["partitions"]},
                tuple(map(str, row["report"])),
            )
            if plan.plan_id != row["plan_id"]:
                raise RecoveryError(f"{where} was modified after it was printed: make a new plan")
            return plan
        except (KeyError, TypeError, AttributeError, OverflowError, binascii.Error, zlib.error, ValueError) as problem:
            if isinstance(problem, RecoveryError):
                raise
            raise RecoveryError(f"{where} is not a plan: specify the output of quorumlog recover plan") from None


def make_plan(surveys: Sequence[Survey]) -> RecoveryPlan:
    """Chooses the most complete survivor for the metadata and for each partition.

    Arguments:
        surveys: of all survivors.

    Raises:
        RecoveryError: they do not belong together, or every group still has a majority.
    """
    by_node = _check_surveys(surveys)
    metadata = _most_complete(by_node, METADATA_GROUP)
    if metadata is None:
        raise RecoveryError("no survivor has the metadata: recovery is impossible, restore a backup")
    image = MetadataImage.from_snapshot(by_node[metadata].metadata)
    _check_members(by_node, image, metadata)
    lost = tuple(sorted(node for node in image.brokers if node not in by_node))
    former = by_node[metadata].cluster_id
    # The same surveys result in the same cluster id, on whichever machine the plan is made; others in another one.
    content = json.dumps([former, sorted((node, each.fingerprint) for node, each in by_node.items())])
    cluster_id = hashlib.blake2b(content.encode(), digest_size=11).hexdigest()
    last = _metadata_end(surveys, cluster_id)
    next_group = max(image.topic_table.next_group, *(group + 1 for each in surveys for group in each.groups))
    outcomes = _outcomes(by_node, image, next_group)
    log = by_node[metadata].groups[METADATA_GROUP]
    majority_left = _is_majority_left(log, by_node)
    if majority_left and all(each.loss is Loss.NOTHING for each in outcomes.values()):
        raise RecoveryError(
            "every group still has a majority: start these nodes, no recovery is needed (replace a lost disk with"
            " quorumlog nodes replace)"
        )
    recovered = Recovered(
        cluster_id=former,
        survivors=frozenset(by_node),
        electors=frozenset(image.quorum.voters or (log.configuration.electors if log.configuration else ())),
        first_voter=metadata,
        index=last.index,
        next_group=next_group + len(outcomes),
        partitions={each.goes_on.former_group: (group, each.goes_on) for group, each in outcomes.items()},
    )
    registration = image.brokers[metadata].registration
    others = tuple(sorted(node for node in by_node if node != metadata))
    return RecoveryPlan(
        former, cluster_id, {node: each.fingerprint for node, each in by_node.items()}, lost, metadata,
        (metadata, registration.directory_id, f"{registration.host}:{registration.port}"), last,
        Configuration((metadata,), others), recovered_snapshot(image, recovered), outcomes,
        _report(by_node, lost, metadata, majority_left, image, outcomes),
    )  # fmt: skip


def _check_surveys(surveys: Sequence[Survey]) -> dict[int, Survey]:
    if not surveys:
        raise RecoveryError("no surveys: specify those of all survivors")
    by_node: dict[int, Survey] = {}
    for each in surveys:
        if each.node_id in by_node:
            raise RecoveryError(f"two surveys are of node {each.node_id}: specify one of each survivor")
        by_node[each.node_id] = each
    clusters = sorted({each.cluster_id for each in surveys})
    if len(clusters) > 1:
        raise RecoveryError(
            f"the surveys are of different clusters, {', '.join(clusters)}: if a plan was applied to some of these"
            " directories, apply the same to the others, or leave them out"
        )
    return by_node


def _check_members(surveys: Mapping[int, Survey], image: MetadataImage, metadata: int) -> None:
    for node, each in sorted(surveys.items()):
        broker = image.brokers.get(node)
        if broker is None or broker.registration.directory_id != each.directory_id or broker.is_lost:
            raise RecoveryError(
                f"the newest metadata, on node {metadata}, do not have node {node} with data directory"
                f" {each.directory_id}: leave it out, and start the node with an empty one later"
            )


def _metadata_end(surveys: Iterable[Survey], cluster_id: str) -> EntryId:
    """Returns the position that replaces the former metadata log; its hash differs from that of any former log."""
    known = [each.groups[METADATA_GROUP] for each in surveys]
    index = max(each.last_index for each in known) + UNHEARD_ENTRIES
    term = max(max(each.term, each.last_term) for each in known) + UNHEARD_TERMS
    return EntryId(index, term, int.from_bytes(hashlib.blake2b(cluster_id.encode(), digest_size=8).digest()))


def _most_complete(surveys: Mapping[int, Survey], group: int) -> int | None:
    """Returns the survivor that continues a Raft group; None if none has its data."""
    having = {
        node: each.groups[group]
        for node, each in surveys.items()
        if group in each.groups and each.groups[group].kind is ReplicaKind.DATA
    }
    # Damage in the chosen replica cannot be repaired from another: the others are dropped. And a replica that cannot
    # apply its log never leads.
    return max(having, key=lambda node: (having[node].is_whole, having[node].completeness, -node), default=None)


def _is_majority_left(chosen: SurveyedGroup, surveys: Mapping[int, Survey]) -> bool:
    """True if the survivors have a majority of votes, in each half of a joint configuration.

    Then the most complete log has everything that was committed. If the log changes members, others may vote by now.
    """

    def votes(node: int) -> bool:
        held = surveys[node].groups.get(chosen.group) if node in surveys else None
        return held is not None and held.kind is not ReplicaKind.DAMAGED and held.has_say

    if chosen.configuration is None or chosen.changes_members:
        return False
    return all(2 * sum(map(votes, half)) > len(half) for half in chosen.configuration.halves)


def _outcomes(surveys: Mapping[int, Survey], image: MetadataImage, next_group: int) -> dict[int, PartitionOutcome]:
    outcomes: dict[int, PartitionOutcome] = {}
    # Partitions that restart empty are spread over the nodes that accept replicas.
    able = {node: 0 for node in surveys if not image.brokers[node].witness_only} or dict.fromkeys(surveys, 0)
    for group, partition in sorted(image.partitions.items()):
        held = {node: each.groups[group] for node, each in surveys.items() if group in each.groups}
        term = max(partition.leader_epoch, *(each.term for each in held.values()), 0) + UNHEARD_TERMS
        node = _most_complete(surveys, group)
        if node is not None:
            goes_on = Continuation(group, node, term, held[node].last_index + 1, fresh=False)
            outcomes[group] = PartitionOutcome(partition.name, goes_on, *_loss(surveys, partition, node, held))
            able[node] = able.get(node, 0) + 1
            continue
        heir = min(able, key=lambda each: (able[each], each))
        able[heir] += 1
        goes_on = Continuation(group, heir, term, 0, fresh=True)
        outcomes[next_group] = PartitionOutcome(partition.name, goes_on, Loss.ALL, _why_all(partition, held))
        next_group += 1
    return outcomes


def _loss(
    surveys: Mapping[int, Survey], partition: PartitionRecord, node: int, held: Mapping[int, SurveyedGroup]
) -> tuple[Loss, str]:
    mine = held[node]
    if not mine.is_whole:
        damaged = f"{mine.damaged_entries} damaged {'entry' if mine.damaged_entries == 1 else 'entries'}"
        return Loss.NEWEST, (
            f"continues from node {node}, whose copy has {damaged} that no survivor has intact; readers stop there"
            " until records up to there are deleted (quorumlog topics delete-records), and if it gets no leader, its"
            " topic can only be deleted; the newest records may be lost, too"
        )
    damaged_ahead = [
        other
        for other, each in held.items()
        if each.kind is ReplicaKind.DATA and not each.is_whole and each.completeness > mine.completeness
    ]
    if damaged_ahead:
        return Loss.NEWEST, (
            f"continues from node {node}; newer entries are lost: node {min(damaged_ahead)} has them, but its copy is"
            " damaged"
        )
    # A witness records how far the log went.
    beyond = [
        other
        for other, each in held.items()
        if each.kind is ReplicaKind.WITNESS and each.completeness > mine.completeness
    ]
    if beyond:
        count = max(held[other].last_index for other in beyond) - mine.last_index
        known = f"at least {count} newer entries" if count > 0 else "newer entries"
        return (
            Loss.NEWEST,
            f"continues from node {node}; {known} are lost, reported by the witness on node {min(beyond)}",
        )
    if _is_majority_left(mine, surveys):
        return Loss.NOTHING, f"continues from node {node}; a majority is left, nothing is lost"
    return Loss.NEWEST, f"continues from node {node}; the newest records may be lost"


#: What is lost with a partition of an internal topic.
_KEPT = {GROUPS_TOPIC: "what its groups had committed", TRANSACTIONS_TOPIC: "its transactional ids and decisions"}


def _why_all(partition: PartitionRecord, held: Mapping[int, SurveyedGroup]) -> str:
    damaged = sorted(node for node, each in held.items() if each.kind is ReplicaKind.DAMAGED)
    what = _KEPT.get(partition.topic.name, "all of its records")
    if damaged:
        return (
            f"restarts empty; {what} are lost: the only copy left, on node {damaged[0]}, is damaged"
            f" ({held[damaged[0]].problem}); copy that directory first if you want to look at it"
        )
    return f"restarts empty; {what} are lost, no survivor has a copy"


def _report(
    surveys: Mapping[int, Survey],
    lost: Sequence[int],
    metadata: int,
    majority_left: bool,
    image: MetadataImage,
    outcomes: Mapping[int, PartitionOutcome],
) -> tuple[str, ...]:
    survivors = ", ".join(map(str, sorted(surveys)))
    go_on = f"nodes {survivors} continue" if len(surveys) > 1 else f"node {survivors} continues"
    lines = [
        f"{go_on} as another cluster; given up permanently, with their data: {', '.join(map(str, lost)) or 'no node'}"
    ]
    if majority_left:
        lines.append(f"metadata: continue from node {metadata}; a majority is left, nothing is lost")
    else:
        lines.append(
            f"metadata: continue from node {metadata}; the newest changes may be lost (topics created, deleted or"
            " changed, producer names claimed)"
        )
    whole = sum(each.loss is Loss.NOTHING for each in outcomes.values())
    lines.append(f"{whole} of {len(outcomes)} partitions lose nothing")
    worst_first = sorted(outcomes.values(), key=lambda each: (each.loss is not Loss.ALL, each.name))
    lines += [f"{each.name}: {each.why}" for each in worst_first if each.loss is not Loss.NOTHING]
    known = {METADATA_GROUP, *image.partitions}
    unknown = sorted({group for each in surveys.values() for group in each.groups if group not in known})
    if unknown:
        lines.append(f"replicas of {len(unknown)} partitions that are no longer in the metadata are destroyed")
    return tuple(lines)


def _outcome_json(group: int, outcome: PartitionOutcome) -> dict[str, object]:
    goes_on = outcome.goes_on
    return {
        "partition": outcome.name,
        "node_id": goes_on.node,
        "loses": outcome.loss.value,
        "why": outcome.why,
        "group": group,
        "former_group": goes_on.former_group,
        "term": goes_on.term,
        "index": goes_on.index,
        "fresh": goes_on.fresh,
    }


def _outcome_of(row: Any) -> PartitionOutcome:
    goes_on = Continuation(
        int(row["former_group"]), int(row["node_id"]), int(row["term"]), int(row["index"]), fresh=bool(row["fresh"])
    )
    return PartitionOutcome(str(row["partition"]), goes_on, Loss(row["loses"]), str(row["why"]))
