"""`python -m nemesis.gate CONFIG.json`: started by the harness, see nemesis.gate.client."""

from __future__ import annotations

import sys
from pathlib import Path

from neaptide.results.forgone import forgo

forgo()

import uvloop  # noqa: E402

from neaptide.nemesis.gate.model import GateConfig  # noqa: E402
from neaptide.nemesis.gate.process import serve  # noqa: E402


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m neaptide.nemesis.gate CONFIG.json", file=sys.stderr)
        return 64
    config = GateConfig.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    uvloop.run(serve(config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
