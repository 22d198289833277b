"""The last resort after a majority is lost for ever: the survivors go on, as another cluster.

Everything here works on the data directories of stopped nodes. A *survey* says what one of them holds, a *plan* says
from all surveys who goes on with what, and an *application* is the one transaction that makes a directory part of the
recovered cluster. docs/decisions/recovery-as-another-cluster.md says why. It may use the rooms whose rows it reads and
writes, and no node ever runs anything of it.

- `survey`: what one survivor's directory holds.
- `plan`: which survivor continues with what, made from all surveys.
- `recovered_metadata`: the metadata of the recovered cluster.
- `application`: makes a directory part of that cluster, in one transaction.
- `directory`: the data directory of a stopped node, which surveys and applications open.
"""
