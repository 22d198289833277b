"""Refusing appends on a disk that is nearly full, with a gap between refusing and resuming."""

from collections.abc import Callable

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.node.space_watch import BUSY_CHECK_INTERVAL_US, CHECK_INTERVAL_US, SpaceWatch
from quorumlog.storage.transaction import Space

GIB = 1 << 30
Log = Callable[..., None]


class Disk:
    """A storage of 100 GiB, of which ``used`` GiB are in use."""

    def __init__(self) -> None:
        self.used = 10
        self.looks = 0

    def space(self) -> Space:
        self.looks += 1
        return Space(self.used * GIB, (100 - self.used) * GIB)


def watch(disk: Disk, log: Log | None = None, limits: NodeLimits | None = None) -> SpaceWatch:
    return SpaceWatch(disk, limits or NodeLimits(), 0, log or (lambda level, event, **fields: None))  # type: ignore[arg-type]


def test_refusing_begins_above_one_level_and_ends_below_another() -> None:
    disk = Disk()
    space = watch(disk)
    seen = []
    for second, used in enumerate((84, 86, 84, 81, 79), start=1):
        disk.used = used
        space.check(second * CHECK_INTERVAL_US)
        seen.append(space.refusal() is None)
    assert seen == [True, False, False, False, True]


def test_workers_refuse_together() -> None:
    """Four workers share a disk of 100 GiB. Each has only its own use and the free space: it counts its own four times,
    so that all together leave as much free as a single node would."""
    disk = Disk()
    space = watch(disk, limits=NodeLimits(storage_sharers=4))
    seen = []
    for second, own in enumerate((20, 22, 21, 19), start=1):
        disk.space = lambda own=own: Space(own * GIB, (100 - 4 * own) * GIB)  # type: ignore[method-assign,misc]
        space.check(second * CHECK_INTERVAL_US)
        seen.append(space.refusal() is None)
    assert seen == [True, False, False, True]


def test_the_log_says_once_when_it_begins_and_when_it_ends() -> None:
    disk, lines = Disk(), list[tuple[str, str, object]]()
    space = watch(disk, lambda level, event, **fields: lines.append((level, event, fields["free_mib"])))
    for second, used in enumerate((84, 86, 90, 90, 81, 79, 50), start=1):
        disk.used = used
        space.check(second * CHECK_INTERVAL_US)
    space.failed()
    space.failed()
    assert lines == [
        ("warning", "appends_refused", 14 << 10),
        ("info", "appends_taken_again", 21 << 10),
        ("warning", "appends_refused", 50 << 10),
    ]


def test_a_failed_write_refuses_at_once() -> None:
    space = watch(Disk())
    space.failed()
    refusal = space.refusal()
    assert refusal is not None
    assert refusal.retriable
    assert refusal.definite


def test_the_use_is_looked_at_more_often_under_load() -> None:
    disk = Disk()
    space = watch(disk)
    for now in range(0, CHECK_INTERVAL_US, 1_000):
        space.wrote(now)
    assert disk.looks == CHECK_INTERVAL_US // BUSY_CHECK_INTERVAL_US


def test_appends_do_not_flap_around_the_reserve() -> None:
    disk = Disk()
    # The reserve decides, not the share in use: 70 of 100 GiB are less than either level.
    space = SpaceWatch(disk, NodeLimits(storage_reserve_bytes=30 * GIB), 0, lambda level, event, **fields: None)  # type: ignore[arg-type]
    seen = []
    for second, used in enumerate((69, 71, 69, 71, 69, 66, 64, 69), start=1):
        disk.used = used
        space.check(second * CHECK_INTERVAL_US)
        seen.append(space.refusal() is None)
    assert seen == [True, False, False, False, False, False, True, True], (
        "taken again with the reserve and 5 % of the disk"
    )


def test_a_refusal_on_a_small_disk_says_what_must_be_free_and_ends_with_that() -> None:
    class SmallDisk(Disk):
        def space(self) -> Space:
            return Space(60 << 20, self.free_mib << 20)

        free_mib = 60

    disk = SmallDisk()
    space = watch(disk)
    refusal = space.refusal()
    assert refusal is not None
    assert refusal.message.endswith(
        "nearly full (60 MiB free); free space on it and try again:"
        " appends are accepted again with over 70 MiB free, below 80 % in use"
    )
    disk.free_mib = 70
    space.check(CHECK_INTERVAL_US)
    assert space.refusal() is not None
    disk.free_mib = 80
    space.check(2 * CHECK_INTERVAL_US)
    assert space.refusal() is None


def test_a_large_disk_has_twice_the_reserve_free_before_appends_are_taken_again() -> None:
    disk = Disk()
    space = SpaceWatch(
        disk,
        NodeLimits(storage_reserve_bytes=2 * GIB, storage_refuse_above=0.99, storage_resume_below=0.9),
        0,
        lambda level, event, **fields: None,
    )  # type: ignore[arg-type]
    seen = []
    for second, used in enumerate((97, 99, 97, 96, 89), start=1):
        disk.used = used
        space.check(second * CHECK_INTERVAL_US)
        seen.append(space.refusal() is None)
    assert seen == [True, False, False, False, True]
    refused = watch(Disk())
    refused.failed()
    refusal = refused.refusal()
    assert refusal is not None
    assert "with over 128 MiB free" in refusal.message
