"""What encoding a body is read in, and that nothing makes decoding fail."""

from __future__ import annotations

import codecs

import pytest

from crawlweb.content.charset import codec_of, decode, encoding_of

HTML = "text/html"
RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. Это обычный русский текст для проверки. "
JAPANESE = "これは日本語の文章です。文字コードを調べるために書かれています。"


@pytest.mark.parametrize(
    ("body", "content_type", "codec"),
    [
        (b"", None, "utf-8"),
        (b"plain", None, "utf-8"),
        ("é".encode(), None, "utf-8"),
        ("é".encode()[:1], None, "utf-8"),  # cut in the middle of a character
        (codecs.BOM_UTF8 + b"x", "text/html; charset=koi8-r", "utf-8"),
        (codecs.BOM_UTF16_LE + b"x\0", None, "utf-16-le"),
        (codecs.BOM_UTF16_BE + b"\0x", "text/html; charset=utf-8", "utf-16-be"),
        (codecs.BOM_UTF32_LE + b"x\0\0\0", None, "utf-32-le"),
        ("<p>hello hello".encode("utf-16-le"), None, "utf-16-le"),
        ("<p>hello hello".encode("utf-16-be"), None, "utf-16-be"),
        (b"<p>\xe9", "text/html; charset=ISO-8859-1", "windows-1252"),
        (b"<p>\xe9", 'text/html;charset="latin1"', "windows-1252"),
        (b"<p>", "text/html; charset=gb2312", "gb18030"),
        (b"<p>", "text/html; charset=Shift_JIS", "cp932"),
        (b"<p>", "text/html; charset=euc-kr", "cp949"),
        (b"<p>", "text/html; charset=utf-16", "utf-16-le"),
        (b"<p>", "text/html; charset=IBM855", "cp855"),
        (b"<p>", "text/html; charset=nonsense", "utf-8"),
        (b'<meta charset="windows-1251">', "text/html; charset=koi8-r", "koi8-r"),
        (b'<meta charset="windows-1251">', "text/html; charset=nonsense", "windows-1251"),
        (b'<meta charset="windows-1251">', None, "windows-1251"),
        (b"<META content='text/html; charset=koi8-r' http-equiv=Content-Type>", None, "koi8-r"),
        (b"<meta name=x content='text/html; charset=koi8-r'>", None, "utf-8"),
        (b"<!-- <meta charset=koi8-r> --><meta charset=euc-jp>", None, "euc-jp"),
        (b'<p title="<meta charset=koi8-r>"><meta charset=euc-jp>', None, "euc-jp"),
        (b"<meta charset=nonsense><meta charset=euc-jp>", None, "euc-jp"),
        (b"<meta charset=utf-16>", None, "utf-8"),
        (b"<meta charset=koi8-r", None, "utf-8"),
        (b" " * 1024 + b"<meta charset=koi8-r>", None, "utf-8"),
        (b"<?xml version='1.0' encoding='iso-8859-2'?>", None, "iso8859-2"),
        (RUSSIAN.encode("cp1251"), None, "windows-1251"),
        (b"<p>some words " * 9_000 + RUSSIAN.encode("cp1251"), None, "windows-1251"),
        (b"<p>" + (JAPANESE * 3).encode("cp932"), None, "cp932"),
    ],
)
def test_the_encoding_is_found_as_browsers_find_it(body: bytes, content_type: str | None, codec: str) -> None:
    assert codecs.lookup(encoding_of(body, content_type)[0]).name == codecs.lookup(codec).name


@pytest.mark.parametrize(
    "label",
    ["utf-7", "idna", "punycode", "unicode_escape", "base64", "rot13", "mbcs", "undefined", "iso-2022-kr", "\0", ""],
)
def test_codecs_that_browsers_refuse_are_no_charsets(label: str) -> None:
    assert codec_of(label) is None


@pytest.mark.parametrize("content_type", [None, "", ";;;", "text/html; charset=", "charset=\0", "x" * 10_000])
@pytest.mark.parametrize("body", [b"\xff" * 5000, bytes(range(256)) * 20, b"\xff\xfe\x00\xd8", b"\x80", b"\0" * 50])
def test_any_bytes_decode(body: bytes, content_type: str | None) -> None:
    text, codec = decode(body, content_type)
    text.encode("utf-8")
    assert codecs.lookup(codec)


def test_a_lying_charset_gives_replacement_characters() -> None:
    assert decode(b"caf\xe9 x", "text/plain; charset=utf-8") == ("caf\ufffd x", "utf-8")


def test_the_byte_order_mark_is_not_text() -> None:
    assert decode("\ufeffx".encode("utf-16-le")) == ("x", "utf-16-le")
