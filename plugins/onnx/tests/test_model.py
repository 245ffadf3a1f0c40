"""Models: what they declare, what they refuse, what a program is specialised by, and what is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock_onnx import ImportedProgram, Model, Session, Stage, load
from oarlock_onnx.engine import HostEngine

MakeModel = Callable[..., ModelProto]
node = helper.make_node


def relu(model_of: MakeModel) -> Model:
    return load(model_of([node("Relu", ["x"], ["y"])], {"x": ["n", 3, None]}, ["y"]).SerializeToString())


def test_inputs_and_outputs_are_declared(model_of: MakeModel) -> None:
    model = relu(model_of)
    (spec,) = model.inputs
    assert (spec.name, spec.dtype, spec.dims) == ("x", dtypes.float32, ("n", 3, None))
    assert model.output_names == ("y",)
    assert str(spec) == "x float32 [n, 3, ?]"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x' is missing"),
        ({"x": np.zeros((1, 3, 1), np.float32), "z": np.zeros(1)}, "no input 'z'"),
        ({"x": np.zeros((1, 4, 1), np.float32)}, r"got float32 \[1, 4, 1\], the model takes x float32"),
        ({"x": np.zeros((3, 1), np.float32)}, r"got float32 \[3, 1\]"),
        ({"x": np.zeros((1, 3, 1))}, "got float64"),
        ({"x": np.zeros((1, 3, 1), np.complex64)}, "complex64"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(model_of: MakeModel, inputs: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        relu(model_of).session("interpret").run(inputs)


def test_all_unsupported_operators_are_named_at_once(model_of: MakeModel) -> None:
    nodes = [node("RandomNormalLike", ["x"], ["a"]), node("Nonsense", ["a"], ["b"]), node("Nonsense", ["b"], ["y"])]
    with pytest.raises(ModelError, match=r"RandomNormalLike, Nonsense \(2 of it\)"):
        load(model_of(nodes, {"x": [1]}, ["y"]).SerializeToString(), name="odd.onnx")


def test_operator_set_that_is_not_imported_is_named(model_of: MakeModel) -> None:
    model = model_of([node("Mine", ["x"], ["y"], domain="mine")], {"x": [1]}, ["y"])
    with pytest.raises(ModelError, match="'mine'"):
        load(model.SerializeToString())


UNSUPPORTED = [TensorProto.STRING, TensorProto.FLOAT8E4M3FN, TensorProto.INT4, TensorProto.COMPLEX64]


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_element_types_that_are_not_supported_are_named(model_of: MakeModel, kind: int) -> None:
    model = model_of([node("Identity", ["x"], ["y"])], {"x": [1]}, ["y"], dtypes={"x": kind})
    with pytest.raises(ModelError, match=f"element type {TensorProto.DataType.Name(kind).lower()}"):
        load(model.SerializeToString())


def test_errors_name_the_node(model_of: MakeModel) -> None:
    model = model_of([node("Concat", ["x", "x"], ["y"], name="join", axis=7)], {"x": [1]}, ["y"])
    with pytest.raises(ModelError, match=r"node 'join' \(Concat\): axis 7"):
        load(model.SerializeToString()).build({"x": [1]})


def test_undefined_name_is_refused(model_of: MakeModel) -> None:
    model = model_of([node("Relu", ["nowhere"], ["y"])], {"x": [1]}, ["y"])
    with pytest.raises(ModelError, match="'nowhere' is defined nowhere"):
        load(model.SerializeToString()).build({"x": [1]})


def program(built: ImportedProgram | Stage) -> ImportedProgram:
    assert isinstance(built, ImportedProgram)
    return built


def operators(built: ImportedProgram) -> list[str]:
    return [op.name.split(".")[1] for op in built.function.regions[0].block.ops]


def test_shape_arithmetic_leaves_no_operators(model_of: MakeModel) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Mul", ["n", "two"], ["n2"]),
        node("Unsqueeze", ["n2", "axes"], ["u"]),
        node("Concat", ["u", "minus"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["y"]),
    ]
    constants = {"zero": np.array(0), "two": np.array(2), "axes": np.array([0]), "minus": np.array([-1])}
    model = load(model_of(nodes, {"x": ["n", 6]}, ["y"], constants).SerializeToString())
    built = program(model.build({"x": [2, 6]}))
    assert operators(built) == ["reshape", "return"]
    assert built.parameters == {} and built.specialised == {}


def test_weights_are_parameters_and_their_arithmetic_is_folded(model_of: MakeModel) -> None:
    weight = np.arange(600, dtype=np.float32).reshape(20, 30)
    nodes = [node("Transpose", ["w"], ["t"]), node("Mul", ["t", "half"], ["h"]), node("MatMul", ["x", "h"], ["y"])]
    model = load(model_of(nodes, {"x": [4, 30]}, ["y"], {"w": weight, "half": np.float32(0.5)}).SerializeToString())
    built = program(model.build({"x": [4, 30]}))
    assert operators(built) == ["dot_general", "return"]
    (folded,) = built.parameters.values()
    np.testing.assert_array_equal(folded, weight.T / 2)


def test_weights_are_shared_by_programs(model_of: MakeModel) -> None:
    weight = np.ones((30, 20), np.float32)
    product = node("MatMul", ["x", "w"], ["y"])
    model = load(model_of([product], {"x": ["n", 30]}, ["y"], {"w": weight}).SerializeToString())
    first, second = (program(model.build({"x": [n, 30]})) for n in (1, 2))
    assert first.parameters["w"] is second.parameters["w"]


def tiled(model_of: MakeModel) -> Model:
    model = model_of([node("Tile", ["x", "times"], ["y"])], {"x": [2], "times": [1]}, ["y"], dtypes={"times": 7})
    return load(model.SerializeToString())


def test_input_that_a_shape_depends_on_is_specialised(model_of: MakeModel) -> None:
    times = np.array([3])
    built = program(tiled(model_of).build({"x": [2], "times": [1]}, {"times": times}))
    assert list(built.specialised) == ["times"] and built.inputs == ("x",)
    with pytest.raises(ModelError, match="depends on the value of input 'times'"):
        tiled(model_of).build({"x": [2], "times": [1]})


class Counting(HostEngine):
    """The interpreter, counting programs."""

    def __init__(self) -> None:
        self.functions: list[object] = []

    def compile(self, function: object, parameters: object) -> None:
        if not any(function is known for known in self.functions):
            self.functions.append(function)


def test_session_rebuilds_for_new_values_and_keeps_old_programs(model_of: MakeModel) -> None:
    engine = Counting()
    session = Session(tiled(model_of), engine)
    x = np.float32([1, 2])
    for times in (2, 3, 2, 3, 2):
        result = session.run({"x": x, "times": np.array([times])})["y"]
        np.testing.assert_array_equal(result, np.tile(x, times))
    assert len(engine.functions) == 2


def test_session_builds_once_per_shape(model_of: MakeModel) -> None:
    engine = Counting()
    session = Session(relu(model_of), engine)
    for shape in ((1, 3, 2), (2, 3, 1), (1, 3, 2)):
        x = np.full(shape, -1, np.float32)
        np.testing.assert_array_equal(session.run({"x": x})["y"], np.zeros(shape))
    assert len(engine.functions) == 2


def test_shape_that_depends_on_heavy_work_is_computed_in_stages(model_of: MakeModel) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("NonZero", ["c"], ["places"]),
        node("Transpose", ["places"], ["t"]),
        node("GatherND", ["x", "t"], ["y"]),
    ]
    weight = np.ones((1, 1, 1, 1), np.float32)
    model = load(model_of(nodes, {"x": [1, 1, 3, 3]}, ["y"], {"w": weight}).SerializeToString())
    x = np.zeros((1, 1, 3, 3), np.float32)
    assert isinstance(model.build({"x": x.shape}, {"x": x}), Stage)
    session = model.session("interpret")
    for filled in (2, 5, 0):
        x = np.zeros((1, 1, 3, 3), np.float32)
        x.reshape(-1)[:filled] = np.arange(1, filled + 1)
        np.testing.assert_array_equal(session.run({"x": x})["y"], x[x != 0])


def branches(model_of: MakeModel, condition: str) -> ModelProto:
    def branch(name: str, operator: str) -> onnx.GraphProto:
        return helper.make_graph(
            [node(operator, ["x"], [name])], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)]
        )

    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["positive"]),
        node("Equal", ["rate", "wanted"], ["same"]),
        node("If", [condition], ["y"], then_branch=branch("a", "Neg"), else_branch=branch("b", "Abs")),
    ]
    constants = {"zero": np.float32(0), "wanted": np.array(16000)}
    return model_of(nodes, {"x": [100], "rate": []}, ["y"], constants, dtypes={"rate": 7})


def test_condition_from_a_small_input_chooses_one_branch(model_of: MakeModel) -> None:
    model = load(branches(model_of, "same").SerializeToString())
    x = np.linspace(-1, 2, 100, dtype=np.float32)
    built = program(model.build({"x": [100], "rate": []}, {"x": x, "rate": np.array(16000)}))
    assert list(built.specialised) == ["rate"] and operators(built) == ["negative", "return"]
    session = model.session("interpret")
    np.testing.assert_array_equal(session.run({"x": x, "rate": np.array(16000)})["y"], -x)
    np.testing.assert_array_equal(session.run({"x": x, "rate": np.array(8000)})["y"], abs(x))


def test_condition_from_data_selects_between_both_branches(model_of: MakeModel) -> None:
    model = load(branches(model_of, "positive").SerializeToString())
    session = model.session("interpret")
    for sign in (1, -1):
        x = sign * np.linspace(-1, 2, 100, dtype=np.float32)
        built = program(model.build({"x": [100], "rate": []}, {"x": x, "rate": np.array(1)}))
        assert built.specialised == {} and "select" in operators(built)
        expected = -x if x.sum() > 0 else abs(x)
        np.testing.assert_array_equal(session.run({"x": x, "rate": np.array(1)})["y"], expected)


def test_local_functions_are_inlined_with_their_attributes(model_of: MakeModel) -> None:
    model = model_of([node("Scaled", ["x"], ["y"], domain="mine", slope=0.25)], {"x": [3]}, ["y"])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    inner = node("LeakyRelu", ["a"], ["b"])
    reference = inner.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    model.functions.append(helper.make_function("mine", "Scaled", ["a"], ["b"], [inner], opsets, ["slope"]))
    model.opset_import.append(opsets[1])
    result = load(model.SerializeToString()).session("interpret").run({"x": np.float32([-4, 0, 4])})
    np.testing.assert_array_equal(result["y"], [-1, 0, 4])


def test_output_may_be_an_input_or_a_constant(model_of: MakeModel) -> None:
    model = model_of([], {"x": [2]}, ["x", "w"], {"w": np.arange(100, dtype=np.float32)})
    result = load(model.SerializeToString()).session("interpret").run({"x": np.float32([1, 2])})
    np.testing.assert_array_equal(result["x"], [1, 2])
    np.testing.assert_array_equal(result["w"], np.arange(100))


def test_sequences_inside_a_model_work(model_of: MakeModel) -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["parts"], axis=0),
        node("SequenceAt", ["parts", "one"], ["middle"]),
        node("SequenceInsert", ["parts", "middle"], ["more"]),
        node("ConcatFromSequence", ["more"], ["y"], axis=0),
    ]
    model = load(model_of(nodes, {"x": [3, 2]}, ["y"], {"one": np.array(1)}).SerializeToString())
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(model.session("interpret").run({"x": x})["y"], np.vstack([x, x[1:2]]))


def test_importer_is_found_by_its_name() -> None:
    from oarlock.registry import load as load_plugin

    importer = load_plugin("oarlock.importers", "onnx")
    assert importer.suffixes == (".onnx",)


def test_file_is_loaded_by_path(model_of: MakeModel, tmp_path: Path) -> None:
    path = tmp_path / "relu.onnx"
    onnx.save(model_of([node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"]), path)
    assert load(path).name == "relu.onnx" and load(str(path)).inputs[0].name == "x"
