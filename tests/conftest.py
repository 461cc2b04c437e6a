"""Fixtures for all tests: buckets and a published folder on the loopback interface, and the tenth of large tables that
a change is tested with (tests/services).

Signals have their usual meaning here, also where the suite was started in the background, by `nohup` or a service.
"""

import signal

from buckets import bucket, gcs, gcs_service, mirror, s3, s3_service
from tables import pytest_addoption, pytest_collection_modifyitems, pytest_configure, pytest_report_header, tenth

__all__ = [
    "bucket",
    "gcs",
    "gcs_service",
    "mirror",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_report_header",
    "s3",
    "s3_service",
    "tenth",
]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
