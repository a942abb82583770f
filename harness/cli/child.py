"""`neaptide …` as a part of a night: it ends, in order, when whoever started it is gone.

    python -m neaptide.harness.cli.child PARENT_PID run append …

The kernel sends a SIGTERM when the parent dies, of whatever it died (prctl(2), PR_SET_PDEATHSIG);
the command then stops what it has started, as after Ctrl-C. Linux.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    parent = int(sys.argv.pop(1))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before it could be watched
        sys.exit(1)
    from neaptide.harness.cli import main as cli

    cli.main()


if __name__ == "__main__":
    main()
