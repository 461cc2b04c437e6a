"""A key of another kind that speaks for a log, where others do not take the log's own kind: for attestations elsewhere.

Sigstore's public log (Rekor v2) takes a signature over a hash, and so neither pure Ed25519, which needs the whole text, nor an
envelope. An ECDSA key on the curve P-256 signs there, and this event says that it is the log's:

    log.key-vouched/v1   {"algorithm": "ecdsa-p256-sha256", "by": […], "possession": …, "public": …, "use": "attestations"}

``public`` is the base64 of the key's SubjectPublicKeyInfo, ``by`` the keys that signed the log then, ``possession`` the base64 of
the key's own signature over ``possession_text``: nobody vouches for a key of someone else. Such a key signs no checkpoint and no
event, and no reader of the log believes more for it. Its event is a statement of the log's holder, as good as the signature under
the log; a proof of it (C2SP tlog-proof) stands alone. Only the writer makes it: a client of the append service cannot.

    log.key-revoked/v1   {"algorithm": "ecdsa-p256-sha256", "by": […], "public": …, "use": "attestations"}

From then on nothing under that key counts, whenever it was signed: nobody can see when an attestation was made. It is not
vouched for again. No proof shows that a log did not say this later: who has the log, or a later state of it, looks there
(``check_not_revoked``).
"""
