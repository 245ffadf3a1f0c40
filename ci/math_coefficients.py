"""Derives the polynomial coefficients and constants of oarlock.codegen.math, and prints them as Python tables.

Run ``python ci/math_coefficients.py [NAME ...]`` (needs mpmath, which nothing else does). A polynomial is the minimax
approximation of a function on an interval under a weight, found by Remez' exchange on a fine grid of Chebyshev points;
its coefficients are rounded one after the other, lowest first, the rest being fitted anew to what is left (as in
Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., section 10.3). The weight makes the error relative to
the function that the polynomial serves. The printed error is that of the rounded polynomial in exact arithmetic.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp

mp.mp.prec = 320
Function = Callable[[mp.mpf], mp.mpf]
DIGITS = {"float32": 24, "float64": 53}
GRID = 600


@dataclass(frozen=True, slots=True)
class Fit:
    """``function`` on ``interval`` by a polynomial with ``terms`` coefficients (by dtype), error times ``weight``."""

    function: Function
    weight: Function
    interval: tuple[mp.mpf, mp.mpf]
    terms: dict[str, int]


def rounded(x: mp.mpf, digits: int) -> mp.mpf:
    """``x`` to nearest with ``digits`` significant bits."""
    return mp.mpf(mp.mpf(x, prec=digits))


def truncated(x: mp.mpf, digits: int) -> mp.mpf:
    """``x`` towards zero with ``digits`` significant bits."""
    exponent = digits - 1 - int(mp.floor(mp.log(abs(x), 2)))
    return mp.sign(x) * mp.floor(abs(x) * mp.mpf(2) ** exponent) / mp.mpf(2) ** exponent


def grid(interval: tuple[mp.mpf, mp.mpf]) -> list[mp.mpf]:
    """Chebyshev points, ascending."""
    low, high = interval
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle - half * mp.cos((2 * i + 1) * mp.pi / (2 * GRID)) for i in range(GRID)]


def remez(points: Sequence[mp.mpf], values: Sequence[mp.mpf], weights: Sequence[mp.mpf], powers: range) -> list[mp.mpf]:
    """Coefficients of ``powers`` that minimise the largest weighted error on ``points``."""
    size = len(powers) + 1
    picked = [round((1 - mp.cos(mp.pi * i / (size - 1))) / 2 * (len(points) - 1)) for i in range(size)]
    for _ in range(40):
        rows = [[points[i] ** p for p in powers] + [(-1) ** k / weights[i]] for k, i in enumerate(picked)]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([values[i] for i in picked]))
        coefficients = [solution[i] for i in range(size - 1)]
        errors = [
            (value - sum(c * x**p for c, p in zip(coefficients, powers, strict=True))) * weight
            for x, value, weight in zip(points, values, weights, strict=True)
        ]
        extremes = _extremes(errors, size)
        if max(abs(e) for e in errors) <= abs(solution[size - 1]) * mp.mpf("1.0001") or extremes == picked:
            return coefficients
        picked = extremes
    return coefficients


def _extremes(errors: Sequence[mp.mpf], size: int) -> list[int]:
    """``size`` points where the error is largest in runs of alternating sign."""
    runs: list[int] = []
    for i, error in enumerate(errors):
        if runs and mp.sign(errors[runs[-1]]) == mp.sign(error):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > size:
        if len(runs) == size + 1:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
            continue
        least = min(range(len(runs)), key=lambda k: abs(errors[runs[k]]))
        if least in (0, len(runs) - 1):
            runs.pop(least)
        else:  # with its lesser neighbour, so that signs still alternate
            first = least if abs(errors[runs[least + 1]]) < abs(errors[runs[least - 1]]) else least - 1
            del runs[first : first + 2]
    return runs


def fit(what: Fit, dtype: str) -> tuple[list[mp.mpf], mp.mpf]:
    """Rounded coefficients, lowest power first, and the largest weighted error."""
    points = grid(what.interval)
    left = [what.function(x) for x in points]
    weights = [abs(what.weight(x)) for x in points]
    fixed: list[mp.mpf] = []
    for power in range(what.terms[dtype]):
        first = remez(points, left, weights, range(power, what.terms[dtype]))[0]
        fixed.append(rounded(first, DIGITS[dtype]))
        left = [value - fixed[-1] * x**power for x, value in zip(points, left, strict=True)]
    return fixed, max(abs(e * w) for e, w in zip(left, weights, strict=True))


LN2 = mp.log(2)
HALF_LN2 = LN2 / 2 * mp.mpf("1.001")
QUARTER_PI = mp.pi / 4 * mp.mpf("1.001")
S_MAX = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.001")
TAN_PI_8 = (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.002")
TINY = mp.mpf("1e-9")


def _log_rest(z: mp.mpf) -> mp.mpf:
    s = mp.sqrt(z)
    return (mp.log((1 + s) / (1 - s)) / s - 2) / z


def _root(function: Function) -> Function:
    """``function`` of the square root."""
    return lambda z: function(mp.sqrt(z))


FITS = {
    # e^r = 1 + r + r^2 p(r); relative to e^r - 1
    "EXP": Fit(
        lambda r: (mp.expm1(r) - r) / r**2, lambda r: r**2 / mp.expm1(r), (-HALF_LN2, HALF_LN2), {"float32": 5, "float64": 10}
    ),
    # 2^r = 1 + r p(r)
    "EXP2": Fit(
        lambda r: mp.expm1(r * LN2) / r, lambda r: r / mp.mpf(2) ** r, (mp.mpf(-0.5005), mp.mpf(0.5005)),
        {"float32": 6, "float64": 11},
    ),
    # log((1+s)/(1-s)) = 2 s + s z p(z), z = s^2; relative to the logarithm
    "LOG": Fit(_log_rest, lambda z: z / (2 + z * _log_rest(z)), (TINY, S_MAX), {"float32": 4, "float64": 8}),
    # sin r = r + r z p(z), cos r = 1 - z/2 + z^2 p(z), z = r^2
    "SIN": Fit(
        _root(lambda r: (mp.sin(r) / r - 1) / r**2), _root(lambda r: r**3 / mp.sin(r)), (TINY, QUARTER_PI**2),
        {"float32": 4, "float64": 7},
    ),
    "COS": Fit(
        _root(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4), _root(lambda r: r**4 / mp.cos(r)), (TINY, QUARTER_PI**2),
        {"float32": 4, "float64": 7},
    ),
    # asin x = x + x z p(z), z = x^2
    "ASIN": Fit(
        _root(lambda x: (mp.asin(x) / x - 1) / x**2), _root(lambda x: x**3 / mp.asin(x)), (TINY, mp.mpf(0.2505)),
        {"float32": 6, "float64": 14},
    ),
    # atan x = x + x z p(z), z = x^2
    "ATAN": Fit(
        _root(lambda x: (mp.atan(x) / x - 1) / x**2), _root(lambda x: x**3 / mp.atan(x)), (TINY, TAN_PI_8),
        {"float32": 6, "float64": 13},
    ),
    # sinh r = r + r z p(z), cosh r = 1 + z p(z), z = r^2
    "SINH": Fit(
        _root(lambda r: (mp.sinh(r) / r - 1) / r**2), _root(lambda r: r**3 / mp.sinh(r)), (TINY, HALF_LN2**2),
        {"float32": 3, "float64": 6},
    ),
    "COSH": Fit(
        _root(lambda r: (mp.cosh(r) - 1) / r**2), _root(lambda r: r**2 / mp.cosh(r)), (TINY, HALF_LN2**2),
        {"float32": 3, "float64": 7},
    ),
    # erf x = x + x p(z), z = x^2, to 1
    "ERF": Fit(
        _root(lambda x: mp.erf(x) / x - 1), _root(lambda x: x / mp.erf(x)), (TINY, mp.mpf("1.001")),
        {"float32": 7, "float64": 14},
    ),
    # erfc x = exp(p(x - 2)) from 1 to where erf rounds to 1; relative to erf
    "ERFC": Fit(
        lambda u: mp.log(mp.erfc(u + 2)), lambda u: mp.erfc(u + 2) / mp.erf(u + 2), (mp.mpf("-1.001"), mp.mpf(2)),
        {"float32": 8, "float64": 24},
    ),
}  # fmt: skip


def constants() -> dict[str, mp.mpf]:
    """Constants in two or three parts; the leading parts are short, so that products with small integers are exact."""
    table: dict[str, mp.mpf] = {}

    def parts(name: str, value: mp.mpf, lengths: Sequence[int], digits: int) -> None:
        rest = value
        for number, length in enumerate(lengths):
            table[f"{name}_{number}_{digits}"] = truncated(rest, length)
            rest -= table[f"{name}_{number}_{digits}"]
        table[f"{name}_{len(lengths)}_{digits}"] = rounded(rest, digits)

    parts("LN2", LN2, [15], 24)
    parts("LN2", LN2, [41], 53)
    parts("LOG10_2", mp.log10(2), [15], 24)
    parts("LOG10_2", mp.log10(2), [41], 53)
    parts("LOG2_E", 1 / LN2, [12], 24)
    parts("LOG2_E", 1 / LN2, [26], 53)
    parts("LOG10_E", 1 / mp.log(10), [12], 24)
    parts("LOG10_E", 1 / mp.log(10), [26], 53)
    parts("LOG2_E_3", 2 / (3 * LN2), [12], 24)
    parts("LOG2_E_3", 2 / (3 * LN2), [26], 53)
    parts("PI_2", mp.pi / 2, [8, 8, 8], 24)
    parts("PI_2", mp.pi / 2, [33, 33, 33], 53)
    for digits in (24, 53):
        parts("PI_2_FULL", mp.pi / 2, [digits], digits)
        parts("PI_4_FULL", mp.pi / 4, [digits], digits)
        parts("PI_FULL", mp.pi, [digits], digits)
    return table


def two_over_pi(width: int, words: int) -> list[int]:
    """The fraction bits of 2/pi in words of ``width`` bits."""
    value = int(mp.floor(2 / mp.pi * mp.mpf(2) ** (width * words)))
    return [value >> (width * (words - 1 - i)) & ((1 << width) - 1) for i in range(words)]


def main(names: Sequence[str]) -> None:
    """Print the tables called ``names`` (all, if none are given)."""
    for name in names or [*FITS, "CONSTANTS", "TWO_OVER_PI"]:
        if name == "CONSTANTS":
            for label, value in constants().items():
                print(f"{label} = {float(value)!r}")
        elif name == "TWO_OVER_PI":
            mp.mp.prec = 2000
            print("32:", ", ".join(f"0x{w:08X}" for w in two_over_pi(32, 8)))
            print("64:", ", ".join(f"0x{w:016X}" for w in two_over_pi(64, 20)))
        else:
            for dtype in FITS[name].terms:
                coefficients, error = fit(FITS[name], dtype)
                print(f"{name} {dtype}: error 2^{float(mp.log(error, 2)):.1f}")
                print("    (" + ", ".join(repr(float(c)) for c in coefficients) + ")")


if __name__ == "__main__":
    main(sys.argv[1:])
