"""Which spellings are one page, and which are not. Cases by us; the rules are in docs/decisions/canonical-url.md.

EXAMPLES=20000 pytest tests/policy/test_canonical.py        more examples of each property than in CI
"""

from __future__ import annotations

import os
import re
from itertools import combinations
from string import ascii_letters, digits
from urllib.parse import quote, urlsplit

import ada_url
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scrapy.http import Request
from scrapy.utils.httpobj import urlparse_cached

from crawlweb.download import request_head
from crawlweb.errors import ConfigError
from crawlweb.policy.canonical import TRACKING_PARAMETERS, Canonicalizer, canonical_url, url_key
from crawlweb.policy.hosts import host_of, host_of_name, name_of, parse, parse_base
from crawlweb.records import Target

with_examples = settings(deadline=None, derandomize=True, max_examples=int(os.environ.get("EXAMPLES", "200")))

SAME: list[tuple[str, list[str]]] = [
    (
        "https://example.com/",
        ["http://example.com", "https://example.com/", "HTTPS://EXAMPLE.COM", "http://www.example.com/", "http://example.com.", "http://example.com:/",
         "http://example.com:80/", "https://example.com:443", "http://example.com:443/", "https://example.com:80/", "http://example.com/?",
         "http://example.com/#top", "http://example.com//", "http://user:pass@example.com/", "http://example.com/./a/..", " http://example.com/\n",
         "http:\\\\example.com\\", "ht\ttp://exam\nple.com/", "http://example.com/?utm_source=x#y", "http://%65xample.com/", "http://ｅxample.com/"],
    ),
    ("https://example.com:8080/", ["http://example.com:8080", "https://www.example.com:8080/", "http://example.com:08080/"]),
    ("https://example.com/a/b", ["http://example.com/a/b/", "http://example.com/a//b", "http://example.com/x/../a/./b", "http://example.com/a/%2e/b//"]),
    ("https://example.com/~x", ["http://example.com/%7Ex", "http://example.com/%7ex/", "http://example.com/~%78"]),
    ("https://example.com/a%3Db", ["http://example.com/a%3db", "http://example.com/a%3Db"]),
    ("https://example.com/%C3%A9", ["http://example.com/é", "http://example.com/%c3%a9", "http://example.com/%C3%A9"]),
    ("https://example.com/a%20b", ["http://example.com/a b", "http://example.com/a%20b"]),
    ("https://example.com/a%5Eb%7Cc", ["http://example.com/a^b|c", "http://example.com/a%5Eb%7cc"]),
    ("https://example.com/100%25", ["http://example.com/100%", "http://example.com/100%25"]),
    ("https://example.com/?a%20b=c%20d", ["http://example.com/?a+b=c+d", "http://example.com/?a%20b=c%20d", "http://example.com/?a b=c+d"]),
    ("https://example.com/?a=1&b=2", ["http://example.com/?b=2&a=1", "http://example.com/?a=1&b=2&", "http://example.com/?&&a=1&&b=2"]),
    ("https://example.com/?a=2&a=1&b", ["http://example.com/?b&a=2&a=1", "http://example.com/?a=2&b=&a=1"]),
    ("https://example.com/?a%5B%5D=1", ["http://example.com/?a[]=1", "http://example.com/?a%5b%5d=1"]),
    ("https://xn--bcher-kva.de/", ["http://bücher.de/", "http://www.BÜCHER.de./", "http://xn--bcher-kva.de", "http://b%C3%BCcher.de"]),
    ("https://[2001:db8::1]/", ["http://[2001:DB8:0:0:0:0:0:1]:80/"]),
    ("https://192.0.2.7/", ["http://0xC0.0.2.7", "http://3221225991/", "http://192.0.519", "http://0300.0.2.07./"]),
    # names that the older standard refused or read otherwise
    ("https://xn--a/", ["http://xn--a", "http://XN--A./"]),
    ("https://xn--zca.de/", ["http://ß.de", "http://ẞ.de", "http://%E1%BA%9E.de", "http://xn--zca.de:443"]),
    ("https://xn--xn--qh33b/", ["http://\U0001f600xn-", "http://xn--xn--qh33b/"]),
]  # fmt: skip

DIFFERENT = [
    ["http://example.com/a%2Fb", "http://example.com/a/b", "http://example.com/a%252Fb"],
    ["http://example.com/a", "http://example.com/A"],
    ["http://example.com/?a=1&a=2", "http://example.com/?a=2&a=1", "http://example.com/?a=1", "http://example.com/?a=1%26a=2"],
    ["http://example.com/a+b", "http://example.com/a%20b", "http://example.com/a%2Bb"],
    ["http://example.com/?q=a+b", "http://example.com/?q=a%2Bb"],
    ["http://example.com/a%23b", "http://example.com/a#b", "http://example.com/a%2523b"],
    ["http://example.com/a%3Fb", "http://example.com/a?b"],
    ["http://example.com/a%3Bjsessionid=1", "http://example.com/a;jsessionid=1"],
    ["http://example.com/", "http://example.com:8080/", "http://m.example.com/", "http://www2.example.com/", "http://example.com.au/"],
    ["http://www.com/", "http://com/"],
    ["http://example.com/?a=1", "http://example.com/?A=1", "http://example.com/?a=1=", "http://example.com/a=1"],
]

DROPPED = [
    "utm_source=x", "UTM_Medium=y", "utm_anything", "fbclid=IwAR0", "gclid=", "msclkid=1", "dclid=1", "yclid=1",
    "mc_eid=1", "mc_cid=1", "igshid=1", "ref=home", "Ref=home", "%75tm_source=x", "amp;utm_source=x",
    "PHPSESSID=9f8e7d", "jsessionid=AB12.node3", "ASPSESSIONIDQABCDEFG=KLM", "CFID=1&CFTOKEN=2", "sessionid=7", "Session_ID=x",
    "sid=0123456789abcdef", "sid=1234567890123456", "sid=a8b7c6",
    "sid=51a1690b1621d6f33d24540075d21a99", "s=51a1690b1621d6f33d24540075d21a99",
]  # fmt: skip

KEPT = [
    "reference=1", "refs=1", "xref=1", "href=1", "ref_id=1", "source=x", "medium=1", "id=7", "utm=1", "xutm_source=1", "gclids=1",
    "sid=84", "sid=6475", "sid=news", "sid=02/01/31/2119213", "sid=1-1-231047-1-0-0", "s=search", "session=2",
    "sessionids=1", "token=a8b7c6",
]  # fmt: skip


@pytest.mark.parametrize(("form", "spellings"), SAME)
def test_spellings_of_one_page_have_one_key(form: str, spellings: list[str]) -> None:
    assert {spelling: canonical_url(spelling) for spelling in spellings} == dict.fromkeys(spellings, form)
    assert {url_key(spelling) for spelling in [form, *spellings]} == {url_key(form)}


@pytest.mark.parametrize("urls", DIFFERENT)
def test_different_pages_have_different_keys(urls: list[str]) -> None:
    for one, other in combinations(urls, 2):
        assert url_key(one) != url_key(other), (one, other)


@pytest.mark.parametrize("pair", DROPPED)
def test_tracking_and_session_parameters_do_not_count(pair: str) -> None:
    for url in (f"http://a.com/x?{pair}", f"http://a.com/x?{pair}&{pair}", f"http://a.com/x/?{pair}#y"):
        assert canonical_url(url) == "https://a.com/x"
    assert canonical_url(f"http://a.com/x?b=2&{pair}&a=1") == "https://a.com/x?a=1&b=2"


@pytest.mark.parametrize("pair", KEPT)
def test_other_parameters_count(pair: str) -> None:
    assert canonical_url(f"http://a.com/x?{pair}") == f"https://a.com/x?{pair}"


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("http://a.com/x.jsp;jsessionid=AB12.node3", "https://a.com/x.jsp"),
        ("http://a.com/x;JSESSIONID=AB12?b=1", "https://a.com/x?b=1"),
        ("http://a.com/;jsessionid=AB12", "https://a.com/"),
        ("http://a.com/x;jsessionid=1/y;jsessionid=2/z", "https://a.com/x/y/z"),
        ("http://a.com/x;v=2;jsessionid=1;w=3", "https://a.com/x;v=2;w=3"),
        ("http://a.com/x/..;jsessionid=1/y", "https://a.com/y"),
        ("http://a.com/x;%6Asessionid=1", "https://a.com/x"),
        ("http://a.com/x?b=1;jsessionid=AB12&a=2", "https://a.com/x?a=2&b=1"),
        ("http://a.com/x?b=1&amp;jsessionid=AB12", "https://a.com/x?b=1"),
        ("http://a.com/x;jsessionids=1", "https://a.com/x;jsessionids=1"),
        ("http://a.com/(S(abcdefghijklmnopqrstuvwx))/y.aspx", "https://a.com/y.aspx"),
        ("http://a.com/(abcdefghijklmnopqrstuvwx)/y.aspx", "https://a.com/y.aspx"),
        ("http://a.com/(S(short))/y.aspx", "https://a.com/(S(short))/y.aspx"),
        ("http://a.com/x_(film)", "https://a.com/x_(film)"),
    ],
)
def test_sessions_in_the_path_do_not_count(url: str, form: str) -> None:
    assert canonical_url(url) == form


@pytest.mark.parametrize("mark", ["%25", "%23", "%2F", "%3F", "%26", "%3D", "%2B", "%2525", "%E4", "%00"])
def test_encodings_survive_ten_rounds(mark: str) -> None:
    url = form = f"https://a.com/x{mark}y?p{mark}=q{mark}r"
    for _ in range(10):
        form = canonical_url(form)
    assert form == url


def test_an_encoding_never_comes_out_of_two_rounds() -> None:
    assert canonical_url("http://a.com/%%34%31") == canonical_url(canonical_url("http://a.com/%%34%31")) == "https://a.com/%2541"


@pytest.mark.parametrize(
    ("href", "fetched"),
    [
        ("b", "http://www.example.com/dir/b"),
        ("../b/./c?x=2&x=1&utm_source=y", "http://www.example.com/b/c?x=2&x=1&utm_source=y"),
        ("/a%7e%2f%3d/?b+c", "http://www.example.com/a%7e%2f%3d/?b+c"),
        ("?", "http://www.example.com/dir/page?"),
        ("#x", "http://www.example.com/dir/page?q=1"),
        ("", "http://www.example.com/dir/page?q=1"),
        ("//Other.com:80/x", "http://other.com/x"),
        ("https://user:pass@other.com/@x", "https://other.com/@x"),
        ("https://other.com./x;jsessionid=1/", "https://other.com./x;jsessionid=1/"),
        ("  /a\tb\n ", "http://www.example.com/ab"),
        ("\\a\\b", "http://www.example.com/a/b"),
        ("/a b?c d", "http://www.example.com/a%20b?c%20d"),
        ("/a^b|c?d^e", "http://www.example.com/a%5Eb|c?d^e"),
        ("/é?ß", "http://www.example.com/%C3%A9?%C3%9F"),
        ("/a\0b", "http://www.example.com/a%00b"),
        ("/a\ud800b", "http://www.example.com/a%EF%BF%BDb"),
        ("/\ud83d\ude00", "http://www.example.com/%F0%9F%98%80"),
        ("http:x", "http://www.example.com/dir/x"),
        ("//xn--a/x", "http://xn--a/x"),
        ("/a/.b/.", "http://www.example.com/a/.b/"),
        ("/a/.b/../c", "http://www.example.com/a/c"),
        ("//b.com//.c/./d/%2E.?/./", "http://b.com//.c/?/./"),
        ("//\u1e9e.de/^", "http://xn--zca.de/%5E"),
    ],
)
def test_what_is_fetched_is_the_link_as_found_made_valid(href: str, fetched: str) -> None:
    target = Canonicalizer().target(href, "http://me:pw@www.example.com/dir/page?q=1#here")
    assert target
    assert target.url == fetched
    assert target.key == url_key(fetched)


@pytest.mark.parametrize(
    ("encoding", "href", "fetched"),
    [
        ("utf-8", "/é?é#é", "/%C3%A9?%C3%A9"),
        ("utf-16-le", "/é?é#é", "/%C3%A9?%C3%A9"),
        ("iso8859-1", "/é?é#é", "/%C3%A9?%E9"),
        ("windows-1251", "?q=да&p=%D0%B4", "/?q=%E4%E0&p=%D0%B4"),
        ("windows-1251", "?q=é€\ud800", "/?q=%26%23233%3B%88%26%2365533%3B"),
        ("cp932", "?q=表#x", "/?q=%95\\"),  # its second byte is a backslash
        ("iso-2022-jp", "?q=あ", "/?q=%1B$B$%22%1B(B"),
        ("iso-2022-jp", "?q=ア", "/?q=%1B$B%%22%1B(B"),
        ("iso-2022-jp", "?q=é#", "/?q=%26%23233%3B"),
        ("iso-2022-jp", "?q=\x1b(B", "/?q=%26%2365533%3B(B"),  # no shifts but our own
        ("gb18030", "?q=中", "/?q=%D6%D0"),
        ("windows-1251", "#?да", "/"),
        ("windows-1251", "да", "/%D0%B4%D0%B0"),
    ],
)
def test_a_query_is_sent_in_the_bytes_of_its_page(encoding: str, href: str, fetched: str) -> None:
    assert [target.url for target in Canonicalizer().targets([href], "http://a.com/", encoding)] == ["http://a.com" + fetched]


@pytest.mark.parametrize(
    ("base", "href", "fetched"),
    [
        ("http://a.com/x?", "", "http://a.com/x?"),
        ("http://a.com/x?", "#y", "http://a.com/x?"),
        ("http://a.com/x?#y", "z", "http://a.com/z"),
        ("http://xn--a/x/y", "z", "http://xn--a/x/z"),
        ("http://\u1e9e.de/x", "/y", "http://xn--zca.de/y"),
        ("http://bücher.de/x", "y%20z", "http://xn--bcher-kva.de/y%20z"),
        ("http://bücher.de/x", "//b%C3%BCcher.com", "http://xn--bcher-kva.com/"),
        ("https://bücher.de:81/x", "//bücher.de", "https://xn--bcher-kva.de/"),
        ("http://a.com/^/?^", "#", "http://a.com/%5E/?^"),
        ("http://a.com/^/?^", "b^c", "http://a.com/%5E/b%5Ec"),
        ("ftp://a.com/x", "//b.com/", None),
        ("about:blank", "http://b.com/x", "http://b.com/x"),
        ("about:blank", "x", None),
    ],
)
def test_bases_are_read_by_the_standard_of_the_day(base: str, href: str, fetched: str | None) -> None:
    target = Canonicalizer().target(href, base)
    assert (target and target.url) == fetched


REFUSED = ["javascript:alert(1)", "mailto:a@b.c", "tel:1", "data:text/html,x", "ftp://a.com/", "file:///etc/passwd", "ws://a.com/",
           "http://", "http://[bad/", "//", "http://a b/", "http://a\0b/", "http://1.2.3.4.5/", "http://a.com:99999/",
           "http://\ud800/", "about:blank"]  # fmt: skip


@pytest.mark.parametrize("href", REFUSED)
def test_what_is_no_http_url_is_refused_and_counted(href: str) -> None:
    canonicalizer = Canonicalizer()
    assert canonicalizer.target(href, "http://example.com/") is None
    assert canonicalizer.invalid == 1
    for reader in (url_key, canonical_url):
        with pytest.raises(ValueError):
            reader(href)


def test_a_relative_link_without_base_is_refused() -> None:
    canonicalizer = Canonicalizer()
    for href in ("/x", "x", "?x", "#x", "", "//a.com/"):
        assert canonicalizer.target(href) is None
        assert canonicalizer.target(href, "no base") is None
    assert canonicalizer.invalid == 12


def test_absolute_links_count_where_the_base_is_no_url() -> None:
    assert [target.url for target in Canonicalizer().targets(["x", "http://a.com/"], "no base")] == ["http://a.com/"]


def test_the_links_of_a_page_leave_by_counted_doors() -> None:
    canonicalizer = Canonicalizer()
    hrefs = ["/b", "/a", "/b/", "https://www.example.com/a?utm_source=x", "mailto:x@y.z", "http://[", "//www.example.org"]
    targets = canonicalizer.targets(hrefs, "http://example.com/")
    assert targets == [
        Target("http://example.com/b", url_key("http://example.com/b"), "example.com"),
        Target("http://example.com/a", url_key("http://example.com/a"), "example.com"),
        Target("http://www.example.org/", url_key("http://example.org"), "example.org"),
    ]
    assert (canonicalizer.invalid, canonicalizer.repeated) == (2, 2)


def test_long_urls_are_refused_after_the_fragment_is_gone() -> None:
    canonicalizer = Canonicalizer(max_url_chars=30)
    longest = "http://example.com/" + "x" * 11
    assert canonicalizer.target(longest)
    assert canonicalizer.target(longest + "#" + "y" * 50)
    assert canonicalizer.target(longest + "x") is None
    assert canonicalizer.target("/" + "é" * 10, "http://example.com/") is None
    assert Canonicalizer().target("http://example.com/" + "x" * 2_064)
    assert Canonicalizer().target("http://example.com/" + "x" * 2_065) is None
    assert Canonicalizer().target("data:," + "x" * 10_000_000) is None


def test_keys_are_sixteen_bytes_that_never_change() -> None:
    """A crawl lives longer than a release: another value here loses every seen-set; raise the profile's version."""
    assert url_key("https://example.com/").hex() == "3259687d649f8e86106dd28ba70f1016"
    assert url_key("http://www.example.com/a/?b=2&a=1&utm_source=x").hex() == "aeecfbf53c246409226ea92d8a5502f0"


def test_the_list_of_parameters_can_be_extended_and_shortened() -> None:
    own = Canonicalizer(["default", "From", "x_*", "-ref", "-utm_*"])
    assert own.canonical_url("http://a.com/?from=1&X_y=2&utm_source=3&ref=4&fbclid=5") == "https://a.com/?ref=4&utm_source=3"
    assert Canonicalizer(["from", "default"]).canonical_url("http://a.com/?from=1&ref=2") == "https://a.com/"
    assert Canonicalizer(["Default"]).profile_id == Canonicalizer(TRACKING_PARAMETERS).profile_id == Canonicalizer().profile_id


def test_the_list_of_parameters_can_be_replaced() -> None:
    own = Canonicalizer(["from", "X_*"])
    assert own.canonical_url("http://a.com/?From=1&x_y=2&utm_source=3&sessionid=4") == "https://a.com/?utm_source=3"
    assert own.url_key("http://a.com/?from=1") == url_key("http://a.com/")
    assert Canonicalizer([]).canonical_url("http://a.com/?ref=1") == "https://a.com/?ref=1"


@pytest.mark.parametrize("entry", ["", "*", "a*b", "*a", "a**", "-", "-from", "-utm_source", "a=1", "a&b", "?a"])
def test_a_parameter_that_would_drop_too_much_or_nothing_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ConfigError, match=f"CRAWLWEB_TRACKING_PARAMETERS: {re.escape(repr(entry))}"):
        Canonicalizer(["utm_*", entry, "default"])


def test_workers_with_other_parameters_have_another_profile() -> None:
    assert Canonicalizer(reversed(TRACKING_PARAMETERS)).profile_id == Canonicalizer().profile_id
    assert Canonicalizer(["x"]).profile_id == Canonicalizer(["X", "x"]).profile_id != Canonicalizer().profile_id
    assert Canonicalizer(["default", "-ref"]).profile_id != Canonicalizer().profile_id


def test_known_hosts_are_bounded_and_forgetting_changes_nothing() -> None:
    small = Canonicalizer(known_hosts=3)
    urls = [f"http://www.a{number % 7}.com:81/" for number in range(70)]
    assert [small.url_key(url) for url in urls] == [url_key(url) for url in urls]
    assert small._hosts.cache_info().currsize == 3


LABELS = st.text("abc-.0159xwWÜß。%_", min_size=1, max_size=8)
AUTHORITIES = st.sampled_from(
    ["a.com", "www.a.com", "www.www.com.", "A.com:80", "a.com:443", "a.com:81", "u:p@a.com", "[::1]", "1.2.3.4.", "0x7f.1..", "www..a", ".",
     "..", "ü.de", "xn--tda.de", "www.co.uk"]
)  # fmt: skip
PIECES = st.sampled_from(
    ["/", "//", ".", "..", "/./", "/../", "a", "B", "~", "%7e", "%2e", "%2E%2E", "%2f", "%2F", "%", "%%", "%4", "%41", "%2541", "%25",
     "%23", "?", "&", "=", "+", "%20", " ", ";", ";jsessionid=1", ";jsessionid=", "jsessionid=", "sid=abc123", "utm_source=1", "amp;", "[",
     "]", "|", "^", "`", "{", "}", "'", '"', "<", "\\", "@", ":", "é", "\ud800", "\0", "\t", "(", ")", "(S(abcdefghijklmnopqrstuvwx))",
     "(abcdefghijklmnopqrstuvwx)"]
)  # fmt: skip
URLS = st.builds("{}://{}/{}".format, st.sampled_from(["http", "https"]), AUTHORITIES | LABELS, st.lists(PIECES, max_size=12).map("".join))


@with_examples
@given(URLS)
def test_canonical_form_is_idempotent(url: str) -> None:
    try:
        form = canonical_url(url)
    except ValueError:
        return
    assert canonical_url(form) == form
    assert url_key(form) == url_key(url)
    assert form.isascii()


@with_examples
@given(URLS | st.text(st.characters(), max_size=30), st.none() | URLS)
def test_a_fetched_url_parsed_again_is_itself(href: str, base: str | None) -> None:
    target = Canonicalizer().target(href, base)
    if target:
        assert Canonicalizer().target(target.url) == target
        assert target.key == url_key(target.url)


@with_examples
@given(st.lists(URLS, max_size=6), URLS)
def test_links_in_bulk_are_the_links_one_by_one(hrefs: list[str], base: str) -> None:
    canonicalizer = Canonicalizer()
    bulk = canonicalizer.targets(hrefs, base)
    first_of_key: dict[bytes, Target] = {}
    for href in hrefs:
        if target := Canonicalizer().target(href, base):
            first_of_key.setdefault(target.key, target)
    assert bulk == list(first_of_key.values())
    assert len(bulk) + canonicalizer.repeated + canonicalizer.invalid == len(hrefs)


@with_examples
@given(st.lists(URLS, min_size=2, max_size=3))
def test_equal_keys_are_equal_forms(urls: list[str]) -> None:
    """An equivalence, then: the key is a function of the form and of nothing else."""
    forms = {}
    for url in urls:
        try:
            forms[url] = canonical_url(url)
        except ValueError:
            continue
    for one, other in combinations(forms, 2):
        assert (url_key(one) == url_key(other)) is (forms[one] == forms[other])


@pytest.mark.parametrize("digits_of", ["{:02x}", "{:02X}"])
def test_only_unreserved_characters_are_decoded(digits_of: str) -> None:
    for code in range(256):
        spelling = "%" + digits_of.format(code)
        normal = chr(code) if chr(code) in ascii_letters + digits + "-._~" else f"%{code:02X}"
        assert canonical_url(f"http://a.com/x{spelling}?y={spelling}") == f"https://a.com/x{normal}?y={normal}"


RESERVED = ":/?#[]@!$&'()*+,;=%"


@with_examples
@given(st.text("abXY09-._~" + RESERVED + '\x00\x7f "<>\\^`{|}é', max_size=12))
@example("%2F")
def test_encoded_characters_come_back_as_they_were(text: str) -> None:
    """No reserved character is ever decoded: what a server decodes out of the canonical form is what was encoded."""
    encoded = "".join(f"%{byte:02x}" for byte in text.encode())
    normal = "".join(chr(byte) if chr(byte) in ascii_letters + digits + "-._~" else f"%{byte:02X}" for byte in text.encode())
    assert canonical_url(f"http://a.com/x{encoded}?n{encoded}=v{encoded}") == f"https://a.com/x{normal}?n{normal}=v{normal}"


# -- what is fetched is what a browser would fetch --------------------------------------------------------------------

AUTHORITY_PIECES = st.sampled_from(
    ["a.com", "www.", "1", "0x7f", "127.0.0.1", "0377", "256", ".", "..", "[::1]", "[1:2::ffff:1.2.3.4]", "[fe80::1%25eth0]", "[", "]",
     "%25", "%2e", "%41", "%00", "%C3%BC", "%E1%BA%9E", "xn--", "xn--zca", "-", "_", "u:p@", "@", ":", ":80", ":0", ":65536", ":8a", "A",
     "ẞ", "ü", "İ", "\u00ad", "\u200d", "。", "．", "ａ", "א", "\u0301", "\U0001f600", "\ufffd", "\ud800", "\u202e",
     " ", "\t", "\n", "\0", "^", "|", "<", "*", "{", '"', "$", "'", "x" * 64]
)  # fmt: skip
SCHEMES = st.sampled_from(
    ["http://", "https://", "HTTP://", "http:", "https:", "http:/", "http:///", "http:\\\\", "ht\ttp://", " http://", "//", "/\\", "///",
     "/", "", "?", "#", "ftp://", "javascript:", "data:", "x:"]
)  # fmt: skip
BASES = st.none() | st.sampled_from(
    ["http://b.com/d/e?q#f", "https://u:p@www.b.com:8080/d/", "http://b.com", "http://b.com/x?", "http://[::1]/", "http://1.2.3.4:81/;x?y",
     "http://ü.de/x/", "https://xn--a/b?c", "http://a.com/^?^#^", "about:blank", "mailto:x", "file:///x", "no base"]
)  # fmt: skip
HREFS = st.builds(
    "{}{}{}{}".format,
    SCHEMES,
    st.lists(AUTHORITY_PIECES, max_size=4).map("".join),
    st.sampled_from(["", "/", "\\", "?", "#"]),
    st.lists(PIECES, max_size=6).map("".join),
)


def browser_url(href: str, base: str | None) -> ada_url.URL | None:
    href = href.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for against in (base, None):  # a base that is no URL is none
        try:
            return ada_url.URL(href, against) if against is not None else ada_url.URL(href)
        except ValueError:
            continue
    return None


@with_examples
@given(HREFS | URLS | st.text(st.characters(), max_size=30), BASES)
def test_the_request_is_the_one_that_a_browser_would_send(href: str, base: str | None) -> None:
    """Scheme, port and host to connect to; request target and Host to the byte. The host whose clock is asked is the one connected to."""
    wanted = browser_url(href, base)
    target = Canonicalizer().target(href, base)
    if wanted is None or wanted.protocol not in ("http:", "https:"):
        assert target is None
        return
    if target is None:
        assert not wanted.hostname.strip(".") or host_is_refused(wanted.hostname)
        return
    sent = wanted.pathname + ("?" if "?" in wanted.href.partition("#")[0] else "") + wanted.search[1:]
    assert target.url == f"{wanted.protocol}//{wanted.host}{sent}"
    request = Request(target.url, meta={"verbatim_url": True})
    parts = urlparse_cached(request)
    head = request_head(request, parts)
    assert head.startswith(f"GET {sent} HTTP/1.1\r\nHost: {wanted.host}\r\n".encode())
    assert parts.hostname == wanted.hostname.strip("[]")
    assert (parts.scheme + ":", "" if parts.port is None else str(parts.port)) == (wanted.protocol, wanted.port)
    assert target.host == host_of(target.url) == host_of_name(parts.hostname) == host_of_name(name_of(target.url))


PLAIN_PIECES = st.sampled_from(
    ["a", "B", "1", "page", "/", "/", "//", ".", "..", "/.", "-", "_", "~", ",", "!", "$", "&", "*", "+", "=", ":", "@", "?", "?", "#",
     "utm_source=1", "sid=abc123", "&s=", "&b=2", "amp;", "%41", "é", ";", "(", "'", "|", "^", " ", "\n", "http://"]
)  # fmt: skip
FOLDERS = st.sampled_from(
    ["http://b.com/x/y.html", "https://b.com:81/~u/a.b/c?d/e", "http://b.com/x//y/z", "http://b.com/.x/y", "http://b.com/ü/y", "http://b.com/;s=1/y",
     "http://b.com//", "http://b.com/x/#/y", "http://b.com/x:y/z@/", "http://b.com/x/y|z"]
)  # fmt: skip
PLAIN_HREFS = st.builds(
    "{}{}".format,
    st.sampled_from(
        ["", "", "/", "/", "/a/", "./", "../", "//", "http://a.com/", "HTTPS://www.A.com.:443/", "http://1:080/", "http://xn--tda.de/",
         "http://a.com", "http:/", "http:", "http://u@a.com/", "x:", f"http://{'a.' * 200}com/", "http://a.com:99999/", "http://:80/"]
    ),
    st.lists(PLAIN_PIECES, max_size=6).map("".join),
)  # fmt: skip


@with_examples
@given(PLAIN_HREFS, BASES | FOLDERS)
def test_links_read_without_the_parser_are_read_as_with_it(href: str, base: str | None) -> None:
    wanted = browser_url(href, base)
    target = Canonicalizer().target(href, base)
    if target is None:
        assert (
            wanted is None or not wanted.protocol.startswith("http") or host_is_refused(wanted.hostname) or not wanted.hostname.strip(".")
        )
        return
    assert wanted
    url = wanted.href.partition("#")[0]
    assert target.url == (f"{wanted.protocol}//{url.partition('@')[2]}" if wanted.username or wanted.password else url)
    assert (target.key, target.host) == (url_key(target.url), host_of(target.url))


def host_is_refused(name: str) -> bool:
    try:
        host_of_name(name)
    except ValueError:
        return True
    return False


@with_examples
@given(HREFS | URLS | st.text(st.characters(), max_size=30), BASES)
def test_the_quick_parser_and_the_right_one_agree(href: str, base: str | None) -> None:
    try:
        found = parse(href, parse_base(base)) if base not in (None, "no base") else parse(href)
    except ValueError:
        found = None
    wanted = browser_url(href, base if base != "no base" else None)
    if wanted is None or found is None:
        assert (wanted and base and parse_fails(href, base)) or (wanted is None and found is None)
    else:
        assert found == wanted.href


def parse_fails(href: str, base: str) -> bool:
    """`browser_url` forgets a base that the href cannot be joined to; `parse` does not."""
    try:
        ada_url.join_url(base, href.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except ValueError:
        return True
    return False


@with_examples
@given(st.text(st.characters(), max_size=40) | HREFS, BASES)
def test_nothing_but_value_errors_comes_out(href: str, base: str | None) -> None:
    for read in (url_key, canonical_url, host_of, name_of):
        try:
            read(href)
        except ValueError:
            continue
    canonicalizer = Canonicalizer()
    assert len(canonicalizer.targets([href], base or "")) + canonicalizer.invalid == 1


# -- one page, spelled otherwise ---------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "B", "q", "reference", "id", "x-y", "c[]", "ü"])
VALUES = st.text("abXY01 ~é/:%&=+#?", max_size=5)
SEGMENTS = st.text("abXY01-._~é %/?#;+", min_size=1, max_size=5).filter(lambda text: text not in (".", ".."))
PAGES = st.tuples(
    st.sampled_from(["example.com", "shop.example.co.uk", "bücher.de"]),
    st.sampled_from([80, 443, 8080]),
    st.lists(SEGMENTS, max_size=3),
    st.lists(st.tuples(NAMES, VALUES), max_size=4),
)


@st.composite
def spellings(draw: st.DrawFn, host: str, port: int, segments: list[str], pairs: list[tuple[str, str]]) -> str:
    def spelled(text: str, *, in_query: bool) -> str:
        def one(character: str) -> str:
            encoded = quote(character, safe="")
            if encoded[0] != "%":  # unreserved
                return draw(st.sampled_from([character, f"%{ord(character):02x}", f"%{ord(character):02X}"]))
            choices = [encoded, encoded.lower()]
            if character == " ":
                choices += [" ", "+"] if in_query else [" "]
            return draw(st.sampled_from([*choices, character] if character == "é" else choices))

        return "".join(map(one, text))

    scheme = draw(st.sampled_from(["http", "https", "HTTP"]))
    www = draw(st.sampled_from(["", "www.", "WWW."]))
    name = draw(st.sampled_from([host, host.upper(), host.encode("idna").decode()])) + draw(st.sampled_from(["", "."]))
    end = f":{port}" if port == 8080 else draw(st.sampled_from(["", ":", ":80", ":443"]))
    user = draw(st.sampled_from(["", "", "me:pw@"]))
    path = "".join(draw(st.sampled_from(["/", "//", "/./", "/x/../"])) + spelled(segment, in_query=False) for segment in segments)
    path += draw(st.sampled_from(["", "/", "//"])) if path else draw(st.sampled_from(["", "/"]))
    kept = [f"{spelled(key, in_query=True)}{'=' if value else draw(st.sampled_from(['', '=']))}{spelled(value, in_query=True)}"
            for key, value in draw(shuffled(pairs))]  # fmt: skip
    for extra in draw(st.lists(st.sampled_from(["utm_source=x", "fbclid=", "gclid=1", "ref=a", "sessionid=9", ""]), max_size=3)):
        kept.insert(draw(st.integers(0, len(kept))), extra)
    query = "&".join(kept)
    mark = "?" if query else draw(st.sampled_from(["", "?"]))
    session = draw(st.sampled_from(["", ";jsessionid=A1"])) if path else ""
    url = f"{scheme}://{user}{www}{name}{end}{path}{session}{mark}{query}"
    return url + draw(st.sampled_from(["#", "#top"] if url[-1] == " " else ["", "#top"]))  # a blank at the end does not count


@st.composite
def shuffled(draw: st.DrawFn, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Another order in which equal names stay as they were."""
    order = draw(st.permutations(range(len(pairs))))
    of_name: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        of_name.setdefault(pair[0], []).append(pair)
    return [of_name[pairs[at][0]].pop(0) for at in order]


@with_examples
@given(PAGES.flatmap(lambda page: st.tuples(spellings(*page), spellings(*page))))
def test_spellings_of_one_page_drawn_at_random_have_one_key(both: tuple[str, str]) -> None:
    one, other = both
    assert canonical_url(one) == canonical_url(other)
    assert url_key(one) == url_key(other)
    for url in both:
        target = Canonicalizer().target(url)
        assert target
        assert target.key == url_key(one)
        assert urlsplit(target.url).netloc.rpartition("@")[2] == urlsplit(target.url).netloc


@with_examples
@given(PAGES, PAGES)
def test_different_pages_drawn_at_random_have_different_keys(one: tuple[str, int, list[str], list[tuple[str, str]]],
                                                             other: tuple[str, int, list[str], list[tuple[str, str]]]) -> None:  # fmt: skip
    def meaning(page: tuple[str, int, list[str], list[tuple[str, str]]]) -> object:
        host, port, segments, pairs = page
        return host, port == 8080, segments, sorted(pairs, key=lambda pair: pair[0])

    def url(page: tuple[str, int, list[str], list[tuple[str, str]]]) -> str:
        host, port, segments, pairs = page
        path = "".join("/" + quote(segment, safe="") for segment in segments)
        return f"http://{host}:{port}{path}?{'&'.join(f'{quote(key)}={quote(value, safe=str())}' for key, value in pairs)}"

    assert (url_key(url(one)) == url_key(url(other))) is (meaning(one) == meaning(other))
