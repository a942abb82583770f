"""What a user sets once: defaults of options, from a file and from the environment.

The file is `neaptide.toml`, or the table `[tool.neaptide]` of `pyproject.toml`, of the current
directory or of the nearest above it that has one. What a variable `NEAPTIDE_…` says goes before the
file, and what the command line says goes before both.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.errors import UsageError
from neaptide.clusters.nearest import did_you_mean

PREFIX: Final = "NEAPTIDE_"
# Options that mean the same in each command that has them. Others stand in a command's own table.
COMMON: Final = (
    *("system", "host", "image", "nodes", "kafka-home", "master", "seed", "fail-on"),
    *("min-acked", "retries-unknown", "json", "quiet", "verbose"),
)
# Not where brokers run, but where to listen.
_ANOTHER: Final = frozenset({("serve", "host")})
# These name no option, but the variable of the same name.
DIRECTORIES: Final = ("runs", "state")
PYTEST: Final = "pytest"
PYTEST_OPTIONS: Final = ("system", "host", "seed", "batch", "retries-unknown")
_PATHS: Final = frozenset(
    {*DIRECTORIES, "nodes", "kafka-home", "save", "matrix", "html", "junit", "histories", "nights"}
)
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
Environ = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class File:
    """`table`: where the settings begin, as `[tool.neaptide]`; empty: at the top of the file."""

    path: Path
    table: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def complain(self, where: str, problem: str) -> UsageError:
        key = ".".join(filter(None, (self.table, where)))
        return UsageError(f"{self.path}: {key}{problem}")


@dataclass(frozen=True, slots=True)
class Option:
    """`name`: as on the command line, without its hyphens. `key`: by which a command gets it."""

    name: str
    key: str
    is_flag: bool
    is_repeatable: bool


def find_file(directory: Path) -> File | None:
    """The nearest, here or above. Raises UsageError for one that cannot be read."""
    for each in (directory, *directory.parents):
        own, project = each / "neaptide.toml", each / "pyproject.toml"
        if own.is_file():
            return File(own, settings=_read(own))
        if project.is_file():
            settings = _read(project).get("tool", {}).get("neaptide")
            if settings is not None:
                return File(project, "tool.neaptide", settings)
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: is not valid TOML: {error}.") from None


def defaults_of(program: Any, file: File | None, environ: Environ) -> dict[str, Any]:
    """What each command takes where the command line says nothing, in the form of click's
    `default_map`. Raises UsageError for what names no option."""
    settings = {} if file is None else file.settings
    _check_names(program, file)
    _check_variables(program, environ)
    return _of_group(program, (), settings, {}, file, environ)


def _of_group(
    group: Any,
    path: tuple[str, ...],
    table: Mapping[str, Any],
    above: Mapping[str, Any],
    file: File | None,
    environ: Environ,
) -> dict[str, Any]:
    known = {**above, **{key: value for key, value in table.items() if key not in group.commands}}
    made: dict[str, Any] = {}
    for name, command in group.commands.items():
        of, own = (*path, name), table.get(name, {})
        if hasattr(command, "commands"):
            made[name] = _of_group(command, of, own, known, file, environ)
            continue
        made[name] = {}
        for option in options_of(command):
            value = _value(option, of, own, known, file, environ)
            if value is not None:
                made[name][option.key] = value
    return made


def _value(
    option: Option,
    path: tuple[str, ...],
    own: Mapping[str, Any],
    above: Mapping[str, Any],
    file: File | None,
    environ: Environ,
) -> Any:
    """None: nobody says anything."""
    for variable in _variables(path, option.name):
        if variable in environ:
            return _of_text(option, variable, environ[variable])
    if option.name in own:
        return _of_file(option, own[option.name], file, path)
    if option.name in above and (*path, option.name) not in _ANOTHER:
        return _of_file(option, above[option.name], file, path[:-1])
    return None


def _variables(path: tuple[str, ...], option: str) -> Iterator[str]:
    """Of a command's option: its own variable, that of its group, and that of all commands."""
    is_common = option in COMMON and (*path, option) not in _ANOTHER
    for length in range(len(path), -1 if is_common else 0, -1):
        yield PREFIX + "_".join((*path[:length], option)).upper().replace("-", "_")


def _of_text(option: Option, variable: str, text: str) -> Any:
    if option.is_flag:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise UsageError(f"{variable}={text} must be one of {', '.join((*_TRUE, *_FALSE))}.")
        return text.lower() in _TRUE
    return text.split() if option.is_repeatable else text


def _of_file(option: Option, value: Any, file: File | None, path: tuple[str, ...]) -> Any:
    assert file is not None
    where = ".".join((*path, option.name))
    if option.is_flag:
        if not isinstance(value, bool):
            raise file.complain(where, f" = {value!r} must be true or false")
        return value
    if option.is_repeatable:
        if isinstance(value, Mapping):
            return [f"{name}={_text(one, file, where)}" for name, one in value.items()]
        values = value if isinstance(value, list) else [value]
        return [_path(option.name, _text(one, file, where), file) for one in values]
    return _path(option.name, _text(value, file, where), file)


def _text(value: Any, file: File, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise file.complain(where, f" = {value!r} must be a text or a number")
    return str(value)


def _path(name: str, text: str, file: File) -> str:
    """What names a file is relative to the one that names it."""
    if name in _PATHS or (name == "system" and text.endswith(".toml")):
        return str(file.path.parent / text)
    return text


def options_of(command: Any) -> tuple[Option, ...]:
    return tuple(
        Option(
            next(name for name in parameter.opts if name.startswith("--")).removeprefix("--"),
            parameter.name,
            bool(parameter.is_flag),
            bool(parameter.multiple),
        )
        for parameter in command.params
        if parameter.param_type_name == "option" and parameter.name != "help"
    )


# --- what is set and does nothing ----------------------------------------------------------------


def _check_names(program: Any, file: File | None) -> None:
    """Raises UsageError for a key that names no option, or no command."""
    if file is None:
        return
    if not isinstance(file.settings, Mapping):
        raise file.complain("", " must be a table")
    for key, value in file.settings.items():
        if key in DIRECTORIES or key == PYTEST:
            continue
        if key in program.commands:
            _check_table(program.commands[key], (key,), value, file)
        elif key not in COMMON:
            users = [name for name, one in program.commands.items() if key in _names(one)]
            if users:
                table = ".".join(filter(None, (file.table, users[0])))
                raise file.complain(key, f": commands differ in it; write it into [{table}]")
            known = (*COMMON, *DIRECTORIES, PYTEST, *program.commands)
            raise file.complain(key, f" is no option{did_you_mean(key, known)}")
    _check_keys(file, PYTEST, PYTEST_OPTIONS)


def _check_table(command: Any, path: tuple[str, ...], table: Any, file: File) -> None:
    where = ".".join(path)
    if not isinstance(table, Mapping):
        raise file.complain(where, " must be a table: it is a command")
    inner = getattr(command, "commands", {})
    known = _names(command)
    for key, value in table.items():
        if key in inner:
            _check_table(inner[key], (*path, key), value, file)
        elif key not in known:
            near = did_you_mean(key, (*known, *inner))
            raise file.complain(f"{where}.{key}", f" is no option of it{near}")


def _check_keys(file: File, table: str, known: tuple[str, ...]) -> None:
    found = file.settings.get(table, {})
    if not isinstance(found, Mapping):
        raise file.complain(table, " must be a table")
    for key in found:
        if key not in known:
            raise file.complain(f"{table}.{key}", f" is no option of it{did_you_mean(key, known)}")


def _names(command: Any) -> tuple[str, ...]:
    """Of the options of a command, or of all commands in a group."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return tuple(option.name for option in options_of(command))
    return tuple(dict.fromkeys(name for one in inner.values() for name in _names(one)))


def variables_of(program: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name, command in program.commands.items():
        if hasattr(command, "commands"):
            yield from variables_of(command, (*path, name))
        else:
            for option in options_of(command):
                yield from _variables((*path, name), option.name)


def _check_variables(program: Any, environ: Environ) -> None:
    """What is nearly a variable of ours would be nothing, in silence. Raises UsageError."""
    ours = [name for name in environ if name.startswith(PREFIX)]
    if not ours:
        return
    known = {*variables_of(program), *(PREFIX + name.upper() for name in DIRECTORIES)}
    for name in ours:
        near = [] if name in known else difflib.get_close_matches(name, known, 1, 0.9)
        if near:
            raise UsageError(f"The variable {name} means nothing; did you mean {near[0]}?")


# --- for who is no command -----------------------------------------------------------------------


def set_directories(file: File | None, environ: MutableMapping[str, str] = os.environ) -> None:
    """Of runs and of the ledger, where no variable names them."""
    for name in DIRECTORIES:
        if file is not None and name in file.settings:
            value = _path(name, _text(file.settings[name], file, name), file)
            environ.setdefault(PREFIX + name.upper(), value)


def of_pytest(file: File | None, environ: Environ, option: str) -> list[str]:
    """What an option of the pytest plugin takes where pytest is given none; empty: nothing."""
    made = Option(option, option, is_flag=False, is_repeatable=True)
    if file is not None:
        _check_keys(file, PYTEST, PYTEST_OPTIONS)
    settings = {} if file is None else file.settings
    value = _value(made, (PYTEST,), settings.get(PYTEST, {}), settings, file, environ)
    return list(value or ())
