"""Settings for all tests."""

from __future__ import annotations

import os

# Threads that wait by sleeping: on a machine with other work, spinning ones slow every small tensor operation down.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
