"""`python -m neaptide.clusters.broker.server server.properties`: one broker process.

It ends cleanly on SIGTERM and SIGINT. Exit status: 0 after a clean end, 1 where it could not go
on, 64 for settings that are wrong.
"""

from __future__ import annotations

import gc
import logging
import sys
from pathlib import Path

# kio prepares every one of its types for Hypothesis where that is installed. A broker has no use
# for it, and it would be a third of the time to start.
sys.modules["hypothesis"] = None  # type: ignore[assignment]
gc.disable()

import uvloop  # noqa: E402

from neaptide.clusters.broker.replication.settings import InvalidSettingError  # noqa: E402
from neaptide.clusters.broker.server.config import ServerConfig, server_config, trimmed  # noqa: E402
from neaptide.clusters.broker.server.process import PortInUseError, serve  # noqa: E402
from neaptide.clusters.broker.storage.config import SettingError  # noqa: E402
from neaptide.clusters.broker.storage.errors import StorageError  # noqa: E402
from neaptide.clusters.properties import (  # noqa: E402
    PropertiesError,
    read_properties,
    with_files,
)

gc.enable()
_log = logging.getLogger("broker")


def main(arguments: list[str]) -> int:
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m neaptide.clusters.broker.server server.properties\n")
        return 64
    try:
        config = _read(Path(arguments[0]))
    except (InvalidSettingError, PropertiesError, SettingError) as error:
        _log.error("%s: %s", arguments[0], error)
        return 64
    try:
        return uvloop.run(serve(config))
    except InvalidSettingError as error:
        _log.error("%s: %s", arguments[0], error)
        return 64
    except (PortInUseError, StorageError) as error:
        _log.error("%s", error)
        return 1


def _read(file: Path) -> ServerConfig:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettingError(f"cannot be read as settings ({error})") from error
    return server_config(trimmed(with_files(read_properties(text))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
