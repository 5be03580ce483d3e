"""Text into networks: recursive descent over the grammar that `language.py` shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from initscope.errors import BadInput
from initscope.layers import Layer
from initscope.networks.branches import Concat, Product, Residual, Sum
from initscope.networks.composition import Sequential
from initscope.networks.language.grammar import Arguments, Source, Token, Value, nearest, tokenise, whole
from initscope.networks.language.words import ACTIVATIONS, FIXED, SIZED, build, default_words
from initscope.networks.masks import Masked

MOST_LAYERS = 10_000
DEEPEST_NESTING = 50
DEFAULT_WIDTH = 64
_BLOCKS = ("res", "cat", "sum", "prod", "masked")


def parse(text: str, *, width: int = DEFAULT_WIDTH) -> Sequential:
    """The network that the text describes; `width` is the number of channels or units where the text gives none.

    A text that cannot be read raises BadInput with the line, a caret under the character, and the nearest words.

    >>> len(parse("2x(conv3 relu) gap").layers)
    5
    """
    if not isinstance(text, str):
        raise BadInput(
            "architecture", f"got {type(text).__name__}, expected text", 'write for example "conv3 relu gap"'
        )
    source, tokens = tokenise(text)
    reader = _Reader(source, tokens, width)
    body = reader.network(depth=0)
    end = reader.look()
    if end.kind != "end":
        source.refuse(end, f"found {end}, expected a layer or the end", "remove it, or open a parenthesis before it")
    return Sequential(*body.layers)


@dataclass(frozen=True)
class _Body:
    """Layers in order, and how many they are when those inside residuals and branches are counted too."""

    layers: tuple[Layer, ...]
    leaves: int


class _Reader:
    """Recursive descent over the tokens; each method reads one line of the grammar and returns its layers."""

    def __init__(self, source: Source, tokens: list[Token], width: int) -> None:
        self.source, self.tokens, self.width = source, tokens, width
        self.place = 0

    def look(self) -> Token:
        return self.tokens[self.place]

    def next(self) -> Token:
        token = self.tokens[self.place]
        self.place += token.kind != "end"
        return token

    def follows(self, symbol: str) -> bool:
        """Step over the symbol if it comes next."""
        if self.look().kind != "symbol" or self.look().text != symbol:
            return False
        self.place += 1
        return True

    def expect(self, symbol: str, why: str, opened: Token | None = None) -> None:
        token = self.look()
        if not self.follows(symbol):
            remedy = f"close the parenthesis of '{opened.text}'" if opened else f"put {symbol} here"
            self.source.refuse(token, f"found {token}, expected {symbol} {why}", remedy)

    def network(self, depth: int) -> _Body:
        """item item ..., at least one."""
        first = self.look()
        if depth > DEEPEST_NESTING:
            self.source.refuse(first, f"more than {DEEPEST_NESTING} parentheses inside each other", "nest less")
        layers: list[Layer] = []
        leaves = 0
        while self.look().kind in ("word", "number") or self.look().text == "(":
            at = self.look()
            item = self.item(depth)
            layers += item.layers
            leaves += item.leaves
            self.limit(at, leaves)
        if not layers:
            self.source.refuse(first, f"found {first}, expected a layer", "write for example: conv3 relu gap")
        return _Body(tuple(layers), leaves)

    def limit(self, at: Token, leaves: int) -> None:
        if leaves > MOST_LAYERS:
            self.source.refuse(at, f"{leaves} layers up to here, at most {MOST_LAYERS} are built", "repeat less often")

    def item(self, depth: int) -> _Body:
        token = self.next()
        if token.kind == "number":
            times = self.count(token)
            sign = self.next()
            if sign.text.lower() != "x":
                self.source.refuse(sign, f"found {sign}, expected x( after the count", "write 10x(conv3 relu)")
            self.expect("(", "after the count, as in 10x(conv3 relu)")
            body = self.network(depth + 1)
            self.expect(")", "or another layer", token)
            return self.repeated(token, body, times)
        if token.text == "(":
            body = self.network(depth + 1)
            self.expect(")", "or another layer", token)
            return self.repeated(token, body, self.count(self.next()) if self.follows("*") else 1)
        if token.text.lower() in _BLOCKS:
            return self.block(token, depth)
        return _Body((self.layer(token),), 1)

    def count(self, token: Token) -> int:
        return whole(self.source, token, "the count", high=MOST_LAYERS)

    def repeated(self, at: Token, body: _Body, times: int) -> _Body:
        # Checked by number before the layers are laid out: nested repeats multiply.
        self.limit(at, body.leaves * times)
        return _Body(body.layers * times, body.leaves * times)

    def block(self, word: Token, depth: int) -> _Body:
        """res(network, scale=0.1), cat(network | network, axis=1), sum(network | network), prod(...), masked(network)."""
        kind = word.text.lower()
        self.expect("(", f"after '{kind}'")
        bodies = [self.network(depth + 1)]
        while self.follows("|"):
            bodies.append(self.network(depth + 1))
        arguments = Arguments(self.source, word)
        while self.follows(","):
            arguments.add(self.argument())
        self.expect(")", "or another layer", word)
        if kind in ("res", "masked") and len(bodies) > 1:
            problem = f"'{kind}' has {len(bodies)} branches, expected one"
            self.source.refuse(word, problem, f"write {kind}(sum(... | ...))")
        scale = arguments.number("scale", 1.0) if kind == "res" else 1.0
        axis = arguments.integer("axis", 0, low=0) if kind == "cat" else 0
        value = arguments.number("value", 0.0) if kind == "masked" else 0.0
        arguments.done()
        branches = [Sequential(*body.layers) for body in bodies]
        makers: dict[str, Callable[[], Layer]] = {
            "res": lambda: Residual(*bodies[0].layers, scale=scale),
            "cat": lambda: Concat(*branches, axis=axis),
            "sum": lambda: Sum(*branches),
            "prod": lambda: Product(*branches),
            "masked": lambda: Masked(*bodies[0].layers, value=value),
        }
        return _Body((self.made(word, makers[kind]),), sum(body.leaves for body in bodies))

    def layer(self, word: Token) -> Layer:
        """word, word/2, word(options)."""
        if not known(word.text):
            remedy = nearest(word.text.lower(), default_words()) or f"the words are {' '.join(default_words())}"
            self.source.refuse(word, f"unknown layer word {word}, expected a layer such as conv3, relu or gap", remedy)
        arguments = Arguments(self.source, word)
        stride = self.next() if self.follows("/") else None
        if self.follows("("):
            self.arguments_into(arguments)
            self.expect(")", "or a comma", word)
        if stride is not None:
            if "stride" in arguments.named:
                self.source.refuse(stride, "'stride' is given twice", "give it once")
            arguments.named["stride"] = Value(stride)
        return self.made(word, lambda: build(arguments, self.width))

    def arguments_into(self, arguments: Arguments) -> None:
        if self.look().text == ")":
            return
        arguments.add(self.argument())
        while self.follows(","):
            arguments.add(self.argument())

    def argument(self) -> Value:
        """value, name=value."""
        value = self.value()
        if value.token.kind == "word" and not value.arguments and self.follows("="):
            given = self.value()
            return Value(given.token, given.arguments, label=value.token)
        return value

    def value(self) -> Value:
        """number, word, word(number, ...)."""
        token = self.next()
        if token.kind not in ("word", "number"):
            self.source.refuse(token, f"found {token}, expected a number or a word", "write for example 3 or stride=2")
        inner: list[Value] = []
        if token.kind == "word" and self.follows("("):
            inner.append(self.number())
            while self.follows(","):
                inner.append(self.number())
            self.expect(")", "or a comma", token)
        return Value(token, tuple(inner))

    def number(self) -> Value:
        token = self.next()
        if token.kind != "number":
            self.source.refuse(token, f"found {token}, expected a number", "write for example 0.5")
        return Value(token)

    def made(self, word: Token, make: Callable[[], Layer]) -> Layer:
        """Build the layer; what its constructor refuses is said with the caret under its word."""
        try:
            return make()
        except BadInput as error:
            if error.place.startswith("architecture"):
                raise
            raise self.source.complaint(word, f"{error.place}: {error.problem}", error.remedy) from None


def known(word: str) -> bool:
    """Whether the language has this layer word."""
    lower = word.lower()
    return lower in FIXED or SIZED.fullmatch(lower) is not None or lower in ACTIVATIONS
