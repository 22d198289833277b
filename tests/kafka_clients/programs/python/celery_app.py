"""Passes numbers on as tasks of Celery, over kombu's transport for Kafka.

``celery_app.py SERVERS FOLDER`` is a worker, ``celery_app.py SERVERS FOLDER send FIRST END`` sends tasks.
"""

from __future__ import annotations

import sys

import confluent_kafka
from celery import Celery

servers = sys.argv[1]
app = Celery("numbers", broker=f"confluentkafka://{servers.split(',', maxsplit=1)[0]}")
app.conf.update(
    task_default_queue="numbers",
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    broker_transport_options={
        # The address of the transport has room for one node.
        "kafka_common_config": {"bootstrap.servers": servers},
        "kafka_producer_config": {"enable.idempotence": True},
    },
)
results = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})


@app.task
def pass_on(number: int) -> None:
    results.produce("results", b"%d" % number)
    results.flush()


if __name__ == "__main__":
    if sys.argv[3:4] == ["send"]:
        for number in range(int(sys.argv[4]), int(sys.argv[5])):
            pass_on.delay(number)
    else:
        without = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        app.worker_main(["worker", "--pool", "solo", "--concurrency", "1", "--loglevel", "info", *without])
