"""One call of a client in a process of its own: ``python -m bench.peers.clients '{"client": …}'`` prints its result."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import traceback

from bench.peers.clients.target import Target


def main() -> None:
    """Makes the call given as JSON; its last line of output is the result as JSON."""
    arguments = json.loads(sys.argv[1])
    target = Target(**arguments.pop("target"))
    client, call = arguments.pop("client"), arguments.pop("call")
    try:
        module = importlib.import_module(f"bench.peers.clients.{client}")
        result = getattr(module, call)(target, **arguments)
    except Exception as problem:
        traceback.print_exc()
        print(f"{type(problem).__name__}: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps(dataclasses.asdict(result) if dataclasses.is_dataclass(result) else result))


if __name__ == "__main__":
    main()
