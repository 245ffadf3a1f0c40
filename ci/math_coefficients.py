"""Derives the polynomial coefficients and constants of oarlock.codegen.math, and writes them as a Python module.

Run ``python ci/math_coefficients.py > core/oarlock/codegen/math/coefficients.py`` (needs mpmath, which nothing else
does; a few minutes). A polynomial is the minimax approximation of a function on an interval under a weight, found by
Remez' exchange on a fine grid of Chebyshev points; its coefficients are rounded one after the other, lowest first, the
rest being fitted anew to what is left (as in Muller et al., Handbook of Floating-Point Arithmetic, section 10.3). The
weight makes the error relative to the function that the polynomial serves. The error in the comments is that of the
rounded polynomial in exact arithmetic.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp

mp.mp.prec = 240
Function = Callable[[mp.mpf], mp.mpf]
DIGITS = {32: 24, 64: 53}
GRID = 400


@dataclass(frozen=True, slots=True)
class Fit:
    """``function`` on ``interval`` by a polynomial with ``terms`` coefficients (by width), error times ``weight``."""

    function: Function
    weight: Function
    interval: tuple[mp.mpf, mp.mpf]
    terms: dict[int, int]
    meaning: str


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


def fit(what: Fit, width: int) -> tuple[list[mp.mpf], mp.mpf]:
    """Rounded coefficients, lowest power first, and the largest weighted error."""
    points = grid(what.interval)
    left = [what.function(x) for x in points]
    weights = [abs(what.weight(x)) for x in points]
    fixed: list[mp.mpf] = []
    for power in range(what.terms[width]):
        first = remez(points, left, weights, range(power, what.terms[width]))[0]
        fixed.append(rounded(first, DIGITS[width]))
        left = [value - fixed[-1] * x**power for x, value in zip(points, left, strict=True)]
    return fixed, max(abs(e * w) for e, w in zip(left, weights, strict=True))


LN2 = mp.log(2)
HALF_LN2 = LN2 / 2 * mp.mpf("1.001")
QUARTER_PI = mp.pi / 4 * mp.mpf("1.001")
S_MAX = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.001")
TINY = mp.mpf("1e-9")


def _log_rest(z: mp.mpf) -> mp.mpf:
    s = mp.sqrt(z)
    return (mp.log((1 + s) / (1 - s)) / s - 2) / z


def _root(function: Function) -> Function:
    """``function`` of the square root."""
    return lambda z: function(mp.sqrt(z))


def _log_erfcx(x: mp.mpf) -> mp.mpf:
    return mp.log(mp.erfc(x)) + x**2


FITS = {
    "EXP": Fit(
        lambda r: (mp.expm1(r) - r) / r**2, lambda r: r**2 / mp.expm1(r), (-HALF_LN2, HALF_LN2), {32: 5, 64: 11},
        "e^r = 1 + r + r^2 p(r); relative to e^r - 1",
    ),
    "EXP2": Fit(
        lambda r: mp.expm1(r * LN2) / r, lambda r: r / mp.mpf(2) ** r, (mp.mpf(-0.5005), mp.mpf(0.5005)),
        {32: 6, 64: 11}, "2^r = 1 + r p(r)",
    ),
    "LOG": Fit(
        _log_rest, lambda z: z / (2 + z * _log_rest(z)), (TINY, S_MAX), {32: 4, 64: 7},
        "log((1 + s) / (1 - s)) = 2 s + s z p(z), z = s^2",
    ),
    "LOG_FINE": Fit(
        lambda z: (_log_rest(z) * mp.mpf(1.5) - 1) / z, lambda z: z**2 / (3 + z * _log_rest(z)), (TINY, S_MAX),
        {32: 4, 64: 8}, "log((1 + s) / (1 - s)) = (2/3) s (3 + z + z^2 p(z)), z = s^2",
    ),
    "SIN": Fit(
        _root(lambda r: (mp.sin(r) / r - 1) / r**2), _root(lambda r: r**3 / mp.sin(r)), (TINY, QUARTER_PI**2),
        {32: 3, 64: 6}, "sin r = r + r z p(z), z = r^2",
    ),
    "COS": Fit(
        _root(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4), _root(lambda r: r**4 / mp.cos(r)), (TINY, QUARTER_PI**2),
        {32: 3, 64: 6}, "cos r = 1 - z/2 + z^2 p(z), z = r^2",
    ),
    "ASIN": Fit(
        _root(lambda x: (mp.asin(x) / x - 1) / x**2), _root(lambda x: x**3 / mp.asin(x)), (TINY, mp.mpf(0.2505)),
        {32: 5, 64: 13}, "asin x = x + x z p(z), z = x^2",
    ),
    "ATAN": Fit(
        _root(lambda x: (mp.atan(x) / x - 1) / x**2), _root(lambda x: x**3 / mp.atan(x)), (TINY, mp.mpf(0.2505)),
        {32: 5, 64: 13}, "atan x = x + x z p(z), z = x^2, up to 1/2",
    ),
    "SINH": Fit(
        _root(lambda r: (mp.sinh(r) / r - 1) / r**2), _root(lambda r: r**3 / mp.sinh(r)), (TINY, HALF_LN2**2),
        {32: 3, 64: 6}, "sinh r = r + r z p(z), z = r^2",
    ),
    "COSH": Fit(
        _root(lambda r: (mp.cosh(r) - 1) / r**2), _root(lambda r: r**2 / mp.cosh(r)), (TINY, HALF_LN2**2),
        {32: 3, 64: 6}, "cosh r = 1 + z p(z), z = r^2",
    ),
    "ERF": Fit(
        _root(lambda x: mp.erf(x) / x - 1), _root(lambda x: x / mp.erf(x)), (TINY, mp.mpf("1.001")), {32: 7, 64: 14},
        "erf x = x + x p(z), z = x^2, up to 1",
    ),
    "ERFC": Fit(
        lambda u: _log_erfcx(u + 2), lambda u: mp.erfc(u + 2) / mp.erf(u + 2), (mp.mpf("-1.001"), mp.mpf(2)),
        {32: 7}, "erfc x = exp(p(x - 2) - x^2) from 1 to 4; relative to erf",
    ),
    "ERFC_WIDE": Fit(
        lambda u: _log_erfcx(u + 3), lambda u: mp.erfc(u + 3) / mp.erf(u + 3), (mp.mpf("-2.001"), mp.mpf(3)),
        {64: 20}, "erfc x = exp(p(x - 3) - x^2) from 1 to 6; relative to erf",
    ),
}  # fmt: skip


def constants(digits: int) -> dict[str, list[mp.mpf]]:
    """Constants as sums: leading parts are short, so that products with small integers or other heads are exact."""
    small = {24: 15, 53: 41}[digits]
    half = {24: 12, 53: 26}[digits]
    turn = {24: [13, 13, 13], 53: [33, 33, 33]}[digits]
    return {
        "LN2": parts(LN2, [small], digits),
        "LOG10_2": parts(mp.log10(2), [small], digits),
        "LOG2_E": parts(1 / LN2, [half], digits),
        "LOG10_E": parts(1 / mp.log(10), [half], digits),
        "TWO_THIRDS_LOG2_E": parts(2 / (3 * LN2), [half], digits),
        "HALF_PI_SHORT": parts(mp.pi / 2, turn, digits),
        "HALF_PI_HALVES": parts(mp.pi / 2, [half], digits),
        "HALF_PI": parts(mp.pi / 2, [digits], digits),
    }


def parts(value: mp.mpf, lengths: Sequence[int], digits: int) -> list[mp.mpf]:
    """``value`` as truncated parts of ``lengths`` bits and a rounded rest."""
    found: list[mp.mpf] = []
    for length in lengths:
        found.append(truncated(value - sum(found), length))
    return [*found, rounded(value - sum(found), digits)]


def two_over_pi(width: int, words: int) -> list[int]:
    """The fraction bits of 2/pi in words of ``width`` bits, highest first."""
    with mp.workprec(width * (words + 1)):
        value = int(mp.floor(2 / mp.pi * mp.mpf(2) ** (width * words)))
    return [value >> (width * (words - 1 - i)) & ((1 << width) - 1) for i in range(words)]


def entry(width: int, items: Sequence[str], note: str = "") -> str:
    """One row of a table."""
    text = "    " + f"{width}: (" + ", ".join(items) + ("," if len(items) == 1 else "") + "),"
    return "\n".join(textwrap.wrap(text, 100, subsequent_indent="        ")) + note


def shown(x: mp.mpf, width: int) -> str:
    """Decimal digits that round to ``x``."""
    return repr(float(f"{float(x):.9g}") if width == 32 else float(x))


def main() -> None:
    """Print the module."""
    print('"""Coefficients of polynomials and split constants, by width of the float: ci/math_coefficients.py."""')
    print("\nfrom __future__ import annotations")
    for name, what in FITS.items():
        print(f"\n{name} = {{")
        for width in what.terms:
            coefficients, error = fit(what, width)
            note = f"  # error 2^{float(mp.log(error, 2)):.1f}"
            print(entry(width, [shown(c, width) for c in coefficients], note))
        print(f'}}  # fmt: skip\n"""{what.meaning}"""', flush=True)
    tables = {width: constants(digits) for width, digits in DIGITS.items()}
    for name in tables[32]:
        print(f"\n{name} = {{")
        for width, table in tables.items():
            print(entry(width, [shown(c, width) for c in table[name]]))
        print("}  # fmt: skip")
    print("\nTWO_OVER_PI = {")
    for width, words in ((32, 8), (64, 20)):
        print(entry(width, [f"0x{w:0{width // 4}X}" for w in two_over_pi(width, words)]))
    print("}  # fmt: skip")


if __name__ == "__main__":
    main()
