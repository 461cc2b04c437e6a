"""W&B's HTTP interface as far as its own client asks for it: a server in memory, with what it was told.

The client is the real one (``wandb`` and its ``wandb-core``), online and by ``wandb sync``. Kept to: a run is made or found by
its name; lines of a stream have an offset, and what was sent before replaces nothing behind it; an artifact is pending until its
manifest is there and it is committed, and one with the digest of a committed version is that version; who logs one makes it,
who uses one depends on it. Requests without the key are refused (401).
"""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

KEY = "0123456789abcdef0123456789abcdef01234567"
ENTITY = "lab"


@dataclass
class RemoteRun:
    """A run as the server has it. ``history``: its lines; ``used``: ids of artifacts."""

    project: str
    name: str
    group: str | None = None
    tags: list[str] = field(default_factory=list)
    display: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    history: dict[int, dict[str, Any]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    finished: bool = False

    @property
    def points(self) -> list[dict[str, Any]]:
        """The lines of its history, in order."""
        return [self.history[number] for number in sorted(self.history)]


@dataclass
class RemoteArtifact:
    """A version of an artifact. ``manifest``: as it was uploaded."""

    id: str
    name: str
    kind: str
    digest: str
    logged_by: str
    metadata: dict[str, Any]
    aliases: list[str]
    state: str = "PENDING"
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def references(self) -> list[str]:
        """Where its contents are."""
        return [entry["ref"] for entry in self.manifest.get("contents", {}).values() if "ref" in entry]


@dataclass
class Told:
    """All that the server was told; ``refused``: requests without the key."""

    runs: dict[str, RemoteRun] = field(default_factory=dict)
    artifacts: dict[str, RemoteArtifact] = field(default_factory=dict)
    refused: int = 0

    def committed(self) -> list[RemoteArtifact]:
        """The versions that there are."""
        return [one for one in self.artifacts.values() if one.state == "COMMITTED"]


class _Quiet(ThreadingHTTPServer):
    """Says nothing of connections that a client drops when it ends."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def wandb_server() -> Iterator[tuple[str, Told]]:
    """A server on the loopback interface: its address, and what it is told."""
    told, lock = Told(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            path = urlsplit(self.path).path
            if not path.startswith("/upload/") and self.headers.get("authorization") != _basic():
                told.refused += 1
                self._send(401, {"errors": [{"message": "user is not logged in"}]})
                return
            with lock:
                if path == "/graphql":
                    asked = json.loads(body)
                    self._send(200, {"data": _Api(told, self._address()).answer(asked)})
                elif found := re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", path):
                    _stream(told.runs[found[1]], json.loads(body))
                    self._send(200, {"exitcode": None, "limits": {}})
                elif found := re.fullmatch(r"/upload/manifest/([^/]+)", path):
                    told.artifacts[found[1]].manifest = json.loads(body)
                    self._send(200, {})
                else:
                    self._send(200, {})

        def _address(self) -> str:
            return f"http://{self.headers['host']}"

        def _send(self, status: int, value: Mapping[str, Any]) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _answer

    server = _Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _basic() -> str:
    return "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()


def _stream(run: RemoteRun, sent: Mapping[str, Any]) -> None:
    for name, part in (sent.get("files") or {}).items():
        lines = [json.loads(line) for line in part["content"]] if name.endswith((".jsonl", ".json")) else []
        if name == "wandb-history.jsonl":
            run.history |= dict(enumerate(lines, start=part["offset"]))
        elif name == "wandb-summary.json" and lines:
            run.summary = lines[-1]
    run.finished |= bool(sent.get("complete"))


class _Api:
    """The answers to GraphQL, by the field that a query or mutation names first."""

    def __init__(self, told: Told, address: str) -> None:
        self.told, self.address = told, address

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        query, values = asked.get("query", ""), asked.get("variables") or {}
        values = values.get("input", values)
        named = re.search(r"\{\s*([A-Za-z_]+)", query)
        method = getattr(self, f"_{named[1]}", None) if named else None
        return method(values) if method is not None else {}

    def _viewer(self, values: Mapping[str, Any]) -> dict[str, Any]:
        viewer = {"id": "1", "entity": ENTITY, "username": ENTITY, "email": "", "flags": "{}", "teams": {"edges": []}}
        return {"viewer": viewer}

    def _serverInfo(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"features": [], "cliVersionInfo": {"max_cli_version": "99.0.0"}}}

    def _upsertBucket(self, values: Mapping[str, Any]) -> dict[str, Any]:
        name, project = values["name"], values.get("project") or "uncategorized"
        new = name not in self.told.runs
        run = self.told.runs.setdefault(name, RemoteRun(project, name))
        run.group = values.get("groupName") or run.group
        run.tags = values.get("tags") or run.tags
        run.display = values.get("displayName") or run.display
        run.config |= {
            key: item.get("value") if isinstance(item, dict) else item
            for key, item in json.loads(values.get("config") or "{}").items()
        }
        owner = {"id": "E", "name": ENTITY}
        bucket = {
            "id": f"run:{name}",
            "name": name,
            "displayName": run.display,
            "description": None,
            "config": None,
            "sweepName": None,
            "historyLineCount": len(run.history),
            "project": {"id": f"project:{project}", "name": project, "entity": owner},
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": new}}

    def _model(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What a run that goes on was told before."""
        run = self.told.runs.get(values.get("name", ""))
        if run is None:
            return {"model": {"bucket": None}}
        last = json.dumps([json.dumps(run.points[-1])] if run.history else [])
        bucket = {
            "id": f"run:{run.name}",
            "name": run.name,
            "summaryMetrics": json.dumps(run.summary),
            "displayName": run.display,
            "logLineCount": 0,
            "historyLineCount": len(run.history),
            "eventsLineCount": 0,
            "historyTail": last,
            "eventsTail": "[]",
            "config": json.dumps({key: {"value": value} for key, value in run.config.items()}),
            "tags": run.tags,
            "wandbConfig": "{}",
        }
        return {"model": {"bucket": bucket}}

    def _project(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Of an artifact by its name and alias: of what type it is."""
        name = str(values.get("name", "")).partition(":")[0]
        kinds = [one.kind for one in self.told.committed() if one.name == name]
        return {"project": {"artifact": {"artifactType": {"name": kinds[0]}} if kinds else None}}

    def _artifact(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A version by its id."""
        one = self.told.artifacts[values["id"]]
        owner = {"__typename": "Project", "id": "P", "internalId": "P", "name": "project", "entity": {"name": ENTITY}}
        collection = {"__typename": "ArtifactSequence", "name": one.name, "project": owner}
        found = {
            "__typename": "Artifact",
            "id": one.id,
            "artifactSequence": collection,
            "versionIndex": 0,
            "artifactType": {"name": one.kind},
            "description": None,
            "metadata": json.dumps(one.metadata),
            "ttlDurationSeconds": -2,
            "ttlIsInherited": True,
            "tags": [],
            "historyStep": None,
            "state": one.state,
            "size": 0,
            "digest": one.digest,
            "commitHash": "",
            "fileCount": 0,
            "createdAt": "2026-01-01T00:00:00Z",
            "updatedAt": None,
            "aliases": [],
        }
        return {"artifact": found}

    def _createArtifact(self, values: Mapping[str, Any]) -> dict[str, Any]:
        name = values["artifactCollectionName"]
        same = next((one for one in self.told.committed() if (one.name, one.digest) == (name, values["digest"])), None)
        if same is None:
            same = RemoteArtifact(
                id=f"A{len(self.told.artifacts)}",
                name=name,
                kind=values["artifactTypeName"],
                digest=values["digest"],
                logged_by=values["runName"] or "",
                metadata=json.loads(values["metadata"] or "{}"),
                aliases=[one["alias"] for one in values["aliases"] or []],
            )
            self.told.artifacts[same.id] = same
        latest = [one for one in self.told.committed() if one.name == name]
        newest = {"id": latest[-1].id, "versionIndex": len(latest) - 1} if latest else None
        found = {"id": same.id, "state": same.state, "artifactSequence": {"latestArtifact": newest}}
        return {"createArtifact": {"artifact": found}}

    def _createArtifactManifest(self, values: Mapping[str, Any]) -> dict[str, Any]:
        of = values["artifactID"]
        file = {
            "id": f"F{of}",
            "name": values["name"],
            "displayName": values["name"],
            "uploadHeaders": [],
            "uploadUrl": f"{self.address}/upload/manifest/{of}",
        }
        return {"createArtifactManifest": {"artifactManifest": {"id": f"M{of}", "file": file}}}

    def _updateArtifactManifest(self, values: Mapping[str, Any]) -> dict[str, Any]:
        of = values["artifactManifestID"].removeprefix("M")
        file = {
            "id": f"F{of}",
            "name": "manifest",
            "displayName": "manifest",
            "uploadHeaders": [],
            "uploadUrl": f"{self.address}/upload/manifest/{of}",
        }
        return {"updateArtifactManifest": {"artifactManifest": {"id": f"M{of}", "file": file}}}

    def _commitArtifact(self, values: Mapping[str, Any]) -> dict[str, Any]:
        one = self.told.artifacts[values["artifactID"]]
        assert one.manifest, "committed before its manifest was there"
        one.state = "COMMITTED"
        return {"commitArtifact": {"artifact": {"id": one.id, "digest": one.digest}}}

    def _useArtifact(self, values: Mapping[str, Any]) -> dict[str, Any]:
        run = self.told.runs[values["runName"]]
        run.used.append(values["artifactID"])
        return {
            "useArtifact": {
                "artifact": {
                    "id": values["artifactID"],
                    "digest": "",
                    "description": "",
                    "state": "COMMITTED",
                    "createdAt": "2026-01-01T00:00:00",
                    "metadata": "{}",
                }
            }
        }

    def _createRunFiles(self, values: Mapping[str, Any]) -> dict[str, Any]:
        files = [{"name": name, "uploadUrl": f"{self.address}/upload/file"} for name in values["files"]]
        return {"createRunFiles": {"runID": values["run"], "uploadHeaders": [], "files": files}}
