"""VGG16 and AlexNet as data: the filters of Conv1 to Conv5, and the layers of Conv[k]-DeConv[k] that follow from them.

DC 3.1 and A.1.1: the feature is taken after convolution and activation and before pooling; the decoder has the same
convolutions in the opposite order, and an upsampling for each pooling.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from initscope.errors import BadInput

Depth = int | str  # 3: all of Conv1 to Conv3; "3_1": up to the first convolution of Conv3
Widths = int | Sequence[int]
Size = tuple[int, int]


@dataclass(frozen=True)
class Filter:
    """A layer of filters: how many, how large, and how far apart they are applied.

    `margin` is the padding on each side; None keeps the size, with the odd zero of an even kernel at the end.
    """

    channels: int
    kernel: int = 3
    stride: int = 1
    margin: int | None = None


@dataclass(frozen=True)
class Block:
    """The convolutions between two poolings, and the pooling that comes after them: (window, stride)."""

    filters: tuple[Filter, ...]
    pool: tuple[int, int] | None = None


@dataclass(frozen=True)
class Architecture:
    """Conv1 to Conv5 of a network."""

    name: str
    blocks: tuple[Block, ...]


def _vgg(*blocks: tuple[int, int]) -> tuple[Block, ...]:
    return tuple(Block((Filter(width),) * count, (2, 2)) for count, width in blocks)


def _alex(*widths: int) -> tuple[Block, ...]:
    one, two, three, four, five = widths
    return (
        Block((Filter(one, 11, 4, 2),), (3, 2)),
        Block((Filter(two, 5),), (3, 2)),
        Block((Filter(three),)),
        Block((Filter(four),)),
        Block((Filter(five),)),
    )


ARCHITECTURES = {
    "vgg16": Architecture("vgg16", _vgg((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))),
    # Krizhevsky et al. 2012 on one device: its groups and its response normalisation are left out.
    "alexnet": Architecture("alexnet", _alex(96, 256, 384, 384, 256)),
    # The widths of the network that most libraries call AlexNet, with published weights (Krizhevsky 2014).
    "alexnet2014": Architecture("alexnet2014", _alex(64, 192, 384, 256, 256)),
}


@dataclass(frozen=True)
class ConvPlan:
    """One convolution: (inputs, h, w) -> (outputs, h', w'), with zeros `before` and `after` along both axes."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    before: int
    after: int

    def output_size(self, size: int) -> int:
        """Windows along one axis; at least one, however small the image."""
        return max(1, (size + self.before + self.after - self.kernel) // self.stride + 1)

    def mirrored(self, outputs: int) -> ConvPlan:
        """The convolution of the decoder: back to the channels that came in; upsampling undoes the stride."""
        before = (self.kernel - 1) // 2
        return ConvPlan(self.outputs, outputs, self.kernel, 1, before, self.kernel - 1 - before)

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs * self.kernel**2

    @property
    def offset(self) -> int:
        """The pixel in the middle of the first window."""
        return (self.kernel - 1) // 2 - self.before


@dataclass(frozen=True)
class PoolPlan:
    """Pooling over windows; a window that reaches over the edge counts what is inside, so nothing is lost."""

    window: int
    stride: int

    def output_size(self, size: int) -> int:
        return max(1, -((self.window - size) // self.stride) + 1)

    @property
    def offset(self) -> int:
        return (self.window - 1) // 2


@dataclass(frozen=True)
class StagePlan:
    """Conv[k] by itself: the pooling before it, if any, and its convolutions."""

    pool: PoolPlan | None
    convs: tuple[ConvPlan, ...]


@dataclass(frozen=True)
class Layout:
    """The encoder of a Conv[k]-DeConv[k]; the decoder follows from it."""

    arch: str
    depth: Depth
    stages: tuple[StagePlan, ...]

    @property
    def inputs(self) -> int:
        return self.stages[0].convs[0].inputs

    @property
    def outputs(self) -> int:
        """Channels of the feature."""
        return self.stages[-1].convs[-1].outputs

    @property
    def steps(self) -> tuple[ConvPlan | PoolPlan, ...]:
        """Convolutions and poolings of the encoder, in order."""
        found: list[ConvPlan | PoolPlan] = []
        for stage in self.stages:
            found += [] if stage.pool is None else [stage.pool]
            found += stage.convs
        return tuple(found)

    @property
    def convs(self) -> tuple[ConvPlan, ...]:
        return tuple(conv for stage in self.stages for conv in stage.convs)

    @property
    def stride(self) -> int:
        """Pixels of the image for one position of the feature."""
        total = 1
        for step in self.steps:
            total *= step.stride
        return total

    def sizes(self, size: Size) -> tuple[Size, ...]:
        """Height and width before the first step of the encoder and after every one.

        >>> layout("vgg16", 3).sizes((9, 12))[-1]
        (3, 3)
        """
        found = [size]
        for step in self.steps:
            found.append((step.output_size(found[-1][0]), step.output_size(found[-1][1])))
        return tuple(found)


def layout(
    arch: str = "vgg16",
    depth: Depth = 1,
    *,
    inputs: int = 3,
    channels: Widths | None = None,
    kernel: int | None = None,
) -> Layout:
    """The layers of Conv[depth]: `channels` gives all layers one width, or each stage its own; `kernel` all one size.

    >>> [conv.outputs for conv in layout("vgg16", 2).convs]
    [64, 64, 128, 128]
    >>> [conv.outputs for conv in layout("vgg16", "2_1", channels=8).convs]
    [8, 8, 8]
    """
    blocks = _cut(find(arch), depth)
    widths = _widths(channels, len(blocks))
    if kernel is not None:
        _whole("kernel", kernel)
    stages, pool, coming = [], None, _whole("inputs", inputs)
    for block, width in zip(blocks, widths, strict=True):
        convs = []
        for row in block.filters:
            size = kernel or row.kernel
            before = (size - 1) // 2 if row.margin is None or kernel is not None else row.margin
            after = size - 1 - before if row.margin is None or kernel is not None else row.margin
            convs.append(ConvPlan(coming, width or row.channels, size, row.stride, before, after))
            coming = convs[-1].outputs
        stages.append(StagePlan(pool, tuple(convs)))
        pool = None if block.pool is None else PoolPlan(*block.pool)
    return Layout(arch, depth, tuple(stages))


def find(arch: str) -> Architecture:
    """The architecture of that name."""
    if arch not in ARCHITECTURES:
        near = get_close_matches(str(arch).lower(), ARCHITECTURES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(ARCHITECTURES)}"
        raise BadInput("arch", f"unknown architecture {arch!r}", hint)
    return ARCHITECTURES[arch]


def _cut(architecture: Architecture, depth: Depth) -> tuple[Block, ...]:
    """The blocks up to `depth`."""
    blocks = architecture.blocks
    match = re.fullmatch(r"([0-9]{1,3})(?:_([0-9]{1,3}))?", str(depth)) if not isinstance(depth, bool) else None
    stage, number = (int(match[1]), match[2]) if match else (0, None)
    if not 1 <= stage <= len(blocks):
        remedy = f"pass a stage from 1 to {len(blocks)}, or one convolution of it such as '1_1'"
        raise BadInput("depth", f"got {depth!r}, which {architecture.name} does not have", remedy)
    last = blocks[stage - 1]
    if number is None:
        return blocks[:stage]
    if not 1 <= int(number) <= len(last.filters):
        problem = f"got {depth!r}, but Conv{stage} of {architecture.name} has {len(last.filters)} convolutions"
        raise BadInput("depth", problem, f"pass {stage}_1 to {stage}_{len(last.filters)}")
    return (*blocks[: stage - 1], Block(last.filters[: int(number)], last.pool))


def _widths(channels: Widths | None, stages: int) -> Sequence[int | None]:
    if channels is None:
        return [None] * stages
    if isinstance(channels, int):
        return [_whole("channels", channels)] * stages
    if len(channels) != stages:
        problem = f"{len(channels)} widths for {stages} stages"
        raise BadInput("channels", problem, "give one width for all, or one for each stage")
    return [_whole("channels", width) for width in channels]


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(name, f"got {value!r}, expected a whole number from 1 on", f"pass {name} >= 1")
    return value
