"""Figure 1: pairs of inputs before and after one layer of 100 random filters."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from torch import Tensor

from initscope.bounds import relu_conv_similarity_bounds
from initscope.data import Pairs
from initscope.finite.estimate import student_quantile
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim, compare
from initscope.papers.nachum2022.drawing import Words, relu_curve, scatter
from initscope.papers.nachum2022.sampling import (
    Layered,
    mean_of,
    one_layer,
    plain,
    sampled_slope,
    slope,
    slope_error,
    title_of,
)

PAIRS, FILTERS = 200, 100  # caption of figure 1
_UNNAMED = (
    "the paper's text and slides give no filter size for this panel; 3x3 is taken, item slope has the other sizes"
)


@dataclass(frozen=True)
class Panel:
    """One panel: which images, at which size (None: their own), through which filters."""

    source: str
    title: str
    kernel: int
    channels: int | None = None
    size: int | None = None
    quick_size: int | None = None
    notes: tuple[str, ...] = ()


GAUSSIAN = Panel(
    "gaussian", "Gaussian images", 11, 1, 32, notes=("the size of the Gaussian images is not printed; 32x32 are taken",)
)
FASHION = Panel("fashion_mnist", "Fashion-MNIST", 3, notes=(_UNNAMED,))
CIFAR = Panel("cifar10", "CIFAR-10", 3, notes=(_UNNAMED,))
IMAGENET = Panel("imagenet224", "ImageNet", 11, quick_size=64)


def run_panel(desk: Desk, panel: Panel) -> tuple[Layered, Pairs]:
    """The pairs of one panel, and what one layer makes of them."""
    size = panel.quick_size if desk.quick and panel.quick_size else panel.size
    count = 40 if desk.quick and panel.quick_size else PAIRS
    pairs = desk.pairs(panel.source, pairs=count, size=size, channels=panel.channels)
    return one_layer(pairs.x, pairs.y, panel.kernel, FILTERS, desk.seed), pairs


def natural(panel: Panel, desk: Desk) -> Outcome:
    """Panels b, c and d: natural images, whose similarity a layer nearly keeps."""
    layer, pairs = run_panel(desk, panel)
    panel = replace(panel, title=title_of(panel.source, panel.title, pairs))
    found = sampled_slope(layer)
    exact = float(slope(layer.before, layer.exact))
    checks = (
        slope_check(desk.published["slope"], panel, exact, found),
        _nearer(layer, to_isometry=True),
        _inside(layer),
    )
    return _outcome(panel, layer, checks, found, exact)


def gaussian(desk: Desk) -> Outcome:
    """Panel a: correlated Gaussian images, which a layer contracts as a dense one does."""
    layer, pairs = run_panel(desk, GAUSSIAN)
    assert pairs.correlation is not None
    off = layer.exact - relu_curve(pairs.correlation)
    error = Sampled(float(off.mean()), float(off.std()) / len(off) ** 0.5, len(off))
    low, high = error.interval()
    around = claim(
        "exact means scatter around eq. 2 at the nominal correlation: mean difference 0",
        low <= 0 <= high,
        exact=0.0,
        sampled=error,
        why="" if low <= 0 <= high else "the interval of the mean difference leaves out 0",
    )
    checks = (around, _nearer(layer, to_isometry=False), _inside(layer))
    return _outcome(GAUSSIAN, layer, checks, None, None)


def slope_check(printed: str, panel: Panel, exact: float, found: Sampled) -> Check:
    """The printed slope against the slope of the exact means of these pairs, and of the sampled points."""
    made = compare(
        f"slope of the linear fit, {panel.title}, {panel.kernel}x{panel.kernel} filters",
        printed,
        exact=exact,
        sampled=found,
    )
    if made.agrees:
        return made
    side = "below" if exact < float(printed) else "above"
    why = (
        f"at this filter size the slope is {side} the printed one, whose figure is one number for three panels; "
        "it depends on the filter size and on the images (item slope)"
    )
    return replace(made, why=why)


def _nearer(layer: Layered, *, to_isometry: bool) -> Check:
    """Which curve the points follow: the mean over pairs of the difference of the two distances."""

    def lead(after: Tensor) -> Tensor:
        to_curve, to_line = (after - relu_curve(layer.before)).abs(), (after - layer.before).abs()
        return to_curve - to_line if to_isometry else to_line - to_curve

    found = mean_of(lead(layer.after), lead(layer.without))
    near, far = ("the isometry", "eq. 2") if to_isometry else ("eq. 2", "the isometry")
    low, high = found.interval()
    agrees = None if low <= 0 <= high else low > 0
    apart = float((relu_curve(layer.before) - layer.before).median())
    why = f"half of these pairs have a similarity at which the two curves are less than {apart:.2f} apart"
    return Check(
        f"the points lie nearer to {near} than to {far} (mean difference of the distances above 0)",
        agrees,
        exact=float(lead(layer.exact).mean()),
        sampled=found,
        why="" if agrees else why,
    )


def _inside(layer: Layered) -> Check:
    bounds = relu_conv_similarity_bounds(layer.before.clamp(-1, 1)).value
    margin = float((layer.exact - bounds.low).minimum(bounds.high - layer.exact).min())
    inside = margin >= -1e-12
    return claim(
        f"all {len(layer.exact)} exact means lie within Theorem 3's bounds (smallest margin)",
        inside,
        exact=margin,
        why="" if inside else "a mean lies outside",
    )


def _outcome(
    panel: Panel, layer: Layered, checks: tuple[Check, ...], found: Sampled | None, exact: float | None
) -> Outcome:
    reach = student_quantile(layer.without.shape[0], 0.95) * layer.stderr
    covered = float(((layer.after - layer.exact).abs() <= reach).double().mean())
    pairs, filters = len(layer.before), len(layer.without)
    fit = None
    if found is not None:
        fit = (found.value, float(layer.after.mean()) - found.value * float(layer.before.mean()))
    title = f"{panel.title} contract as in a dense layer"
    if found is not None:
        title = f"{panel.title}, {panel.kernel}x{panel.kernel} filters: slope {found.value:.2f} after one layer"
    words = Words(
        title,
        "cosine similarity of the inputs",
        "cosine similarity of the outputs",
        f"{pairs} pairs of {panel.title}, {filters} filters of {panel.kernel}x{panel.kernel}. Sampled points with "
        "intervals and exact "
        "means lie "
        + (
            "along eq. 2."
            if fit is None
            else f"just above the diagonal, below eq. 2; the linear fit has slope {fit[0]:.3f}."
        ),
    )
    data = {
        "kernel": panel.kernel,
        "filters": filters,
        "before": plain(layer.before),
        "exact": plain(layer.exact),
        "sampled": plain(layer.after),
        "reach": plain(reach),
        "intervals_that_hold_the_exact_mean": covered,
    }
    if found is not None and exact is not None:
        data |= {
            "slope_exact": exact,
            "slope_exact_error_over_pairs": slope_error(layer.before, layer.exact),
            "slope_sampled": found.value,
            "slope_sampled_error": found.stderr,
        }
    return Outcome(checks, data, scatter(layer, words, fit, reach=reach), panel.notes)


ITEMS = (
    Item(
        "nachum2022/fig1a",
        "Figure 1a: Gaussian images through one layer",
        "For correlated Gaussian images one convolution with ReLU contracts like a dense layer.",
        gaussian,
    ),
    *(
        Item(
            f"nachum2022/fig1{letter}",
            f"Figure 1{letter}: {panel.title} through one layer",
            f"One convolution with ReLU nearly keeps the similarity of {panel.title} images; the linear fit has "
            "slope 0.97.",
            functools.partial(natural, panel),
            sets=(panel.source,),
        )
        for letter, panel in (("b", FASHION), ("c", CIFAR), ("d", IMAGENET))
    ),
)
