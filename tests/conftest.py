"""Fixtures that several kinds of tests share."""

from __future__ import annotations

from tests.fakes.postgres import pgbouncer, postgres_server

__all__ = ["pgbouncer", "postgres_server"]
