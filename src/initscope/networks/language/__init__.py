"""A small language for architectures: `parse("10x(conv3 relu) gap")` is a network, `unparse` writes it back.

    network  = item item ...                        one after the other
    item     = word | word/2 | word(options)        a layer; /2 is short for stride=2
             | 10x(network) | (network)*10          the layers ten times
             | res(network, scale=0.1)              residual: input + scale * branch
             | cat(network | network)               channels side by side; positions with axis=1, 2, ...
             | sum(network | network)               added up
             | prod(network | network)              multiplied
             | masked(network, value=0)             positions at which all channels are 0 do not count

Words, options and limits are listed in docs/language.md.
"""

from initscope.networks.language.reader import DEFAULT_WIDTH, MOST_LAYERS, parse
from initscope.networks.language.writer import text_of, unparse

__all__ = ["DEFAULT_WIDTH", "MOST_LAYERS", "parse", "text_of", "unparse"]
