"""A part of a program around convolutions that works alike in any layout, and how it is computed with channels last.

Members compute *images* (images, channels, positions...), or images that are *folded*: seen as (images, groups, all of
a group), as a group normalisation takes its means. A folded image works on element by element as the image does; a sum
over all of a group is a sum over positions, and then over the few channels of a group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from oarlock.ir import Attribute, Context, Operation, Value, traits
from oarlock.ops.record import ArrayBuilder, tensor
from oarlock.transforms.matching import ints, produced_by, splat_of
from oarlock.transforms.movers import Permutation, in_layout, is_movable, moved, operands_moved, significant

__all__ = ["CONVOLUTION", "ImagePart"]

CONVOLUTION = "array.convolution"
_REDUCTIONS = ("array.reduce_sum", "array.reduce_max", "array.reduce_min")
_Shape = tuple[int, ...]


class ImagePart:
    """``members`` are the convolution ``first`` and all that is connected to it by images of its rank."""

    def __init__(self, first: Operation) -> None:
        self.members: dict[Operation, None] = {}
        self.folded: dict[Value, _Shape] = {}
        """The folded images, with the shapes of the images."""
        self.can_turn = True
        """Whether every convolution is of all channels, and all sizes are known."""
        self._rank = tensor(first.result).rank
        self._first = first
        self._waiting: list[Operation] = []
        self._add(first)
        while self._waiting:
            op = self._waiting.pop()
            if not self._is_known(op):
                self.can_turn = False
                return
            for value in self._images(op):
                self._around(value)

    @property
    def work(self) -> int:
        """Multiply-adds of its convolutions."""
        return sum(
            math.prod(tensor(op.result).static_shape) * math.prod(tensor(op.operands_[1]).static_shape[1:])
            for op in self.members
            if op.name == CONVOLUTION
        )

    @property
    def transposed(self) -> int:
        """How many elements come in and go out."""
        values: dict[Value, None] = {}
        for op in self.members:
            for operand in self._moved_operands(op):
                foreign = operand.defining_op not in self.members and not self._spreads(operand, op)
                if foreign and splat_of(operand) is None and significant(operand) > 1:
                    values[operand] = None
            if self._is_image(op.result) and any(not self._takes(*use) for use in op.result.uses):
                values[op.result] = None
        return sum(math.prod(tensor(value).static_shape) for value in values)

    # --- what belongs to it ------------------------------------------------------------------------------------------

    def _add(self, op: Operation) -> None:
        if op not in self.members and op.parent is self._first.parent:
            self.members[op] = None
            self._waiting.append(op)

    def _is_known(self, op: Operation) -> bool:
        if op.name == CONVOLUTION and (op.attributes["groups"] != 1 or op.attributes.get("channels_last", False)):
            return False
        return all(tensor(v).is_static for v in (*op.operands_, op.result))

    def _images(self, op: Operation) -> Iterator[Value]:
        """The images, folded or not, that a member reads and gives."""
        for operand in self._moved_operands(op):
            if self._is_image(operand):
                yield operand
        if self._is_image(op.result):
            yield op.result

    def _is_image(self, value: Value) -> bool:
        return value in self.folded or tensor(value).rank == self._rank

    def _around(self, image: Value) -> None:
        """Add who computes ``image``, and who reads it, where they work alike in any layout."""
        made = image.defining_op
        if image in self.folded:
            if made is not None:
                self._add_folded(made, self.folded[image])
            for user in image.users:
                self._add_folded(user, self.folded[image])
            return
        if made is not None:
            self._add_image(made)
        for user, position in image.uses:
            if position < _moved_count(user):
                self._add_image(user)

    def _add_image(self, op: Operation) -> None:
        if op.name == CONVOLUTION or is_movable(op):
            if tensor(op.result).rank == self._rank:
                self._add(op)
        elif op.name == "array.reshape" and tensor(op.operands_[0]).is_static and tensor(op.result).is_static:
            inside, outside = tensor(op.operands_[0]).static_shape, tensor(op.result).static_shape
            if _folds(inside, outside) and len(inside) == self._rank:
                self._fold(op, op.result, inside)
            elif _folds(outside, inside) and len(outside) == self._rank:
                self._fold(op, op.operands_[0], outside)

    def _add_folded(self, op: Operation, image: _Shape) -> None:
        """Add ``op``, which reads or gives a folded image, where it works on that as on the image."""
        if op.name == "array.reshape":
            self._add_image(op)
        elif op.name in _REDUCTIONS:
            if ints(op, "axes") == (2,) and tensor(op.result).dtype.bits >= 32:
                self._add(op)
        elif op.definition.has(traits.ELEMENTWISE) and len(op.results) == 1:
            whole = _folded_shape(op.result)
            shapes = [_folded_shape(operand) for operand in op.operands_]
            if len(whole) == 3 and all(s in (whole, (*whole[:2], 1), ()) for s in shapes):
                for value in (op.result, *(o for o, s in zip(op.operands_, shapes, strict=True) if s == whole)):
                    if value is op.result or not self._spreads(value, op):
                        self._fold(op, value, image)

    def _fold(self, op: Operation, value: Value, image: _Shape) -> None:
        if self.folded.setdefault(value, image) != image:
            self.can_turn = False  # images of two shapes are taken for one another
        self._add(op)

    def _spreads(self, operand: Value, op: Operation) -> bool:
        """Whether an operand of a folded operation is one number for each group, or for all."""
        spread = produced_by(operand, "broadcast")
        return op.result in self.folded and (
            tensor(operand).rank == 0
            or _folded_shape(operand)[-1] == 1
            or (spread is not None and ints(spread, "dims") in ((), (0, 1)) and _plain(spread))
        )

    def _moved_operands(self, op: Operation) -> tuple[Value, ...]:
        return tuple(op.operands_[: _moved_count(op)])

    def _takes(self, user: Operation, position: int) -> bool:
        """Whether ``user`` is a member, and takes this operand in the new layout."""
        return user in self.members and position < _moved_count(user)

    # --- computing it ------------------------------------------------------------------------------------------------

    def turn(self, context: Context) -> None:
        """Compute the members with the channels last, and transpose what comes in and what goes out."""
        block = self._first.parent
        assert block is not None
        p: Permutation = (0, *range(2, self._rank), 1)
        made: dict[Value, Value] = {}
        order = [op for op in block.ops if op in self.members]
        for op in order:
            build = ArrayBuilder(context, block, op)
            build.location = op.location
            if op.name in _REDUCTIONS and op.operands_[0] in self.folded:
                op.result.replace_all_uses_with(self._reduced(build, op, made, p))
                continue
            made[op.result] = self._made(build, op, made, p)
            self._hand_over(op, made[op.result], build, p)
        for op in reversed(order):
            op.erase()

    def _made(self, build: ArrayBuilder, op: Operation, made: dict[Value, Value], p: Permutation) -> Value:
        operands = [self._operand(build, operand, op, made, p) for operand in self._moved_operands(op)]
        if op.name == "array.reshape":
            return operands[0]
        attributes: Mapping[str, Attribute] = op.attributes
        if op.name == CONVOLUTION:
            attributes = {**attributes, "channels_last": True}
        elif op.result not in self.folded:
            attributes = moved(op, p)
        return build.create(op.name, [*operands, *op.operands_[len(operands) :]], attributes).result

    def _operand(
        self, build: ArrayBuilder, operand: Value, op: Operation, made: dict[Value, Value], p: Permutation
    ) -> Value:
        if operand in made:
            return made[operand]
        if op.result in self.folded and op.name != "array.reshape":
            return self._unfolded(build, operand, self.folded[op.result], p)
        if operand in self.folded:
            made[operand] = in_layout(build, build("reshape", operand, shape=self.folded[operand]), p)
        else:
            made[operand] = in_layout(build, operand, p)
        return made[operand]

    def _unfolded(self, build: ArrayBuilder, operand: Value, image: _Shape, p: Permutation) -> Value:
        """An operand of a folded operation, as one of the image."""
        last = tuple(image[d] for d in p)
        spread = produced_by(operand, "broadcast")
        if tensor(operand).rank == 0:
            return operand
        if spread is not None and ints(spread, "dims") == ():
            return build("broadcast", spread.operands_[0], shape=last, dims=())
        images, groups, _ = _folded_shape(operand)
        if spread is not None and ints(spread, "dims") == (0, 1) and _plain(spread):
            value = spread.operands_[0]
        elif _folded_shape(operand)[-1] == 1:
            value = build("reshape", operand, shape=(images, groups))
        else:
            return in_layout(build, build("reshape", operand, shape=image), p)
        if groups != image[1]:
            value = build("broadcast", value, shape=(images, groups, image[1] // groups), dims=(0, 1))
            value = build("reshape", value, shape=image[:2])
        return build("broadcast", value, shape=last, dims=(0, len(last) - 1))

    def _reduced(self, build: ArrayBuilder, op: Operation, made: dict[Value, Value], p: Permutation) -> Value:
        """A reduction over all of a group: over positions, and then over the channels of the group."""
        (operand,) = op.operands_
        images, groups, _ = _folded_shape(operand)
        image = self.folded[operand]
        if operand not in made:
            made[operand] = in_layout(build, build("reshape", operand, shape=image), p)
        kind = op.name.removeprefix("array.")
        value = build(kind, made[operand], axes=tuple(range(1, self._rank - 1)), keepdims=False)
        if groups != image[1]:
            value = build("reshape", value, shape=(images, groups, image[1] // groups))
            value = build(kind, value, axes=(2,), keepdims=False)
        return build("reshape", value, shape=_folded_shape(op.result)) if op.attributes["keepdims"] else value

    def _hand_over(self, op: Operation, result: Value, build: ArrayBuilder, p: Permutation) -> None:
        """Give those who are no members the result as they know it."""
        back: Value | None = None
        for user, position in list(op.result.uses):
            if self._takes(user, position):
                continue
            if user.name == "array.transpose" and ints(user, "permutation") == p and user.parent is op.parent:
                user.result.replace_all_uses_with(result)
                continue
            if back is None:
                back = build("transpose", result, permutation=tuple(p.index(d) for d in range(len(p))))
                if op.result in self.folded:
                    back = build("reshape", back, shape=_folded_shape(op.result))
            user.set_operand(position, back)


def _moved_count(op: Operation) -> int:
    return 1 if op.name == CONVOLUTION else operands_moved(op)


def _folded_shape(value: Value) -> _Shape:
    return tensor(value).static_shape


def _folds(image: _Shape, folded: _Shape) -> bool:
    """Whether the one shape is an image, and the other its groups with all that is in each."""
    if len(image) < 4 or len(folded) != 3 or 0 in image:
        return False
    return image[0] == folded[0] and image[1] % folded[1] == 0 and math.prod(image[1:]) == math.prod(folded[1:])


def _plain(spread: Operation) -> bool:
    """Whether a broadcast repeats along new dimensions alone."""
    (x,) = spread.operands_
    return all(
        n == tensor(spread.result).static_shape[d]
        for n, d in zip(tensor(x).static_shape, ints(spread, "dims"), strict=True)
    )
