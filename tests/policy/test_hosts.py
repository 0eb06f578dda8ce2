"""Who is one host: cases by us, after the rules of publicsuffix.org/list."""

from __future__ import annotations

import subprocess
import sys
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlweb.policy import hosts
from crawlweb.policy.hosts import bare_name, host_of, host_of_name, is_on_host, name_of, parse_base, parse_link, split_port

HOSTS = [
    ("http://example.com/", "example.com"),
    ("https://www.example.com:8443/a?b#c", "example.com"),
    ("https://a.b.c.example.co.uk", "example.co.uk"),
    ("http://EXAMPLE.com./x", "example.com"),
    ("http://user:secret@shop.example.com/", "example.com"),
    # a suffix of the private section makes its customers hosts of their own
    ("https://anna.github.io/x", "anna.github.io"),
    ("https://img.anna.github.io/x", "anna.github.io"),
    ("https://bob.blogspot.com/", "bob.blogspot.com"),
    # a public suffix is its own host
    ("http://co.uk/", "co.uk"),
    ("http://github.io/", "github.io"),
    ("http://com/", "com"),
    # wildcard rules and their exceptions
    ("http://a.shop.some.ck/", "shop.some.ck"),
    ("http://some.ck/", "some.ck"),
    ("http://a.www.ck/", "www.ck"),
    ("http://a.city.kobe.jp/", "city.kobe.jp"),
    ("http://a.b.c.kobe.jp/", "b.c.kobe.jp"),
    # names outside the list: its rule * holds
    ("http://a.b.intranet/", "b.intranet"),
    ("http://b.intranet/", "b.intranet"),
    ("http://intranet/", "intranet"),
    ("http://localhost:6800/", "localhost"),
    # empty labels, which no name server knows
    ("http://.example.com/", "example.com"),
    ("http://x..example.com/", "example.com"),
    ("http://x.example.com../", "example.com"),
    # addresses
    ("http://192.0.2.7:8080/", "192.0.2.7"),
    ("http://0xc0.0.519/", "192.0.2.7"),
    ("http://192.0.2.7./", "192.0.2.7"),
    ("http://192.0.2.7../", "192.0.2.7"),
    ("http://0xC0.0.519../", "192.0.2.7"),  # a name by the standard; the resolver reads it without dots
    ("http://[2001:DB8:0:0::1]:80/", "[2001:db8::1]"),
    # IDN
    ("http://www.bücher.example.de/", "example.de"),
    ("http://www.Bücher.de/", "xn--bcher-kva.de"),
    ("http://www.xn--bcher-kva.de/", "xn--bcher-kva.de"),
    ("http://a.例子.公司.cn/", "xn--fsqu00a.xn--55qx5d.cn"),
    ("http://a.例子。中国/", "xn--fsqu00a.xn--fiqs8s"),
]  # fmt: skip


@pytest.mark.parametrize(("url", "host"), HOSTS)
def test_the_host_is_the_registered_domain(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize(("url", "host"), HOSTS)
def test_a_host_is_its_own_host(url: str, host: str) -> None:
    assert host_of_name(host_of(url)) == host


@pytest.mark.parametrize("url", ["", "x", "/a", "//a.com/", "http://", "http://a b/", "http://[::1", "http://1.2.3.4.5/",
                                 "ftp://example.com/", "mailto:a@example.com", "javascript:0", "data:,x", "http://./"])  # fmt: skip
def test_what_is_no_http_url_has_no_host(url: str) -> None:
    with pytest.raises(ValueError):
        host_of(url)


@pytest.mark.parametrize("name", ["", "a/b", "a@b.com", "a.com:80", "a.com?b", "a#b", "a\\b", "a b", "[::1", "1.2.3.4.5"])
def test_what_is_no_host_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        host_of_name(name)


def test_an_ipv6_address_is_known_without_its_brackets() -> None:
    assert host_of_name("2001:db8::0:1") == "[2001:db8::1]"


def test_only_leading_www_that_is_not_registered_itself_is_left_out() -> None:
    assert bare_name("www.example.com") == "example.com"
    assert bare_name("www.www.example.com.") == "example.com"
    assert bare_name("www.shop.example.com") == "shop.example.com"
    assert bare_name("shop.www.example.com") == "shop.www.example.com"
    assert bare_name("www2.example.com") == "www2.example.com"
    for registered in ("www.com", "www.co.uk", "www.ck", "www.github.io", "www.localhost", "www"):
        assert bare_name(registered) == registered


def test_a_port_is_told_from_an_ipv6_address() -> None:
    assert split_port("example.com") == ("example.com", "")
    assert split_port("example.com:81") == ("example.com", "81")
    assert split_port("[2001:db8::1]") == ("[2001:db8::1]", "")
    assert split_port("[2001:db8::1]:81") == ("[2001:db8::1]", "81")


def test_known_names_are_bounded() -> None:
    limit = host_of_name.cache_info().maxsize
    assert limit is not None
    for number in range(limit + 100):
        host_of_name(f"{number}.example.com")
    assert host_of_name.cache_info().currsize == limit


def test_the_suffix_list_has_a_name_that_all_workers_can_compare() -> None:
    day, _, digest = hosts.SUFFIX_LIST_ID.rpartition("-")
    assert date(2026, 1, 1) <= date.fromisoformat(day) == hosts.SUFFIX_LIST_DATE
    assert len(digest) == 12
    assert int(digest, 16)


def test_the_suffix_list_is_never_fetched() -> None:
    script = (
        "import sys\n"
        "def audit(event, args):\n"
        "    if event.startswith(('socket.connect', 'socket.getaddrinfo')) or (event == 'open' and 'w' in str(args[1])): sys.exit(event)\n"
        "sys.addaudithook(audit)\n"
        "sys.dont_write_bytecode = True\n"
        "from crawlweb.policy.hosts import host_of\n"
        "print(host_of('http://a.b.co.uk/'), host_of('http://a.b.unheard-of/'))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("b.co.uk b.unheard-of\n", "")


@settings(deadline=None, derandomize=True)
@given(st.text(st.characters(), max_size=30))
def test_no_name_raises_anything_but_value_error(name: str) -> None:
    for read in (host_of_name, lambda name: host_of(f"http://{name}/")):
        try:
            host = read(name)
        except ValueError:
            continue
        assert host.isascii()
        assert host


@pytest.mark.parametrize(
    ("url", "host", "is_on"),
    [
        ("https://www.example.org/a", "example.org", True),
        ("http://example.org:8080/", "example.org", True),
        ("https://example.com/", "example.org", False),
        ("https://example.org.evil.com/", "example.org", False),
        ("https://[", "example.org", False),
        ("file:///etc/passwd", "example.org", False),
        ("", "", False),
    ],
)
def test_a_url_is_on_the_host_whose_clock_it_moves(url: str, host: str, is_on: bool) -> None:
    assert is_on_host(url, host) is is_on


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("HTTP://u:p@WWW.Example.com.:80/x@y:81", "www.example.com."),
        ("https://[2001:DB8::1]:81", "[2001:db8::1]"),
        ("http://0x7f.1/", "127.0.0.1"),
        ("http://evil.com\\@a.com/", "evil.com"),
        ("http://a.com@evil.com/", "evil.com"),
        ("http://a.com%40evil.com@b.com", "b.com"),
        ("http://a.com#@evil.com", "a.com"),
        ("http:evil.com", "evil.com"),
        ("http:///evil.com", "evil.com"),
        ("http://a.com\t.evil.com", "a.com.evil.com"),
        ("http://a。com", "a.com"),
        ("http://[::ffff:7f00:1]/", "[::ffff:7f00:1]"),
        ("http://a..b/", "a..b"),
    ],
)
def test_the_name_is_the_one_that_browsers_connect_to(url: str, name: str) -> None:
    assert name_of(url) == name
    assert host_of(url) == host_of_name(name)


@pytest.mark.parametrize("name", ["é" * 511, "中" * 341, "%C3%A9" * 511, "a\u0301" * 341, "é." * 400, "%" * 1_100])
def test_names_that_would_keep_idna_busy_are_refused_unread(name: str) -> None:
    for url in (f"http://{name}/", f"http://u:p@{name}:80", f"//{name}"):
        with pytest.raises(ValueError):
            parse_link(url, parse_base("http://a.com/"))


def test_long_user_names_are_no_host_names() -> None:
    assert name_of(f"http://{'é' * 2_000}:p@bücher.de/") == "xn--bcher-kva.de"
    assert name_of(f"http://{'é.' * 60}de/")


@pytest.mark.parametrize("url", ["http://[fe80::1%25eth0]/", "http://[::1", "http://a.com:65536/", "http://a%00.com/", "http://a%2Fb.com/",
                                 "http://a%40b.com/", "http://1.2.3.256/", "http://0x100000000/", "http://a b.com/", "http://\ufffd.com/",
                                 f"http://{chr(0xD800)}.com/", "http://a\u202eb.com/", "http://a<b.com/"])  # fmt: skip
def test_names_that_browsers_refuse_are_refused(url: str) -> None:
    with pytest.raises(ValueError):
        name_of(url)
