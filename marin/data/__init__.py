"""From raw bytes to documents: reading text, naming documents by their content, dividing them into splits.

    text      bytes of a text file -> lines -> documents, with the place of every fault
    local     the user's own files, by glob: .txt, .jsonl, .jsonl.gz
    remote    one public file, pinned by sha256: mirror folder, store, network
    documents the Dolma shape on disk, ids, the division into train and validation

Needs the standard library and, for the network only, httpx.
"""
