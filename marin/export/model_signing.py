"""An OpenSSF model signature (model-signing 1.0): a Sigstore bundle over the files of the exported model.

    model_signing verify key MODEL --signature FILE --public_key PUBLIC.pem

The key is an elliptic curve's (P-256, P-384 or P-521) in PEM, the format that the tool verifies; the log's own key is
Ed25519 and stays with the log.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from ledger import Store
from marin.errors import MissingEvidence, UsageError
from marin.record import outputs
from marin.record.events import Output

MAKE_KEY = "openssl ecparam -name prime256v1 -genkey -noout -out KEY.pem"


def sign_model(store: Store, model: Output, key: Path, signature: Path) -> None:
    """Sign the files of an exported model, every byte hashed on its way out of the store, and write the bundle.

    Raises:
        MissingEvidence: model-signing is not installed, or there is no key file.
        UsageError: the key is none that the format knows.
    """
    try:
        from model_signing import signing  # brings sigstore with it: a second that nobody else should wait for
    except ImportError as error:
        raise MissingEvidence(
            "model signatures need model-signing", found=str(error), cure="install model-signing"
        ) from error
    if not key.is_file():
        raise MissingEvidence(
            "there is no signing key",
            where=str(key),
            expected="an elliptic curve's private key in PEM",
            found="no file",
            cure=f"make one: {MAKE_KEY}",
        )
    try:
        config = signing.Config().use_elliptic_key_signer(private_key=key)  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            "the key cannot sign models",
            where=str(key),
            expected="a P-256, P-384 or P-521 private key in PEM",
            found=" ".join(str(error).split())[:200],
            cure=f"make one: {MAKE_KEY}",
        ) from error
    signature.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=signature.parent, prefix=".tmp-") as private:
        folder, bundle = Path(private) / "model", Path(private) / "bundle"
        outputs.checkout(store, model, folder, kind="model")
        config.sign(folder, bundle)
        bundle.replace(signature)
