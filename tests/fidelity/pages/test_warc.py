"""WARC records beside warcio, and beside RFC 9110 and 9112 where warcio has no answer: messages that crawlers stored, each in
the layouts of eight writers, made here after their documentation (warcio's own by warcio, where it is installed)."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from marin.errors import DataError
from marin.plugins.collections.document import Document, Problem
from marin.plugins.collections.sources.warc import read_warc

warcio = pytest.importorskip("warcio.archiveiterator", reason="warcio 1.8.1, a reference of these tests")

PAGE = b"<html><head><title>T</title></head><body><p>" + b"The river runs to the sea. " * 9 + b"</p></body></html>"
EMPTY_LINE = PAGE.replace(b"</p>", b"</p>\r\n\r\n<p>A paragraph behind an empty line.</p>")
TYPE = "Content-Type: text/html; charset=utf-8"
URL = "http://example.org/a"
ID = "<urn:uuid:00000000-0000-4000-8000-000000000001>"


def http(body: bytes, *fields: str, end: str = "\r\n", status: str = "HTTP/1.1 200 OK") -> bytes:
    return "".join(f"{line}{end}" for line in (status, *fields, "")).encode("latin-1") + body


def chunks(body: bytes, size: int = 60, last: bytes = b"0\r\n\r\n", line: bytes = b"\r\n") -> bytes:
    parts = [body[place : place + size] for place in range(0, len(body), size)]
    return b"".join(b"%x%b%b%b" % (len(part), line, part, line) for part in parts) + last


def deflated(body: bytes, bits: int) -> bytes:
    one = zlib.compressobj(wbits=bits)
    return one.compress(body) + one.flush()


def block_of(kind: str, block: bytes, fields: dict[str, str], end: str = "\r\n", version: str = "WARC/1.0") -> bytes:
    lines = [version, f"WARC-Type: {kind}", *(f"{name}: {value}" for name, value in fields.items())]
    head = end.join([*lines, f"Content-Length: {len(block)}", "", ""])
    return head.encode() + block + (end * 2).encode()


MESSAGE = {"WARC-Record-ID": ID, "WARC-Date": "2024-01-01T00:00:00Z", "WARC-Target-URI": URL}
HTTP = MESSAGE | {"Content-Type": "application/http; msgtype=response"}


def by_warcio(block: bytes) -> bytes:
    from warcio.statusandheaders import StatusAndHeadersParser
    from warcio.warcwriter import WARCWriter

    out, payload = io.BytesIO(), io.BytesIO(block)
    writer = WARCWriter(out, gzip=True)
    head = StatusAndHeadersParser(["HTTP/1.0", "HTTP/1.1"]).parse(payload)
    writer.write_record(writer.create_warcinfo_record("a.warc.gz", {"software": "warcio"}))
    writer.write_record(writer.create_warc_record(URL, "response", payload=payload, http_headers=head))
    return out.getvalue()


def by_wget(block: bytes) -> bytes:
    info = block_of("warcinfo", b"software: Wget\r\nformat: WARC File Format 1.0\r\n", {"WARC-Record-ID": ID})
    request = block_of(
        "request", b"GET /a HTTP/1.1\r\n\r\n", MESSAGE | {"Content-Type": "application/http;msgtype=request"}
    )
    said = {"WARC-Target-URI": f"<{URL}>", "Content-Type": "application/http;msgtype=response"}
    return b"".join(map(gzip.compress, (info, request, block_of("response", block, HTTP | said))))


def by_heritrix(block: bytes) -> bytes:
    dns = block_of(
        "response",
        b"20240101000000\nexample.org.\t60\tIN\tA\t192.0.2.1\n",
        {"WARC-Target-URI": "dns:example.org", "WARC-Record-ID": ID, "Content-Type": "text/dns"},
    )
    page = block_of("response", block, HTTP | {"WARC-IP-Address": "192.0.2.1"})
    about = block_of("metadata", b"fetchTimeMs: 5\r\n", MESSAGE | {"Content-Type": "application/warc-fields"})
    return b"".join(map(gzip.compress, (dns, page, about)))


def by_common_crawl(block: bytes) -> bytes:
    said = {"WARC-Identified-Payload-Type": "text/html", "WARC-Warcinfo-ID": ID, "WARC-Concurrent-To": ID}
    request = block_of(
        "request", b"GET /a HTTP/1.1\r\n\r\n", MESSAGE | {"Content-Type": "application/http; msgtype=request"}
    )
    detected = b"charset-detected: UTF-8\r\n"
    about = block_of("metadata", detected, MESSAGE | {"Content-Type": "application/warc-fields"})
    return b"".join(map(gzip.compress, (request, block_of("response", block, HTTP | said), about)))


def by_browsertrix(block: bytes) -> bytes:
    said = {"WARC-Page-ID": "b1946ac9", "WARC-JSON-Metadata": '{"ipType":"Public"}', "WARC-Resource-Type": "document"}
    again = block_of("revisit", b"HTTP/1.1 200 OK\r\n\r\n", HTTP | {"WARC-Profile": "identical-payload-digest"})
    return b"".join(map(gzip.compress, (block_of("response", block, HTTP | said, version="WARC/1.1"), again)))


def by_warcprox(block: bytes) -> bytes:
    said = {"Content-Type": "application/http;msgtype=response", "WARC-Payload-Digest": "sha1:" + "A" * 32}
    return block_of("response", block, HTTP | said)


def by_zeno(block: bytes) -> bytes:
    info = block_of("warcinfo", b"software: Zeno\r\n", {"WARC-Record-ID": ID}, version="WARC/1.1")
    record = block_of("response", block, HTTP, version="WARC/1.1")
    return b"".join(zstandard.compress(part) for part in (info, record))


def by_hand(block: bytes) -> bytes:
    """Lines that end with LF, names in small letters, a folded field, all in one member: scripts of researchers."""
    fields = {name.lower(): value for name, value in HTTP.items()} | {"x-note": "one\n  two"}
    return gzip.compress(block_of("response", block, fields, end="\n"))


WRITERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "warcio": (".warc.gz", by_warcio),
    "wget": (".warc.gz", by_wget),
    "Heritrix": (".warc.gz", by_heritrix),
    "Nutch of Common Crawl": (".warc.gz", by_common_crawl),
    "browsertrix": (".warc.gz", by_browsertrix),
    "warcprox": (".warc", by_warcprox),
    "Zeno": (".warc.zst", by_zeno),
    "by hand": (".warc.gz", by_hand),
}
CODED = "Content-Encoding: "
CHUNKED = "Transfer-Encoding: chunked"
AS_WARCIO = {
    "as it is": http(PAGE, TYPE),
    "an empty line in it": http(EMPTY_LINE, TYPE),
    "LF": http(PAGE, TYPE, end="\n"),
    "LF, and an empty line in it": http(EMPTY_LINE, TYPE, end="\n"),
    "LF and CRLF": b"HTTP/1.1 200 OK\n" + http(PAGE, TYPE).partition(b"\r\n")[2],
    "CRLF, an empty line of LF": http(EMPTY_LINE, TYPE).replace(b"\r\n\r\n", b"\r\n\n", 1),
    "an empty line of spaces": http(PAGE, TYPE, " "),
    "a folded field": http(PAGE, "X-Note: a", "\tb", "Content-Type: text/html;", " charset=utf-8"),
    "no reason": http(PAGE, TYPE, status="HTTP/1.1 200"),
    "HTTP/1.0": http(PAGE, TYPE, status="HTTP/1.0 200 OK"),
    "a field without a value": http(PAGE, TYPE, "X-Empty:"),
    "a line without a colon": http(PAGE, "nonsense", TYPE),
    "a space before the colon": http(PAGE, "Content-Type : text/html"),
    "small letters": http(PAGE, TYPE.lower()),
    "a type twice": http(PAGE, "Content-Type: text/html", "Content-Type: text/html"),
    "two types": http(PAGE, "Content-Type: text/plain", TYPE),
    "no type": http(PAGE),
    "not a type": http(PAGE, "Content-Type: html"),
    "two cookies": http(PAGE, TYPE, "Set-Cookie: a=b, c", "Set-Cookie: d"),
    "a shorter length": http(PAGE, TYPE, "Content-Length: 40"),
    "a longer length": http(PAGE, TYPE, "Content-Length: 4000"),
    "Latin-1 in a field": http(PAGE, TYPE, "X-City: Z\xfcrich"),
    "gzip": http(gzip.compress(PAGE), TYPE, CODED + "gzip"),
    "gzip in capitals": http(gzip.compress(PAGE), TYPE, "CONTENT-ENCODING: GZIP"),
    "deflate": http(deflated(PAGE, 15), TYPE, CODED + "deflate"),
    "deflate, bare": http(deflated(PAGE, -15), TYPE, CODED + "deflate"),
    "gzip, decoded": http(PAGE, TYPE, CODED + "gzip"),
    "deflate, decoded": http(PAGE, TYPE, CODED + "deflate"),
    "zstd, decoded": http(PAGE, TYPE, CODED + "zstd"),
    "identity": http(PAGE, TYPE, CODED + "identity"),
    "no coding": http(PAGE, TYPE, CODED + "utf-8"),
    "renamed": http(PAGE, TYPE, "X-Crawl-Content-Encoding: gzip", f"Content-Length: {len(PAGE)}"),
    "chunked": http(chunks(PAGE), TYPE, CHUNKED),
    "one chunk": http(chunks(PAGE, 9000), TYPE, CHUNKED),
    "chunked, put together": http(PAGE, TYPE, CHUNKED),
    "chunked by two lines": http(chunks(PAGE), TYPE, CHUNKED, CHUNKED),
    "chunks with extensions": http(chunks(PAGE, line=b"\r\n").replace(b"3c\r\n", b"3c;a=b\r\n"), TYPE, CHUNKED),
    "chunks with zeros": http(chunks(PAGE).replace(b"3c\r\n", b"00003c  \r\n"), TYPE, CHUNKED),
    "gzip in chunks": http(chunks(gzip.compress(PAGE)), TYPE, CODED + "gzip", CHUNKED),
    "gzip, decoded, in chunks": http(chunks(PAGE), TYPE, CODED + "gzip", CHUNKED),
    "deflate in chunks": http(chunks(deflated(PAGE, 15)), TYPE, CODED + "deflate", CHUNKED),
}
"""Messages, and the body is what warcio makes of it."""
BY_THE_RFCS = {
    "100 Continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + http(PAGE, TYPE), "RFC 9110, 15.2"),
    "103 Early Hints, with LF": (
        http(b"", "Link: </a>", status="HTTP/1.1 103 x", end="\n") + http(PAGE, TYPE),
        "RFC 8297",
    ),
    "gzip of two members": (
        http(gzip.compress(PAGE[:99]) + gzip.compress(PAGE[99:]), TYPE, CODED + "gzip"),
        "RFC 1952, 2.2",
    ),
    "bytes behind gzip": (http(gzip.compress(PAGE) + b"\0" * 9, TYPE, CODED + "gzip"), "gzip -d"),
    "x-gzip": (http(gzip.compress(PAGE), TYPE, CODED + "x-gzip"), "RFC 9110, 8.4.1.3"),
    "gzip twice": (http(gzip.compress(gzip.compress(PAGE)), TYPE, CODED + "gzip, gzip"), "RFC 9110, 8.4"),
    "gzip by two lines": (
        http(gzip.compress(gzip.compress(PAGE)), TYPE, CODED + "gzip", CODED + "gzip"),
        "RFC 9110, 5.3",
    ),
    "deflate, then gzip": (http(gzip.compress(deflated(PAGE, 15)), TYPE, CODED + "deflate, gzip"), "RFC 9110, 8.4"),
    "zstd": (http(zstandard.compress(PAGE), TYPE, CODED + "zstd"), "RFC 8878, 7.2"),
    "zstd of two frames": (
        http(zstandard.compress(PAGE[:9]) + zstandard.compress(PAGE[9:]), TYPE, CODED + "zstd"),
        "3",
    ),
    "br": (http(brotli.compress(PAGE), TYPE, CODED + "br"), "RFC 7932; warcio 1.8.1 stops at brotli 1.2.1's objects"),
    "br, decoded": (http(PAGE, TYPE, CODED + "br"), "the page is there"),
    "transfer gzip": (http(gzip.compress(PAGE), TYPE, "Transfer-Encoding: gzip"), "RFC 9112, 7.2"),
    "transfer gzip, chunked": (
        http(chunks(gzip.compress(PAGE)), TYPE, "Transfer-Encoding: gzip, chunked"),
        "RFC 9112, 6.1",
    ),
    "Chunked": (http(chunks(PAGE), TYPE, "Transfer-Encoding: Chunked"), "RFC 9112, 7: in any case"),
    "chunks of chunks": (http(chunks(chunks(PAGE)), TYPE, CHUNKED, CHUNKED), "said twice, and done twice"),
    "trailers": (http(chunks(PAGE, last=b"0\r\nX-A: b\r\n\r\n"), TYPE, CHUNKED), "RFC 9112, 7.1.2"),
    "chunks with LF": (http(chunks(PAGE, line=b"\n", last=b"0\n\n"), TYPE, CHUNKED), "RFC 9112, 2.2"),
    "HTTP/2": (http(PAGE, TYPE, status="HTTP/2 200"), "the status that curl and Chromium write"),
    "HTTP/2, pseudo-header": (http(PAGE, ":status: 200", TYPE, status="HTTP/2.0 200"), "RFC 9113, 8.3"),
}
"""Messages whose body is the page, where warcio has another answer or none, and why."""
SAYS = {
    "a body that begins in its coding and breaks, or ends too early": {
        "gzip, cut": http(gzip.compress(PAGE)[:-20], TYPE, CODED + "gzip"),
        "gzip, broken": http(gzip.compress(PAGE)[:-8] + b"\0" * 8, TYPE, CODED + "gzip"),
        "br, cut": http(brotli.compress(PAGE)[:-20], TYPE, CODED + "br"),
        "zstd, cut": http(zstandard.compress(PAGE)[:-9], TYPE, CODED + "zstd"),
        "deflate, cut": http(deflated(PAGE, 15)[:-20], TYPE, CODED + "deflate"),
    },
    "chunks that end too early or are followed by something else": {
        "no last chunk": http(chunks(PAGE, last=b""), TYPE, CHUNKED),
        "not a size": http(chunks(PAGE, last=b"zz\r\n"), TYPE, CHUNKED),
    },
    "codings of IANA's registry that nothing here undoes": {"compress": http(b"\x1f\x9d", TYPE, CODED + "compress")},
    "a block that no status line begins (HTTP/0.9)": {"HTTP/0.9": PAGE},
    "a status that is not 200, a type that is not HTML, XHTML or plain text": {
        "404": http(PAGE, TYPE, status="HTTP/1.1 404 Not Found"),
        "206": http(PAGE, TYPE, status="HTTP/1.1 206 Partial Content"),
        "a picture": http(b"\x89PNG", "Content-Type: image/png"),
        "no type, and data": http(b"\x89PNG\0\0\0", "Server: x"),
    },
    "what unpacks to more than 16 MiB": {"a bomb": http(gzip.compress(bytes(1 << 25)), TYPE, CODED + "gzip")},
}


def reference(data: bytes) -> str:
    """What warcio gives of the first response by HTTP."""
    for one in warcio.ArchiveIterator(io.BytesIO(data)):
        if one.rec_type == "response" and one.http_headers is not None:
            return str(one.content_stream().read().decode())
    raise AssertionError("no response")


@pytest.fixture
def ours(tmp_path):
    def read(data: bytes, suffix: str = ".warc") -> str:
        path = tmp_path / f"a{suffix}"
        path.write_bytes(data)
        found = [item for item in read_warc(path, "a") if isinstance(item, Document) or item.reason != "not text"]
        if not found or isinstance(found[0], Problem):
            why = found[0].reason if found else "not text"
            raise DataError(why, where="a", expected="its text", found=found[0].found if found else "another type")
        assert len(found) == 1
        return found[0].text

    return read


@pytest.mark.table
@pytest.mark.parametrize("name", AS_WARCIO)
def test_messages_as_warcio_reads_them(compare, ours, name):
    data = by_warcprox(AS_WARCIO[name])
    compare("WARC", name, lambda: ours(data), reference(data))


@pytest.mark.table
@pytest.mark.parametrize("name", BY_THE_RFCS)
def test_messages_by_the_rfcs(compare, ours, name):
    block, source = BY_THE_RFCS[name]
    compare("WARC", f"{name} ({source})", lambda: ours(by_warcprox(block)), PAGE.decode())


@pytest.mark.table
@pytest.mark.parametrize("writer", WRITERS)
def test_layouts_of_writers(compare, ours, writer):
    suffix, write = WRITERS[writer]
    for name in ("as it is", "an empty line in it", "gzip", "gzip in chunks", "chunked, put together", "two cookies"):
        block = AS_WARCIO[name]
        expected = reference(by_warcprox(block))
        compare("WARC", f"{writer}: {name}", lambda block=block: ours(write(block), suffix), expected)


@pytest.mark.table
@pytest.mark.parametrize(("refusal", "name"), [(why, name) for why, rows in SAYS.items() for name in rows])
def test_refusals(compare, ours, refusal, name):
    compare("WARC", name, lambda: ours(by_warcprox(SAYS[refusal][name])), None, refusal=refusal)


OTHER_RECORDS = {
    "resource": block_of("resource", PAGE, MESSAGE | {"Content-Type": "text/html; charset=utf-8"}),
    "conversion": block_of("conversion", PAGE, MESSAGE | {"Content-Type": "text/plain"}),
    "a type of its own": block_of("response", PAGE, MESSAGE | {"Content-Type": "text/html"}),
    "no type, and HTTP": block_of("response", http(PAGE, TYPE), MESSAGE),
    "length twice": block_of("response", http(PAGE, TYPE), HTTP | {"content-length": str(len(http(PAGE, TYPE)))}),
    "XHTML seen by the crawler": block_of(
        "response", http(PAGE, TYPE), HTTP | {"WARC-Identified-Payload-Type": "application/xhtml+xml"}
    ),
    "gzip, cut, and said": block_of(
        "response", http(gzip.compress(PAGE), TYPE, CODED + "gzip")[:-8], HTTP | {"WARC-Truncated": "length"}
    ),
    "chunks, cut, and said": block_of(
        "response", http(chunks(PAGE, last=b""), TYPE, CHUNKED), HTTP | {"WARC-Truncated": "time"}
    ),
}


@pytest.mark.table
@pytest.mark.parametrize("name", OTHER_RECORDS)
def test_other_records(compare, ours, name):
    compare("WARC", name, lambda: ours(OTHER_RECORDS[name]), PAGE.decode())


def test_a_record_in_segments_is_refused(compare, ours):
    data = block_of("response", http(PAGE, TYPE), HTTP | {"WARC-Segment-Number": "1"})
    compare("WARC", "segment", lambda: ours(data), None, refusal="a record that is one of several segments")


def test_the_dictionary_of_a_zstd_file(compare, ours):
    records = [by_warcprox(http(PAGE + b"%d" % number, TYPE)) for number in range(99)]
    dictionary = zstandard.train_dictionary(2048, records)
    packed = zstandard.ZstdCompressor(dict_data=dictionary).compress(records[0])
    for raw in (dictionary.as_bytes(), zstandard.compress(dictionary.as_bytes())):
        data = b"\x5d\x2a\x4d\x18" + len(raw).to_bytes(4, "little") + raw + packed
        compare("WARC", "dictionary", lambda data=data: ours(data, ".warc.zst"), PAGE.decode() + "0")
