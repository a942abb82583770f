"""Words and files that name machines; each mistake gets one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.ssh_nodes import SshNode, load_nodes, parse_nodes


def test_a_user_is_of_all_that_follow_without_one() -> None:
    nodes = parse_nodes("me@one,two:2222,you@three").nodes
    assert [(node.user, node.address, node.port) for node in nodes] == [
        ("me", "one", 22),
        ("me", "two", 2222),
        ("you", "three", 22),
    ]


@pytest.mark.parametrize("text", ["", "me@", "me@one,,two", "me@one:port"])
def test_a_word_that_is_no_node_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no node: write ssh:user@h1,h2,h3"):
        parse_nodes(text)


def test_a_file_of_nodes_says_all_of_each(tmp_path: Path) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text(
        'known_hosts = "/known"\nharness = "10.0.0.9"\n'
        '[[node]]\naddress = "10.0.0.1"\nuser = "kafka"\nport = 2222\nkey = "~/key"\n'
        'python = "/opt/bin/python"\njava = "/opt/java"\ndirectory = "/data"\n'
    )
    found = load_nodes(file)
    assert (found.known_hosts, found.harness) == ("/known", "10.0.0.9")
    assert found.nodes == (
        SshNode("10.0.0.1", "kafka", 2222, "~/key", "/opt/bin/python", "/opt/java", "/data"),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[node]]\n", "it has no address"),
        ("", "names no node"),
        ('[[node]]\naddress = "a"\ncolour = "red"\n', "there is no 'colour'; it must be one of"),
        ('[[node]]\naddress = "a"\nport = "22"\n', "port must be a number, not '22'"),
        ("node = 3\n", "node must be a table"),
        ("node = [3]\n", "write it as"),
        ("[[node", "is not TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=says):
        load_nodes(file)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_nodes(tmp_path / "none.toml")
