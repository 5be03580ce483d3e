"""The exponential function of lanes: a power of two times a short Taylor series."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import overload

from initscope.networks.fused.lanes import is_single, nearest, power_of_two

DEGREE_32, DEGREE_64 = 7, 13  # on [-ln 2 / 2, ln 2 / 2], with errors of 5e-9 and 4e-18
LEAST_32, LEAST_64 = -87.0, -708.0  # below, the result is that of these: 1e-38 and 1e-308

_F0, _F1, _F2, _F3, _F4, _F5, _F6, _F7 = (np.float32(1 / math.factorial(n)) for n in range(DEGREE_32 + 1))
_D0, _D1, _D2, _D3, _D4, _D5, _D6, _D7, _D8, _D9, _D10, _D11, _D12, _D13 = (
    1 / math.factorial(n) for n in range(DEGREE_64 + 1)
)
_LOG2_E = 1 / math.log(2)
_LEAST, _PER, _HIGH, _LOW = (
    np.float32(c) for c in (LEAST_32, _LOG2_E, 0.693359375, -2.12194440e-4)
)  # ln 2 in two parts
_HIGH_64, _LOW_64 = 6.93145751953125e-1, 1.42860682030941723212e-6  # [cephes]


def exponential(x: Any) -> Any:
    """e^x of lanes, x <= 0 or at most a few, in compiled code."""
    raise NotImplementedError


@overload(exponential)
def _exponential_for(x: Any) -> Any:
    def single(x: Any) -> Any:
        x = max(x, _LEAST)
        n = nearest(x * _PER)
        f = x - n * _HIGH
        f = f - n * _LOW
        h = _F0 + f * (_F1 + f * (_F2 + f * (_F3 + f * (_F4 + f * (_F5 + f * (_F6 + f * _F7))))))
        return h * power_of_two(n)

    def double(x: Any) -> Any:
        x = max(x, LEAST_64)
        n = nearest(x * _LOG2_E)
        f = x - n * _HIGH_64
        f = f - n * _LOW_64
        h = _D7 + f * (_D8 + f * (_D9 + f * (_D10 + f * (_D11 + f * (_D12 + f * _D13)))))
        h = _D0 + f * (_D1 + f * (_D2 + f * (_D3 + f * (_D4 + f * (_D5 + f * (_D6 + f * h))))))
        return h * power_of_two(n)

    return single if is_single(x) else double
