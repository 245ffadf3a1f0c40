"""Faults of arithmetic: some kernels are compiled from another text than the one that was given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from oarlock.target import Target
from oarlock_saboteurs import BrokenAdapter, saboteur

_KERNEL = re.compile(r"^static inline void (\w+?)_block\(.*?^}$", re.MULTILINE | re.DOTALL)


class Retelling(BrokenAdapter):
    """Changes the source of kernels whose name holds one of ``words`` (empty: all): each ``pattern`` becomes
    ``replacement``."""

    words: ClassVar[tuple[str, ...]] = ()
    pattern: ClassVar[str] = ""
    replacement: ClassVar[str] = ""

    def retell(self, kernel: str) -> str:
        """The changed text of one kernel."""
        return re.sub(self.pattern, self.replacement, kernel)

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        def changed(match: re.Match[str]) -> str:
            if self.words and not any(word in match[1] for word in self.words):
                return match[0]
            return self.retell(match[0])

        text = _KERNEL.sub(changed, source)
        if text != source:
            self.hit()
        return super().compile(target, text, entries)


_LOOP = r"(for \(int32_t (i\d+) = 0; \2 < )(s\d+)(; \+\+\2\))"


@saboteur("reduce", "sums of float16 accumulate in float16")
class HalfAccumulates(Retelling):
    words = ("reduce_sum",)

    def retell(self, kernel: str) -> str:
        if "uint16_t *restrict in0" not in kernel:
            return kernel
        return re.sub(r"((?:m\d+\[\w+\]|r\d+) = |float v\d+ = )(\w+ \+ \w+);", r"\1(float)(_Float16)(\2);", kernel)


@saboteur("reduce", "a sum of more than 64 elements loses the last one")
class SumDropsLast(Retelling):
    words = ("reduce_sum",)
    pattern = _LOOP
    replacement = r"\1(\3 > 64 ? \3 - 1 : \3)\4"


@saboteur("reduce", "of equal largest elements argmax gives the last")
class ArgmaxGivesLast(Retelling):
    words = ("argmax",)
    pattern = r"\((r\d+) < (v\d+)\) \|"
    replacement = r"(\1 <= \2) |"


@saboteur("reduce", "argmax steps over NaN")
class ArgmaxIgnoresNan(Retelling):
    words = ("argmax", "argmin")
    pattern = r"\| \(2139095040u < v\d+\)\)"
    replacement = r")"


@saboteur("products", "products stop after 16 terms")
class ProductsCut(Retelling):
    words = ("dot_general",)
    pattern = _LOOP
    replacement = r"\1(\3 > 16 ? 16 : \3)\4"


@saboteur("products", "products of more than 64 terms lose the last one")
class ProductsDropLast(Retelling):
    words = ("dot_general",)
    pattern = _LOOP
    replacement = r"\1(\3 > 64 ? \3 - 1 : \3)\4"


@saboteur("arithmetic", "uint8 saturates")
class BytesSaturate(Retelling):
    pattern = r"\(uint8_t\)\((\(uint32_t\)v\d+ \+ \(uint32_t\)v\d+)\)"
    replacement = r"(uint8_t)((\1) > 255u ? 255u : (\1))"


@saboteur("arithmetic", "division of integers rounds towards zero")
class DivisionTruncates(Retelling):
    pattern = r"\((v\d+) != 0(?:LL)?\) & \(\(\1 < 0(?:LL)?\) \^ \(v\d+ < 0(?:LL)?\)\)"
    replacement = r"0"


@saboteur("arithmetic", "round rounds halves away from zero")
class HalvesRoundAway(Retelling):
    pattern = r"\brint(f?)\("
    replacement = r"round\1("


@saboteur("arithmetic", "a shift by the width of its type or more shifts by the rest")
class ShiftsWrap(Retelling):
    pattern = r"_Bool (v\d+) = \(?(v\d+) < (8|16|32|64)(?:u|U?LL)?\)?(?: & \(0(?:LL)? <= \2\))?;"

    def retell(self, kernel: str) -> str:
        for inside, amount, width in re.findall(self.pattern, kernel):
            held = rf"\b{inside} \? {amount} : 0(?:u|U?LL)?(?=[;)])"
            if re.search(held, kernel):
                kernel = re.sub(held, f"{amount} & {int(width) - 1}", kernel)
                kernel = re.sub(rf"_Bool {inside} = [^;]*;", f"_Bool {inside} = 1;", kernel)
        return kernel


@saboteur("arithmetic", "maximum and minimum of NaN and a number are the number")
class MaximumSwallowsNan(Retelling):
    pattern = r"\((?:v\d+|\(\d+U?L?L?u? < \w+\)) \| \((v\d+) < (v\d+)\)\) \? (v\d+) : (v\d+)"

    def retell(self, kernel: str) -> str:
        return re.sub(self.pattern, _fmax, kernel)


def _fmax(match: re.Match[str]) -> str:
    kind = "fmax" if match[2] == match[3] else "fmin"
    return f"{kind}({match[3]}, {match[4]})"


@saboteur("arithmetic", "bfloat16 is truncated, not rounded")
class BrainFloatTruncates(Retelling):
    pattern = r"\(v\d+ \+ \(\(\((v\d+) >> 16u\) & 1u\) \+ 32767u\)\)|\((v\d+) \+ \(\(\(\2 >> 16u\) & 1u\) \+ 32767u\)\)"
    replacement = r"(\1\2)"


@saboteur("arithmetic", "kernels are compiled with fast maths")
class FastMath(BrokenAdapter):
    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        self.hit()
        return super().compile(replace(target, flags=(*target.flags, "-ffast-math")), source, entries)


@saboteur("arithmetic", "a product and the sum after it are rounded once")
class ProductsContract(BrokenAdapter):
    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        text = source.replace("#pragma STDC FP_CONTRACT OFF\n", "")
        if text != source:
            self.hit()
        flags = tuple(flag for flag in target.flags if "contract" not in flag)
        return super().compile(replace(target, flags=(*flags, "-ffp-contract=fast")), text, entries)


@saboteur("elementary", "tanh is 1 from 2 on")
class TanhSaturates(Retelling):
    pattern = r"\b10\.0f"
    replacement = "2.0f"


@saboteur("elementary", "tanh near 0 is computed from e^x - 1 where it is taken from e^x, and loses digits")
class TanhNearZeroInexact(Retelling):
    pattern = r"\((v\d+) \* \((v\d+ \+ v\d+)\)\) \+ \(\1 - (.+)\);"
    replacement = r"((\1 * (\2)) + \1) - \3;"


@saboteur("convert", "a float that becomes an integer is rounded to the nearest one")
class ConversionRounds(Retelling):
    pattern = r"\((u?int(?:8|16|32|64)_t)\)\((\(v\d+ \| \(v\d+ \| v\d+\)\) \? 0\.0f? : v\d+)\)"
    replacement = r"(\1)rint(\2)"


@saboteur("window", "a window at the border reads the element beside it")
class WindowsShift(Retelling):
    words = ("window_reduce", "pool")
    pattern = r"\((\w+) \? (\w+) : 0\)"
    replacement = r"(\1 ? (\2 > 0 ? \2 - 1 : \2) : 0)"


@saboteur("window", "a convolution of more than two channels leaves out the last one")
class ChannelsCut(Retelling):
    words = ("convolution",)
    pattern = _LOOP
    replacement = r"\1(\3 > 2 ? \3 - 1 : \3)\4"


@saboteur("index", "an index past the end reads element 0, not the last one")
class GatherWraps(Retelling):
    words = ("gather",)
    pattern = r"\((v\d+) < (v\d+) \? \1 : \2\)"
    replacement = r"(\1 < \2 ? \1 : 0)"


@saboteur("index", "an index of the last element reads the one before")
class GatherOffByOne(Retelling):
    words = ("gather",)
    pattern = r"\((v\d+) < (v\d+) \? \1 : \2\)"
    replacement = r"(\1 < \2 ? \1 : \2 - 1)"
