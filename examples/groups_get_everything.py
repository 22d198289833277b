"""Groups are independent: each receives every record, and shares the records among its own members.

Here two packers divide the orders between them, while the one accountant sees them all. A third group that comes when
all is over still finds everything: reading removes nothing from a log.
"""

from __future__ import annotations

from collections import defaultdict

import tutorial

from quorumlog.sdk import Consumer, Producer

ORDERS = 60


def story(servers: str) -> None:
    received: dict[str, list[bytes]] = defaultdict(list)
    with tutorial.topic(servers, "shop-orders", partitions=4) as topic:
        with (
            Consumer(topic, bootstrap_servers=servers, group_id="packing", client_id="packer 1") as packer1,
            Consumer(topic, bootstrap_servers=servers, group_id="packing", client_id="packer 2") as packer2,
            Consumer(topic, bootstrap_servers=servers, group_id="accounting") as accountant,
            Producer(bootstrap_servers=servers) as producer,
        ):
            names = {packer1: "packer 1", packer2: "packer 2", accountant: "accountant"}
            tutorial.settle([packer1, packer2], 2, 2)
            tutorial.settle([accountant], 4)
            for number in range(ORDERS):
                producer.send(topic, f"order {number}".encode(), partition=number % 4)
            for member, record in tutorial.read(list(names), lambda: sum(map(len, received.values())) == 2 * ORDERS):
                received[names[member]].append(record.value)

        for name, orders in sorted(received.items()):
            print(f"{name}: {len(orders)} orders")
        everything = {f"order {number}".encode() for number in range(ORDERS)}
        assert len(received["packer 1"]) == len(received["packer 2"]) == ORDERS // 2
        assert {*received["packer 1"], *received["packer 2"]} == everything
        assert set(received["accountant"]) == everything

        with Consumer(topic, bootstrap_servers=servers, group_id="statistics") as late:
            for _, record in tutorial.read([late], lambda: len(received["late"]) == ORDERS):
                received["late"].append(record.value)
        assert set(received["late"]) == everything
        print(f"statistics, which came later: {len(received['late'])} orders")


if __name__ == "__main__":
    tutorial.run(story, __doc__)
