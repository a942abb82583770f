"""One connection to a node of the host `ssh`, and the runner at its other end.

Host keys are checked against known_hosts and never added. Nothing is run through a shell but one
fixed command, each word of it quoted: Python with the runner's text.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import socket
import stat
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import paramiko

from neaptide.clusters.errors import HostError, MissingPartError
from neaptide.clusters.hosts import node_runner
from neaptide.clusters.hosts.ssh_nodes import SshNode

_CONNECT_S: Final = 15.0
_PING_S: Final = 15.0
_ANSWER_S: Final = 120.0
_END_S: Final = 15.0
Event = Mapping[str, Any]


def connect(node: SshNode, known_hosts: str) -> paramiko.SSHClient:
    """Raises MissingPartError that says what to do."""
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # what it would log is raised too
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    file = Path(known_hosts).expanduser()
    named = node.address if node.port == 22 else f"[{node.address}]:{node.port}"
    try:
        if file.exists():
            client.load_host_keys(str(file))
        client.connect(
            node.address,
            port=node.port,
            username=node.user,
            key_filename=None if node.key is None else str(Path(node.key).expanduser()),
            allow_agent=node.key is None,
            look_for_keys=node.key is None,
            timeout=_CONNECT_S,
            banner_timeout=_CONNECT_S,
            auth_timeout=_CONNECT_S,
        )
    except paramiko.BadHostKeyException as error:
        client.close()
        raise MissingPartError(
            f"The host key of {named} is not the one in {file}: somebody may be in between; if it"
            f" was changed on purpose, run ssh-keygen -f {shlex.quote(str(file))} -R"
            f" {shlex.quote(named)} and connect once with ssh."
        ) from error
    except paramiko.AuthenticationException as error:
        client.close()
        raise MissingPartError(
            f"{node} accepts none of the keys: add yours to its authorized_keys, to the agent, or"
            " name its file as `key` in the file of nodes."
        ) from error
    except (paramiko.SSHException, OSError) as error:
        client.close()
        raise MissingPartError(_refused(node, named, file, error)) from error
    return client


def _refused(node: SshNode, named: str, file: Path, error: Exception) -> str:
    if "not found in known_hosts" in str(error):
        return (
            f"The host key of {named} is not in {file}: connect once with ssh and look at the key,"
            " so that it is added."
        )
    return f"{node} cannot be reached by ssh ({error}): look at its address, its port, and its key."


class Connection:
    """A node with its runner. Commands may come from one event loop; `send` from any thread."""

    def __init__(
        self, node: SshNode, client: paramiko.SSHClient, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.node = node
        self._client = client
        self._loop = loop
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._writing = threading.Lock()
        self._files = threading.Lock()
        self._failure: str | None = None
        self.on_event: Callable[[Event], None] = lambda _: None
        self.on_loss: Callable[[], None] = lambda: None
        self._channel = self._open_runner()
        self._sftp = client.open_sftp()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    async def open(cls, node: SshNode, known_hosts: str) -> Connection:
        """Raises MissingPartError where the node cannot be reached."""
        client = await asyncio.to_thread(connect, node, known_hosts)
        return await asyncio.to_thread(cls, node, client, asyncio.get_running_loop())

    def _open_runner(self) -> paramiko.Channel:
        program = Path(node_runner.__file__).read_text(encoding="utf-8")
        transport = self._client.get_transport()
        assert transport is not None
        transport.set_keepalive(int(_PING_S))
        channel = transport.open_session()
        channel.settimeout(_PING_S)
        channel.exec_command(shlex.join([self.node.python, "-c", program]))
        return channel

    @property
    def ends(self) -> tuple[str, str]:
        """The addresses of the connection: the harness's, and the node's."""
        transport = self._client.get_transport()
        assert transport is not None
        here = cast(socket.socket, transport.sock)
        return str(here.getsockname()[0]), str(transport.getpeername()[0])

    async def do(self, verb: str, **arguments: Any) -> Any:
        """One command of the runner; its result. Raises HostError."""
        if self._failure is not None:
            raise HostError(self._failure)
        self._count += 1
        number = self._count
        answer = self._answers[number] = self._loop.create_future()
        try:
            await asyncio.to_thread(self._send, {"id": number, "do": verb, **arguments})
            async with asyncio.timeout(_ANSWER_S):
                return await answer
        except TimeoutError:
            raise HostError(f"node {self.node} did not answer to {verb}") from None
        finally:
            self._answers.pop(number, None)

    async def run(self, *argv: str, stdin: str = "") -> str:
        """What a command on the node printed. Raises HostError."""
        done = await self.do("run", argv=list(argv), stdin=stdin)
        if done["status"] != 0:
            said = " ".join(done["stderr"].split()) or f"exit status {done['status']}"
            raise HostError(f"node {self.node}: {argv[0]}: {said}")
        return str(done["stdout"])

    def upload(self, here: Path, there: str) -> None:
        """The file is complete when it is there."""
        try:
            with self._files:
                self._sftp.put(str(here), f"{there}.part")
                self._sftp.posix_rename(f"{there}.part", there)
        except (OSError, paramiko.SSHException) as error:
            raise HostError(f"node {self.node}: {there} cannot be written: {error}") from error

    def download(self, there: str, here: Path) -> bool:
        """False: there is no such file."""
        here.parent.mkdir(parents=True, exist_ok=True)
        part = here.with_name(here.name + ".part")
        try:
            with self._files:
                self._sftp.get(there, str(part))
        except FileNotFoundError:
            part.unlink(missing_ok=True)
            return False
        except (OSError, paramiko.SSHException) as error:
            raise HostError(f"node {self.node}: {there} cannot be read: {error}") from error
        part.replace(here)
        return True

    def sizes(self, there: str) -> dict[str, int] | None:
        """The files of a directory by name; None where there is no such directory."""
        try:
            with self._files:
                if not stat.S_ISDIR(self._sftp.stat(there).st_mode or 0):
                    return None
                found = self._sftp.listdir_attr(there)
        except FileNotFoundError:
            return None
        except (OSError, paramiko.SSHException) as error:
            raise HostError(f"node {self.node}: {there} cannot be listed: {error}") from error
        regular = (each for each in found if stat.S_ISREG(each.st_mode or 0))
        return {each.filename: each.st_size or 0 for each in regular}

    def close(self) -> None:
        """The runner ends what it has started, and itself. Idempotent."""
        if not self._channel.closed:
            self._channel.shutdown_write()
            self._reader.join(_END_S)
        self._client.close()

    def _send(self, command: Mapping[str, Any]) -> None:
        try:
            with self._writing:
                self._channel.sendall(json.dumps(command).encode() + b"\n")
        except OSError as error:
            raise HostError(f"the connection to node {self.node} is lost: {error}") from error

    # --- on the thread that reads ----------------------------------------------------------------

    def _read(self) -> None:
        pending = b""
        while True:
            try:
                received = self._channel.recv(65536)
            except TimeoutError:
                if not self._ping():
                    break
                continue
            if not received:
                break
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                self._on_loop(self._take, json.loads(line))
        said = self._channel.recv_stderr(4096).decode(errors="replace").strip().splitlines()
        self._on_loop(self._lose, said[-1] if said else "the connection is lost")

    def _ping(self) -> bool:
        try:
            self._send({"id": 0, "do": "ping"})
        except HostError:
            return False
        return True

    def _on_loop(self, call: Callable[[Any], None], argument: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, argument)

    # --- on the event loop -----------------------------------------------------------------------

    def _take(self, row: dict[str, Any]) -> None:
        if "event" in row:
            self.on_event(row)
            return
        answer = self._answers.get(row["id"])
        if answer is None or answer.done():
            return
        if row["ok"]:
            answer.set_result(row["result"])
        else:
            answer.set_exception(HostError(f"node {self.node}: {row['error']}"))

    def _lose(self, why: str) -> None:
        self._failure = f"node {self.node}: {why}"
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(HostError(self._failure))
        self.on_loss()
