"""Nothing outside the runs is shown, to nobody but who asks this server by its own name."""

from __future__ import annotations

import shutil
import socket
from contextlib import closing

import pytest
from starlette.testclient import TestClient

from neaptide.results.serve import urls
from neaptide.results.serve.guard import host_of, is_ours
from tests.serve.conftest import client_of, serving
from tests.serve.stored import HELD, LOST, NIGHT, Stored

SECRET = "what is outside"

# --- paths ---------------------------------------------------------------------------------------


def answer(port: int, path: str) -> bytes:
    """All that comes back to a path that nobody has tidied."""
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def test_no_path_leads_out_of_the_runs(own: Stored) -> None:
    (own.root.parent / "outside").mkdir()
    for name in ("secret.txt", "run.json", "page.html", "report.html"):
        (own.root.parent / "outside" / name).write_text(SECRET, encoding="utf-8")
    (own.root.parent / "secret.txt").write_text(SECRET, encoding="utf-8")
    ups = ("..", "%2e%2e", "%2E%2e", "..%2f..", "..%5c..", "%252e%252e", "....//", ".%00.")
    paths = [
        path
        for up in ups
        for path in (
            f"/{up}/secret.txt",
            f"/runs/{up}",
            f"/runs/{up}/outside",
            f"/runs/{up}%2foutside",
            f"/runs/{up}%2foutside/files/secret.txt",
            f"/runs/{up}%2foutside/zip",
            f"/runs/{LOST}/files/{up}/{up}/secret.txt",
            f"/runs/{LOST}/files/logs/{up}/{up}/{up}/secret.txt",
            f"/runs/{LOST}/files/{up}%2f{up}%2fsecret.txt",
            f"/runs/{LOST}/logs?log={up}/{up}/{up}/secret.txt",
            f"/nights/{up}/secret.txt",
            f"/nights/{up}%2f{up}%2foutside/summary.json",
            f"/nights/{NIGHT}/{up}%2f{up}%2f{up}%2fsecret.txt",
            f"/static/{up}/{up}/app.py",
            f"/static/{up}%2fapp.py",
            f"/{up}/report.html",
        )
    ]
    paths += ["//etc/passwd", "/runs//etc/passwd", f"/runs/{LOST}/files//etc/passwd"]
    paths += ["/runs/latest", "/runs/nights", "/runs/.", f"/runs/{LOST}/files/operations"]
    with serving(own.root) as port:
        assert b" 200 OK" in answer(port, f"/runs/{LOST}/files/run.json")
        for path in paths:
            got = answer(port, path)
            assert SECRET.encode() not in got, path
            assert b"root:" not in got, path
            assert b"starlette" not in got, path
            if "?" not in path:
                assert got.split(b"\r\n")[0].split()[1] in (b"400", b"404"), path


@pytest.mark.parametrize(
    "place",
    [
        "run.json",
        "verdict.json",
        "report.html",
        "steps.json",
        "logs",
        "logs/broker-0.log",
        "operations",
        "anomalies/part-0-00000.parquet",
    ],
)
def test_a_link_that_leads_out_of_a_run_is_refused(own: Stored, place: str) -> None:
    outside = own.root.parent / "outside"
    held = own.root / HELD / place
    path = own.lost / place
    if path.is_dir():
        shutil.move(path, outside)
    elif held.exists():
        shutil.copy(held, outside)
        path.unlink()
    else:
        outside.write_text(SECRET, encoding="utf-8")
        path.unlink(missing_ok=True)
    path.symlink_to(outside)
    client = client_of(own.root)
    pages = ("", "/logs", "/rounds?record=m2&partition=0", "/files/run.json", "/plots/watermarks")
    for page in (*pages, "/live", f"/files/{place}"):
        response = client.get(f"/runs/{LOST}{page}")
        assert response.status_code in (403, 404), page
        assert SECRET not in response.text
    assert client.get("/compare", params={"run": [LOST, HELD]}).status_code == 403
    assert SECRET.encode() not in client.get(f"/runs/{LOST}/zip").content
    assert SECRET not in client.get("/").text


def test_what_a_run_is_not(own: Stored) -> None:
    outside = own.root.parent / "elsewhere"
    shutil.copytree(own.lost, outside)
    (own.root / "linked").symlink_to(outside)
    shutil.copytree(own.lost, own.root / ".hidden")
    client = client_of(own.root)
    for name in ("linked", ".hidden", "latest"):
        assert client.get(f"/runs/{name}").status_code == 404
    nights = own.root / "nights"
    shutil.move(nights, own.root.parent / "nights")
    nights.symlink_to(own.root.parent / "nights")
    assert client.get(f"/nights/{NIGHT}/summary.json").status_code == 404
    assert client.get("/nights/index.html").status_code == 404


def test_a_link_inside_its_run_is_followed(own: Stored) -> None:
    (own.lost / "verdict.json").rename(own.lost / "judged.json")
    (own.lost / "report.html").symlink_to("judged.json")
    client = client_of(own.root)
    assert client.get(f"/runs/{LOST}").status_code == 200
    assert client.get(f"/runs/{LOST}/files/report.html").status_code == 404  # and not shown itself


@pytest.mark.parametrize("name", ["run.json", "verdict.json"])
def test_the_table_of_runs_reads_no_links_either(own: Stored, name: str) -> None:
    outside = own.root.parent / "outside.json"
    (own.lost / name).rename(outside)
    text = outside.read_text(encoding="utf-8")
    outside.write_text(text.replace("7", "4711").replace("lost-write", SECRET), encoding="utf-8")
    (own.lost / name).symlink_to(outside)
    rows = client_of(own.root).get("/?as=json").json()["runs"]
    [row] = [each for each in rows if each["run"] == LOST]
    assert row["problem"] == f"{name} is no regular file: it is not read."
    assert (row["seed"], row["anomalies"], row["state"]) == (None, {}, "unreadable")


# --- who may ask ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8080", "localhost"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]:8080", "::1"),
        ("::1", "::1"),
        ("", ""),
        ("a.example:1:2", "a.example:1:2"),
    ],
)
def test_the_host_in_a_header(header: str, host: str) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize(
    ("header", "loopback", "open_to_all"),
    [
        ("localhost:1", True, True),
        ("127.0.0.1:1", True, True),
        ("127.0.0.9", True, True),
        ("[::1]:1", True, True),
        ("10.1.2.3:1", False, True),
        ("[2001:db8::1]:1", False, True),
        ("evil.example", False, False),
        ("localhost.evil.example", False, False),
        ("127.0.0.1.evil.example", False, False),
        ("evil.example:127.0.0.1", False, False),
        ("", False, False),
    ],
)
def test_a_name_that_is_not_ours_is_refused(header: str, loopback: bool, open_to_all: bool) -> None:
    assert is_ours(header, {"localhost"}, any_address=False) is loopback
    assert is_ours(header, {"localhost"}, any_address=True) is open_to_all


def test_another_host_gets_nothing_of_any_route(client: TestClient) -> None:
    paths = ("/", f"/runs/{LOST}", f"/runs/{LOST}/zip", "/style.css", "/live", "/nothing")
    for path in (*paths, urls.static("serve.css")):
        response = client.get(path, headers={"Host": "rebound.example"})
        assert response.status_code == 421
        assert LOST not in response.text
        assert "Content-Security-Policy" in response.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_is_changed(client: TestClient, method: str) -> None:
    for path in ("/", f"/runs/{LOST}"):
        assert client.request(method, path).status_code == 405


def test_what_every_response_says(client: TestClient) -> None:
    for path in ("/", f"/runs/{LOST}", "/nothing", urls.static("serve.css"), "/style.css"):
        headers = client.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers


def test_a_stored_page_may_do_nothing(own: Stored) -> None:
    (own.lost / "report.html").write_text("<script>1</script>", encoding="utf-8")
    client = client_of(own.root)
    for path in (f"/runs/{LOST}/files/report.html", "/nights/index.html"):
        policy = client.get(path).headers["Content-Security-Policy"]
        assert "sandbox" in policy
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
    log = client.get(f"/runs/{LOST}/files/logs/broker-0.log")
    assert log.headers["content-type"].startswith("text/plain")
