"""Reads a system file. Raises UsageError: one sentence with the file, where in it, and the key.

The rule: everything is checked before anything is started, and no sentence has the value of a
client setting or of a variable of the environment, for they may be secrets.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from neaptide.clusters.broker.replication.model import SecurityProtocol
from neaptide.clusters.errors import UsageError
from neaptide.clusters.kafka.versions import Addressing, Mode, Release, parse_release, row_of
from neaptide.clusters.own.model import (
    COMMANDS,
    Argv,
    Managed,
    OwnNode,
    OwnSystem,
    Used,
)
from neaptide.clusters.own.placeholders import IN_COMMANDS, MEANINGS, placeholders, unknown
from neaptide.clusters.properties import PropertiesError, read_properties, without_comments
from neaptide.results.secrets import is_named_elsewhere, is_secret, looks_secret

T = TypeVar("T")
SUFFIX: Final = ".toml"
_TOP: Final = ("name", "behaves_like")
_USED: Final = (*_TOP, "bootstrap", "client", "keep_topics")
_MANAGED: Final = (*_TOP, "environment", "client", "brokers", "controllers", "image", "mounts")
_COMMANDS: Final = ("prepare", "stop", "kill", "pause", "resume")
_NODE: Final = ("id", "ids", "properties", "start", *_COMMANDS, "pid_file", "log_dir")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_PORT_MAX: Final = 65_535
_ID_MAX: Final = 2**31 - 1
_PID: Final = "pid"
_KINDS: Final[Mapping[type, str]] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
_PROTOCOL: Final = "security.protocol"
_PLAINTEXT: Final = "PLAINTEXT"
_AT_CLIENTS: Final = "{client_listen}"
# How a client reaches a cluster and logs in; what it does there is the workload's affair.
_CLIENT_KEYS: Final = ("broker.address.family", "client.dns.lookup", "client.id", "client.rack")
_CLIENT_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.")


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the file, and what it is called in sentences."""

    raw: Mapping[str, Any]
    where: str
    directory: Path

    def complain(self, what: str) -> UsageError:
        return UsageError(f"{self.where}: {what}.")

    def allow(self, keys: Collection[str]) -> None:
        for key in self.raw:
            if key not in keys:
                raise self.complain(f"there is no {key!r}; it must be one of {', '.join(keys)}")

    def take(self, key: str, kind: type[T], default: T | None = None) -> T:
        """The value; it must be there where there is no default."""
        value = self.raw.get(key)
        if value is None:
            if default is None:
                raise self.complain(f"it has no {key!r}")
            return default
        if type(value) is not kind:
            raise self.complain(f"{key} must be {_KINDS[kind]}")
        return value

    def find(self, key: str, kind: type[T]) -> T | None:
        return None if key not in self.raw else self.take(key, kind)


def load_system(path: Path) -> OwnSystem:
    """Raises UsageError."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"The system file {path} cannot be read: {why}.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The system file {path} is not TOML: {error}.") from None
    top = _Table(raw, str(path), path.absolute().parent)
    if ("bootstrap" in raw) == ("brokers" in raw):
        raise top.complain(
            'it must have either bootstrap = "host:port" of a cluster that is just used, or'
            " [[brokers]] to start"
        )
    name = _name(top)
    release = _release(top)
    if "bootstrap" in raw:
        return _used(top, path, name)
    return _managed(top, path, name, release)


def _name(top: _Table) -> str:
    name = top.take("name", str)
    if not _NAME.fullmatch(name):
        raise top.complain(
            f"name = {name!r} must be of letters, digits, dots, dashes and underscores"
        )
    return name


def _release(top: _Table) -> Release:
    try:
        return parse_release(top.take("behaves_like", str))
    except UsageError as error:
        if str(error).startswith(f"{top.where}:"):
            raise
        raise top.complain(f"behaves_like: {str(error).rstrip('.')}") from None


# --- a cluster that is used ----------------------------------------------------------------------


def _used(top: _Table, path: Path, name: str) -> Used:
    top.allow(_USED)
    bootstrap = top.take("bootstrap", str)
    addresses = [word.strip() for word in bootstrap.split(",")]
    for address in addresses:
        found = _ADDRESS.fullmatch(address)
        if found is None or not 0 < int(found[1]) <= _PORT_MAX:
            raise top.complain(f"bootstrap: {address!r} is no address; write host:port")
    return Used(
        name,
        top.take("behaves_like", str),
        path,
        ",".join(addresses),
        _client(top),
        top.take("keep_topics", bool, False),
    )


def _client(top: _Table) -> Mapping[str, str]:
    raw = top.take("client", dict, {})
    client = _Table(raw, f"{top.where}, [client]", top.directory)
    return {key: _client_value(client, key) for key in raw}


def _client_value(client: _Table, key: str) -> str:
    """A text, a number, true or false; or the variable of the environment that has it."""
    if key not in _CLIENT_KEYS and not key.startswith(_CLIENT_PREFIXES):
        raise client.complain(
            f"there is no {key!r}; it is for how clients come in:"
            f" {', '.join((*_CLIENT_KEYS, *(f'{p}…' for p in _CLIENT_PREFIXES)))}"
        )
    value = client.raw[key]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, dict) and list(value) == ["env"] and isinstance(value["env"], str):
        if value["env"] not in os.environ:
            raise client.complain(f"{key}: the environment has no variable {value['env']}; set it")
        return os.environ[value["env"]]
    raise client.complain(
        f'{key} must be a text, a number, true or false, or {{ env = "VARIABLE" }}'
    )


# --- a cluster that is started -------------------------------------------------------------------


def _managed(top: _Table, path: Path, name: str, release: Release) -> Managed:
    top.allow(_MANAGED)
    client = _client(top)
    behaves_like = top.take("behaves_like", str)
    if row_of(behaves_like).addressing is not Addressing.NAMED_LISTENERS:
        raise top.complain(
            "behaves_like: brokers are managed from 0.10.2 on, where clients and replicas have"
            f" listeners of their own, not {behaves_like}"
        )
    brokers = _nodes(top, "brokers")
    controllers = _nodes(top, "controllers") if "controllers" in top.raw else ()
    _check_controllers(top, release, bool(controllers))
    ids = [node.id for node in (*brokers, *controllers)]
    twice = next((one for one in ids if ids.count(one) > 1), None)
    if twice is not None:
        raise top.complain(f"the id {twice} is there twice; each node has an id of its own")
    environment = _Table(top.take("environment", dict, {}), f"{path}, [environment]", top.directory)
    for node in (*brokers, *controllers):
        _check_own_values(top, node, len(ids))
    for node in brokers:
        _check_where_it_listens(top, node)
    for node in (*brokers, *controllers):
        _check_listeners(top, node, client.get(_PROTOCOL, _PLAINTEXT))
    said = frozenset(key for node in brokers for key in read_properties(node.template))
    return Managed(
        name,
        behaves_like,
        path,
        brokers,
        controllers,
        {key: environment.take(key, str) for key in environment.raw},
        said,
        top.find("image", str) or None,
        _mounts(top),
        client,
    )


def _mounts(top: _Table) -> tuple[Path, ...]:
    """Directories, named absolutely or beside the file."""
    words = top.take("mounts", list, [])
    if not all(isinstance(word, str) and word for word in words):
        raise top.complain('mounts must be a list of directories, as ["/opt/kafka"]')
    return tuple(Path(os.path.normpath(top.directory / word)) for word in words)


def _check_controllers(top: _Table, release: Release, are_there: bool) -> None:
    if release.mode is Mode.KRAFT and not are_there:
        raise top.complain(
            "in KRaft it needs [[controllers]] to start; where every broker is a controller too,"
            f' write behaves_like = "{release.number}-combined"'
        )
    if release.mode is not Mode.KRAFT and are_there:
        other = "with ZooKeeper" if release.mode is Mode.ZOOKEEPER else "in a -combined system"
        raise top.complain(
            f"[[controllers]]: {other} there are none of their own; leave them out, or write"
            f' behaves_like = "{release.number}-kraft"'
        )


def _nodes(top: _Table, key: str) -> tuple[OwnNode, ...]:
    tables = top.take(key, list)
    if not tables or not all(isinstance(raw, dict) for raw in tables):
        raise top.complain(f"write each of {key} as [[{key}]], with one key a line")
    return tuple(
        node
        for number, raw in enumerate(tables, start=1)
        for node in _node(_Table(raw, f"{top.where}, {key} {number}", top.directory))
    )


def _node(table: _Table) -> list[OwnNode]:
    """As many as it has ids."""
    table.allow(_NODE)
    properties = table.directory / table.take("properties", str)
    template = _template(table, properties)
    start = _argv(table, "start", IN_COMMANDS, but=_PID)
    if start is None:
        raise table.complain("it has no 'start'")
    others = {
        key: _argv(table, key, IN_COMMANDS, but=_PID if key == "prepare" else "")
        for key in _COMMANDS
    }
    if (others["pause"] is None) != (others["resume"] is None):
        raise table.complain("pause and resume go together; give both, or none")
    pid_file, log_dir = (_path(table, key) for key in ("pid_file", "log_dir"))
    return [
        OwnNode(one, properties, template, start, **others, pid_file=pid_file, log_dir=log_dir)
        for one in _ids(table)
    ]


def _ids(table: _Table) -> list[int]:
    if ("id" in table.raw) == ("ids" in table.raw):
        raise table.complain("it must have either id, or ids of nodes that differ in nothing else")
    ids = [table.take("id", int)] if "id" in table.raw else table.take("ids", list)
    if not ids or not all(type(one) is int and 0 <= one <= _ID_MAX for one in ids):
        raise table.complain("ids must be whole numbers, 0 or more")
    return ids


def _template(table: _Table, file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise table.complain(f"properties: {file} cannot be read: {why}") from None
    try:
        settings = read_properties(text)
    except PropertiesError as error:
        line = str(error).partition(":")[0]  # not what stands there
        raise table.complain(f"properties: {file}: {line}") from None
    for key, value in settings.items():
        is_one = is_secret(key) and not is_named_elsewhere(value)
        if is_one or looks_secret(value):
            raise table.complain(
                f"properties: {file}: {key} holds a secret, and the filled file is written into the"
                " run directory; name it by a config provider, as ${file:…}, or leave it out"
            )
    text = without_comments(text)  # what stands there may be a secret of yesterday
    _check_placeholders(table, "properties", text, MEANINGS)
    return text


def _check_own_values(top: _Table, node: OwnNode, nodes: int) -> None:
    """What differs from node to node is not the same for all."""
    settings = read_properties(node.template)
    commands = " ".join([*node.start, *(node.prepare or ())])
    for key in ("broker.id", "node.id"):
        said = settings.get(key, str(node.id))
        if said not in (str(node.id), "{id}") and key not in commands:
            raise top.complain(
                f"{key} is {said} in {node.properties}, and this node's id is {node.id}; write"
                f" {key}={{id}}"
            )
    for key in ("log.dirs", "log.dir"):
        said = settings.get(key, "{log_dir}")
        if nodes > 1 and not placeholders(said) and key not in commands:
            raise top.complain(
                f"{key} is {said} in {node.properties}, for each of {nodes} nodes; write"
                f" {key}={{log_dir}}"
            )


def _check_where_it_listens(top: _Table, node: OwnNode) -> None:
    """neaptide chooses the ports of a run, and a broker learns them by a placeholder alone."""
    known = placeholders(" ".join([node.template, *node.start, *(node.prepare or ())]))
    if "client_listen" not in known:
        raise top.complain(
            f"broker {node.id} does not learn where it is to listen: {{client_listen}} is neither"
            f" in {node.properties} nor in its start command; write it into listeners"
        )


def _check_listeners(top: _Table, node: OwnNode, of_clients: str) -> None:
    """The gate reads what brokers say to each other. What clients say passes it as it is: they and
    their listener have one protocol. A listener has that of the map, or of its name."""
    settings = read_properties(node.template)
    named = settings.get("listener.security.protocol.map", "").split(",")
    protocols = {word.split(":")[0].strip(): word.split(":")[-1].strip() for word in named}
    for listener in settings.get("listeners", "").split(","):
        name, _, at = listener.strip().partition("://")
        protocol = protocols.get(name, name).upper()
        if protocol not in SecurityProtocol.__members__:
            continue  # that is for the broker to say
        if at == _AT_CLIENTS and protocol != of_clients.upper():
            raise top.complain(
                f"the listener {name} of {node.properties} speaks {protocol}, and clients"
                f' {of_clients}; write "{_PROTOCOL}" = "{protocol}" in [client], or change the'
                " listener"
            )
        if at != _AT_CLIENTS and protocol != _PLAINTEXT:
            raise top.complain(
                f"the listener {name} of {node.properties} speaks {protocol}; the gate reads what"
                " brokers and controllers say to each other, so that it must be PLAINTEXT"
            )


def _check_placeholders(table: _Table, key: str, text: str, known: Mapping[str, str]) -> None:
    name = unknown(text, known)
    if name is not None:
        raise table.complain(
            f"{key}: there is no placeholder {{{name}}}; it must be one of {', '.join(known)}"
        )


def _argv(table: _Table, key: str, known: Mapping[str, str], *, but: str) -> Argv | None:
    """A command, its program found. `but`: a placeholder that it cannot have."""
    words = table.find(key, list)
    if words is None:
        return None
    if not words or not all(isinstance(word, str) and word for word in words):
        raise table.complain(f'{key} must be a list of texts, as ["bin/start", "{{properties}}"]')
    for word in words:
        _check_placeholders(table, key, word, {n: known[n] for n in known if n != but})
    return (_program(table, key, words[0]), *words[1:])


def _program(table: _Table, key: str, word: str) -> str:
    """Beside the file where it is a relative path, else by PATH."""
    if unknown(word, {}) is not None:
        raise table.complain(f"{key}: the program {word!r} must be named without placeholders")
    return str(table.directory / word) if os.sep in word else word


def _path(table: _Table, key: str) -> str | None:
    """A path beside the file; it may have {id}."""
    text = table.find(key, str)
    if text is None:
        return None
    _check_placeholders(table, key, text, {"id": "", "here": ""})
    if isinstance(table.raw.get("ids"), list) and len(table.raw["ids"]) > 1 and "{id}" not in text:
        raise table.complain(f"{key} must have {{id}} in it: each of these ids has its own")
    return text if text.startswith("{here}") else str(table.directory / text)


# --- where it is to run --------------------------------------------------------------------------

# What a node cannot have there: `local` can have all.
_NOT_ON: Final[Mapping[str, tuple[str, ...]]] = {
    "netns": ("pid_file",),
    "docker": ("pid_file", "kill", "pause", "resume"),
    "ssh": ("pid_file", "log_dir", "stop", "kill", "pause", "resume"),
}


def check_managed_on(system: Managed, host: str) -> None:
    """Raises UsageError where a node has what that host cannot do, or a program is not there."""
    for directory in system.mounts if host == "docker" else ():
        if not directory.is_dir():
            raise UsageError(f"{system.file}: mounts: there is no directory {directory}.")
    for node in system.nodes:
        for key in _NOT_ON.get(host, ()):
            if getattr(node, key) is not None:
                raise UsageError(
                    f"{system.file}: node {node.id} has a {key}, which goes with --host local"
                    f"{' or netns' if key != 'pid_file' else ''}, not with {host}."
                )
        for key in COMMANDS if host != "ssh" else ():
            argv: Argv | None = getattr(node, key)
            is_here = host != "docker" or (argv is not None and _is_mounted(system, argv[0]))
            if argv is not None and is_here and shutil.which(argv[0]) is None:
                raise UsageError(
                    f"{system.file}: {key} of node {node.id}: there is no program {argv[0]} that"
                    " can be run."
                )


def _is_mounted(system: Managed, program: str) -> bool:
    """Whether a container has this program from this machine; else it is the image's."""
    return any(Path(program).is_relative_to(directory) for directory in system.mounted)
