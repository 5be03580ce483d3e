"""Kernel matrices larger than one machine, and sweeps: tiles as Dask tasks, Zarr chunks, resume; classification by kernels."""

from initscope.scale.classifier import Jitter, KernelClassification, kernel_classifier
from initscope.scale.extras import Unfinished
from initscope.scale.job import Job
from initscope.scale.kernels import KernelRun, kernel_to
from initscope.scale.planning import Plan, plan
from initscope.scale.reading import StoredKernel, open_kernel
from initscope.scale.tasks import run_tasks

__all__ = [
    "Jitter",
    "Job",
    "KernelClassification",
    "KernelRun",
    "Plan",
    "StoredKernel",
    "Unfinished",
    "kernel_classifier",
    "kernel_to",
    "open_kernel",
    "plan",
    "run_tasks",
]
