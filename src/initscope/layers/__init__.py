"""Layers, each with two faces: `propagate` (exact, infinitely wide) and `sample` (a finite random module)."""

from initscope.layers.activate import Activate, ReLU
from initscope.layers.average_pool import AveragePool, GlobalAveragePool
from initscope.layers.batch_norm import BatchNorm
from initscope.layers.conv import Conv
from initscope.layers.dense import Dense
from initscope.layers.dropout import Dropout
from initscope.layers.flatten import Flatten
from initscope.layers.l2_pool import L2Pool
from initscope.layers.layer import RUNGS, Layer, Rung, Shape, Trace
from initscope.layers.layer_norm import GroupNorm, LayerNorm
from initscope.layers.max_pool import GlobalMaxPool, MaxPool
from initscope.layers.scale import Scale
from initscope.layers.upsample import Upsample

__all__ = [
    "RUNGS",
    "Activate",
    "AveragePool",
    "BatchNorm",
    "Conv",
    "Dense",
    "Dropout",
    "Flatten",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "GroupNorm",
    "L2Pool",
    "Layer",
    "LayerNorm",
    "MaxPool",
    "ReLU",
    "Rung",
    "Scale",
    "Shape",
    "Trace",
    "Upsample",
]
