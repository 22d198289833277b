"""At-least-once delivery: process first, then commit. After a crash, some work is done twice, but none is left out.

A worker process dies without a word in the middle of a batch. Once it has been silent for ``session_timeout_ms`` its
partitions pass to the next member, which starts at the last commit: what was done since then is done twice.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import tutorial

from quorumlog.sdk import Consumer, Producer

JOBS = 50
BATCH = 10
DIES_AFTER = 25
#: Short for the example; the default is 45 s.
SESSION_MS = 3000


def work(servers: str, topic: str, diary: Path, dies_after: int | None = None) -> None:
    """Does jobs and writes each into the diary, until none is left or the process dies."""
    done = 0
    with (
        Consumer(
            topic, bootstrap_servers=servers, group_id="crew", session_timeout_ms=SESSION_MS,
            enable_auto_commit=False, max_poll_records=BATCH,
        ) as consumer,
        diary.open("a", buffering=1) as lines,
    ):  # fmt: skip
        deadline = time.monotonic() + 30
        while f"job {JOBS - 1}\n" not in diary.read_text():
            assert time.monotonic() < deadline, "no member takes over"
            for records in consumer.poll(timeout_ms=200).values():
                for record in records:
                    lines.write(record.value.decode() + "\n")
                    done += 1
                    if done == dies_after:
                        os._exit(9)  # Closes nothing, commits nothing, says nothing.
                consumer.commit()


def story(servers: str) -> None:
    with tempfile.TemporaryDirectory() as directory, tutorial.topic(servers, "jobs") as topic:
        diary = Path(directory, "diary.txt")
        diary.touch()
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(JOBS):
                producer.send(topic, f"job {number}".encode())

        doomed = multiprocessing.get_context("spawn").Process(target=work, args=(servers, topic, diary, DIES_AFTER))
        doomed.start()
        doomed.join(timeout=30)
        assert doomed.exitcode == 9
        print(f"a worker died after {len(diary.read_text().splitlines())} jobs, in the middle of a batch of {BATCH}")

        begin = time.monotonic()
        work(servers, topic, diary)
        done = diary.read_text().splitlines()
        print(f"{time.monotonic() - begin:.1f} s later the other one has done the rest")

        again = sorted({job for job in done if done.count(job) == 2})
        assert set(done) == {f"job {number}" for number in range(JOBS)}, "nothing is left undone"
        assert again == [f"job {number}" for number in range(20, DIES_AFTER)], "only what was not committed is repeated"
        print(f"{JOBS} jobs, none left out; done twice, because they had not been committed: {', '.join(again)}")


if __name__ == "__main__":
    tutorial.run(story, __doc__)
