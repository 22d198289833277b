"""Recovery after the permanent loss of a majority: the survivors continue as another cluster.

Everything here works on the data directories of stopped nodes. A *survey* describes one of them, a *plan* is
computed from all surveys and determines which survivor continues what, and an *application* is the one transaction that
makes a directory part of the recovered cluster. docs/decisions/recovery-as-another-cluster.md has the reasons. It may
import the folders whose rows it reads and writes, and no node ever runs it.

- `survey`: content of one survivor's directory.
- `plan`: which survivor continues what, computed from all surveys.
- `recovered_metadata`: the metadata of the recovered cluster.
- `application`: makes a directory part of that cluster, in one transaction.
- `directory`: the data directory of a stopped node, which surveys and applications open.
"""
