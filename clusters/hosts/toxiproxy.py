"""Bytes on the wire: late, few at a time, in slices, cut short, or never. Toxiproxy does it.

The server is a process of the run; each link that is to have toxics leads through a proxy of it.
A toxic begins, and ends, with new connections: those that the link has are closed. The server
changes a running connection only while its bytes flow, drops what it cannot pass on in time, and
resets only connections that had the toxic from their start.

Facts of server 2.12.0: `latency` delays by latency ± jitter (ms); `bandwidth` is in kB a second;
`timeout` drops all data, and closes after so many idle ms (0: never); `reset_peer` resets when the
first data comes, `timeout` ms after it; `slicer` delays each slice by µs; `limit_data` closes after
so many bytes of a connection; `slow_close` passes the end of a stream on later.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from neaptide.clusters.cache import cache_directory
from neaptide.clusters.errors import HostError, MissingPartError
from neaptide.clusters.hosts.local import LocalHost, ProcessSpec, RunningProcess, last_line
from neaptide.clusters.hosts.ports import LOOPBACK, PortReservation, reserve_port

VERSION: Final = "2.12.0"
MODULE: Final = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
ON_THE_PATH: Final = "toxiproxy-server"
_BUILT: Final = "server"  # as `go install` names it
_START_WITHIN_S: Final = 20.0
_CALL_WITHIN_S: Final = 30.0  # the server itself gives up after 25 s
_LOOK_S: Final = 0.01  # nothing reports that the server listens

ToxicKind = Literal[
    "latency", "bandwidth", "slow_close", "timeout", "reset_peer", "slicer", "limit_data"
]
Stream = Literal["upstream", "downstream"]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Attribute:
    """Of a toxic: the server's name of it, the least it may be; without a default it is needed."""

    named: str
    least: int = 0
    default: int | None = None


# The names on the left are those of scenarios; they say the unit.
TOXICS: Final[Mapping[ToxicKind, Mapping[str, Attribute]]] = {
    "latency": {
        "latency_ms": Attribute("latency", least=1),
        "jitter_ms": Attribute("jitter", default=0),
    },
    "bandwidth": {"kb_per_s": Attribute("rate", least=1)},
    "slow_close": {"delay_ms": Attribute("delay", least=1)},
    "timeout": {"timeout_ms": Attribute("timeout", default=0)},
    "reset_peer": {"timeout_ms": Attribute("timeout", default=0)},
    "slicer": {
        "bytes": Attribute("average_size", least=1),
        "variation_bytes": Attribute("size_variation", default=0),
        "delay_us": Attribute("delay", default=0),
    },
    "limit_data": {"bytes": Attribute("bytes", least=1)},
}


@dataclass(frozen=True, slots=True)
class Toxic:
    """`attributes`: by the names of `TOXICS`, all of them. `upstream` is towards the target."""

    kind: ToxicKind
    stream: Stream
    attributes: Mapping[str, int]

    def problem(self) -> str | None:
        """Why there is no such toxic; None: there is."""
        known = TOXICS[self.kind]
        for name, value in self.attributes.items():
            if name not in known:
                return f"{self.kind} has no {name}; it has {', '.join(known)}"
            if value < known[name].least:
                return f"{name} = {value} must be {known[name].least} or more"
        missing = [name for name in known if name not in self.attributes]
        if missing:
            return f"{self.kind} needs {missing[0]}"
        if self.kind == "slicer" and not self._varies_less_than_it_is():
            return "variation_bytes must be less than bytes"
        return None

    def _varies_less_than_it_is(self) -> bool:
        return self.attributes["variation_bytes"] < self.attributes["bytes"]


def server_directory() -> Path:
    """Where the server is built."""
    return cache_directory() / f"toxiproxy-{VERSION}"


def find_server() -> Path:
    """Raises MissingPartError."""
    built = server_directory() / _BUILT
    if os.access(built, os.X_OK):
        return built
    found = shutil.which(ON_THE_PATH)
    if found is not None:
        return Path(found)
    raise MissingPartError(
        f"Toxics need the server of Toxiproxy: GOBIN={server_directory()} go install {MODULE}"
        f" (with Go 1.23 or later), or have {ON_THE_PATH} on the PATH."
    )


class ToxicLinks:
    """A running server, and a proxy for each link. Make one with `await ToxicLinks.start(…)`."""

    def __init__(self, process: RunningProcess, port: PortReservation) -> None:
        self.process = process
        self._ports = [port]
        self._proxies: dict[str, tuple[Any, int, str]] = {}  # link → proxy, its port, its target
        self._toxics: dict[str, tuple[str, Toxic]] = {}  # by name: the link, and what it is

    @classmethod
    async def start(cls, host: LocalHost, directory: Path) -> ToxicLinks:
        """Returns when the server answers. Raises MissingPartError, HostError."""
        server, log = find_server(), directory / "logs" / "toxiproxy.log"
        port = reserve_port()
        number = str(port.release_socket())
        argv = (str(server), "-host", LOOPBACK, "-port", number)
        env = {"LOG_LEVEL": "error"}
        process = await host.start(ProcessSpec("toxiproxy", argv, directory, log, env))
        links = cls(process, port)
        _ask_the_server_directly()
        api = _api()
        api.update_api_consumer(LOOPBACK, port.port)
        try:
            async with asyncio.timeout(_START_WITHIN_S):
                while not await asyncio.to_thread(api.running):
                    if process.returncode is not None:
                        raise HostError(f"Toxiproxy ended at its start: {last_line(log)}")
                    await asyncio.sleep(_LOOK_S)
        except (HostError, TimeoutError) as error:
            process.kill()
            links.close()
            if isinstance(error, HostError):
                raise
            raise HostError(f"Toxiproxy did not start in time: see {log}") from None
        return links

    async def lead(self, link: str, host: str, port: int) -> int:
        """Has a link lead through a proxy; the port to connect to, on the loopback address."""
        reserved = reserve_port()
        self._ports.append(reserved)
        listens, target = reserved.release_socket(), f"{host}:{port}"
        await self._replace(link, None, listens, target)
        return listens

    async def begin(self, link: str, name: str, toxic: Toxic) -> None:
        """The link's connections are closed; those that are made now have the toxic."""
        self._toxics[name] = (link, toxic)
        await self._renew(link)

    async def end(self, name: str) -> None:
        """The link's connections are closed; those that are made now are as they were."""
        link, _ = self._toxics.pop(name)
        await self._renew(link)

    async def _renew(self, link: str) -> None:
        proxy, port, target = self._proxies[link]
        await self._replace(link, proxy, port, target)

    async def _replace(self, link: str, proxy: Any, port: int, target: str) -> None:
        """Another proxy in place of one, which has its toxics before it listens."""
        toxics = {name: toxic for name, (at, toxic) in self._toxics.items() if at == link}

        def replace() -> Any:
            if proxy is not None and not proxy.destroy():
                raise HostError(f"Toxiproxy did not close the link {link}.")
            made = _api().create(
                name=link, upstream=target, listen=f"{LOOPBACK}:{port}", enabled=False
            )
            for name, toxic in toxics.items():
                attributes = {
                    TOXICS[toxic.kind][key].named: value for key, value in toxic.attributes.items()
                }
                made.add_toxic(
                    name=name, type=toxic.kind, stream=toxic.stream, attributes=attributes
                )
            made.enable()
            if set(made.toxics()) != set(toxics):
                raise HostError(f"Toxiproxy did not take the toxics of the link {link}.")
            return made

        self._proxies[link] = (await _asked(replace), port, target)

    def close(self) -> None:
        """Gives the ports back; the process is the host's to end."""
        for port in self._ports:
            port.close()


def _api() -> Any:
    from toxiproxy import Toxiproxy

    return Toxiproxy()


def _ask_the_server_directly() -> None:
    """Not through a web proxy that the environment names: the library asks whom that names."""
    named = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if LOOPBACK not in named.split(","):
        os.environ["no_proxy"] = ",".join(filter(None, (named, LOOPBACK)))


async def _asked(call: Callable[[], _T]) -> _T:
    """What the server said, in a thread of its own. Raises HostError where it said no."""
    from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

    # The library takes whatever it is answered for what it had asked for.
    misunderstood = (InvalidToxic, NotFound, ProxyExists, KeyError, TypeError, ValueError)
    try:
        async with asyncio.timeout(_CALL_WITHIN_S):
            return await asyncio.to_thread(call)
    except TimeoutError:
        raise HostError("Toxiproxy did not answer in time.") from None
    except (OSError, *misunderstood) as error:
        raise HostError(f"Toxiproxy did not do what it was asked for: {error!r}") from error
