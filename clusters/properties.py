"""Java's properties files, the form of Kafka's `server.properties` and `meta.properties`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import javaproperties


class PropertiesError(Exception):
    """A line that sets nothing, or an escape that Java does not know; one sentence."""


def read_properties(text: str) -> dict[str, str]:
    """As Java reads them: comments, escapes, lines that go on, `:` or a space for `=`.

    Raises PropertiesError. Java takes a name alone for an empty value; here it is an error, since
    it is a line that somebody has cut short.
    """
    settings: dict[str, str] = {}
    number = 1
    try:
        for line in javaproperties.parse(text):
            if isinstance(line, javaproperties.KeyValue):
                if not line.value and line.source.strip() == line.key:
                    raise PropertiesError(
                        f"line {number} is not of the form name=value: {line.key!r}"
                    )
                settings[line.key] = line.value
            number += line.source.count("\n")
    except javaproperties.InvalidUEscapeError:
        raise PropertiesError(f"line {number} has an escape \\u without four hex digits") from None
    return settings


def with_files(settings: Mapping[str, str]) -> dict[str, str]:
    """With what Kafka's FileConfigProvider has for `${file:PATH:NAME}` (KIP-297, KIP-421), where it
    is the provider of that name. A name that the file does not have stays as it is, as in Kafka.

    Raises PropertiesError for a file that cannot be read.
    """
    providers = [name.strip() for name in settings.get("config.providers", "").split(",")]
    named = [
        name
        for name in providers
        if settings.get(f"config.providers.{name}.class", "").endswith(".FileConfigProvider")
    ]
    if not named:
        return dict(settings)
    variable = re.compile(rf"\$\{{(?:{'|'.join(map(re.escape, named))}):([^:}}]+):([^}}]+)\}}")

    def value(found: re.Match[str]) -> str:
        try:
            text = Path(found[1]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PropertiesError(f"{found[0]}: the file cannot be read ({error})") from None
        return read_properties(text).get(found[2], found[0])

    return {name: variable.sub(value, text) for name, text in settings.items()}


def without_comments(text: str) -> str:
    """The lines that set something, as they are. The text is one that `read_properties` reads."""
    lines = javaproperties.parse(text)
    return "".join(line.source for line in lines if isinstance(line, javaproperties.KeyValue))


def write_properties(settings: Mapping[str, str]) -> str:
    """Sorted by name; with escapes only where Java would read something else without them."""
    return "".join(f"{_line(name, settings[name])}\n" for name in sorted(settings))


def _line(name: str, value: str) -> str:
    plain = f"{name}={value}"
    if plain.isascii() and javaproperties.loads(plain) == {name: value}:
        return plain
    return javaproperties.join_key_value(name, value)
