"""Fixtures for all tests: buckets and a published folder on the loopback interface (tests/services)."""

from buckets import bucket, gcs, gcs_service, mirror, s3, s3_service

__all__ = ["bucket", "gcs", "gcs_service", "mirror", "s3", "s3_service"]
