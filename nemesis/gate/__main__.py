"""`python -m nemesis.gate CONFIG.json`: started by the harness, see nemesis.gate.client."""

from __future__ import annotations

import sys
from pathlib import Path

import uvloop

from nemesis.gate.model import GateConfig
from nemesis.gate.process import serve
from results.without_pandas import forgo_pandas


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m nemesis.gate CONFIG.json", file=sys.stderr)
        return 64
    forgo_pandas()
    config = GateConfig.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    uvloop.run(serve(config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
