"""An OpenSSF model signature (model-signing 1.0): a Sigstore bundle over the files of the exported model.

    model_signing verify key MODEL --signature FILE --public_key PUBLIC.pem

The key is an elliptic curve's (P-256, P-384 or P-521) in PEM, the format that the tool verifies; the log's own key is
Ed25519 and stays with the log.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from ledger import Store, Tampered
from marin.errors import MissingEvidence, UsageError
from marin.record import outputs
from marin.record.events import Output

MAKE_KEY = "openssl ecparam -name prime256v1 -genkey -noout -out KEY.pem"


def sign_model(store: Store, model: Output, key: Path, signature: Path) -> None:
    """Sign the files of an exported model, every byte hashed on its way out of the store, and write the bundle.

    Raises:
        MissingEvidence: model-signing is not installed, or there is no key file.
        UsageError: the format does not know a key of this kind.
    """
    config = _config(key)
    signature.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=signature.parent, prefix=".tmp-") as private:
        folder, bundle = Path(private) / "model", Path(private) / "bundle"
        outputs.checkout(store, model, folder, kind="model")
        config.sign(folder, bundle)
        bundle.replace(signature)


def sign_folder(folder: Path, key: Path, signature: Path, public: Path) -> None:
    """Sign every file that is in ``folder`` now, the ``public`` half of the key first among them. Raises as
    :func:`sign_model`."""
    config = _config(key)
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    public.write_bytes(private.public_key().public_bytes(*form))
    config.sign(folder, signature)


def check_folder(folder: Path, public: Path, signature: Path, without: Sequence[str]) -> None:
    """Raise :class:`Tampered` unless ``signature`` is one of every file of ``folder`` but those in ``without``.

    Raises:
        MissingEvidence: model-signing is not installed.
    """
    _library()
    from model_signing import hashing, verifying

    folder = folder.resolve()  # names that are left out are compared with whole ones
    hashed = hashing.Config().set_ignored_paths(paths=[folder / name for name in without])  # type: ignore[no-untyped-call]
    try:
        config: Any = verifying.Config().use_elliptic_key_verifier(public_key=public)  # type: ignore[no-untyped-call]
        config.set_hashing_config(hashed).verify(folder, signature)
    except Exception as error:  # whatever a library says of bytes that were brought
        raise Tampered(
            "the model's signature does not hold",
            where=signature.name,
            expected=f"one under {public.name}",
            found=" ".join(str(error).split())[:200],
        ) from None


def _library() -> Any:
    try:
        from model_signing import signing  # brings sigstore with it: a second that nobody else should wait for
    except ImportError as error:
        raise MissingEvidence(
            "model signatures need model-signing", found=str(error), cure="install model-signing"
        ) from error
    return signing


def _config(key: Path) -> Any:
    signing = _library()
    if not key.is_file():
        raise MissingEvidence(
            "there is no signing key",
            where=str(key),
            expected="an elliptic curve's private key in PEM",
            found="no file",
            cure=f"make one: {MAKE_KEY}",
        )
    try:
        return signing.Config().use_elliptic_key_signer(private_key=key)
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            "the key cannot sign models",
            where=str(key),
            expected="a P-256, P-384 or P-521 private key in PEM",
            found=" ".join(str(error).split())[:200],
            cure=f"make one: {MAKE_KEY}",
        ) from error
