"""Each kind of finding in words: what was found, and one sentence on what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from initscope.probe.findings import Finding

SHORT = {
    "stopped": "stopped",
    "non-finite": "NaN",
    "frozen": "frozen",
    "unregistered": "unregistered",
    "samples-mixed": "mixed",
    "zero-weights": "zero",
    "dead-units": "dead",
    "symmetric-units": "symmetric",
    "norm-statistics": "statistics",
    "dropout-rate": "dropout",
    "collapse": "angle",
    "activation-scale": "norm",
    "gradient-scale": "gradient",
    "saturated": "saturated",
    "deep-post-norm": "post-norm",
    "no-gradient": "no gradient",
    "zero-gradient": "zero gradient",
    "unused": "unused",
    "batch-degenerate": "batch",
    "not-followed": "not followed",
    "input-scale": "input",
    "initial-loss": "loss",
    "output-scale": "output",
    "output-activation": "softmax",
    "target-shape": "targets",
    "target-scale": "targets",
    "no-nonlinearity": "linear",
    "output-range": "range",
    "low-score": "score",
}


def finding_text(finding: Finding) -> str:
    """One sentence without a period at its end; it starts with the step, unless the whole network is meant."""
    text = _TEXTS[finding.kind](finding)
    whole = finding.step is None or finding.evidence.get("shape") == "drift"
    return text[:1].upper() + text[1:] if whole else f"{finding.step}: {text}"


def advice_text(finding: Finding) -> str:
    """One sentence on what to change."""
    return _ADVICE[finding.kind](finding)


def times(ratio: float) -> str:
    """How many times larger or smaller.

    >>> times(0.001), times(2500.0), times(0.0)
    ('1,000 times smaller', '2,500 times larger', 'zero')
    """
    if ratio == 0:
        return "zero"
    if not math.isfinite(ratio):
        return "infinite"
    size, word = (ratio, "larger") if ratio > 1 else (1 / ratio, "smaller")
    return f"{size:,.0f} times {word}" if 10 <= size < 1e6 else f"{size:.2g} times {word}"


def _share(value: float | None) -> str:
    if value is None:
        return "some"
    return "all" if value == 1 else f"{value:.0%}"


def _listed(names: Sequence[str], count: int) -> str:
    more = count - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _non_finite(f: Finding) -> str:
    place = f.evidence.get("pass")
    if place == "loss":
        return "the loss is NaN or infinite although the output is finite"
    if place == "backward":
        return f"the gradient of {f.evidence.get('op')} is NaN or infinite, while the forward pass is finite"
    with_dropout = " with dropout on" if f.evidence.get("dropout") else ""
    return f"{f.evidence.get('op', 'this step')} makes values {f.evidence.get('what')}{with_dropout}"


def _collapse(f: Finding) -> str:
    data, out = f.evidence.get("data_angle_deg"), f.value
    angle = "cannot be told apart" if out is None or not out > 0 else f"end up {out:.2g}° apart"
    start = "" if data is None or not math.isfinite(data) else f" ({data:.2g}° in the batch)"
    if f.evidence.get("shape") == "jump":
        return f"samples merge here: they {angle}{start}"
    rate, layers = f.evidence.get("rate_per_layer", 1.0), f.evidence.get("layers", 1)
    drift = f"angles shrink across the whole network, x{rate:.2g} per layer over {layers} layers"
    return f"samples {angle}{start}: {drift}, and are below the limit from {f.step} on"


def _activations(f: Finding) -> str:
    value = f.value or 0.0
    since = f"the output of {f.evidence['since']}" if f.evidence.get("since") else "the data"
    dropout = " with dropout on" if f.evidence.get("dropout") else ""
    if f.evidence.get("shape") == "jump":
        factor = f.evidence.get("factor", value)
        return f"activations become {times(factor)} here{dropout}"
    rate, layers = f.evidence.get("rate_per_layer", 1.0), f.evidence.get("layers", 1)
    return (
        f"activations become {times(value)} than {since}{dropout}: they drift across the whole network, "
        f"x{rate:.2g} per layer over {layers} layers, and are beyond the limit from {f.step} on"
    )


def _gradients(f: Finding) -> str:
    value = f.value or 0.0
    word = "explodes" if value > 1 else "vanishes"
    dropout = " with dropout on" if f.evidence.get("dropout") else ""
    at = f.evidence.get("worst_step")
    if f.evidence.get("shape") == "recurrent":
        return f"the recurrent weights have n Var(w) = {value:.3g}: gradients explode or die over the time steps"
    if f.evidence.get("shape") == "jump":
        factor = f.evidence.get("factor", value)
        return f"the gradient {word} here{dropout}: it becomes {times(factor)} on its way back through this step"
    rate, layers = f.evidence.get("rate_per_layer", 1.0), f.evidence.get("layers", 1)
    size = f"{times(value)} than the output's at {at}" if value > 1 else f"{value:.2g} of the output's is left at {at}"
    return f"the gradient {word} across the whole network{dropout}, x{rate:.2g} per layer over {layers} layers: {size}"


def _zero(f: Finding) -> str:
    if f.evidence.get("last"):
        return "all weights of the last layer are zero, a common choice: nothing passes until they have learned"
    return "all weights are zero: nothing of the data reaches the layers behind it"


def _dead(f: Finding) -> str:
    share = "all" if f.value == 1 else f"{f.value or 0:.0%} of the"
    return f"{share} units are dead: {f.evidence.get('op')} gives zero for every sample of the batch"


def _symmetric(f: Finding) -> str:
    share = f"{f.value or 0:.0%} of the units duplicate another unit"
    if f.evidence.get("stuck"):
        return f"{share}, with identical incoming and outgoing weights, so training can never separate them"
    return f"{share}: they act as one unit until the first update"


def _initial(f: Finding) -> str:
    chance = f.evidence.get("chance", 0.0)
    classes = f.evidence.get("classes")
    what = f"chance (ln {classes})" if classes else "the best constant"
    return f"the initial loss is {f.value:.3g}; {what} has {chance:.3g}"


def _batch(f: Finding) -> str:
    if f.evidence.get("zero"):
        return "the batch holds only zeros, so the model cannot be judged on it"
    alike = "identical" if not f.value else "nearly identical"
    return f"the samples of the batch itself are {alike} ({f.value:.2g}° apart), so the model cannot be judged on it"


def _not_followed(f: Finding) -> str:
    if f.step is None:
        return "the output cannot be traced back to the batch: it was not judged"
    tail = "what follows is judged by its own rows" if f.evidence.get("measured") else "what follows was not judged"
    return f"samples cannot be followed through {f.evidence.get('op')}: {tail}"


def _target_shape(f: Finding) -> str:
    output, target = (tuple(f.evidence.get(key, ())) for key in ("output", "target"))
    if f.status == "note":
        return f"targets have shape {target}, outputs {output}; they are compared entry by entry here"
    return f"the loss compares every output with every target: outputs have shape {output}, targets {target}"


def _range(f: Finding) -> str:
    low, high = f.evidence.get("low", -math.inf), f.evidence.get("high", math.inf)
    sides = [f"below {low:g}"] * math.isfinite(low) + [f"above {high:g}"] * math.isfinite(high)
    return (
        f"the output is never {' or '.join(sides)} behind {f.evidence.get('op')}, but {f.value:.0%} of the targets are"
    )


def _unregistered(f: Finding) -> str:
    shapes = [str(tuple(shape)) for shape in f.evidence.get("shapes", [])]
    what = f"weights of shape {_listed(shapes, f.evidence.get('count', 0))}"
    return f"{what} are used here but not in model.parameters(), so no optimizer trains them ({f.value:.0%} of the weights)"


def _mixed(f: Finding) -> str:
    op, cause, share = f.evidence.get("op") or "the model", f.evidence.get("cause"), f"{f.value or 0:.0%}"
    if cause == "order":
        return f"{op} puts the samples into another order: outputs do not belong to their own inputs"
    if cause == "view":
        return f"{op} lays samples across each other: replacing one sample changes the outputs of {share} of the others"
    if cause == "sequence":
        return f"{op} takes the samples for time steps: replacing one changes the outputs of {share} of the others"
    own = "" if f.evidence.get("own", True) else ", but not its own"
    return f"outputs depend on other samples through {op}: replacing one changes {share} of the others{own}"


def _mixed_advice(f: Finding) -> str:
    cause = f.evidence.get("cause")
    if cause == "sequence" and f.status == "note":
        return "No action needed if the first axis of the batch is time; otherwise pass batch_first=True."
    if cause == "sequence":
        return f"Match batch_first of {f.step} to its input: True for (samples, time, ...), False for (time, samples, ...)."
    if cause == "view":
        return "Keep the samples on the first axis: use flatten(1), or permute the axes back before the reshape."
    if cause == "order":
        return "Return the rows in the order in which they came in."
    return (
        "No action needed if samples are meant to see each other."
        if f.status == "note"
        else ("Let each output be computed from its own sample.")
    )


def _names(f: Finding) -> str:
    return _listed(f.evidence.get("parameters", []), f.evidence.get("count", 0))


_TEXTS: dict[str, Callable[[Finding], str]] = {
    "stopped": lambda f: f"the model stopped: {f.evidence.get('error')}",
    "non-finite": _non_finite,
    "frozen": lambda f: (
        "no weight is trainable: all parameters are frozen"
        if f.status == "fail"
        else f"{_share(f.value)} of the parameters are frozen"
    ),
    "unregistered": _unregistered,
    "samples-mixed": _mixed,
    "zero-weights": _zero,
    "dead-units": _dead,
    "symmetric-units": _symmetric,
    "norm-statistics": lambda f: (
        f"the running statistics do not fit the batch: what they normalize has size {f.value:.2g} instead of 1"
    ),
    "dropout-rate": lambda f: f"dropout removes {f.value:.0%} of the units in every training step",
    "collapse": _collapse,
    "activation-scale": _activations,
    "gradient-scale": _gradients,
    "saturated": lambda f: (
        f"{f.value:.0%} of the queries look at one key only: the softmax saturates"
        if f.evidence.get("attention")
        else f"{f.value:.0%} of the values saturate in {f.evidence.get('op')}"
    ),
    "deep-post-norm": lambda f: (
        f"{f.evidence.get('sums')} sums are normalized one after the other (post-norm): {f.value:.1g} of the input's "
        "variance is left at the end"
    ),
    "no-gradient": lambda f: f"no gradient reaches {_names(f)}: the graph is cut here",
    "zero-gradient": lambda f: (
        f"the gradient becomes exactly zero on its way back through {f.evidence['op']}: nothing before it learns"
        if "op" in f.evidence
        else f"the gradient of {_names(f)} is exactly zero"
        + (", and so are they: they are stuck" * bool(f.evidence.get("stuck")))
    ),
    "unused": lambda f: (
        f"{_names(f)} took no part in this forward pass"
        + (": layers that are skipped at random" if f.evidence.get("skipped") else "")
        + (": no sample of this batch was routed to it" if f.evidence.get("routed") else "")
    ),
    "batch-degenerate": _batch,
    "not-followed": _not_followed,
    "input-scale": lambda f: f"the inputs have an RMS of {f.value:.3g} (mean {f.evidence.get('mean', 0):.3g})",
    "initial-loss": _initial,
    "output-activation": lambda f: (
        "nll_loss takes logarithms of probabilities, and the output is none"
        if f.evidence.get("loss") == "nll_loss"
        else f"{f.evidence.get('op')} runs over the samples of the batch, not over classes or keys"
        if f.evidence.get("over_samples")
        else f"the model ends in {f.evidence.get('op')}, but {f.evidence.get('loss', 'cross-entropy')} takes raw scores"
    ),
    "target-shape": _target_shape,
    "target-scale": lambda f: f"the targets have an RMS of {f.value:.3g} (mean {f.evidence.get('mean', 0):.3g})",
    "no-nonlinearity": lambda f: (
        f"there is no nonlinearity between the {f.value:.0f} weight layers: together they are one linear map"
    ),
    "output-range": _range,
    "output-scale": lambda f: f"outputs have a root mean square of {f.value:.3g}; as logits they would be far too sure",
    "low-score": lambda f: (
        f"no single number is beyond its limit, but angle and gradient together leave a chance of {f.value:.2f}"
    ),
}


_WITHOUT_WEIGHTS = ("shift", "residual", "scale", "gate", "select", "concat", "other")


def _scale_advice(f: Finding) -> str:
    if f.evidence.get("shape") == "recurrent":
        return f"Draw the recurrent weights of {f.step} anew, orthogonal or with a variance of 1/n."
    if f.evidence.get("kind") == "norm" and f.evidence.get("shape") == "jump":
        if f.evidence.get("empty"):
            return f"{f.step} normalizes over a single value or a constant: give it more units to normalize over."
        if f.kind == "activation-scale":
            return f"Set the scale of {f.step} back to 1 and its shift to 0."
        return f"What {f.step} normalizes is small: draw the weights in front of it from a law that keeps the size."
    if f.evidence.get("kind") in _WITHOUT_WEIGHTS and f.evidence.get("shape") == "jump":
        return f"Look at the size of what {f.step} takes: a factor or a summand is out of scale."
    if f.evidence.get("shape") == "jump":
        return f"Initialize {f.step} with a standard law (He or Glorot), or take out the factor in front of it."
    return "Initialize all layers with a law that keeps the size (He for ReLU, Glorot for tanh), or normalize."


def _collapse_advice(f: Finding) -> str:
    if f.evidence.get("kind") in _WITHOUT_WEIGHTS and f.evidence.get("shape") == "jump":
        return f"Look at what {f.step} adds or selects: what all samples have in common outweighs what differs."
    if f.evidence.get("shape") == "jump":
        return f"Look at the weights and biases of {f.step}: what all samples have in common outweighs what differs."
    return "Use fewer layers, residual connections or normalization, or let fix choose weights that keep samples apart."


def _loss_advice(f: Finding) -> str:
    if f.evidence.get("loss") == "squared error":
        return "Standardize the targets, or make the last layer's weights smaller."
    return "Make the last layer's weights smaller, or standardize the inputs."


def _finite_advice(f: Finding) -> str:
    if f.evidence.get("pass") == "backward":
        return "Keep the argument away from the pole, for example with a small epsilon inside the root or the norm."
    if f.evidence.get("pass") == "loss":
        return "Check the targets, and use a loss that takes logits."
    return "Clamp or rescale what goes in, or add a small epsilon."


def _zero_advice(f: Finding) -> str:
    if f.status == "note":
        return "No action needed if this is intended."
    if f.evidence.get("kind") == "norm":
        return f"Set the scale of {f.step} back to 1."
    return f"Initialize {f.step} with random weights."


_ADVICE: dict[str, Callable[[Finding], str]] = {
    "stopped": lambda f: "Run the model on the batch by itself.",
    "non-finite": _finite_advice,
    "frozen": lambda f: (
        "Set requires_grad on what is to be trained." if f.status == "fail" else "No action needed if this is intended."
    ),
    "unregistered": lambda f: (
        "Build layers in __init__ and keep them as attributes, in nn.ModuleList or as nn.Parameter, so that "
        "model.parameters() has them."
    ),
    "samples-mixed": _mixed_advice,
    "zero-weights": _zero_advice,
    "dead-units": lambda f: (
        f"Set the shift of {f.step} back to 0 and its scale to 1, or use a leaky activation."
        if f.evidence.get("kind") == "norm"
        else f"Set the bias of {f.step} to zero and its weights to He's law, or use a leaky activation."
    ),
    "symmetric-units": lambda f: "Draw the weights at random instead of setting them to a constant.",
    "norm-statistics": lambda f: "Reset the running statistics (reset_running_stats) and let them adapt to your data.",
    "dropout-rate": lambda f: "Lower the dropout rate; 0.1 to 0.5 is common.",
    "collapse": _collapse_advice,
    "activation-scale": _scale_advice,
    "gradient-scale": _scale_advice,
    "saturated": lambda f: f"Use smaller weights in {f.step}, or normalize in front of the activation.",
    "deep-post-norm": lambda f: (
        "Normalize inside the branches instead (pre-norm), or scale the branches down (fix: residual-scaling)."
    ),
    "no-gradient": lambda f: "Take out the detach or no_grad, or freeze these weights if that is what you want.",
    "zero-gradient": lambda f: "Check what lies between these weights and the loss.",
    "unused": lambda f: (
        "No action needed if this is intended." if f.status == "note" else "Call the layer in forward, or remove it."
    ),
    "batch-degenerate": lambda f: "Check the data loading, and pass samples that differ.",
    "not-followed": lambda f: "Check the part before it by itself, with its own output.",
    "input-scale": lambda f: "Standardize the data: subtract the mean, divide by the standard deviation.",
    "initial-loss": _loss_advice,
    "output-activation": lambda f: (
        "Give softmax the axis of the classes, usually dim=-1."
        if f.evidence.get("over_samples")
        else "End the model in log_softmax, or use cross_entropy."
        if f.evidence.get("loss") == "nll_loss"
        else "Return the raw scores: the loss does the rest."
    ),
    "target-shape": lambda f: "Give targets and outputs the same shape, for example with output.squeeze(-1).",
    "target-scale": lambda f: "Standardize the targets: subtract the mean, divide by the standard deviation.",
    "no-nonlinearity": lambda f: "Put an activation between the layers.",
    "output-range": lambda f: f"Leave out {f.evidence.get('op')} at the end, or scale the targets into its range.",
    "output-scale": lambda f: "Make the last layer's weights smaller, or standardize the inputs.",
    "low-score": lambda f: "Let fix try other weights, or add normalization or residual connections.",
}
