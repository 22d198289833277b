"""The smallest complete program: send some records and read them back.

Records are bytes. They are gathered into batches and sent in the background; ``send`` returns a handle at once, and
its result says where the record is, once a majority of the replicas has it on its disk.
"""

from __future__ import annotations

import tutorial

from quorumlog.sdk import Consumer, Producer


def story(servers: str) -> None:
    with tutorial.topic(servers, "greetings") as topic:
        with Producer(bootstrap_servers=servers) as producer:
            handles = [producer.send(topic, f"hello {number}".encode()) for number in range(5)]
            for handle in handles:
                metadata = handle.result(timeout=10)
                print(f"sent to partition {metadata.partition}, offset {metadata.offset}")

        # Without an end, `for record in consumer` waits for more indefinitely; here it ends after a second of silence.
        with Consumer(topic, bootstrap_servers=servers, consumer_timeout_ms=1000) as consumer:
            for record in consumer:
                print(f"offset {record.offset}: {record.value.decode()}")


if __name__ == "__main__":
    tutorial.run(story, __doc__)
