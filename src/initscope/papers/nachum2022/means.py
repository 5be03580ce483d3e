"""What holds in expectation over the filters: equation 2, Theorem 1, Lemma 1, Lemma 3 and Theorem 4."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from initscope.activations import RELU, by_name
from initscope.finite import simulate
from initscope.geometry import generator
from initscope.layers import Activate, Conv, Dense
from initscope.networks import Sequential, predict
from initscope.papers.item import Desk, Item, Outcome, claim
from initscope.papers.nachum2022.drawing import Line, Points, Words, curves, relu_curve
from initscope.papers.nachum2022.sampling import all_agree, exact_sums, many_filter_sums, plain

ACTIVATIONS = ("relu", "abs", "leaky_relu", "identity", "tanh", "erf", "gelu", "sin", "softplus")
ROUNDING = 1e-12


def equation2(desk: Desk) -> Outcome:
    """A dense ReLU layer: eq. 2, that it contracts, and what many layers do."""
    rho = torch.linspace(-1, 1, 21, dtype=torch.float64)
    x, y = torch.zeros(2, len(rho), 2, dtype=torch.float64)
    x[:, 0], y[:, 0], y[:, 1] = 1.0, rho, (1 - rho.square()).sqrt()
    draws = desk.pick(200, 1000)
    found = simulate(Sequential(Dense(100), Activate(RELU)), x, y, draws=draws, seed=desk.seed).layers[-1].cosine
    inner = slice(1, -1)  # at ±1 nothing is random
    fine = torch.linspace(-1, 1, 2001, dtype=torch.float64)[:-1]
    gap = relu_curve(fine) - fine
    deep = predict(Sequential(*[layer for _ in range(50) for layer in (Dense(100), Activate(RELU))]), x, y)
    last = deep.layers[-1].angle.rad2deg()
    angles = torch.stack([layer.angle for layer in deep.layers[::2]])[:, :-1]  # the last pair is one point
    shrinks = bool((angles[1:] < angles[:-1]).all())
    checks = (
        all_agree(
            "eq. 2 is the mean similarity after a dense ReLU layer",
            found.value[inner],
            found.stderr[inner],
            relu_curve(rho)[inner],
            draws,
        ),
        claim(
            "eq. 2 is above the diagonal for every similarity below 1 (smallest gap)",
            bool((gap > 0).all()),
            exact=float(gap.min()),
        ),
        claim(
            "every one of 50 dense layers brings every pair nearer together: largest angle at the end, in degrees, "
            "from up to 180",
            shrinks,
            exact=float(last.max()),
        ),
    )
    lines = [
        Line(f"{depth} layer{'s' if depth > 1 else ''}", plain(rho), plain(deep.layers[2 * depth].cosine), points)
        for depth, points in (
            (1, Points(plain(rho), plain(found.value), plain(found.reach()))),
            (2, None),
            (5, None),
            (20, None),
            (50, None),
        )
    ]
    words = Words(
        "Dense ReLU layers contract, and many of them collapse everything",
        "cosine similarity of the inputs",
        "mean cosine similarity of the outputs",
        "Mean output similarity after 1, 2, 5, 20 and 50 dense ReLU layers: ever nearer to 1 for every pair.",
    )
    data = {"input": plain(rho), "sampled": plain(found.value), "stderr": plain(found.stderr)} | {
        f"after {line.label}": list(line.y) for line in lines
    }
    return Outcome(checks, data, curves(lines, words))


def theorem1(desk: Desk) -> Outcome:
    """The mean inner product is a sum over positions, for many activations, filter sizes, channels and kinds of input."""
    filters = desk.pick(2000, 20_000)
    count = desk.pick(2, 4)
    rows = []
    cases = [
        *itertools.product(
            ACTIVATIONS, desk.pick((3,), (1, 2, 3, 5)), desk.pick((3,), (1, 3)), ("photos", "gaussian:0.5")
        )
    ]
    for place, (name, kernel, channels, source) in enumerate(cases):
        desk.progress(place, len(cases))
        pairs = desk.pairs(source, pairs=count, size=8, channels=channels)
        activation = by_name(name)
        sums = many_filter_sums(pairs.x, pairs.y, kernel, filters, desk.seed + place, activation=activation)[0]
        rows.append(
            (sums.mean(0), sums.std(0) / math.sqrt(filters), exact_sums(pairs.x, pairs.y, kernel, activation)[0])
        )
    found, stderr, exact = (torch.stack(side) for side in zip(*rows, strict=True))
    off = _norm_formula(desk)
    checks = (
        all_agree(
            "eq. 7: E<σ(F*x), σ(F*y)> is the sum of dual activations over positions", found, stderr, exact, filters
        ),
        claim(
            "eq. 9: E|σ(F*x)|² = ν² ν_σ² r² |x|² for ReLU, abs, leaky ReLU and identity (largest relative error)",
            off < ROUNDING,
            exact=off,
        ),
    )
    table = [
        {
            "activation": name,
            "kernel": kernel,
            "channels": channels,
            "input": source,
            "exact": plain(e),
            "sampled": plain(f),
            "stderr": plain(s),
        }
        for (name, kernel, channels, source), (f, s, e) in zip(cases, rows, strict=True)
    ]
    score = ((found - exact) / stderr).flatten()
    order = score.sort().values
    quantiles = torch.erfinv(2 * (torch.arange(len(order), dtype=torch.float64) + 0.5) / len(order) - 1) * math.sqrt(2)
    ends = [float(quantiles[0]), float(quantiles[-1])]
    words = Words(
        "Theorem 1: sampled means deviate as chance does",
        "deviation expected of a normal law (standard errors)",
        "sampled minus exact mean (standard errors)",
        f"Quantiles of the deviations of {len(order)} sampled means from Theorem 1 against the normal law: they lie "
        "on the diagonal.",
    )
    lines = [
        Line("normal law", ends, ends),
        Line("sampled means of Theorem 1", points=Points(plain(quantiles), plain(order))),
    ]
    return Outcome(checks, {"cases": table, "filters": filters}, curves(lines, words, size=(6.0, 5.0)))


def _norm_formula(desk: Desk) -> float:
    """The largest relative error of eq. 9 over homogeneous activations; He's law has ν² = 2/(r²d)."""
    worst = 0.0
    moments = {"relu": 0.5, "abs": 1.0, "leaky_relu": 0.5 * (1 + 0.01**2), "identity": 1.0}  # ν_σ² = E σ(z)²
    for (name, moment), kernel, channels in itertools.product(moments.items(), (1, 2, 3, 5), (1, 3)):
        x = desk.pairs("photos", pairs=4, size=8, channels=channels).x
        last = predict(Sequential(Conv(1, kernel), Activate(by_name(name))), x, x.flip(0)).layers[-1]
        printed = 2 / (kernel**2 * channels) * moment * kernel**2 * x.double().square().sum((1, 2, 3))  # eq. 9
        worst = max(worst, float((last.norm_x.square() / printed - 1).abs().max()))
    return worst


def lemma1(desk: Desk) -> Outcome:
    """Linear layers keep inner products in expectation, exactly."""
    filters, identity = desk.pick(2000, 20_000), by_name("identity")
    off, rows = 0.0, []
    for place, (kernel, channels, source) in enumerate(
        itertools.product((1, 2, 3, 5), (1, 3), ("photos", "gaussian:-0.3", "shapes"))
    ):
        pairs = desk.pairs(source, pairs=4, size=8, channels=channels)
        x, y = pairs.x.double().flatten(1), pairs.y.double().flatten(1)
        scale = channels / 2  # ν = 1/r, where He's law has ν² = 2/(r²d)
        truth = torch.linalg.vecdot(x, y)
        off = max(
            off,
            float(
                ((scale * exact_sums(pairs.x, pairs.y, kernel, identity)[0] - truth) / (x.norm(dim=1) * y.norm(dim=1)))
                .abs()
                .max()
            ),
        )
        sums = scale * many_filter_sums(pairs.x, pairs.y, kernel, filters, desk.seed + place, activation=identity)[0]
        rows.append((sums.mean(0), sums.std(0) / math.sqrt(filters), truth))
    found, stderr, truth = (torch.cat(side) for side in zip(*rows, strict=True))
    checks = (
        claim("E<F*x, F*y> = <x, y>: largest error, in units of |x||y|", off < ROUNDING, exact=off),
        all_agree("sampled linear filters keep the inner product on average", found, stderr, truth, filters),
    )
    span = [float(truth.min()), float(truth.max())]
    words = Words(
        "A random linear convolution keeps inner products on average",
        "inner product of the inputs",
        "mean inner product of the outputs",
        "Sampled mean inner products after a linear filter lie on the diagonal.",
    )
    lines = [
        Line("Lemma 1", span, span),
        Line("sampled filters, 95 % interval", points=Points(plain(truth), plain(found), plain(1.96 * stderr))),
    ]
    return Outcome(
        checks,
        {"inputs": plain(truth), "sampled": plain(found), "stderr": plain(stderr)},
        curves(lines, words, size=(6.0, 5.0)),
    )


def lemma3(desk: Desk) -> Outcome:
    """The covariance of <u, G> and <v, H> for correlated Gaussian vectors."""
    draws, source = desk.pick(40_000, 400_000), generator(desk.seed)
    rows = []
    for rho, size in itertools.product((-1.0, -0.5, 0.0, 0.7, 1.0), (1, 4, 27)):
        u, v = torch.randn(2, size, generator=source, dtype=torch.float64)
        g, h = torch.randn(2, draws, size, generator=source, dtype=torch.float64)
        z, t = g @ u, (rho * g + math.sqrt(1 - rho**2) * h) @ v
        for product, truth in ((z * t, rho * u @ v), (z * z, u @ u), (t * t, v @ v)):
            rows.append((product.mean(), product.std() / math.sqrt(draws), truth))
    found, stderr, truth = (torch.stack(side) for side in zip(*rows, strict=True))
    check = all_agree(
        "covariance of (<u, G>, <v, H>) is ν² (|u|², ρ<u, v>; ρ<u, v>, |v|²)", found, stderr, truth, draws
    )
    return Outcome((check,), {"exact": plain(truth), "sampled": plain(found), "stderr": plain(stderr)})


def theorem4(desk: Desk) -> Outcome:
    """Gaussian images: the mean over filters and images is eq. 2, for every filter size and number of channels."""
    rhos = desk.pick((-0.8, 0.0, 0.6), (-1.0, -0.8, -0.5, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 0.95))
    count, size = desk.pick(200, 1000), 12
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    lines: list[Line] = []
    for kernel, channels in ((1, 1), (3, 1), (11, 1), (3, 3)):
        points: list[tuple[Tensor, Tensor, Tensor]] = []
        for rho in rhos:
            pairs = desk.pairs(
                f"gaussian:{rho:g}",
                pairs=count,
                size=size,
                channels=channels,
                seed=1000 * desk.seed + len(rows) + len(points),
            )
            # Pixels of variance 1/(n²d) make E|X|² = 1 (eq. 14); with ν² = 2/(r²d) the outputs are 1/d of the paper's.
            inner = exact_sums(pairs.x, pairs.y, kernel)[0] / size**2
            points.append(
                (inner.mean(), inner.std() / math.sqrt(count), relu_curve(torch.tensor(rho, dtype=torch.float64)))
            )
        rows += points
        shown = Points(
            [rho + 0.012 * (len(lines) - 1.5) for rho in rhos],
            [float(p[0]) for p in points],
            [1.96 * float(p[1]) for p in points],
        )
        lines.append(Line(f"{kernel}x{kernel} filters, {channels} channel{'s' if channels > 1 else ''}", points=shown))
    found, stderr, truth = (torch.stack(side) for side in zip(*rows, strict=True))
    still = stderr < 1e-12  # ρ = -1: every image gives exactly zero
    check = all_agree(
        "E<σ(F*X), σ(F*Y)> is eq. 2 at the correlation of X and Y", found[~still], stderr[~still], truth[~still], count
    )
    exact = claim(
        "at ρ = -1 the outputs are never positive at the same place: inner product 0",
        bool(found[still].abs().le(ROUNDING).all()),
        exact=float(found[still].abs().max()) if bool(still.any()) else 0.0,
    )
    grid = torch.linspace(-1, 1, 101, dtype=torch.float64)
    words = Words(
        "Theorem 4: Gaussian images follow eq. 2 for every filter size",
        "correlation ρ of the two images",
        "mean inner product of the outputs",
        "Means over pairs of Gaussian images, exact over filters, for several filter sizes: all on eq. 2.",
    )
    picture = curves([Line("eq. 2", plain(grid), plain(relu_curve(grid))), *lines], words)
    data = {
        "correlation": list(rhos),
        **{line.label: list(line.points.y) for line in lines if line.points},
        "stderr": plain(stderr),
    }
    return Outcome((check, exact) if bool(still.any()) else (check,), data, picture)


ITEMS = (
    Item(
        "nachum2022/eq2",
        "Equation 2: the dense ReLU layer",
        "A dense ReLU layer contracts by eq. 2, and many of them collapse all inputs.",
        equation2,
    ),
    Item(
        "nachum2022/thm1",
        "Theorem 1: the mean inner product after one layer",
        "The mean inner product after a random convolution is a sum of dual activations over positions.",
        theorem1,
    ),
    Item(
        "nachum2022/lemma1",
        "Lemma 1: linear filters",
        "A random linear convolution keeps inner products in expectation.",
        lemma1,
    ),
    Item(
        "nachum2022/lemma3",
        "Lemma 3: projections of correlated Gaussian vectors",
        "Projections of correlated Gaussian vectors have a covariance known in closed form.",
        lemma3,
    ),
    Item(
        "nachum2022/thm4",
        "Theorem 4: Gaussian images",
        "For Gaussian images with correlated pixels a ReLU convolution contracts as eq. 2 says.",
        theorem4,
    ),
)
