"""The settings all fuzz tests share: how many examples to try is one environment variable.

Must not know what is fuzzed.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

__all__ = ["fuzz_settings"]

fuzz_settings = settings(
    max_examples=int(os.environ.get("AIRLOCK_FUZZ_EXAMPLES", "500")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
