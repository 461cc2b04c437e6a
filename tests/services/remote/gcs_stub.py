"""Google Cloud Storage in memory, as far as its clients here use it: obstore (XML), gcsfs and TensorStore (JSON).

The semantics are the service's own (cloud.google.com/storage/docs/{xml-api,json_api}): generations that only grow,
preconditions on generations, strong consistency, ranges, listing in the order of names with prefix, delimiter,
startOffset (inclusive), endOffset (exclusive) and pages, simple, multipart-related and resumable uploads, XML
multipart uploads, objects that appear when they are complete and not before. Not there: access control, buckets'
settings, holds, versions of the past, compose.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import secrets
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from werkzeug import Request, Response
from werkzeug.exceptions import HTTPException


def crc32c(data: bytes) -> str:
    """Base64 of the big-endian CRC-32C, as GCS gives it."""
    from google_crc32c import value

    return base64.b64encode(struct.pack(">I", value(data))).decode()


@dataclass(frozen=True)
class Stored:
    """One live object."""

    name: str
    data: bytes
    generation: int
    content_type: str
    metadata: dict[str, str]
    created: datetime

    @property
    def etag(self) -> str:
        return hashlib.md5(self.data, usedforsecurity=False).hexdigest()


@dataclass
class Upload:
    """An upload that is not complete: its bytes so far, or its parts by number."""

    bucket: str
    name: str
    query: dict[str, str]
    content_type: str
    metadata: dict[str, str]
    data: bytearray = field(default_factory=bytearray)
    parts: dict[int, bytes] = field(default_factory=dict)


class Failed(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class GcsStub:
    """The service: a WSGI application. Any bucket exists from its first use."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, Stored]] = {}
        self.page = 1000
        self._uploads: dict[str, Upload] = {}
        self._generations = itertools.count(1_700_000_000_000_000)
        self._mutex = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ)
        raw = environ["REQUEST_URI"].partition("?")[0]
        json_api = re.match(r"/(upload/|download/)?storage/v1/b(/|$)", raw)
        try:
            response = self._json(request, raw) if json_api else self._xml(request, raw)
        except Failed as error:
            response = _json_error(error) if json_api else _xml_error(error)
        except HTTPException as error:
            response = error.get_response(environ)  # type: ignore[assignment]
        return response(environ, start_response)

    # Semantics

    def put(
        self,
        bucket: str,
        name: str,
        data: bytes,
        conditions: dict[str, str],
        content_type: str,
        metadata: dict[str, str],
    ) -> Stored:
        """Write an object, all at once, if its preconditions hold."""
        with self._mutex:
            objects = self.buckets.setdefault(bucket, {})
            check(objects.get(name), conditions)
            stored = Stored(name, data, next(self._generations), content_type, metadata, datetime.now(UTC))
            objects[name] = stored
            return stored

    def get(self, bucket: str, name: str, conditions: dict[str, str]) -> Stored:
        """The live object."""
        found = self.buckets.get(bucket, {}).get(name)
        if found is None or conditions.get("generation", str(found.generation)) != str(found.generation):
            raise Failed(404, f"No such object: {bucket}/{name}")
        check(found, conditions)
        return found

    def delete(self, bucket: str, name: str, conditions: dict[str, str]) -> None:
        with self._mutex:
            self.get(bucket, name, conditions)
            del self.buckets[bucket][name]

    def listed(
        self, bucket: str, prefix: str, delimiter: str, start: str, end: str, most: int, token: str, after: str = ""
    ) -> tuple[list[Stored], list[str], str]:
        """Objects and common prefixes of one page, in the order of UTF-8 bytes, and the token of the next."""
        items: list[Stored] = []
        prefixes: list[str] = []
        for name, stored in sorted(self.buckets.get(bucket, {}).items(), key=lambda item: item[0].encode()):
            if not name.startswith(prefix) or name < start or (end and name >= end) or (after and name <= after):
                continue
            shared = ""
            if delimiter and delimiter in name[len(prefix) :]:
                shared = prefix + name[len(prefix) :].partition(delimiter)[0] + delimiter
            if (shared or name) <= token or (shared and shared in prefixes):
                continue
            if len(items) + len(prefixes) == most:
                return items, prefixes, max([*(item.name for item in items), *prefixes], key=str.encode)
            if shared:
                prefixes.append(shared)
            else:
                items.append(stored)
        return items, prefixes, ""

    # JSON API

    def _json(self, request: Request, raw: str) -> Response:
        kind, _, rest = raw.partition("/storage/v1/b")
        query = request.args.to_dict()
        bucket, _, path = rest.lstrip("/").partition("/")
        if not bucket or not path:
            return _bucket_resource(bucket or json.loads(request.data)["name"])
        if path.rstrip("/") == "o":
            return self._json_objects(request, kind, bucket, query)
        action = re.fullmatch(r"o/([^/]+)/(?:rewriteTo|copyTo)/b/([^/]+)/o/([^/]+)", path)
        if action:
            return self._json_copy(bucket, *map(unquote, action.groups()), query)
        name = unquote(path.removeprefix("o/"))
        if request.method == "DELETE":
            self.delete(bucket, name, query)
            return Response(status=204)
        stored = self.get(bucket, name, query)
        if request.method == "PATCH":
            stored = self.put(bucket, name, stored.data, {}, stored.content_type, json.loads(request.data)["metadata"])
        if query.get("alt") == "media":
            return _media(request, stored)
        return _json_answer(_resource(bucket, stored))

    def _json_objects(self, request: Request, kind: str, bucket: str, query: dict[str, str]) -> Response:
        if request.method == "GET":
            items, prefixes, token = self.listed(
                bucket,
                query.get("prefix", ""),
                query.get("delimiter", ""),
                query.get("startOffset", ""),
                query.get("endOffset", ""),
                min(self.page, int(query.get("maxResults", self.page))),
                query.get("pageToken", ""),
            )
            answer: dict[str, Any] = {"kind": "storage#objects", "items": [_resource(bucket, item) for item in items]}
            if prefixes:
                answer["prefixes"] = prefixes
            if token:
                answer["nextPageToken"] = token
            return _json_answer(answer)
        upload = query.get("uploadType", "media")
        if "upload_id" in query:
            return self._json_resume(request, query["upload_id"])
        if upload == "resumable":
            described = json.loads(request.data or b"{}")
            name = query.get("name") or described["name"]
            session = secrets.token_hex(16)
            self._uploads[session] = Upload(
                bucket, name, query, described.get("contentType", ""), described.get("metadata", {})
            )
            location = f"{request.host_url}upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={session}"
            return Response(status=200, headers={"Location": location})
        data, content_type, metadata, name = request.data, request.content_type or "", {}, query.get("name", "")
        if upload == "multipart":
            described, content_type, data = _related(request)
            metadata, name = described.get("metadata", {}), name or described["name"]
        stored = self.put(bucket, name, data, query, content_type, metadata)
        return _json_answer(_resource(bucket, stored))

    def _json_resume(self, request: Request, session: str) -> Response:
        upload = self._uploads.get(session)
        if upload is None:
            raise Failed(404, "no such upload")
        if request.method == "DELETE":
            del self._uploads[session]
            return Response(status=499)
        given = re.fullmatch(r"bytes (?:\*|(\d+)-(\d+))/(\*|\d+)", request.headers.get("Content-Range", ""))
        if given is None:
            upload.data, total = bytearray(request.data), len(request.data)
        else:
            if given[1] is not None:
                if int(given[1]) != len(upload.data):
                    raise Failed(503, "bytes out of order")
                upload.data += request.data
            total = -1 if given[3] == "*" else int(given[3])
        if total != len(upload.data):
            held = {"Range": f"bytes=0-{len(upload.data) - 1}"} if upload.data else {}
            return Response(status=308, headers=held)
        stored = self.put(
            upload.bucket, upload.name, bytes(upload.data), upload.query, upload.content_type, upload.metadata
        )
        return _json_answer(_resource(upload.bucket, stored))

    def _json_copy(self, bucket: str, name: str, to_bucket: str, to_name: str, query: dict[str, str]) -> Response:
        source = self.get(bucket, name, {})
        stored = self.put(to_bucket, to_name, source.data, query, source.content_type, source.metadata)
        return _json_answer(
            {
                "kind": "storage#rewriteResponse",
                "done": True,
                "totalBytesRewritten": str(len(stored.data)),
                "objectSize": str(len(stored.data)),
                "resource": _resource(to_bucket, stored),
            }
        )

    # XML API

    def _xml(self, request: Request, raw: str) -> Response:
        bucket, _, name = raw.lstrip("/").partition("/")
        bucket, name, query = unquote(bucket), unquote(name), request.args.to_dict()
        if not name:
            return self._xml_list(bucket, query)
        if "uploads" in query or "uploadId" in query:
            return self._xml_multipart(request, bucket, name, query)
        conditions = _conditions(request, query)
        if request.method == "PUT":
            data, source = request.data, request.headers.get("x-goog-copy-source")
            if source:
                from_bucket, _, from_name = unquote(source).lstrip("/").partition("/")
                data = self.get(from_bucket, from_name, {}).data
            stored = self.put(bucket, name, data, conditions, request.content_type or "", _metadata(request))
            return Response(status=200, headers=_headers(stored))
        if request.method == "DELETE":
            self.delete(bucket, name, conditions)
            return Response(status=204)
        return _media(request, self.get(bucket, name, conditions))

    def _xml_list(self, bucket: str, query: dict[str, str]) -> Response:
        items, prefixes, token = self.listed(
            bucket,
            query.get("prefix", ""),
            query.get("delimiter", ""),
            "",
            "",
            min(self.page, int(query.get("max-keys", self.page))),
            query.get("continuation-token", ""),
            query.get("start-after", ""),
        )
        rows = "".join(
            f"<Contents><Key>{escape(item.name)}</Key><Generation>{item.generation}</Generation>"
            f'<LastModified>{item.created:%Y-%m-%dT%H:%M:%S.%fZ}</LastModified><ETag>"{item.etag}"</ETag>'
            f"<Size>{len(item.data)}</Size></Contents>"
            for item in items
        ) + "".join(f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>" for prefix in prefixes)
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(token)}</NextContinuationToken>"
        more = more if token else "<IsTruncated>false</IsTruncated>"
        return _xml_answer(f"<ListBucketResult><Name>{escape(bucket)}</Name>{more}{rows}</ListBucketResult>")

    def _xml_multipart(self, request: Request, bucket: str, name: str, query: dict[str, str]) -> Response:
        if "uploads" in query:
            session = secrets.token_hex(16)
            self._uploads[session] = Upload(bucket, name, {}, request.content_type or "", _metadata(request))
            return _xml_answer(
                f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(name)}</Key>"
                f"<UploadId>{session}</UploadId></InitiateMultipartUploadResult>"
            )
        upload = self._uploads.get(query["uploadId"])
        if upload is None or upload.name != name:
            raise Failed(404, "no such upload")
        if request.method == "PUT":
            data = request.data
            upload.parts[int(query["partNumber"])] = data
            return Response(status=200, headers={"ETag": f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'})
        if request.method == "DELETE":
            del self._uploads[query["uploadId"]]
            return Response(status=204)
        wanted = [
            int(item.text or "")
            for item in ElementTree.fromstring(request.data).iter()
            if item.tag.endswith("PartNumber")
        ]
        if not wanted or any(len(upload.parts.get(number, b"")) < 5 << 20 for number in wanted[:-1]):
            raise Failed(400, "EntityTooSmall or InvalidPart")
        data = b"".join(upload.parts[number] for number in wanted)
        stored = self.put(bucket, name, data, _conditions(request, query), upload.content_type, upload.metadata)
        del self._uploads[query["uploadId"]]
        return _xml_answer(
            f"<CompleteMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(name)}</Key>"
            f'<ETag>"{stored.etag}"</ETag></CompleteMultipartUploadResult>',
            _headers(stored),
        )


def check(found: Stored | None, conditions: dict[str, str]) -> None:
    """Raise 412 (304 for a read whose ifGenerationNotMatch fails) unless the preconditions hold."""
    generation = found.generation if found else 0
    wanted = conditions.get("ifGenerationMatch")
    if wanted is not None and int(wanted) != generation:
        raise Failed(412, f"conditionNotMet: generation {generation}, not {wanted}")
    unwanted = conditions.get("ifGenerationNotMatch")
    if unwanted is not None and int(unwanted) == generation:
        raise Failed(304, "not modified")


def _conditions(request: Request, query: dict[str, str]) -> dict[str, str]:
    """Preconditions of the XML API under their names in the JSON API."""
    found = {key: query[key] for key in ("generation",) if key in query}
    for header, name in (("x-goog-if-generation-match", "ifGenerationMatch"),):
        if header in request.headers:
            found[name] = request.headers[header]
    return found


def _metadata(request: Request) -> dict[str, str]:
    return {
        key.lower().removeprefix("x-goog-meta-"): value
        for key, value in request.headers
        if key.lower().startswith("x-goog-meta-")
    }


def _related(request: Request) -> tuple[dict[str, Any], str, bytes]:
    """The two parts of a multipart/related upload: metadata and bytes, whichever way lines end (gcsfs: LF)."""
    boundary = request.mimetype_params["boundary"].strip("'\"").encode()
    _, described, media, _ = re.split(rb"(?:^|\r?\n)--" + re.escape(boundary), request.data)
    _, document = re.split(rb"\r?\n\r?\n", described, maxsplit=1)
    head, data = re.split(rb"\r?\n\r?\n", media, maxsplit=1)
    return json.loads(document), head.decode().rpartition("Content-Type:")[2].strip(), data


def _headers(stored: Stored) -> dict[str, str]:
    digest = base64.b64encode(bytes.fromhex(stored.etag)).decode()
    extra = {f"x-goog-meta-{key}": value for key, value in stored.metadata.items()}
    return extra | {
        "ETag": f'"{stored.etag}"',
        "x-goog-generation": str(stored.generation),
        "x-goog-metageneration": "1",
        "x-goog-hash": f"crc32c={crc32c(stored.data)},md5={digest}",
        "x-goog-stored-content-length": str(len(stored.data)),
        "Last-Modified": format_datetime(stored.created, usegmt=True),
        "Accept-Ranges": "bytes",
    }


def _media(request: Request, stored: Stored) -> Response:
    headers = _headers(stored) | {"Content-Type": stored.content_type or "application/octet-stream"}
    given = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
    data, size = stored.data, len(stored.data)
    if given is None or given[0] == "bytes=-":
        return Response(data, status=200, headers=headers)
    start = int(given[1]) if given[1] else max(0, size - int(given[2]))
    end = min(size, int(given[2]) + 1) if given[1] and given[2] else size
    if start >= size or end <= start:
        return Response(status=416, headers={"Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return Response(data[start:end], status=206, headers=headers)


def _resource(bucket: str, stored: Stored) -> dict[str, Any]:
    stamp = f"{stored.created:%Y-%m-%dT%H:%M:%S.%fZ}"
    return {
        "kind": "storage#object",
        "id": f"{bucket}/{stored.name}/{stored.generation}",
        "bucket": bucket,
        "name": stored.name,
        "size": str(len(stored.data)),
        "generation": str(stored.generation),
        "metageneration": "1",
        "contentType": stored.content_type,
        "etag": stored.etag,
        "crc32c": crc32c(stored.data),
        "timeCreated": stamp,
        "updated": stamp,
        "storageClass": "STANDARD",
        "metadata": stored.metadata,
        "md5Hash": base64.b64encode(bytes.fromhex(stored.etag)).decode(),
        "mediaLink": f"/download/storage/v1/b/{bucket}/o/{quote(stored.name, safe='')}?alt=media",
    }


def _bucket_resource(bucket: str) -> Response:
    return _json_answer(
        {
            "kind": "storage#bucket",
            "id": bucket,
            "name": bucket,
            "location": "US",
            "storageClass": "STANDARD",
            "metageneration": "1",
            "locationType": "multi-region",
        }
    )


def _json_answer(value: object) -> Response:
    return Response(json.dumps(value), status=200, content_type="application/json")


def _json_error(error: Failed) -> Response:
    if error.status == 304:
        return Response(status=304)
    detail = {
        "code": error.status,
        "message": error.reason,
        "errors": [{"reason": error.reason, "message": error.reason}],
    }
    return Response(json.dumps({"error": detail}), status=error.status, content_type="application/json")


def _xml_answer(body: str, headers: dict[str, str] | None = None) -> Response:
    return Response(
        f"<?xml version='1.0' encoding='UTF-8'?>{body}", status=200, content_type="application/xml", headers=headers
    )


def _xml_error(error: Failed) -> Response:
    code = {404: "NoSuchKey", 412: "PreconditionFailed"}.get(error.status, "Error")
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{escape(error.reason)}</Message></Error>"
    return Response(body if error.status != 304 else "", status=error.status, content_type="application/xml")
