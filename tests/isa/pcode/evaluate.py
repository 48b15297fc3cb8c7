"""Runs parsed pseudo-code for one lane: statements become Python closures over an environment of named values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.isa.pcode import softfloat, values
from tests.isa.pcode.functions import FUNCTIONS, conversion
from tests.isa.pcode.softfloat import FORMATS
from tests.isa.pcode.syntax import Node, PcodeError, parse
from tests.isa.pcode.values import Value, boolean, make

REGISTER_BITS = 64
REGISTERS = {"D0", "D1", "SCC", "VCC", "EXEC", "TRAPSTS"}
# Results that round past the range: the entries name them; hardware rounds to nearest, so they are infinity and zero.
CONSTANTS = {"INF": math.inf, "PI": math.pi, "NAN": math.nan}
ROUNDED_AWAY = {"OVERFLOW_F32": ("f32", True), "UNDERFLOW_F32": ("f32", False)}
ROUNDED_AWAY |= {"OVERFLOW_F64": ("f64", True), "UNDERFLOW_F64": ("f64", False)}
SIGNED_ZEROS = [("number", "f", width, 0.0) for width in (32, 64)]
MODES = {"ROUND_TOWARD_ZERO": 3, "ROUND_NEAREST_EVEN": 0}

Env = dict[str, Any]
Expression = Callable[[Env], Value]
Statement = Callable[[Env], None]


class Break(Exception):
    """Leaves the innermost loop."""


class Return(Exception):
    """Leaves a lambda with its value."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class Compiler:
    """Turns nodes into closures; `entries` are the texts of the instructions that entries call by name."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        self.entries = entries
        self.programs: dict[str, tuple[Statement, tuple[str, int]]] = {}

    # Statements

    def block(self, nodes: list[Node]) -> Statement:
        steps = [getattr(self, f"do_{node[0]}")(node) for node in nodes]

        def run(env: Env) -> None:
            for step in steps:
                step(env)

        return run

    def do_if(self, node: Node) -> Statement:
        branches = [(self.expression(condition), self.block(body)) for condition, body in node[1]]
        otherwise = self.block(node[2])

        def run(env: Env) -> None:
            for condition, body in branches:
                if condition(env).truth():
                    return body(env)
            return otherwise(env)

        return run

    def do_for(self, node: Node) -> Statement:
        _, name, first, last, body = node
        begin, end, step = self.expression(first), self.expression(last), self.block(body)

        def run(env: Env) -> None:
            for i in range(begin(env).integer(), end(env).integer() + 1):
                env[name] = make("i", 32, i)
                try:
                    step(env)
                except Break:
                    break

        return run

    def do_declare(self, node: Node) -> Statement:
        _, name, kind, width, count = node

        def run(env: Env) -> None:
            if count and name in env:
                return  # an operand array that the caller gives (S)
            env[name] = [make(kind, width, 0)] * count if count else make(kind, width, 0)

        return run

    def do_break(self, node: Node) -> Statement:
        def run(env: Env) -> None:
            raise Break

        return run

    def do_return(self, node: Node) -> Statement:
        expression = self.expression(node[1])

        def run(env: Env) -> None:
            raise Return(expression(env))

        return run

    def do_expr(self, node: Node) -> Statement:
        return self.do_return(node)  # the last expression of a lambda is its value

    def do_lambda(self, node: Node) -> Statement:
        _, name, parameters, nodes = node
        body = self.block(nodes)

        def call(env: Env, *arguments: Value) -> Value:
            try:
                body({**env, **dict(zip(parameters, arguments, strict=True))})
            except Return as result:
                return result.value
            raise PcodeError(f"{name} returns nothing")

        def run(env: Env) -> None:
            env[name] = call

        return run

    def do_assign(self, node: Node) -> Statement:
        _, target, operator, source = node
        value = self.expression(source)
        if operator != "=":
            old, name = self.expression(target), operator[:-1]
            right = value

            def value(env: Env) -> Value:
                return values.binary(name, old(env), right(env))

        assign = self.target(target)
        return lambda env: assign(env, value(env))

    def do_both(self, node: Node) -> Statement:
        _, first, second, source = node
        value, one, other = self.expression(source), self.target(first), self.target(second)

        def run(env: Env) -> None:
            result = value(env)
            other(env, result)
            one(env, result)

        return run

    # Targets of assignments

    def target(self, node: Node) -> Callable[[Env, Value], None]:
        if node[0] == "concat":
            parts = [(self.target(part), self.width_of(part)) for part in node[1]]

            def spread(env: Env, value: Value) -> None:
                raw = value.raw
                for assign, width in reversed(parts):
                    assign(env, make("b", width, raw))
                    raw >>= width

            return spread
        if node[0] == "name":
            return self.whole_target(node[1])
        if node[0] == "member":
            return lambda env, value: None  # exception flags: TRAPSTS.INVALID
        if node[0] == "type" and node[1][0] == "name":
            _, (_, name), kind, width = node

            def typed(env: Env, value: Value) -> None:
                stored = values.store(value, kind, width)
                env[name] = self.insert(env.get(name), name, stored, 0)

            return typed
        if node[0] == "type":
            inner, kind, width = self.target(node[1]), node[2], node[3]
            return lambda env, value: inner(env, values.store(value, kind, width))
        return self.bits_target(node)

    def whole_target(self, name: str) -> Callable[[Env, Value], None]:
        if name in REGISTERS:

            def write(env: Env, value: Value) -> None:
                width = 1 if name == "SCC" else value.width
                env[name] = self.insert(env.get(name), name, make("b", width, value.raw), 0)

            return write
        return lambda env, value: env.__setitem__(name, value)

    def bits_target(self, node: Node) -> Callable[[Env, Value], None]:
        base = node[1]
        while base[0] == "type":
            base = base[1]
        if base[0] != "name":
            raise PcodeError(f"assignment to {node!r}")
        name = base[1]
        first = self.expression(node[2])
        last = self.expression(node[3]) if node[0] in ("slice", "part") else first

        def write(env: Env, value: Value) -> None:
            a, b = first(env).integer(), last(env).integer()
            if isinstance(env.get(name), list):
                old = env[name][a]
                env[name] = [*env[name][:a], values.store(value, old.kind, old.width), *env[name][a + 1 :]]
                return
            width = b if node[0] == "part" else abs(a - b) + 1
            low = a if node[0] == "part" else min(a, b)
            env[name] = self.insert(env.get(name), name, make("b", width, value.raw), low)

        return write

    @staticmethod
    def insert(old: Value | None, name: str, part: Value, low: int) -> Value:
        """`old` with `part` at bit `low`; a variable that is not a register takes the type of a whole value."""
        if name not in REGISTERS and low == 0 and (old is None or old.width <= part.width):
            return part
        kind, width, raw = ("b", REGISTER_BITS, 0) if old is None else (old.kind, old.width, old.raw)
        mask = (1 << part.width) - 1
        return make(kind, max(width, low + part.width), raw & ~(mask << low) | part.raw << low)

    @staticmethod
    def width_of(node: Node) -> int:
        if node[0] == "type":
            return int(node[3])
        raise PcodeError("a part of { } without a type")

    # Expressions

    def expression(self, node: Node) -> Expression:
        found: Expression = getattr(self, f"on_{node[0]}")(node)
        return found

    def on_number(self, node: Node) -> Expression:
        value = values.number(*node[1:])
        return lambda env: value

    def on_name(self, node: Node) -> Expression:
        name = node[1]
        if name in CONSTANTS:
            value = values.number("f", 64, CONSTANTS[name])
            return lambda env: value
        if name in MODES:
            mode = make("u", 32, MODES[name])
            return lambda env: mode
        if name in ROUNDED_AWAY:
            fmt, overflow = ROUNDED_AWAY[name]
            limit = Value("f", FORMATS[fmt].width, FORMATS[fmt].infinity if overflow else 0)
            return lambda env: limit

        def read(env: Env) -> Value:
            try:
                value: Value = env[name]
            except KeyError:
                raise PcodeError(f"{name} has no value") from None
            return value

        return read

    def on_type(self, node: Node) -> Expression:
        _, base, kind, width = node
        inner = self.expression(base)
        if base[0] == "name" and base[1] in CONSTANTS:
            return lambda env: values.cast(inner(env), kind, width)
        return lambda env: values.reinterpret(inner(env), kind, width)

    def on_index(self, node: Node) -> Expression:
        base, index = self.expression(node[1]), self.expression(node[2])

        def read(env: Env) -> Value:
            value, i = base(env), index(env).integer()
            if isinstance(value, list):
                return value[i]  # type: ignore[no-any-return]
            return make("u", 1, value.raw >> i)

        return read

    def on_slice(self, node: Node) -> Expression:
        base, high, low = (self.expression(part) for part in node[1:])

        def read(env: Env) -> Value:
            value, a, b = base(env).raw, high(env).integer(), low(env).integer()
            if a >= b:
                return make("b", a - b + 1, value >> b)
            reversed_bits = sum((value >> (a + i) & 1) << (b - a - i) for i in range(b - a + 1))
            return make("b", b - a + 1, reversed_bits)

        return read

    def on_part(self, node: Node) -> Expression:
        base, low, count = (self.expression(part) for part in node[1:])
        return lambda env: make("b", count(env).integer(), base(env).raw >> low(env).integer())

    def on_member(self, node: Node) -> Expression:
        if node[1:] == (("name", "WAVE_MODE"), "IEEE"):
            return lambda env: boolean(True)  # compute kernels run in IEEE mode
        raise PcodeError(f"reads {node[1][1]}.{node[2]}")

    def on_cast(self, node: Node) -> Expression:
        _, kind, width, inner_node = node
        inner = self.expression(inner_node)
        return lambda env: values.cast(inner(env), kind, width)

    def on_concat(self, node: Node) -> Expression:
        parts = [self.expression(part) for part in node[1]]

        def join(env: Env) -> Value:
            width, raw = 0, 0
            for part in parts:
                value = part(env)
                raw, width = raw << value.width | value.raw, width + value.width
            return make("b", width, raw)

        return join

    def on_unary(self, node: Node) -> Expression:
        name, inner = node[1], self.expression(node[2])
        if name == "-":
            return lambda env: values.negate(inner(env))
        if name == "+":
            return inner
        if name == "!":
            return lambda env: boolean(not inner(env).truth())

        def invert(env: Env) -> Value:
            value = inner(env)
            return make(value.kind, value.width, ~value.raw)

        return invert

    def on_binary(self, node: Node) -> Expression:
        _, name, left_node, right_node = node
        left = self.expression(left_node)
        if name == "==" and right_node[0] == "type" and right_node[1] == ("name", "DENORM"):
            return lambda env: boolean(softfloat.is_denormal((v := left(env)).format, v.raw))
        if name == "==" and right_node[0] == "unary" and right_node[2] in SIGNED_ZEROS:
            negative = right_node[1] == "-"  # x == -0.0 asks for the sign too
            return lambda env: boolean((v := left(env)).raw == (v.format.sign_bit if negative else 0))
        right = self.expression(right_node)
        if name == "&&":
            return lambda env: boolean(left(env).truth() and right(env).truth())
        if name == "||":
            return lambda env: boolean(left(env).truth() or right(env).truth())
        return lambda env: values.binary(name, left(env), right(env))

    def on_choose(self, node: Node) -> Expression:
        condition, yes, no = (self.expression(part) for part in node[1:])
        return lambda env: yes(env) if condition(env).truth() else no(env)

    def on_call(self, node: Node) -> Expression:
        _, name, argument_nodes = node
        arguments = [self.expression(part) for part in argument_nodes]
        if name in FUNCTIONS:
            function = FUNCTIONS[name]
            return lambda env: function(*(argument(env) for argument in arguments))
        if (convert := conversion(name)) is not None:
            return lambda env: convert(arguments[0](env), env["ROUND_MODE"].raw == MODES["ROUND_TOWARD_ZERO"])
        if re.match(r"[vs]_\w+$", name):
            return self.instruction_call(name, arguments)

        def call(env: Env) -> Value:
            if name not in env:
                raise PcodeError(f"the function {name} is not known")
            return env[name](env, *(argument(env) for argument in arguments))  # type: ignore[no-any-return]

        return call

    def instruction_call(self, name: str, arguments: list[Expression]) -> Expression:
        """An entry that uses another instruction as a function: its D0."""
        program, (kind, width) = self.program(name)

        def call(env: Env) -> Value:
            inner = {"ROUND_MODE": env["ROUND_MODE"], "laneId": env["laneId"], "D0": make("b", REGISTER_BITS, 0)}
            inner |= {f"S{i}": argument(env) for i, argument in enumerate(arguments)}
            program(inner)
            return values.reinterpret(inner["D0"], kind, width)

        return call

    def program(self, name: str) -> tuple[Statement, tuple[str, int]]:
        """An entry compiled, and the type of its result."""
        if name not in self.programs:
            text = self.entries.get(name)
            if text is None:
                raise PcodeError(f"no entry {name}")
            found = re.search(r"\bD0\.(bf|[uifb])(\d+)", text)
            kind = (found.group(1), int(found.group(2))) if found else ("b", 32)
            self.programs[name] = (self.block(parse(text)), kind)
        return self.programs[name]
