"""Models are untrusted: whatever a file holds, it loads, or ends in one ModelError of one line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from oarlock.errors import ModelError
from oarlock_onnx import load

MakeModel = Callable[..., ModelProto]
MUTANTS = 200


def mutate(data: bytes, generator: np.random.Generator) -> bytes:
    """Truncated, with bytes changed, with a part removed, or with a part repeated."""
    kind = int(generator.integers(4))
    changed = bytearray(data)
    start = int(generator.integers(len(data)))
    if kind == 0:
        return bytes(changed[:start])
    if kind == 1:
        for _ in range(int(generator.integers(1, 6))):
            changed[int(generator.integers(len(data)))] = int(generator.integers(256))
    elif kind == 2:
        del changed[start : start + int(generator.integers(1, 20))]
    else:
        place = int(generator.integers(len(data)))
        changed[place:place] = data[start : start + int(generator.integers(1, 40))]
    return bytes(changed)


def load_and_build(data: bytes) -> None:
    model = load(data)
    shapes = {s.name: [d if isinstance(d, int) else 1 for d in s.dims or ()] for s in model.inputs}
    small = [s for s in model.inputs if np.prod(shapes[s.name], dtype=object) < 1e6]
    model.build(shapes, {s.name: np.zeros(shapes[s.name], s.dtype.numpy) for s in small})


def test_mutated_files_end_in_one_line(samples: list[ModelProto]) -> None:
    generator = np.random.default_rng(20260)
    originals = [model.SerializeToString() for model in samples]
    refused = 0
    for number in range(MUTANTS):
        data = mutate(originals[number % len(originals)], generator)
        try:
            load_and_build(data)
        except ModelError as error:
            refused += 1
            assert str(error) and "\n" not in str(error) and len(str(error)) < 1000
    assert MUTANTS // 2 < refused < MUTANTS


def test_intact_files_build(samples: list[ModelProto]) -> None:
    for model in samples:
        load_and_build(model.SerializeToString())


@pytest.mark.parametrize("data", [b"", b"\x00", b"not a model", b"\xff" * 100, b"PK\x03\x04"])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ModelError):
        load(data)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        load(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="folder"):
        load(tmp_path)


def test_tensor_that_claims_too_much_is_refused(model_of: MakeModel) -> None:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [1]}, ["y"])
    model.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**30, 2**30]))
    with pytest.raises(ModelError, match="elements"):
        load(model.SerializeToString()).build({"x": [1]})


def test_tensor_with_too_little_data_is_refused(model_of: MakeModel) -> None:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [1]}, ["y"])
    model.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1000], raw_data=b"\0" * 8))
    with pytest.raises(ModelError, match="bytes of data"):
        load(model.SerializeToString()).build({"x": [1]})


@pytest.mark.parametrize(
    ("operator", "sizes"),
    [
        ("Expand", [2**20, 2**20, 2**20]),
        ("Tile", [2**40]),
        ("ConstantOfShape", [2**31, 2**31]),
        ("Reshape", [2**40]),
        ("Expand", [-1]),
        ("ConstantOfShape", [-5]),
    ],
)
def test_absurd_sizes_are_refused(model_of: MakeModel, operator: str, sizes: list[int]) -> None:
    inputs = ["sizes"] if operator == "ConstantOfShape" else ["x", "sizes"]
    model = model_of(
        [helper.make_node(operator, inputs, ["z"]), helper.make_node("Add", ["z", "x"], ["y"])],
        {"x": [1]},
        ["y"],
        {"sizes": np.array(sizes)},
    )
    with pytest.raises(ModelError):
        load(model.SerializeToString()).build({"x": [1]})


def test_growing_constants_are_refused(model_of: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oarlock_onnx.builder.MAX_FOLDED_BYTES", 2**22)
    nodes = [helper.make_node("Concat", ["w", "w"], ["c0"], axis=0)]
    nodes += [helper.make_node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], axis=0) for i in range(40)]
    nodes.append(helper.make_node("ReduceMax", ["c40"], ["y"]))
    model = model_of(nodes, {}, ["y"], {"w": np.zeros(4096, np.float32)})
    with pytest.raises(ModelError, match="elements"):
        load(model.SerializeToString()).build({})


def test_endless_loop_is_refused(model_of: MakeModel) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["a", "a"], ["b"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [1]),
        ],
    )
    model = model_of(
        [helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body)], {"x": [1]}, ["y"], {"yes": np.array(True)}
    )
    with pytest.raises(ModelError, match="times"):
        load(model.SerializeToString()).build({"x": [1]})


def field(number: int, data: bytes) -> bytes:
    """A length-delimited field of protobuf's wire format."""
    size, length = len(data), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


@pytest.mark.parametrize("depth", [20, 40, 1000])
def test_deep_nesting_is_refused(model_of: MakeModel, depth: int) -> None:
    graph = model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": [1]}, ["y"]).graph.SerializeToString()
    for _ in range(depth):
        branch = field(1, b"then_branch") + bytes([20 << 3, 5]) + field(6, graph)
        node = field(1, b"x") + field(2, b"y") + field(4, b"If") + field(5, branch)
        graph = field(1, node) + field(12, field(1, b"y"))
    model = model_of([], {"x": [1]}, ["y"])
    data = model.SerializeToString() + field(7, graph)
    with pytest.raises(ModelError):
        load_and_build(data)


def test_recursive_function_is_refused(model_of: MakeModel) -> None:
    model = model_of([helper.make_node("Self", ["x"], ["y"], domain="mine")], {"x": [1]}, ["y"])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    call = helper.make_node("Self", ["a"], ["b"], domain="mine")
    model.functions.append(helper.make_function("mine", "Self", ["a"], ["b"], [call], opsets))
    model.opset_import.append(opsets[1])
    with pytest.raises(ModelError, match="nested"):
        load(model.SerializeToString()).build({"x": [1]})


def external(model_of: MakeModel, location: str, **fields: str) -> ModelProto:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2]}, ["y"])
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **fields}.items():
        weight.external_data.add(key=key, value=value)
    model.graph.initializer.append(weight)
    return model


def build_at(folder: Path, model: ModelProto) -> None:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    load(path).build({"x": [2]})


def test_external_data_in_the_folder_is_read(model_of: MakeModel, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"\0" * 4 + np.float32([3, 4]).tobytes())
    build_at(tmp_path, external(model_of, "sub/w.bin", offset="4", length="8"))


@pytest.mark.parametrize("location", ["../w.bin", "sub/../../w.bin", "", ".", "..", "a\0b", "..\\w.bin"])
def test_external_data_elsewhere_is_refused(model_of: MakeModel, tmp_path: Path, location: str) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    inner = tmp_path / "models"
    inner.mkdir()
    with pytest.raises(ModelError, match="external data"):
        build_at(inner, external(model_of, location))


def test_external_data_by_absolute_path_is_refused(model_of: MakeModel, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    with pytest.raises(ModelError, match="does not lie"):
        build_at(tmp_path, external(model_of, str(tmp_path / "w.bin")))


def test_external_data_through_a_link_out_is_refused(model_of: MakeModel, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 8)
    inner = tmp_path / "models"
    inner.mkdir()
    (inner / "w.bin").symlink_to(tmp_path / "secret")
    (inner / "out").symlink_to(tmp_path)
    for location in ("w.bin", "out/secret"):
        with pytest.raises(ModelError, match="does not lie"):
            build_at(inner, external(model_of, location))


@pytest.mark.parametrize("fields", [{"offset": "4"}, {"length": "4"}, {"offset": "-4"}, {"length": "9" * 30}])
def test_external_data_outside_the_file_is_refused(model_of: MakeModel, tmp_path: Path, fields: dict[str, str]) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    with pytest.raises(ModelError):
        build_at(tmp_path, external(model_of, "w.bin", **fields))


def test_external_data_in_a_pipe_is_refused(model_of: MakeModel, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(ModelError):
        build_at(tmp_path, external(model_of, "w.bin"))


def test_external_data_of_a_model_in_memory_is_refused(model_of: MakeModel) -> None:
    with pytest.raises(ModelError, match="as bytes"):
        load(external(model_of, "w.bin").SerializeToString()).build({"x": [2]})


def test_names_that_are_no_text_are_refused(model_of: MakeModel) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["yyyy"])], {"x": [1]}, ["yyyy"])
    with pytest.raises(ModelError, match="UTF-8"):
        load(model.SerializeToString().replace(b"yyyy", b"\xff\xfe\xfd\xfc"))


def test_values_of_a_model_are_exact(model_of: MakeModel) -> None:
    weight = np.float32([1.5, -2.25])
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2]}, ["y"])
    by_field = numpy_helper.from_array(weight, "w")
    by_field.ClearField("raw_data")
    by_field.float_data.extend(weight.tolist())
    model.graph.initializer.append(by_field)
    result = load(model.SerializeToString()).session("interpret").run({"x": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(result["y"], weight)
