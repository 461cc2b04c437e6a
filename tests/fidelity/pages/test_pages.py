"""Pages beside html5lib (which encoding) and webencodings (the text in it), and beside the HTML and Encoding Standards where
those two are older than what browsers do: there the values are those of the standards."""

from __future__ import annotations

import hashlib
from itertools import chain

import html5lib
import pytest
import webencodings

from marin.errors import DataError
from marin.plugins.collections.document import Document, Problem
from marin.plugins.collections.sources.encodings import decode
from marin.plugins.collections.sources.page import Rules, page

CYRILLIC, JAPANESE, CHINESE, KOREAN = "Привет, мир", "日本語の頁です", "中文网页", "한국어 문서"
TEXTS = {
    "utf-8": "naïve — Привет 日本",
    "windows-1252": "“naïve” café – Œuvre",
    "iso-8859-1": "naïve café",
    "latin1": "naïve café",
    "us-ascii": "naïve “quoted”",
    "ISO-8859-2": "Zażółć gęślą jaźń",
    "l2": "příliš žluťoučký",
    "iso-8859-3": "ĉiuĵaŭde",
    "iso-8859-4": "ąčęė",
    "iso-8859-5": CYRILLIC,
    "iso-8859-6": "مرحبا",
    "iso-8859-7": "Καλημέρα",
    "iso-8859-8": "שלום",
    "iso-8859-8-i": "שלום",
    "logical": "שלום",
    "iso-8859-9": "“Bugün güzel” dedi",
    "latin5": "ğüşıöç",
    "iso-8859-10": "ÐÞĄ",
    "iso-8859-13": "ąčęėįšųū",
    "iso-8859-14": "ẁẃŵ",
    "iso-8859-15": "10 € œuvre",
    "iso-8859-16": "10 € ștțș",
    "koi8-r": CYRILLIC,
    "koi8-u": "Привіт, ґанок",
    "windows-1250": "Zażółć „gęślą”",
    "windows-1251": CYRILLIC,
    "x-cp1251": CYRILLIC,
    "windows-1253": "Καλημέρα’",
    "windows-1254": "ğüşıöç ‘x’",
    "windows-1255": "שלום",
    "windows-1256": "مرحبا پ",
    "windows-1257": "ąčęėįšųū",
    "windows-1258": "Tiêng Viêt đ",
    "tis-620": "“ไทย”",
    "windows-874": "ภาษาไทย",
    "macintosh": "naïve π",
    "x-mac-cyrillic": CYRILLIC,
    "ibm866": CYRILLIC,
    "gb2312": "朱镕基在香港",
    "gbk": CHINESE,
    "x-gbk": CHINESE,
    "gb18030": "中文网页 𠀀 €",
    "big5": "香港中文",
    "big5-hkscs": "嘅啲",
    "shift_jis": "①番目の髙橋",
    "windows-31j": JAPANESE,
    "sjis": JAPANESE,
    "euc-jp": JAPANESE,
    "iso-2022-jp": JAPANESE,
    "euc-kr": "똠방각하 펲시",
    "ks_c_5601-1987": KOREAN,
    "windows-949": KOREAN,
}
"""A text for a label; the codec is what webencodings has for the label."""
UTF = "Привет café".encode()
META = b'<meta charset="utf-8">'
FAR = b"<!--" + b"x" * 1100 + b"-->"


def body(head: bytes, text: bytes = UTF) -> bytes:
    return b"<html><head>" + head + b"<title>T</title></head><body><p>" + text + b"</p></body></html>"


DECLARED = {
    "single quotes": b"<meta charset='utf-8'>",
    "no quotes": b"<meta charset=utf-8>",
    "closed": b"<meta charset=utf-8 />",
    "capitals": b"<META CHARSET=UTF-8>",
    "spaces at the sign": b"<meta charset = 'utf-8' >",
    "spaces in the label": b'<meta charset=" utf-8 ">',
    "lines": b"<meta\ncharset\n=\nutf-8\n>",
    "pragma": b'<meta http-equiv="Content-Type" content="text/html; charset=utf-8">',
    "pragma, content first": b'<meta content="text/html;charset=utf-8" http-equiv=content-type>',
    "pragma, quotes in it": b"<meta http-equiv='content-type' content='text/html; charset=\"utf-8\"'>",
    "pragma, spaces": b'<meta http-equiv="content-type" content="text/html; charset = utf-8 ; x">',
    "no pragma": b'<meta name="x" content="text/html; charset=windows-1251">' + META,
    "other pragma": b'<meta http-equiv="refresh" content="0; charset=koi8-r">' + META,
    "comment": b'<!-- <meta charset="windows-1251"> -->' + META,
    "comment with a sign": b'<!-- a > b <meta charset="windows-1251"> -->' + META,
    "doctype": b"<!DOCTYPE html>" + META,
    "other attribute": b'<meta data-charset="windows-1251" name="x">' + META,
    "in a value": b"<a title='<meta charset=koi8-r>'></a>" + META,
    "sign in a value": b'<meta name="a>b" charset="utf-8">',
    "metadata, no meta": b"<metadata charset=koi8-r></metadata>" + META,
    "unknown label": b'<meta charset="no-such"><meta charset="utf-8">',
    "utf-16": b'<meta charset="utf-16">',
    "utf-16be by pragma": b'<meta http-equiv="content-type" content="text/html; charset=utf-16be">',
    "unicode": b'<meta charset="unicode">',
    "first of two": META + b'<meta charset="windows-1251">',
    "behind 1,024 bytes": FAR + META,
    "across the 1,024th byte": b"<!--" + b"x" * 990 + b"-->" + META,
    "far, behind a script": FAR + b"<script>'<meta charset=koi8-r>'</script>" + META,
    "far, behind a style": FAR + b"<style>/* <meta charset=koi8-r> */</style>" + META,
    "far, behind a comment": FAR + b"<!-- <meta charset=koi8-r> -->" + META,
    "near in a script, real one later": b"<script>x='<meta charset=koi8-r>'</script>" + META,
    "near in a title, real one later": b"<title><meta charset=koi8-r></title>" + FAR + META,
    "in noscript": b"<noscript><meta charset=utf-8></noscript>",
    "processing instruction": b"<?php <meta charset=koi8-r> ?>" + META,
    "end tag with attributes": b"</p a='>'>" + META,
    "quote in a bare value": b'<p a=b"c>' + META,
}
BYTES = {
    "byte order mark": (b"\xef\xbb\xbf" + body(b"<meta charset=koi8-r>"), ""),
    "byte order mark before HTTP": (b"\xef\xbb\xbf" + body(b""), "windows-1251"),
    "utf-16le mark": (b"\xff\xfe" + body(b"").decode().encode("utf-16-le"), "utf-8"),
    "utf-16be mark": (b"\xfe\xff" + body(b"<meta charset=utf-8>").decode().encode("utf-16-be"), ""),
    "HTTP before meta": (body(b"<meta charset=utf-8>", CYRILLIC.encode("cp1251")), "windows-1251"),
    "HTTP's label unknown": (body(META), "utf8mb4"),
    "HTTP's label of Python": (body(META), "raw_unicode_escape"),
    "HTTP, capitals": (body(b"", CYRILLIC.encode("koi8-r")), "KOI8-R"),
    "utf-16 by HTTP": (body(b"").decode().encode("utf-16-le"), "utf-16"),
    "nothing said, ASCII": (body(b"", b"plain"), ""),
    "nothing said, Latin": (body(b"", "“naïve” café".encode("cp1252")), ""),
    "one wrong byte": (body(META, UTF * 9 + b"\xff" + UTF), ""),
    "cut in a letter": (body(META, UTF * 9)[:-20] + b"\xd0", ""),
    "wrong, and few": (body(META, b"a page with \x93quotes\x94 of Windows, and nothing else beyond ASCII"), ""),
    "surrogates": (body(META, UTF * 3 + b"\xed\xa0\x80"), ""),
    "gbk, markup behind a wrong byte": (body(b"<meta charset=gbk>", ("中文" * 9).encode("gbk") + b"\x81"), ""),
    "gbk, a wrong byte": (body(b"<meta charset=gbk>", ("中文网页" * 9).encode("gbk") + b"\xff."), ""),
}


def ours(data: bytes, charset: str = "", rules: Rules = "html") -> str:
    found = page("s", 1, data, charset=charset, rules=rules)
    if isinstance(found, Problem):
        raise DataError(found.reason, where="s", expected="its text", found=found.found)
    assert isinstance(found, Document)
    return found.text


def reference(data: bytes, charset: str = "") -> str:
    parser = html5lib.HTMLParser()
    parser.parse(data, transport_encoding=charset or None, useChardet=False)  # a guess is no reference
    return str(webencodings.decode(data, parser.documentEncoding)[0])


@pytest.mark.table
@pytest.mark.parametrize("label", TEXTS)
def test_labels(compare, label):
    codec = webencodings.lookup(label).codec_info.name
    data = body(f'<meta charset="{label}">'.encode(), TEXTS[label].encode({"gbk": "gb18030"}.get(codec, codec)))
    assert TEXTS[label] in reference(data)
    compare("pages", f"label {label}", lambda: ours(data), reference(data))
    compare(
        "pages",
        f"label {label} by HTTP",
        lambda: ours(data.replace(b"<meta", b"<x"), label),
        reference(data).replace("<meta", "<x"),
    )


@pytest.mark.table
@pytest.mark.parametrize("name", DECLARED)
def test_declarations(compare, name):
    data = body(DECLARED[name])
    assert UTF.decode() in reference(data)
    compare("pages", name, lambda: ours(data), reference(data))


@pytest.mark.table
@pytest.mark.parametrize("name", BYTES)
def test_marks_transport_and_wrong_bytes(compare, name):
    data, charset = BYTES[name]
    compare("pages", name, lambda: ours(data, charset), reference(data, charset))


def declared(declaration: str, text: str, encoding: str) -> tuple[bytes, str]:
    return body(declaration.encode(), text.encode(encoding)), text


STANDARD = {
    "a slash behind meta": declared("<title><meta/charset=koi8-r></title>", CYRILLIC, "koi8-r"),
    "charset twice in a content": declared(
        '<meta http-equiv=content-type content="charset charset=koi8-r">', CYRILLIC, "koi8-r"
    ),
    "an attribute twice": declared('<meta charset="none" charset="koi8-r">', "café", "cp1252"),
    "the shortest comment": declared("<!--><title><meta charset=koi8-r></title><!-- -->", CYRILLIC, "koi8-r"),
    "x-user-defined": declared('<meta charset="x-user-defined">', "café", "cp1252"),
    "utf-16 behind 1,024 bytes": (body(FAR + b"<meta charset=utf-16>"), UTF.decode()),
    "bytes that Windows-1252 leaves empty": (body(b"<meta charset=latin1>", b"a\x81b"), "a\x81b"),
    "bytes that windows-1255 leaves empty": (
        body(b"<meta charset=windows-1255>", b"\xf9\xca\xec"),
        "\u05e9\u05ba\u05dc",
    ),
    "koi8-u, Belarusian": (body(b"<meta charset=koi8-u>", b"\xae\xbe"), "\u045e\u040e"),
    "gbk, the euro of Windows": (body(b"<meta charset=gbk>", b"10 \x80"), "10 €"),
    "gb18030 of 2022": (body(b"<meta charset=gb18030>", b"\xa6\xd9\xfe\x59"), "\ufe10\u9fb4"),
    "gbk, four bytes": (body(b"<meta charset=gb2312>", "中𠀀".encode("gb18030")), "中𠀀"),
    "big5, ETEN": (body(b"<meta charset=big5>", b"\xa1\x45\xa3\xe1"), "\u2027€"),
    "euc-jp, NEC's row": (body(b"<meta charset=euc-jp>", b"\xad\xa1\xfc\xfe"), "①\uff02"),
    "euc-jp, the tilde": (body(b"<meta charset=euc-jp>", b"\xa1\xc1\xa1\xdd"), "\uff5e\uff0d"),
    "iso-2022-jp, katakana": (body(b"<meta charset=iso-2022-jp>", b"\x1b(I1\x1b(B"), "\uff71"),
    "iso-2022-jp, NEC's row": (body(b"<meta charset=iso-2022-jp>", b"\x1b$B-!\x1b(B"), "①"),
    "shift_jis, a byte of the Macintosh": (
        body(b"<meta charset=sjis>", "頁".encode("cp932") * 30 + b"\xfd"),
        "\ufffd</p>",
    ),
}
"""Bytes, and what stands in the text by the standards; html5lib 1.1 or webencodings 0.6.1 have something else."""


@pytest.mark.table
@pytest.mark.parametrize("name", STANDARD)
def test_rows_of_the_standards(compare, name):
    data, text = STANDARD[name]
    assert text not in reference(data)
    compare("pages", name, lambda: ours(data), lambda found: text in found)


OTHERWISE = {
    "nothing said, UTF-8": (body(b""), "", "html", UTF.decode()),
    "nothing said, UTF-8 with a wrong byte": (body(b"", UTF * 9 + b"\xff"), "", "html", UTF.decode() * 9 + "\ufffd"),
    "XML declaration, no meta": (b'<?xml version="1.0" encoding="utf-8"?>' + body(b""), "", "html", UTF.decode()),
    "XML declaration of Cyrillic": (
        b"<?xml version='1.0' encoding='windows-1251'?>" + body(b"", CYRILLIC.encode("cp1251")),
        "",
        "html",
        CYRILLIC,
    ),
    "meta before the XML declaration": (
        b"<?xml version='1.0' encoding='utf-8'?>" + body(b"<meta charset=koi8-r>", CYRILLIC.encode("koi8-r")),
        "",
        "html",
        CYRILLIC,
    ),
    "XML of UTF-16 without a mark": (
        ('<?xml version="1.0"?><html>' + CYRILLIC).encode("utf-16-le"),
        "",
        "html",
        CYRILLIC,
    ),
    "XHTML, nothing said": (body(b"<meta charset=koi8-r>"), "", "xml", UTF.decode()),
    "XHTML's declaration": (
        b'<?xml version="1.0" encoding="koi8-r"?>' + body(b"", CYRILLIC.encode("koi8-r")),
        "",
        "xml",
        CYRILLIC,
    ),
    "XHTML by HTTP": (body(b"", CYRILLIC.encode("koi8-r")), "koi8-r", "xml", CYRILLIC),
    "plain text": (b"<meta charset=koi8-r> " + UTF, "", "text", "<meta charset=koi8-r> " + UTF.decode()),
    "plain text by HTTP": (CYRILLIC.encode("cp1251"), "windows-1251", "text", CYRILLIC),
}


@pytest.mark.table
@pytest.mark.parametrize("name", OTHERWISE)
def test_xml_plain_text_and_pages_that_name_nothing(compare, name):
    data, charset, rules, text = OTHERWISE[name]
    compare("pages", name, lambda: ours(data, charset, rules), lambda found: text in found)


SAYS = {
    "more than one in ten of its characters outside of ASCII": [
        body(META, ("café déjà vu, " * 9).encode("cp1252")),
        body(META, (CHINESE * 9).encode("gbk")),
        body(b"<meta charset=euc-kr>", (JAPANESE * 9).encode("utf-8")),
        body(b"<meta charset=iso-2022-kr>", b"anything"),
    ],
    "Nothing names an encoding, and the bytes are neither UTF-8 nor of a script that windows-1252 has": [
        body(b"", CYRILLIC.encode("cp1251")),
        body(b"", CYRILLIC.encode("koi8-r")),
        body(b"", (JAPANESE * 3).encode("cp932")),
        body(b"<meta charset=x-none>", (CHINESE * 3).encode("gbk")),
        body(b"", "Καλημέρα".encode("cp1253")),
        body(b"", "ภาษาไทย".encode("cp874")),
    ],
    "Bytes of data": [body(b"<meta charset=latin1>", bytes(range(32)) * 20)],
}


@pytest.mark.table
@pytest.mark.parametrize(("refusal", "data"), [(why, data) for why, pages in SAYS.items() for data in pages])
def test_refusals(compare, refusal, data):
    compare("pages", hashlib.sha256(data).hexdigest()[:8], lambda: ours(data), None, refusal=refusal)


def test_what_was_not_utf8_and_what_was_replaced_stands_beside_the_document():
    found = page("s", 1, body(b"<meta charset=koi8-r>", CYRILLIC.encode("koi8-r")))
    assert isinstance(found, Document) and found.metadata["encoding"] == "koi8-r"
    found = page("s", 1, body(META, UTF * 9 + b"\xff\xff"))
    assert isinstance(found, Document) and found.metadata["replaced_characters"] == 2
    assert "encoding" not in found.metadata


INDEXES = {
    "big5": "0a6ca50e9b5d4c9a1b63e49ba87c28d1",
    "euc-jp": "9783a11ff9de7bef092021685e3d5c98",
    "euc-kr": "066ddaeeb420c9da7a8ad2bc1a52ddab",
    "gbk": "6ca032ac22b5921c68ee078fd8ff8efd",
    "gb18030": "49bb8cc90bd8e8fd26e0ea72182adf22",
    "shift_jis": "0694ae80cedb484d57bd68adef8d2a65",
    "iso-2022-jp": "0d45ec330fa026de24cc255ad7570127",
}
"""SHA-256 (32 digits) of what the standard's decoders, written out state by state over its indexes of May 2026, make of all
sequences (:func:`sequences`)."""
SINGLE = (
    "ibm866 iso-8859-10 iso-8859-13 iso-8859-14 iso-8859-15 iso-8859-16 iso-8859-2 iso-8859-3 iso-8859-4 iso-8859-5 iso-8859-6"
    " iso-8859-7 iso-8859-8 iso-8859-8-i koi8-r koi8-u macintosh windows-1250 windows-1251 windows-1252 windows-1253 windows-1254"
    " windows-1255 windows-1256 windows-1257 windows-1258 windows-874 x-mac-cyrillic"
)
SINGLE_INDEXES = "d47b63787e2457fd3601f4bb96599183"


def sequences(name: str) -> bytes:
    if name == "iso-2022-jp":
        cells = range(0x21, 0x7F)
        return b"".join(b"\x1b$B%c%c\x1b(J%c\x1b(I%c\x1b(B\n" % (a, b, b, a) for a in cells for b in cells)
    pairs = (bytes((a, b)) for a in range(0x80, 0x100) for b in range(0x100))
    more = iter(())
    if name == "euc-jp":
        more = (bytes((0x8F, a, b)) for a in range(0xA1, 0xFF) for b in range(0xA1, 0xFF))
    if name == "gb18030":
        numbers = range(0, 126 * 12600, 7)
        more = (bytes((0x81 + n // 12600, 48 + n // 1260 % 10, 0x81 + n // 10 % 126, 48 + n % 10)) for n in numbers)
    return b"".join(one + b"\n" for one in chain(pairs, more))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@pytest.mark.table
@pytest.mark.parametrize("name", INDEXES)
def test_every_sequence_of_an_index(compare, name):
    compare("encodings", name, lambda: digest(decode(sequences(name), name)[0]), INDEXES[name])


def test_every_byte_of_the_encodings_of_single_bytes(compare):
    upper = bytes(range(0x80, 0x100))
    text = "".join(f"{name}{decode(upper, name)[0]}\n" for name in SINGLE.split())
    compare("encodings", "single bytes", lambda: digest(text), SINGLE_INDEXES)
