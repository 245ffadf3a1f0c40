"""The planted errors of the compiler: each replaces one piece of text in one function of one module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["MUTATIONS", "Mutation", "Through"]

Through: TypeAlias = Literal["kernel", "legal", "c99", "llvm"]
"""Where a mutation shows: kernels as they are lowered or as they are legalised, in the interpreter of the kernel
dialect; or a rendered text that a device runs."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """``old`` becomes ``new`` in ``module`` (below ``oarlock.codegen``), where it occurs exactly once."""

    name: str
    module: str
    old: str
    new: str
    through: Through = "kernel"


_LOWERING = (
    Mutation(
        "maximum_ignores_nan",
        "lower.elementwise",
        "b.select(b.or_(b.is_nan(x), better), x, y)",
        "b.select(better, x, y)",
    ),
    Mutation(
        "minimum_is_maximum",
        "lower.elementwise",
        "better = b.lt(y, x) if largest else b.lt(x, y)",
        "better = b.lt(y, x)",
    ),
    Mutation(
        "floor_divide_truncates",
        "lower.elementwise",
        "adjust = b.and_(b.ne(remainder, zero), signs_differ)",
        "adjust = b.and_(b.ne(remainder, remainder), signs_differ)",
    ),
    Mutation(
        "abs_of_int_kept",
        "lower.elementwise",
        'b.select(b.lt(x[0], b.const(0, dtype)), b.unary("neg", x[0]), x[0])',
        "x[0]",
    ),
    Mutation(
        "sign_of_nan_zero",
        "lower.elementwise",
        "return b.select(b.is_nan(x[0]), x[0], result) if dtype.is_float else result",
        "return result",
    ),
    Mutation("greater_is_greater_equal", "lower.elementwise", '"greater": _swapped("lt")', '"greater": _swapped("le")'),
    Mutation("round_is_floor", "lower.elementwise", '"round": _rounding("rint")', '"round": _rounding("floor")'),
    Mutation(
        "nextafter_wrong_way",
        "lower.elementwise",
        "away = b.eq(up, b.lt(zero, x[0]))",
        "away = b.eq(up, b.lt(x[0], zero))",
    ),
    Mutation("copysign_keeps_sign", "lower.elementwise", "b.const(top - 1, bits)", "b.const(top - 1 | top, bits)"),
    Mutation(
        "power_skips_a_bit",
        "lower.elementwise",
        "b.loop(b.i(0), b.i(dtype.bits - 1), step, [one, base, positive])[0]",
        "b.loop(b.i(1), b.i(2), step, [one, base, positive])[0]",
    ),
    Mutation(
        "identity_of_max_zero",
        "lower.elementwise",
        'return float("-inf") if kind == "max" else float("inf")',
        'return 0.0 if kind == "max" else float("inf")',
    ),
    Mutation(
        "identity_of_integer_min",
        "lower.elementwise",
        'greatest = (1 << (dtype.bits - (dtype.kind == "int"))) - 1',
        "greatest = 100",
    ),
    Mutation(
        "half_sums_accumulate_in_half",
        "lower.anchors",
        ('return dtypes.float32 if dtype.is_float and dtype.bits == 16 and kind in ("sum", "prod") else dtype'),
        "return dtype",
    ),
    Mutation(
        "arg_ignores_nan",
        "lower.anchors",
        "better = b.and_(b.not_(b.is_nan(best)), b.or_(better, b.is_nan(element)))",
        "better = b.and_(b.not_(b.is_nan(best)), better)",
    ),
    Mutation(
        "arg_gives_last",
        "lower.anchors",
        'better = b.lt(best, element) if kind == "max" else b.lt(element, best)',
        'better = b.le(best, element) if kind == "max" else b.le(element, best)',
    ),
    Mutation("window_ignores_dilation", "lower.anchors", "b.mul(tap, b.i(dilation))", "tap"),
    Mutation(
        "window_ignores_padding",
        "lower.anchors",
        "b.mul(tap, b.i(dilation))), b.i(low))",
        "b.mul(tap, b.i(dilation))), b.i(low // 2))",
    ),
    Mutation(
        "grouped_convolution_first_group",
        "lower.anchors",
        "first = b.mul(b.quot(o, per_group), e.size(inputs, w, 1))",
        "first = b.mul(b.i(0), e.size(inputs, w, 1))",
    ),
    Mutation(
        "split_wrong_dimension",
        "lower.index",
        "result[i] = b.rem(rest, sizes[i])",
        "result[i] = b.rem(rest, sizes[significant[0]])",
    ),
    Mutation(
        "linear_skips_a_size",
        "lower.index",
        "total = b.add(b.mul(total, run.total), run.position)",
        "total = b.add(total, run.position)",
    ),
    Mutation(
        "broadcast_dims_reversed",
        "lower.views",
        "sources = [dims[i] if operand[i]",
        "sources = [dims[-1 - i] if operand[i]",
    ),
    Mutation(
        "slice_ignores_start", "lower.views", 'position = e.b.add(position, e.size(starts[d], op, "start", d))', "pass"
    ),
    Mutation(
        "slice_ignores_step",
        "lower.views",
        'e.b.mul(split.runs[d].position, e.size(steps[d], op, "step", d))',
        "split.runs[d].position",
    ),
    Mutation(
        "reverse_off_by_one",
        "lower.views",
        "e.b.sub(e.b.sub(run.total, e.b.i(1)), run.position)",
        (
            "e.b.sub(e.b.sub(run.total, e.b.min(e.b.i(2), run.total)), e.b.min(run.position, "
            "e.b.sub(run.total, e.b.min(e.b.i(2), run.total))))"
        ),
    ),
    Mutation(
        "transpose_by_permutation",
        "lower.views",
        "inverse = [permutation.index(d) for d in range(len(permutation))]",
        "inverse = list(permutation)",
    ),
    Mutation(
        "pad_ignores_interior", "lower.views", "inside = b.and_(inside, b.eq(b.rem(position, step), b.i(0)))", "pass"
    ),
    Mutation(
        "pad_lets_last_be_filled",
        "lower.views",
        "inside = b.and_(inside, b.lt(position, size))",
        "inside = b.and_(inside, b.lt(position, b.sub(size, b.i(1))))",
    ),
    Mutation("concat_starts_over", "lower.views", "start = end\n", "start = b.i(0) if len(parts) > 2 else end\n"),
    Mutation(
        "gather_not_clamped_below",
        "lower.views",
        "b.max(to_index(b, e.value(indices, place)), b.i(0))",
        "b.max(to_index(b, e.value(indices, place)), b.sub(b.i(1), size))",
    ),
    Mutation(
        "gather_clamped_short",
        "lower.views",
        "position = b.min(b.max(to_index(b, e.value(indices, place)), b.i(0)), b.sub(size, b.i(1)))",
        ("position = b.min(b.max(to_index(b, e.value(indices, place)), b.i(0)), b.max(b.i(0), b.sub(size, b.i(2))))"),
    ),
    Mutation(
        "iota_of_first_axis",
        "lower.views",
        'index.split(e.b).runs[_number(op, "axis")].position',
        "index.split(e.b).runs[0].position",
    ),
    Mutation("philox_nine_rounds", "lower.philox", "_ROUNDS = 10", "_ROUNDS = 9"),
    Mutation("philox_no_carry", "lower.philox", "b.add(counter[1], carry)", "counter[1]"),
    Mutation("philox_words_swapped", "lower.philox", "for i in (2, 1, 0):", "for i in (1, 0):"),
    Mutation(
        "pointwise_last_block_short",
        "lower.pointwise",
        "high = b.min(b.add(low, size), total)",
        "high = b.min(b.add(low, size), b.sub(total, b.i(1)))",
    ),
    Mutation(
        "pointwise_stride_short",
        "lower.pointwise",
        "stride = e.parameter(blocks * threads, b.index)",
        "stride = e.parameter(blocks * threads * 2, b.index)",
    ),
    Mutation(
        "pointwise_rows_dropped",
        "lower.pointwise",
        "return (columns, -(-rows // per_block), 1)",
        "return (columns, max(1, rows // per_block), 1)",
    ),
    Mutation(
        "rows_dropped",
        "lower.rows",
        "return (-(-self.count // per_block), 1, 1)",
        "return (max(1, self.count // per_block), 1, 1)",
    ),
    Mutation("vector_lanes_lost", "lower.reductions", "for i in range(lanes)]", "for i in range(lanes // 2)]"),
    Mutation(
        "vectors_not_neutral",
        "lower.reductions",
        "zeros = [b.splat(n, lanes) for n in neutral]",
        "zeros = [b.splat(b.const(1, dtype_of(n)), lanes) for n in neutral]",
    ),
    Mutation(
        "vectors_lose_the_tail",
        "lower.reductions",
        "*e.loop(whole, total, lambda j, h: step(j, h, 1), carried[partial:], few=True)",
        "*carried[partial:]",
    ),
    Mutation(
        "barrier_missing",
        "lower.reductions",
        "        b.store(slot, thread, value)\n    b.barrier()\n    half",
        "        b.store(slot, thread, value)\n    half",
    ),
    Mutation("threads_share_half", "lower.reductions", "half = rows.threads // 2", "half = rows.threads // 4"),
    Mutation(
        "columns_forget_last_block",
        "lower.columns",
        "return (-(-width // many), -(-outer_count // per_block), 1)",
        "return (max(1, width // many), -(-outer_count // per_block), 1)",
    ),
    Mutation(
        "tile_columns_forgotten",
        "lower.tiles",
        "high_column = b.i(self.width)\n",
        "high_column = b.sub(b.i(self.width), b.i(1))\n",
    ),
    Mutation(
        "tile_rows_unclamped",
        "lower.tiles",
        "return rows if exact else [b.min(r, last) for r in rows]",
        "return rows if exact else [b.min(r, b.i(0)) for r in rows]",
    ),
    Mutation("tile_tail_dropped", "lower.tiles", "if length % lanes:", "if length % lanes > lanes:"),
    Mutation(
        "tile_lanes_lost",
        "lower.vectors",
        "combine(parts[i], parts[i + len(parts) // 2])",
        "combine(parts[i], parts[i])",
    ),
    Mutation(
        "tile_phase_lost",
        "lower.tile_operands",
        "positions.append(b.rem(along, b.i(stride)))",
        "positions.append(b.i(0))",
    ),
    Mutation(
        "scatter_range_open",
        "lower.scatter",
        "inside = b.and_(b.le(low, target), b.lt(target, high))",
        "inside = b.and_(b.lt(low, target), b.lt(target, high))",
    ),
    Mutation(
        "scatter_add_sets",
        "lower.scatter",
        "if kind is None:",
        'if kind is None or kind == "sum":',
    ),
    Mutation(
        "merge_not_stable",
        "lower.solitary",
        "b.not_(precedes(b, key, other, descending))",
        "precedes(b, other, key, descending)",
    ),
    Mutation(
        "sort_nan_anywhere", "lower.solitary", "less = b.or_(less, b.and_(b.is_nan(y), b.not_(b.is_nan(x))))", "pass"
    ),
    Mutation(
        "equal_keys_backwards",
        "lower.network",
        "b.and_(b.eq(y[0], x[0]), b.lt(y[1], x[1]))",
        "b.and_(b.eq(y[0], x[0]), b.lt(x[1], y[1]))",
    ),
    Mutation("scan_exclusive_is_inclusive", "lower.scan", "before if self.exclusive else after", "after"),
    Mutation("scan_reverse_is_forward", "lower.scan", "b.sub(b.sub(self.size, b.i(1)), a) if self.reverse else a", "a"),
)
"""Lowering: a group of operators to a kernel."""

_SCHEDULES = (
    Mutation(
        "sort_passes_short",
        "expand",
        "while width < shape[axis] and numel(x):",
        "while 2 * width < shape[axis] and numel(x):",
    ),
    Mutation(
        "concat_stage_lost", "expand", "for i in range(0, len(parts), most)", "for i in range(0, len(parts) - 1, most)"
    ),
    Mutation(
        "convolution_pads_left",
        "expand",
        "high = [0, 0, *(p[1] for p in padding)]",
        "high = [0, 0, *(p[0] for p in padding)]",
    ),
    Mutation(
        "scan_pieces_apart",
        "expand",
        'before = b("scan", totals, kind=kind, axis=axis, reverse=False, exclusive=False)',
        'before = b("scan", totals, kind=kind, axis=axis, reverse=True, exclusive=False)',
    ),
)
"""What is done before fusion."""

_TOTAL_FORMS = (
    Mutation(
        "quotient_by_zero_is_one",
        "kernel.builder",
        "quotient = self.select(by_zero, zero, self.quot(x, divisor))",
        "quotient = self.select(by_zero, one, self.quot(x, divisor))",
    ),
    Mutation(
        "least_by_minus_one",
        "kernel.builder",
        "remainder = self.select(bad, zero, self.rem(x, divisor))",
        "remainder = self.select(bad, one, self.rem(x, divisor))",
    ),
    Mutation(
        "shift_past_width",
        "kernel.builder",
        "return self.select(inside, shifted, outside)",
        "return self.select(inside, shifted, x)",
    ),
    Mutation(
        "nan_by_comparison",
        "kernel.builder",
        "return self.lt(self.const(infinity, bits, lanes), magnitude)",
        "return self.le(self.const(infinity, bits, lanes), magnitude)",
    ),
    Mutation(
        "convert_nan_to_least",
        "kernel.builder",
        "return self.select(nan, self.const(0, dtype, lanes), result)",
        "return self.select(nan, self.const(low, dtype, lanes), result)",
    ),
    Mutation(
        "convert_high_wraps",
        "kernel.builder",
        "result = self.select(too_high, self.const(high, dtype, lanes), inside)",
        "result = self.select(too_high, self.const(low, dtype, lanes), inside)",
    ),
)
"""Operators that are defined everywhere, out of those that are not."""

_LEGALISATION = (
    Mutation(
        "bfloat16_truncates",
        "narrow_floats",
        "rounded = b.add(pattern, b.add(odd, self._u(0x7FFF, x)))",
        "rounded = pattern",
        "legal",
    ),
    Mutation(
        "float16_halves_up",
        "narrow_floats",
        "b.add(magnitude, b.add(odd, bias))",
        "b.add(magnitude, b.add(self._u(1, magnitude), bias))",
        "legal",
    ),
    Mutation(
        "float16_never_infinite",
        "narrow_floats",
        "self._u(0x7E00, x), self._u(0x7C00, x)",
        "self._u(0x7E00, x), self._u(0x7BFF, x)",
        "legal",
    ),
    Mutation(
        "float16_subnormals_flushed",
        "narrow_floats",
        "subnormal = b.bitcast(b.mul(mantissa, self._f(2.0**-24, bits)), dtypes.uint32)",
        "subnormal = b.bitcast(b.mul(mantissa, self._f(0.0, bits)), dtypes.uint32)",
        "legal",
    ),
    Mutation(
        "signed_wrap_loses_a_bit",
        "legalise",
        "count = self.b.const(32 - dtype.bits, dtypes.int32, lanes)",
        "count = self.b.const(33 - dtype.bits, dtypes.int32, lanes)",
        "legal",
    ),
)
"""What a target does not compute, in what it does."""

_MATHS = (
    Mutation(
        "exp_coefficient",
        "math.coefficients",
        "32: (0.49999997, 0.16666539, 0.0416677445,",
        "32: (0.49999997, 0.16666539, 0.0426677445,",
    ),
    Mutation(
        "exp2_coefficient",
        "math.coefficients",
        "32: (0.693147182, 0.240225941, 0.0555036627,",
        "32: (0.693147182, 0.240235941, 0.0555036627,",
    ),
    Mutation(
        "log_coefficient", "math.coefficients", "32: (0.666666627, 0.400009722,", "32: (0.666666627, 0.410009722,"
    ),
    Mutation("exp_range_short", "math.exponential", "_RANGE = {32: (-104.0, 89.0)", "_RANGE = {32: (-104.0, 60.0)"),
    Mutation(
        "exp_low_part_lost",
        "math.exponential",
        "return n, r, (near - r) - correction",
        "return n, r + correction, (near - r) - correction",
    ),
    Mutation("tanh_saturates_early", "math.hyperbolic", "_SATURATED = {32: 10.0", "_SATURATED = {32: 4.0"),
    Mutation(
        "tanh_loses_sign",
        "math.hyperbolic",
        "return (above / (above + 2.0)).with_sign(x.sign())",
        "return above / (above + 2.0)",
    ),
)
"""Elementary functions."""

_RENDERING = (
    Mutation(
        "c99_min_is_max", "render.cexpr", "{'<' if kind == 'min' else '>'}", "{'<' if kind == 'max' else '>'}", "c99"
    ),
    Mutation(
        "c99_select_swapped",
        "render.cexpr",
        'return f"({x[0]} ? {x[1]} : {x[2]})"',
        'return f"({x[0]} ? {x[2]} : {x[1]})"',
        "c99",
    ),
    Mutation("c99_floats_rounded", "render.cexpr", 'mantissa = mantissa.rstrip("0")', "mantissa = mantissa[:7]", "c99"),
    Mutation(
        "c99_bit_casts_convert",
        "render.cexpr",
        "return dialect.bitcast.format(type=name, source=type_name(dialect, source), value=bare(x))",
        'return f"(({name}){x})"',
        "c99",
    ),
    Mutation(
        "c99_no_parentheses",
        "render.cexpr",
        'return f"({x[0]} {OPERATORS[kind]} {x[1]})"',
        'return f"{x[0]} {OPERATORS[kind]} {x[1]}"',
        "c99",
    ),
    Mutation("c99_lanes_reversed", "render.cstyle", "lane=lane, xyzw=", "lane=0, xyzw=", "c99"),
    Mutation(
        "c99_least_integer",
        "render.cexpr",
        'return f"({number + 1}{suffix} - 1)"',
        'return f"({number + 1}{suffix})"',
        "c99",
    ),
    Mutation(
        "llvm_divides_unsigned",
        "render.llvm_values",
        '"quot": ("sdiv", "udiv", "")',
        '"quot": ("udiv", "udiv", "")',
        "llvm",
    ),
    Mutation(
        "llvm_shifts_zeros_in",
        "render.llvm_values",
        '"shr": ("ashr", "lshr", "")',
        '"shr": ("lshr", "lshr", "")',
        "llvm",
    ),
    Mutation(
        "llvm_less_is_unsigned",
        "render.llvm_values",
        '"lt": ("icmp slt", "icmp ult", "fcmp olt")',
        '"lt": ("icmp ult", "icmp ult", "fcmp olt")',
        "llvm",
    ),
    Mutation(
        "llvm_compares_unordered",
        "render.llvm_values",
        '"eq": ("icmp eq", "icmp eq", "fcmp oeq")',
        '"eq": ("icmp eq", "icmp eq", "fcmp ueq")',
        "llvm",
    ),
    Mutation(
        "llvm_widens_unsigned",
        "render.llvm_values",
        'else "sext" if source.kind == "int" else "zext"',
        'else "zext"',
        "llvm",
    ),
    Mutation("llvm_rounds_up", "render.llvm_values", '"rint": "roundeven"', '"rint": "round"', "llvm"),
)
"""Kernels as text."""

MUTATIONS: dict[str, Mutation] = {
    mutation.name: mutation
    for mutation in (*_LOWERING, *_SCHEDULES, *_TOTAL_FORMS, *_LEGALISATION, *_MATHS, *_RENDERING)
}
