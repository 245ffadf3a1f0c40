"""Channels last: convolutions of images whose channels lie side by side, where a processor's vectors take them.

A vector then holds neighbouring channels of one pixel: rows of the result have any length, every element of a kernel
meets whole vectors, and padding and pooling copy and compare them. What lies between convolutions and works alike in
any layout goes with them, so that an image is transposed where it enters and leaves such a part of a program. What a
group normalisation sees as (images, groups, all of a group) goes with them too (``ImagePart``).
"""

from __future__ import annotations

from collections.abc import Mapping

from oarlock.ir import Block, Context, Operation
from oarlock.ir.passes import Pass
from oarlock.target import Target
from oarlock.transforms.image_part import CONVOLUTION, ImagePart

__all__ = ["ChannelsLast"]

_LEAST_VECTOR = 4
REPAID = 200
"""Multiply-adds of convolutions that repay one element of what is transposed: the former take about 0.4 of 10 ps less
each on two cores with vectors of 8, the latter 1 to 2 ns."""


class ChannelsLast(Pass):
    """Turns the parts of a program around convolutions of all channels (one group)."""

    name = "channels_last"
    level = 2
    after = ("simplify", "alias")
    before = ("layout",)

    def applies(self, target: Target) -> bool:
        """Where a block is a processor with vectors."""
        return not target.has_threads and target.limits.vector_width >= _LEAST_VECTOR

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Turn what is in ``op``; how many convolutions, and what else works alike."""
        counts = {"convolutions": 0, "others": 0}
        for block in [block for inner in op.walk() for region in inner.regions for block in region.blocks]:
            for part in _parts(block):
                turned = sum(member.name == CONVOLUTION for member in part.members)
                counts["convolutions"] += turned
                counts["others"] += len(part.members) - turned
                part.turn(context)
        return counts


def _parts(block: Block) -> list[ImagePart]:
    """What is to be turned together, where that pays."""
    found: list[ImagePart] = []
    seen: set[Operation] = set()
    for op in block.ops:
        if op.name == CONVOLUTION and op not in seen:
            part = ImagePart(op)
            seen.update(part.members)
            if part.can_turn and part.work >= REPAID * part.transposed:
                found.append(part)
    return found
