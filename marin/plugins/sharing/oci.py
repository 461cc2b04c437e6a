"""An OCI image layout with the files of one output as layers, as `oras` pushes and pulls them.

Image-spec 1.1: ``oci-layout``, ``index.json``, and blobs by their plain sha256, which is what the store names them by up to
8 MiB and what is computed here above. The artifact type and annotations say whose it is; titles are the paths.
"""

from __future__ import annotations

import json
from pathlib import Path

from ledger import Store, digest_bytes, open_storage
from marin.process.files import write_whole
from marin.record import outputs
from marin.record.events import Output

ARTIFACT_TYPE = "application/vnd.marin.artifact.v1"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_EMPTY = b"{}"


def write_oci(store: Store, output: Output, dest: Path, *, reference: str) -> str:
    """Fill ``dest`` and return the digest of the OCI manifest. The same artifact gives the same bytes."""
    layout = open_storage(dest)
    layers = []
    for entry in outputs.manifest(store, output):
        digest = store.blobs.plain_sha256(entry.digest)
        store.checkout(entry.digest, dest / "blobs" / "sha256" / digest.removeprefix("sha256:"), how="copy")
        layers.append(
            {
                "mediaType": "application/octet-stream",
                "digest": digest,
                "size": entry.size,
                "annotations": {"org.opencontainers.image.title": entry.path},
            }
        )
    config = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest_bytes(_EMPTY), "size": len(_EMPTY)}
    document = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "artifactType": ARTIFACT_TYPE,
        "config": config,
        "layers": layers,
        "annotations": {"marin.artifact": output.artifact, "marin.digest": output.digest, "marin.kind": output.kind},
    }
    manifest = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    for data in (_EMPTY, manifest):
        layout.ensure(f"blobs/sha256/{digest_bytes(data).removeprefix('sha256:')}", data)
    digest = digest_bytes(manifest)
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {
                "mediaType": _MANIFEST,
                "digest": digest,
                "size": len(manifest),
                "artifactType": ARTIFACT_TYPE,
                "annotations": {"org.opencontainers.image.ref.name": reference},
            }
        ],
    }
    write_whole(dest / "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    write_whole(dest / "index.json", json.dumps(index, sort_keys=True, separators=(",", ":")).encode())
    return digest
