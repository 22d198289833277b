""""""

import os

# See quorumlog.sdk: has to be said before gRPC is first imported, which may be here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
