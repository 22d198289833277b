"""Passes numbers on with Bytewax, at least once: ``bytewax_app.py SERVERS FOLDER``; FOLDER keeps its positions."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from bytewax import operators
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

servers, positions = sys.argv[1].split(","), Path(sys.argv[2]) / "positions"
flow = Dataflow("numbers")
records = operators.input("read", flow, KafkaSource(servers, ["numbers"], batch_size=100))
copies = operators.map("copy", records, lambda record: KafkaSinkMessage(record.key, record.value))
operators.output("write", copies, KafkaSink(servers, "results", add_config={"enable.idempotence": "true"}))

if __name__ == "__main__":
    if not positions.exists():
        positions.mkdir()
        init_db_dir(positions, 1)
    cli_main(flow, epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(positions))
