"""What `make demo` costs after the installation: seconds, and memory of all its processes.

    python -m tests.benchmarks.demo

Prints JSON. `peak_mib`: the greatest sum of proportional set sizes (PSS) over the command and all
that it starts, so that memory that processes share counts once; looked at four times a second.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

import psutil

COMMAND = ("repro", "hw-truncation-loss", "--system", "neaptide:0.10", "--system", "neaptide:0.11")
_MIB = 1024 * 1024


def peak_mib(root: psutil.Process) -> float:
    total = 0
    with suppress(psutil.Error):
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                total += process.memory_full_info().pss
    return total / _MIB


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        begun, peak = time.monotonic(), 0.0
        words = [sys.executable, "-m", "neaptide.harness.cli", *COMMAND]
        with subprocess.Popen(words, cwd=scratch, stdout=subprocess.DEVNULL) as child:
            while child.poll() is None:
                with suppress(psutil.Error):
                    peak = max(peak, peak_mib(psutil.Process(child.pid)))
                time.sleep(0.25)
        seconds = round(time.monotonic() - begun, 1)
        print(json.dumps({"status": child.returncode, "seconds": seconds, "peak_mib": round(peak)}))


if __name__ == "__main__":
    main()
