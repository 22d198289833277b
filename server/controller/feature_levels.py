"""Feature levels: features that a cluster cannot use before all of its nodes are upgraded, because older ones would
stop."""

from __future__ import annotations

from quorumlog.server.controller.decision import ControllerDecision, answer_now, refusal
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import FEATURE_LEVEL, SECOND_FEATURE_LEVEL
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.request_limits import LEAST_THROTTLE


class FeatureLevels:
    """Raises the feature level to the highest that all nodes support: no node may be left that would misread the new
    records.

    Arguments:
        image: the controller's image.
        automatic: True if it rises automatically; otherwise it rises on request, so that a downgrade to the former
            version stays possible until then. A cluster without topics has no reason to downgrade.
    """

    def __init__(self, image: MetadataImage, automatic: bool) -> None:
        self._image = image
        self._automatic = automatic
        #: The layout of the metadata at which the level could not rise.
        self._stays_at: int | None = None

    def is_due(self) -> bool:
        """True if the level may rise automatically now."""
        return (self._automatic or not self._image.topics) and self._may_rise()

    def _may_rise(self) -> bool:
        """Returns True if all nodes support the next level. Called at every heartbeat: all nodes are examined only
        after a change."""
        level, layout = self._image.feature_level + 1, self._image.layout_version
        if level > FEATURE_LEVEL or layout == self._stays_at:
            return False
        if self._image.supports(level):
            return True
        self._stays_at = layout
        return False

    def raising(self, wall_ms: int) -> metadata_log_pb2.MetadataCommand:
        """Returns the command that raises the level."""
        body = metadata_log_pb2.RaiseFeatureLevel(level=self._highest())
        return metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, raise_feature_level=body)

    def _highest(self) -> int:
        """Returns the highest level that all nodes support; at least the current one."""
        level = self._image.feature_level
        while level < FEATURE_LEVEL and self._image.supports(level + 1):
            level += 1
        return level

    def decide(self, wall_ms: int, number: int, request: admin_pb2.UpgradeFeaturesRequest) -> ControllerDecision:
        """Decides on an operator's request to raise the level."""
        level = self._image.feature_level
        if level < FEATURE_LEVEL and not self._may_rise():
            older = ", ".join(map(str, self._image.older_nodes(level + 1)))
            problem = f"nodes {older} are of a version that does not support feature level {level + 1}: upgrade them"
            return refusal(number, error(ErrorCode.UNSUPPORTED_VERSION, problem))
        if level >= FEATURE_LEVEL or request.validate_only:
            reached = admin_pb2.UpgradeFeaturesResponse(feature_level=self._highest())
            return answer_now(number, peer_pb2.ControllerResponse(upgrade_features=reached))
        return ControllerDecision(number, commands=(self.raising(wall_ms),))


def refuse_below_second(image: MetadataImage, what: str) -> errors_pb2.Error | None:
    """Returns the error if something cannot be done before feature level 2; None if it can. See ``refuse_below``."""
    return refuse_below(image, SECOND_FEATURE_LEVEL, what)


def refuse_below(image: MetadataImage, level: int, what: str) -> errors_pb2.Error | None:
    """Returns the error if something cannot be done before a feature level; None if it can.

    Arguments:
        what: subject and verb of a sentence: "producer names are deleted".
    """
    if image.feature_level >= level:
        return None
    nodes = image.older_nodes(level)
    if not nodes and not image.topics:
        # It rises automatically with the next heartbeats: a restore may arrive before them.
        return error(ErrorCode.SERVER_BUSY, f"the cluster has just formed, and {what} in a moment: try again")
    older = ", ".join(map(str, nodes)) or "none"
    problem = (
        f"{what} at feature level {level}, the cluster is at {image.feature_level}: upgrade all nodes"
        f" (older: {older}), see quorumlog features describe"
    )
    return error(ErrorCode.UNSUPPORTED_VERSION, problem)


def refuse_throttle(image: MetadataImage, bytes_per_second: int) -> errors_pb2.Error | None:
    """Returns the error if moves cannot be limited to this rate; None if they can. 0 means no limit."""
    if not bytes_per_second:
        return None
    if bytes_per_second < LEAST_THROTTLE:
        problem = (
            f"a throttle of {bytes_per_second} bytes per second is too slow for moves to finish: use"
            f" {LEAST_THROTTLE} or more, or none"
        )
        return error(ErrorCode.INVALID_REQUEST, problem)
    return refuse_below_second(image, "moves are throttled")
