"""The webs of benchmarks: text of each page's own, real pages under many hosts, a TLS handshake for each answer."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from itertools import combinations
from pathlib import Path

import pytest

from crawlweb.content.fingerprint import fingerprint, is_near
from tests.web import Links, Request, Saved, Tree, Web, WebProcess
from tests.web.kinds import parse
from tests.web.saved import means


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_pages_for_benchmarks_have_text_of_their_own_and_their_size() -> None:
    with Web(sites=[Links(pages=500) for _ in range(6)]) as web:
        bodies = [site.respond(Request(f"/page/{k}", site.name)).body for site in web.sites.values() for k in range(1, 11)]
    assert all(29_000 < len(body) < 32_000 for body in bodies)
    prints = [fingerprint(body, " ".join(re.findall(r"<p>(.*?)</p>", body.decode()))) for body in bodies]
    assert not any(is_near(a, b) for a, b in combinations(prints, 2))
    assert sum(bool(set(a.bands) & set(b.bands)) for a, b in combinations(prints, 2)) < 5


def test_every_answer_over_tls_needs_a_handshake_of_its_own() -> None:
    with Web(sites=[Tree("a.org", pages=3)], tls=True, keep_alive=False) as web:
        assert web.seeds() == [f"https://a.org:{web.https_port}/"]
        context, session = trusting(), None
        for _ in range(2):
            with (
                socket.create_connection(("127.0.0.1", web.https_port)) as plain,
                context.wrap_socket(plain, server_hostname="a.org", session=session) as client,
            ):
                client.sendall(b"GET / HTTP/1.1\r\nHost: a.org\r\n\r\n")
                answer = b""
                while piece := client.recv(65_536):
                    answer += piece
                assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
                assert b"\r\nConnection: close\r\n" in answer
                assert answer.endswith(b"</html>\n")
                assert (client.version(), client.session_reused) == ("TLSv1.3", False)
                session = client.session
                assert not session.has_ticket
        assert web.served == 2


@pytest.mark.parametrize("keep_alive", [True, False])
def test_the_http_port_of_a_web_with_tls_is_a_proxy_to_it(keep_alive: bool) -> None:
    with WebProcess("tree:name=a.org,pages=3", tls=True, keep_alive=keep_alive) as web:
        port = int(web.seeds()[0].rstrip("/").rpartition(":")[2])
        client = http.client.HTTPSConnection("127.0.0.1", web.http_port, context=trusting(), timeout=10)
        client.set_tunnel("a.org", port)
        for _ in range(2):
            client.request("GET", "/")
            answer = client.getresponse()
            assert (answer.status, answer.getheader("Connection")) == (200, None if keep_alive else "close")
            assert answer.read().endswith(b"</html>\n")
        assert web.served() == 2
        assert web.served_bytes() > 1000
        client.close()


def test_a_client_that_breaks_its_handshake_harms_no_other() -> None:
    with Web(sites=[Tree("a.org", pages=3)], tls=True) as web:
        with socket.create_connection(("127.0.0.1", web.http_port)) as client:
            client.sendall(b"CONNECT a.org:443 HTTP/1.1\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")
            client.sendall(b"this is no TLS" * 10)
            client.settimeout(10)
            try:
                while client.recv(1000):
                    pass
            except ConnectionResetError:
                pass
        with socket.create_connection(("127.0.0.1", web.http_port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a.org\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")


def test_real_pages_keep_their_bytes_and_lead_nowhere_out(tmp_path: Path) -> None:
    latin = "<a href='next.html?q=é'>é</a>".encode("latin-1") + b"\0\xff<p>" + b"x" * 600
    absolute = b'<a href="https://www.real.example:8080/there">t</a><a HREF=//cdn.real.example/a>c</a><a href="/own">o</a>' + b" " * 600
    named = b'<html xmlns="http://www.w3.org/1999/xhtml"><p itemtype="https://schema.org/Person">' + b" " * 600
    (tmp_path / "sub").mkdir()
    for name, body in {"a.html": latin, "sub/b.HTM": absolute, "c.html": named, "short.html": b"x", "d.txt": latin}.items():
        (tmp_path / name).write_bytes(body)
    assert means(str(tmp_path), 10) == (3, pytest.approx((len(latin) + len(absolute) + len(named)) / 3), pytest.approx(4 / 3))
    with Web(sites=parse(f"saved:count=5,folder={tmp_path}")) as web:
        shown = {site.respond(Request(f"/{k}", site.name)).body for site in web.sites.values() for k in range(20)}
        assert len(shown) == 3
        assert {latin, named} < shown
        (changed,) = shown - {latin, named}
        origins = {site.url("").encode() for site in web.sites.values()}
        found = re.fullmatch(rb'<a href="(.*)/there">t</a><a HREF=(.*)/a>c</a><a href="/own">o</a> +', changed)
        assert found
        assert set(found.groups()) <= origins
        answer = next(iter(web.sites.values())).answer("/any/path?x=1", "")
        assert (answer.page, answer.content_type) == ("/any/path?x=1", "text/html")


def test_a_folder_without_pages_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no HTML file of 500 to 1,000,000 B in "):
        Saved(folder=str(tmp_path)).join(1, 80, ())
