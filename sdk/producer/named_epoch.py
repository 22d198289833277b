"""When the epoch of a named producer is over: lost to another instance, broken by a failure, or complete."""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.sdk.errors import (
    DuplicateSequenceMismatchError,
    IllegalStateError,
    InvalidProducerEpochError,
    QuorumlogError,
)
from quorumlog.sdk.producer.config import ProducerConfig
from quorumlog.sdk.producer.partition_pipeline import PartitionPipeline

#: Nothing more can be sent under the name: another instance has it, or the replay is none.
NAME_LOST = (InvalidProducerEpochError, DuplicateSequenceMismatchError)


def undelivered(config: ProducerConfig, pipeline: PartitionPipeline, cause: QuorumlogError | None) -> IllegalStateError:
    """The error of a named producer that has lost a record which others follow."""
    why = f": {cause.message}" if cause is not None else ""
    return IllegalStateError(
        f"named producer {config.producer_name!r} has failed to deliver a record to {pipeline.topic}-"
        f"{pipeline.partition} and sends none after it{why}; make it anew"
    )


def check_complete(config: ProducerConfig, pipelines: Iterable[PartitionPipeline]) -> None:
    """Looks whether the log has what was sent in a replayable epoch and no more. Nothing may be under way.

    Raises:
        DuplicateSequenceMismatchError: an earlier run has sent more.
    """
    for pipeline in pipelines:
        if pipeline.log_sequence > pipeline.next_sequence:
            raise DuplicateSequenceMismatchError(
                f"epoch {config.producer_epoch} of producer {config.producer_name!r} has {pipeline.log_sequence}"
                f" records in {pipeline.topic}-{pipeline.partition}, but this replay sent only"
                f" {pipeline.next_sequence}: it differs from the first run"
            )
