"""Kernels of any network in compiled loops: layers become steps, and tiles of pairs of inputs pass through them."""

from initscope.networks.machine.announcing import compiling_announced
from initscope.networks.machine.answering import Answer, answer, steps_bytes, unknown, without_series
from initscope.networks.machine.tape import Unknown

__all__ = ["Answer", "Unknown", "answer", "compiling_announced", "steps_bytes", "unknown", "without_series"]
