"""Settings of a machine's workers: ids, folders and ports are derived, and what cannot be is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorumlog.server.config.listening import ListenError, check_apart
from quorumlog.server.config.setting_values import MAX_WORKERS
from quorumlog.server.config.settings import Settings, SettingsError, load
from quorumlog.server.config.worker_settings import MAX_MACHINE, settings_of_workers
from quorumlog.server.step.request_context import Listener

FLAGS: dict[str, object] = {
    "node_id": "3",
    "listen": "127.0.0.1:9000",
    "data_dir": "/data",
    "controllers": "1@127.0.0.1:7000,3@127.0.0.1:9000",
}


def workers(count: int, **changes: object) -> list[Settings]:
    return settings_of_workers(load({**FLAGS, "workers": str(count), **changes}), count)


def refusal(count: int, **changes: object) -> str:
    with pytest.raises((SettingsError, ListenError)) as refused:
        check_apart(workers(count, **changes))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_each_worker_is_a_node() -> None:
    """With an id, a folder and a port of its own, on the machine."""
    made = workers(3, advertise="node-3.example:9100", kafka_listen="127.0.0.1:9200", metrics_listen="127.0.0.1:9300")
    assert [each.node_id for each in made] == [192, 193, 194]
    assert [each.data_dir for each in made] == [Path("/data/w00"), Path("/data/w01"), Path("/data/w02")]
    assert [each.listen for each in made] == ["127.0.0.1:9000", "127.0.0.1:9001", "127.0.0.1:9002"]
    assert [each.advertise for each in made] == ["node-3.example:9100", "node-3.example:9101", "node-3.example:9102"]
    assert [each.kafka_listen for each in made] == ["127.0.0.1:9200", "127.0.0.1:9201", "127.0.0.1:9202"]
    assert [each.metrics_listen for each in made] == ["127.0.0.1:9300", "127.0.0.1:9301", "127.0.0.1:9302"]
    assert {each.machine for each in made} == {"3"}
    check_apart(made)


def test_every_address_of_a_worker_moves() -> None:
    """A setting with an address that workers shared would stop all of them but one."""
    places = {name for name in Settings.model_fields if name.endswith(("listen", "advertise"))}
    ports = dict(zip(sorted(places), range(9000, 9000 + 10 * len(places), 10), strict=True))
    second = workers(
        2,
        **{name: f"127.0.0.1:{port}" for name, port in ports.items()},
        tls_certificate="n-{node}.crt",
        tls_key="n-{node}.key",
    )[1]
    assert {name: getattr(second, name) for name in places} == {
        name: f"127.0.0.1:{port + 1}" for name, port in ports.items()
    }


def test_controllers_name_machines() -> None:
    """They are the workers 0, at the addresses that are configured for their machines."""
    first, second = workers(2)
    assert first.controllers == second.controllers == {64: "127.0.0.1:7000", 192: "127.0.0.1:9000"}
    for each in (first, second):
        each.node_options()


def test_a_named_machine_keeps_its_name() -> None:
    assert {each.machine for each in workers(2, machine="rack-1-a")} == {"rack-1-a"}


def test_workers_divide_the_rates_of_a_machine() -> None:
    """The scrub, compaction and copies of all workers together use what the machine's settings allow."""
    given = {"scrub_bytes_per_second": 4_000_001, "compaction_bytes_per_second": 2_000, "workers": "4"}
    made = workers(4, **given)
    assert {each.scrub_bytes_per_second for each in made} == {1_000_001}
    assert {each.compaction_bytes_per_second for each in made} == {1_024}, "the least that the setting accepts"
    assert {each.replica_copy_bytes_per_second for each in made} == {0}, "no limit"
    assert {each.node_options().limits.storage_sharers for each in made} == {4}
    fast = workers(2, replica_copy_bytes_per_second=100 << 20)
    assert {each.replica_copy_bytes_per_second for each in fast} == {50 << 20}
    assert workers(1, **given)[0].scrub_bytes_per_second == 4_000_001
    assert workers(1)[0].node_options().limits.storage_sharers == 1


def test_derived_settings_are_shown() -> None:
    """A node reports the values that it has, not those of the machine."""
    shown = {each.name: each.values[0][0] for each in workers(2)[1].node_options().configured}
    assert (shown["node_id"], shown["listen"], shown["machine"]) == ("193", "127.0.0.1:9001", "3")


@pytest.mark.parametrize("text", ["0", "65", "1_0", "two", "-1", "2.0", ""])
def test_wrong_numbers_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="workers"):
        load({**FLAGS, "workers": text})


def test_right_numbers_are_read() -> None:
    assert load(FLAGS).workers == 1
    assert [load({**FLAGS, "workers": text}).workers for text in ("64", " 2 ", "auto")] == [64, 2, "auto"]


def test_ids_end_somewhere() -> None:
    """The last worker of the last machine has the largest id of a node."""
    assert MAX_MACHINE * MAX_WORKERS + MAX_WORKERS - 1 == 2**31 - 1
    said = refusal(2, node_id=str(MAX_MACHINE + 1), controllers="1@127.0.0.1:7000")
    assert f"expected a whole number up to {MAX_MACHINE}" in said
    assert f"{MAX_MACHINE + 1} cannot be" in refusal(2, controllers=f"{MAX_MACHINE + 1}@127.0.0.1:7000")


@pytest.mark.parametrize(
    ("kafka", "overlaps"), [(9001, True), (9003, True), (9004, False), (8997, True), (8996, False)]
)
def test_port_ranges_overlap(kafka: int, overlaps: bool) -> None:
    """Four workers take four ports from each configured one."""
    made = workers(4, kafka_listen=f"127.0.0.1:{kafka}")
    if not overlaps:
        check_apart(made)
        return
    said = refusal(4, kafka_listen=f"127.0.0.1:{kafka}")
    assert "the ports of kafka_listen and listen overlap: each of the 4 workers" in said
    assert "set them at least 4 apart" in said


def test_other_addresses_have_other_ports() -> None:
    check_apart(workers(4, kafka_listen="127.0.0.2:9002"))
    assert "overlap" in refusal(4, kafka_listen="0.0.0.0:9002")


def test_ports_end_somewhere() -> None:
    said = refusal(4, listen="127.0.0.1:65533", controllers="1@127.0.0.1:7000")
    assert said == "listen = 127.0.0.1:65533 leaves too few ports for 4 workers: expected a port up to 65532"


def test_certificates_are_not_shared() -> None:
    """Each worker proves its own id, so the names of the files say where the id goes."""
    tls: dict[str, object] = {"peer_listen": "127.0.0.1:9100", "node_ca": "n.crt", "client_ca": "c.crt"}
    shared = {**tls, "tls_certificate": "node-3.crt", "tls_key": "node-{node}.key"}
    assert refusal(2, **shared).startswith("tls_certificate = node-3.crt cannot belong to each of 2 workers")
    second = workers(2, **{**shared, "tls_certificate": "node-{node}.crt"})[1]
    assert second.pair_files(Listener.CLIENT).certificate == Path("node-193.crt")
    assert second.pair_files(Listener.CLIENT).key == Path("node-193.key")
