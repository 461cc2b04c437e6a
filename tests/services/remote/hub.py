"""The Hugging Face Hub on the loopback interface, as far as models are pushed and pulled and data sets read: repositories with
commits, branches, regular and LFS files, by the paths and headers that huggingface_hub speaks.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = 4096


@dataclass
class Hub:
    """``refs``: commit of (repository, branch). ``commits``: files of (repository, commit). ``large``: by sha256."""

    address: str = ""
    refs: dict[tuple[str, str], str] = field(default_factory=dict)
    commits: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    token: str = "hf_test"
    asked: list[str] = field(default_factory=list)

    def files(self, repository: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commit = self.refs.get((repository, revision), revision)
        found = self.commits.get((repository, commit))
        return None if found is None else (commit, found)

    def commit(self, repository: str, branch: str, files: dict[str, bytes]) -> str:
        told = json.dumps([repository, len(self.commits), sorted(files)]).encode()
        commit = hashlib.sha1(told, usedforsecurity=False).hexdigest()
        self.commits[repository, commit], self.refs[repository, branch] = files, commit
        return commit


class Handler(BaseHTTPRequestHandler):
    """Routes of one hub."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _send(self, status: int, body: object, **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _missing(self, code: str) -> None:
        self._send(404, {"error": code}, X_Error_Code=code)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def _path(self) -> list[str]:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        return path.strip("/").split("/")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        match self._path():
            case ["api", "models" | "datasets", owner, name, *rest]:
                repository = f"{owner}/{name}"
                if rest == ["refs"]:
                    return self._send(200, {"branches": self._branches(repository), "converts": [], "tags": []})
                revision = rest[1] if len(rest) > 1 else "main"
                found = self.hub.files(repository, revision)
                if found is None:
                    return self._missing(
                        "RevisionNotFound" if (repository, "main") in self.hub.refs else "RepoNotFound"
                    )
                commit, files = found
                if rest[:1] == ["tree"]:
                    return self._send(200, [self._entry(path, content) for path, content in sorted(files.items())])
                siblings = [{"rfilename": path} for path in sorted(files)]
                return self._send(200, {"id": repository, "modelId": repository, "sha": commit, "siblings": siblings})
            case [owner, name, "resolve", revision, *path] | ["datasets", owner, name, "resolve", revision, *path]:
                found = self.hub.files(f"{owner}/{name}", revision)
                if found is None or "/".join(path) not in found[1]:
                    return self._missing("EntryNotFound" if found else "RevisionNotFound")
                content = found[1]["/".join(path)]
                etag = hashlib.sha256(content).hexdigest()
                return self._send(200, content, ETag=f'"{etag}"', X_Repo_Commit=found[0], Content_Type="text/plain")
        return self._missing("RepoNotFound")

    def _branches(self, repository: str) -> list[dict[str, str]]:
        return [
            {"name": branch, "ref": f"refs/heads/{branch}", "targetCommit": commit}
            for (of, branch), commit in self.hub.refs.items()
            if of == repository
        ]

    def _entry(self, path: str, content: bytes) -> dict[str, Any]:
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        entry = {"type": "file", "path": path, "size": len(content), "oid": blob}
        if len(content) > LARGE:
            large = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": large, "size": len(content), "pointerSize": 130}
        return entry

    def do_PUT(self) -> None:
        body = self._body()
        match self._path():
            case ["lfs", oid] if hashlib.sha256(body).hexdigest() == oid:
                self.hub.large[oid] = body
                return self._send(200, {})
        return self._send(400, {"error": "another content"})

    def do_POST(self) -> None:
        body = self._body()
        path = self._path()
        if path == ["api", "validate-yaml"]:
            text = json.loads(body)["content"]
            status = 200 if text.startswith("---\n") else 400
            return self._send(status, {"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self._send(401, {"error": "Invalid username or password."})
        match path:
            case ["api", "repos", "create"]:
                said = json.loads(body)
                repository = f"{said.get('organization') or 'owner'}/{said['name']}"
                told = {"url": f"{self.hub.address}/{repository}"}
                if (repository, "main") in self.hub.refs:
                    return self._send(409, told)
                self.hub.commit(repository, "main", {})
                return self._send(200, told)
            case ["api", "models", owner, name, "branch", branch]:
                if (f"{owner}/{name}", branch) in self.hub.refs:
                    return self._send(409, {"error": "exists"})
                self.hub.refs[f"{owner}/{name}", branch] = self.hub.refs[f"{owner}/{name}", "main"]
                return self._send(200, {})
            case ["api", "models", _, _, "preupload", _]:
                files = [
                    {
                        "path": one["path"],
                        "uploadMode": "lfs" if one["size"] > LARGE else "regular",
                        "shouldIgnore": False,
                    }
                    for one in json.loads(body)["files"]
                ]
                return self._send(200, {"files": files})
            case [_, _, "info", "lfs", "objects", "batch"]:
                objects = [
                    {**one, "actions": {"upload": {"href": f"{self.hub.address}/lfs/{one['oid']}"}}}
                    for one in json.loads(body)["objects"]
                ]
                return self._send(200, {"transfer": "basic", "objects": objects})
            case ["api", "models", owner, name, "commit", branch]:
                repository = f"{owner}/{name}"
                _, before = self.hub.files(repository, branch) or ("", {})
                files = dict(before)
                for line in body.splitlines():
                    said = json.loads(line)
                    value = said["value"]
                    if said["key"] == "file":
                        files[value["path"]] = base64.b64decode(value["content"])
                    elif said["key"] == "lfsFile":
                        files[value["path"]] = self.hub.large[value["oid"]]
                commit = self.hub.commit(repository, branch, files)
                address = f"{self.hub.address}/{repository}/commit/{commit}"
                return self._send(200, {"success": True, "commitUrl": address, "commitOid": commit, "hookOutput": ""})
        return self._missing("RepoNotFound")


@contextmanager
def hub_on_loopback() -> Iterator[Hub]:
    """A hub that is empty."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OfOne", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
