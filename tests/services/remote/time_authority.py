"""A time stamp authority for tests: openssl's `ts` with certificates of its own, behind HTTP on the loopback interface."""

import http.server
import subprocess
import threading
from contextlib import contextmanager

from ledger import load_authorities

CONFIGURATION = """
[req]
distinguished_name = name
prompt = no
x509_extensions = root
[name]
CN = Test Authority Root
[root]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[stamps]
extendedKeyUsage = critical, timeStamping
keyUsage = critical, digitalSignature
basicConstraints = CA:FALSE
[answer]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
ess_cert_id_alg = sha256
"""
PRECISE = """
[precise]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
ess_cert_id_alg = sha256
clock_precision_digits = {digits}
{accuracy}
"""


def openssl(folder, *arguments: str):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


class Authority:
    """Certificates in a folder, and an HTTP server that answers with what `openssl ts` makes, or with `answers`."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.answers = []
        (folder / "conf").write_text(CONFIGURATION.format(folder=folder))
        (folder / "serial").write_text("01")
        openssl(
            folder,
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-days",
            "30",
            "-config",
            "conf",
        )
        openssl(
            folder,
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            "tsa.key",
            "-out",
            "tsa.csr",
            "-subj",
            "/CN=Test Authority",
        )
        openssl(
            folder,
            "x509",
            "-req",
            "-in",
            "tsa.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-out",
            "tsa.pem",
            "-days",
            "30",
            "-extfile",
            "conf",
            "-extensions",
            "stamps",
        )
        self.certificates = load_authorities(folder / "ca.pem")

    def precise(self, query, *, digits, accuracy=""):
        """An answer with up to so many digits of a second, and an accuracy as openssl has it."""
        made = PRECISE.format(folder=self.folder, digits=digits, accuracy=f"accuracy = {accuracy}" if accuracy else "")
        (self.folder / "precise").write_text(made)
        (self.folder / "query").write_bytes(query)
        openssl(
            self.folder,
            "ts",
            "-reply",
            "-config",
            "precise",
            "-section",
            "precise",
            "-queryfile",
            "query",
            "-out",
            "reply",
        )
        return (self.folder / "reply").read_bytes()

    def answer(self, query):
        if self.answers:
            return self.answers.pop()
        (self.folder / "query").write_bytes(query)
        openssl(
            self.folder, "ts", "-reply", "-config", "conf", "-section", "answer", "-queryfile", "query", "-out", "reply"
        )
        return (self.folder / "reply").read_bytes()


@contextmanager
def serving_authority(folder):
    """An authority that answers at its `url`; it ends with the block."""
    made = Authority(folder)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            data = made.answer(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}/"
    yield made
    server.shutdown()
    server.server_close()
