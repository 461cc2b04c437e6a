"""Fixtures for all tests: buckets and a published folder on the loopback interface (tests/services).

Signals have their usual meaning here, also where the suite was started in the background, by `nohup` or a service.
"""

import signal

from buckets import bucket, gcs, gcs_service, mirror, s3, s3_service

__all__ = ["bucket", "gcs", "gcs_service", "mirror", "s3", "s3_service"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
