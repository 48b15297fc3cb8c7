"""Parser of the ISA pseudo-code: text to nested tuples.

Statements: ("if", [(condition, block)...], else_block), ("for", name, first, last, block),
("declare", name, kind, width, count), ("assign", target, operator, expression), ("both", target, target, expression),
("lambda", name, parameters, block), ("return", expression), ("break",), ("expr", expression).
Expressions: ("number", kind, width, value), ("name", name), ("type", base, kind, width), ("index", base, expression),
("slice", base, high, low), ("part", base, low, count), ("member", base, name), ("cast", kind, width, expression),
("call", name, arguments), ("unary", operator, expression), ("binary", operator, left, right),
("choose", condition, yes, no), ("concat", parts).
"""

from __future__ import annotations

import re
from typing import Any

Node = tuple[Any, ...]

TOKEN = re.compile(
    r"""\s*(?:
      (?P<typed>\d+'(?:0x[0-9a-fA-F]+|\d+)(?:\.\d+)?(?:ULL|LL|U|L|F)?)
    | (?P<cast>\d+'[A-Z]+)
    | (?P<number>0x[0-9a-fA-F]+(?:ULL|LL|U|L)?|\d+\.\d+(?:[eE][-+]?\d+)?F?|\d+(?:ULL|LL|U|L|F)?)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+:|\+=|-=|\|=|&=|\^=|[-+*/%<>=!~&|^?:;.,()\[\]{}])
    )""",
    re.VERBOSE,
)
TYPE_NAME = re.compile(r"(bf|fp|[uifb])(\d+)$")
KEYWORDS = {"if", "then", "elsif", "else", "endif", "for", "in", "do", "endfor", "declare", "lambda", "return", "break"}
LEVELS = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!=", "<>"], ["<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"]]
LEVELS += [["*", "/", "%"]]
ASSIGNMENTS = {"=", "+=", "-=", "|=", "&=", "^="}
SUFFIX = re.compile(r"(ULL|LL|U|L|F)?$")


class PcodeError(Exception):
    """Pseudo-code that the interpreter does not know."""


def tokenize(text: str) -> list[tuple[str, str]]:
    text = re.sub(r"//[^\n]*", "", text)
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        found = TOKEN.match(text, position)
        if found is None:
            raise PcodeError(f"cannot read {text[position : position + 20]!r}")
        kind = found.lastgroup or ""
        tokens.append((kind, found.group(kind)))
        position = found.end()
    return [*tokens, ("end", "")]


def split_type(name: str) -> tuple[str, int]:
    found = TYPE_NAME.match(name)
    if found is None:
        raise PcodeError(f"{name!r} is not a type")
    return found.group(1), int(found.group(2))


def parse_number(text: str, width: int | None = None) -> Node:
    suffix = "" if text.startswith("0x") and text[-1] == "F" else SUFFIX.search(text).group(1) or ""  # type: ignore[union-attr]
    body = text.removesuffix(suffix) if suffix else text
    if "." in body or suffix == "F":
        return ("number", "f", width or (32 if suffix == "F" else 64), float(body))
    value = int(body, 0)
    natural = 64 if "LL" in suffix or value >= 1 << 32 else 32
    unsigned = "U" in suffix or width is not None or value >= 1 << (natural - 1)
    return ("number", "u" if unsigned else "i", width or natural, value)


class Parser:
    """Recursive descent over the tokens of one entry."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.position = 0

    def peek(self, offset: int = 0) -> str:
        return self.tokens[min(self.position + offset, len(self.tokens) - 1)][1]

    def take(self, expected: str | None = None) -> str:
        kind, text = self.tokens[min(self.position, len(self.tokens) - 1)]
        if kind == "end" and expected != "":
            raise PcodeError(f"the text ends where {expected or 'more'!r} is due")
        if expected is not None and text != expected:
            near = " ".join(token for _, token in self.tokens[max(0, self.position - 4) : self.position + 4])
            raise PcodeError(f"expected {expected!r}, got {text!r} in {near!r}")
        self.position += 1
        return text

    def accept(self, text: str) -> bool:
        if self.peek() == text and self.tokens[self.position][0] != "end":
            self.position += 1
            return True
        return False

    def program(self) -> list[Node]:
        block = self.block()
        if self.tokens[self.position][0] != "end":
            raise PcodeError(f"left over: {self.peek()!r}")
        return block

    def block(self) -> list[Node]:
        statements: list[Node] = []
        while True:
            while self.accept(";"):
                pass
            if self.peek() in ("elsif", "else", "endif", "endfor", ")", ""):
                return statements
            statements.append(self.statement())

    def statement(self) -> Node:
        word = self.peek()
        if word == "if":
            return self.if_statement()
        if word == "for":
            return self.for_statement()
        if word == "declare":
            return self.declaration()
        if self.accept("break"):
            return ("break",)
        if self.accept("return"):
            return ("return", self.expression())
        if self.peek(1) == "=" and self.peek(2) == "lambda":
            return self.lambda_statement()
        target = self.expression()
        if self.peek() in ASSIGNMENTS:
            operator, value = self.take(), self.expression()
            if self.accept("="):  # a = b = value
                return ("both", target, value, self.expression())
            return ("assign", target, operator, value)
        return ("expr", target)

    def if_statement(self) -> Node:
        branches, otherwise = [], []
        self.take("if")
        while True:
            condition = self.expression()
            self.take("then")
            branches.append((condition, self.block()))
            if not self.accept("elsif"):
                break
        if self.accept("else"):
            otherwise = self.block()
        self.take("endif")
        return ("if", branches, otherwise)

    def for_statement(self) -> Node:
        self.take("for")
        name = self.take()
        self.take("in")
        first = self.binary(0)
        self.take(":")
        last = self.expression()
        self.take("do")
        block = self.block()
        self.take("endfor")
        return ("for", name, first, last, block)

    def declaration(self) -> Node:
        self.take("declare")
        name = self.take()
        self.take(":")
        width, kind = self.take().split("'")
        count = 0
        if self.accept("["):
            count = int(self.take())
            self.take("]")
        return ("declare", name, kind.lower(), int(width), count)

    def lambda_statement(self) -> Node:
        name = self.take()
        self.take("=")
        self.take("lambda")
        self.take("(")
        parameters = [self.take()]
        while self.accept(","):
            parameters.append(self.take())
        self.take(")")
        self.take("(")
        block = self.block()
        self.take(")")
        return ("lambda", name, parameters, block)

    def expression(self) -> Node:
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        yes = self.expression()
        self.take(":")
        return ("choose", condition, yes, self.expression())

    def binary(self, level: int) -> Node:
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in LEVELS[level]:
            left = ("binary", self.take(), left, self.binary(level + 1))
        return left

    def unary(self) -> Node:
        if self.peek() in ("-", "!", "~", "+"):
            return ("unary", self.take(), self.unary())
        base = self.postfix()
        return ("binary", "**", base, self.unary()) if self.accept("**") else base

    def postfix(self) -> Node:
        node = self.primary()
        while True:
            if self.accept("."):
                name = self.take()
                node = ("type", node, *split_type(name)) if TYPE_NAME.match(name) else ("member", node, name)
            elif self.accept("["):
                first = self.expression()
                if self.accept(":"):
                    node = ("slice", node, first, self.expression())
                elif self.accept("+:"):
                    node = ("part", node, first, self.expression())
                else:
                    node = ("index", node, first)
                self.take("]")
            else:
                return node

    def arguments(self, closing: str) -> list[Node]:
        parts: list[Node] = []
        while not self.accept(closing):
            parts.append(self.expression())
            self.accept(",")
        return parts

    def primary(self) -> Node:
        kind = self.tokens[min(self.position, len(self.tokens) - 1)][0]
        text = self.take()
        if kind == "number":
            return parse_number(text)
        if kind == "typed":
            width, body = text.split("'")
            return parse_number(body, int(width))
        if kind == "cast":
            width, name = text.split("'")
            self.take("(")
            inner = self.expression()
            self.take(")")
            return ("cast", name.lower(), int(width), inner)
        if text == "(":
            inner = self.expression()
            self.take(")")
            return inner
        if text == "{":
            return ("concat", self.arguments("}"))
        if kind == "name" and text not in KEYWORDS - {"in"}:
            return ("call", text, self.arguments(")")) if self.accept("(") else ("name", text)
        raise PcodeError(f"unexpected {text!r}")


def parse(text: str) -> list[Node]:
    """Statements of one entry."""
    return Parser(text).program()
