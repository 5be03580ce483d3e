"""Every threshold of the diagnosis, in one place."""

from __future__ import annotations

from dataclasses import dataclass

Limits = tuple[float, float]  # beyond the first it is a warning, beyond the second a failure


@dataclass(frozen=True)
class Thresholds:
    """When something is worth a warning and when it fails; ratios count in both directions.

    angle: mean angle between samples, in degrees, from where it does not open again; for data that are less than 60 degrees
        apart, in proportion. A warning takes a score below 0.6 as well.
    norm: root mean square of the units, against that after the last normalization, or the data's.
    gradient: size of the gradient against the one at the output.
    exploding: the same where it grows in a network with normalizations, which takes more of it.
    dead: share of units that never fire.
    saturated: share of values at the ends of the activation's range.
    loss: initial loss over that of chance.
    output: root mean square of outputs without a known loss.
    input: root mean square of the data.
    recurrent: n Var(w) of recurrent weights; 1/3 by PyTorch's own law, 1 for orthogonal ones.
    duplicates: share of a layer's units that repeat another one.
    dropout: share of units that are dropped.
    statistics: root mean square of what batch norm gives with its running statistics, which is 1 where they fit.
    kept: share of the input's variance that is left after all normalized sums (post-norm).
    unreachable: share of the targets that lie outside of the range of the output's activation.
    target: root mean square of the targets of a squared error or the like.
    data_angle: mean angle between the samples of the batch, in degrees.

    `angle`, `norm` and `gradient` are set on the networks of benchmarks/trainability: beyond a warning at most one in
    eight trains, beyond a failure none (`python benchmarks/trainability/fit.py`). `kept` is set by
    `python benchmarks/post_norm.py`. The others are not calibrated.
    """

    angle: Limits = (10.0, 0.3)
    norm: Limits = (1000.0, 5000.0)
    gradient: Limits = (100.0, 1000.0)
    exploding: Limits = (100.0, 30000.0)
    dead: Limits = (0.75, 0.95)
    saturated: Limits = (0.5, 0.95)
    loss: Limits = (2.0, 1000.0)
    output: Limits = (30.0, float("inf"))
    input: Limits = (30.0, float("inf"))
    recurrent: Limits = (16.0, float("inf"))
    duplicates: Limits = (0.5, 0.5)
    dropout: Limits = (0.8, 0.95)
    statistics: Limits = (10.0, 1000.0)
    kept: Limits = (0.05, 0.005)
    unreachable: Limits = (0.02, 0.4)
    target: Limits = (30.0, 10000.0)
    data_angle: Limits = (1.0, 0.0)


DEFAULT = Thresholds()
