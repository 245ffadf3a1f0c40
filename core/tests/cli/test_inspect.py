"""``oarlock inspect``: every stage as text and as JSON, choosing by name, and one clear line for what is wrong."""

from __future__ import annotations

import json

import pytest

from oarlock import cli, dtypes
from oarlock.ir import Block, Operation, Region, TensorType
from oarlock.ir.json import from_json, to_json
from oarlock.ir.text import parse, print_op
from oarlock.ops import ArrayBuilder, array_context

STAGES = ("array", "fused", "kernel", "source", "plan")


def program() -> Operation:
    """Rows less their mean, and the largest of each column: two groups with a temporary between them."""
    context = array_context()
    block = Block([TensorType(dtypes.float32, (4, 6)), TensorType(dtypes.float32, (6,))])
    for argument, name in zip(block.args, "xb", strict=True):
        argument.name_hint = name
    builder = ArrayBuilder(context, block)
    x, b = block.args
    y = builder("add", builder("multiply", x, builder.full(2.0, x)), b)
    z = builder("subtract", y, builder("mean", y, axes=(1,), keepdims=True))
    builder.create("builtin.return", [builder("reduce_max", z, axes=(0,), keepdims=False)])
    return Operation(context.definition("builtin.function"), attributes={"name": "f"}, regions=[Region([block])])


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "program.txt"
    path.write_text(print_op(program()))
    return path


def inspect(capsys, *arguments):
    """Exit status, standard output, standard error."""
    status = cli.main(["inspect", *map(str, arguments), "--quiet"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("stage", STAGES)
def test_stage_reads_text_and_json_alike(stage, text_file, tmp_path, capsys):
    json_file = tmp_path / "program.json"
    json_file.write_text(json.dumps(to_json(program(), array_context())))
    first = inspect(capsys, text_file, "--stage", stage)
    assert first[0] == 0 and not first[2]
    assert inspect(capsys, json_file, "--stage", stage) == first


@pytest.mark.parametrize("stage", STAGES)
def test_stage_as_json_is_json(stage, text_file, capsys):
    status, out, _ = inspect(capsys, text_file, "--stage", stage, "--json")
    assert status == 0 and json.loads(out)


def test_array_stage_decomposes_and_can_be_read_back(text_file, capsys):
    _, out, _ = inspect(capsys, text_file)
    before, after = out.split("\n\nafter passes\n")
    assert "array.mean" in before and "array.mean" not in after and "array.reduce_sum" in after
    assert parse(after.strip(), array_context()).name == "builtin.function"
    _, out, _ = inspect(capsys, text_file, "--json")
    assert print_op(from_json(json.loads(out)["before"], array_context())) == text_file.read_text()


def test_passes_are_reported(text_file, capsys):
    _, out, _ = inspect(capsys, text_file, "--passes")
    assert [line.split()[0] for line in out.split("\npasses\n")[1].splitlines()][0] == "decompose"
    _, out, _ = inspect(capsys, text_file, "--passes", "--json")
    assert json.loads(out)["passes"][0]["statistics"]


def test_fused_stage_shows_members_leaves_and_outputs(text_file, capsys):
    _, out, _ = inspect(capsys, text_file, "--stage", "fused", "--json")
    rows, columns = json.loads(out)["groups"]
    assert (rows["kind"], rows["domain"], rows["reduced"]) == ("rows", [4, 6], [1])
    assert rows["leaves"] == ["%x: tensor<4x6xfloat32>", "%b: tensor<6xfloat32>"]
    assert columns["leaves"] == rows["outputs"] and columns["kind"] == "columns"
    assert any("array.broadcast" in line for line in rows["inlined"])
    assert [line.split(" = ")[1].split("(")[0] for line in columns["members"]] == ["array.reduce_max"]


def test_kernel_stage_prints_each_kernel_once(text_file, capsys):
    _, out, _ = inspect(capsys, text_file, "--stage", "kernel", "--json")
    kernels = json.loads(out)["kernels"]
    assert len({kernel["name"] for kernel in kernels}) == len(kernels) == 2
    assert all(kernel["text"].startswith("kernel.function()") for kernel in kernels)


@pytest.mark.parametrize(("device", "language", "mark"), [("cpu", "llvm", "define void @"), ("sim:1", "", "")])
def test_source_is_in_the_language_of_the_device(device, language, mark, text_file, capsys):
    _, out, _ = inspect(capsys, text_file, "--stage", "source", "--device", device, "--json")
    data = json.loads(out)
    assert data["language"] == (language or data["target"]["language"])
    assert mark in data["source"] and all(name in data["source"] for name in data["kernels"])


def test_plan_places_the_temporary_between_the_steps(text_file, capsys):
    _, out, _ = inspect(capsys, text_file, "--stage", "plan", "--json")
    data = json.loads(out)
    assert [step["kind"] for step in data["steps"]] == ["launch", "launch"]
    (temporary,) = data["temporaries"]
    assert (temporary["bytes"], temporary["offset"]) == (4 * 6 * 4, 0)
    assert (temporary["first_step"], temporary["last_step"]) == (0, 1)
    assert data["arena_bytes"] >= data["lower_bound_bytes"] >= 96
    assert data["steps"][0]["writes"] == data["steps"][1]["reads"]


def test_plan_of_a_device_with_exclusive_binding_has_no_arena(text_file, capsys):
    _, out, _ = inspect(capsys, text_file, "--stage", "plan", "--device", "sim:1", "--json")
    data = json.loads(out)
    assert data["separate"] and data["arena_bytes"] == 0 and data["temporaries"][0]["offset"] is None


def test_names_of_kernels_are_identifiers_in_every_language(tmp_path, capsys):
    path = tmp_path / "convolution.txt"
    context = array_context()
    block = Block([TensorType(dtypes.float32, (1, 4, 16, 16)), TensorType(dtypes.float32, (8, 4, 3, 3))])
    builder = ArrayBuilder(context, block)
    padding = ((1, 1), (1, 1))
    made = builder("convolution", *block.args, strides=(2, 2), padding=padding, dilation=(1, 1), groups=1)
    builder.create("builtin.return", [made])
    function = Operation(context.definition("builtin.function"), attributes={"name": "f"}, regions=[Region([block])])
    path.write_text(print_op(function))
    _, out, _ = inspect(capsys, path, "--stage", "kernel", "--json")
    names = [kernel["name"] for kernel in json.loads(out)["kernels"]]
    assert len(names) == 3  # the padded image, its phases, the convolution
    assert all(name.isidentifier() for name in names)


def test_library_kernels_are_named(tmp_path, capsys):
    path = tmp_path / "product.txt"
    context = array_context()
    block = Block([TensorType(dtypes.float32, (rows, 64)) for rows in (24, 64)])
    builder = ArrayBuilder(context, block)
    product = builder("dot_general", *block.args, batch=((), ()), contract=((1,), (0,)), dtype=dtypes.float32)
    builder.create("builtin.return", [product])
    function = Operation(context.definition("builtin.function"), attributes={"name": "f"}, regions=[Region([block])])
    path.write_text(print_op(function))
    for stage in ("fused", "kernel", "source", "plan"):
        assert "the adapter's own kernel" in inspect(capsys, path, "--stage", stage)[1]


def test_only_chooses_by_name(text_file, capsys):
    _, out, _ = inspect(capsys, text_file, "--stage", "kernel", "--only", "reduce_max", "--json")
    (kernel,) = json.loads(out)["kernels"]
    assert "reduce_max" in kernel["name"]
    _, out, _ = inspect(capsys, text_file, "--stage", "array", "--only", "array.m?an")
    assert out.count("array.mean") == 1 and "array.multiply" not in out


@pytest.mark.parametrize("stage", STAGES)
def test_only_that_matches_nothing_says_what_there_is(stage, text_file, capsys):
    status, out, err = inspect(capsys, text_file, "--stage", stage, "--only", "gather")
    assert status == 2 and not out and err.count("\n") == 1
    assert "--only gather" in err and "multiply" in err


def test_model_file_is_imported_for_the_shapes_given(tmp_path, capsys):
    import onnx

    kind = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [kind("x", onnx.TensorProto.FLOAT, ["n", 3])],
        [kind("y", onnx.TensorProto.FLOAT, ["n", 3])],
    )
    path = tmp_path / "relu.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    status, out, _ = inspect(capsys, path, "--stage", "fused", "--shape", "x=5,3")
    assert status == 0 and "%x: tensor<5x3xfloat32>" in out
    status, _, err = inspect(capsys, path, "--stage", "fused")
    assert status == 2 and "--shape x=" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("missing.txt", None, "cannot read it"),
        ("binary.txt", b"\xff\xfe", "it is no text"),
        ("broken.txt", b"builtin.function(", "it is no program"),
        ("broken.json", b"{", "it is no program"),
        ("list.json", b"[1]", "it is no program"),
        ("deep.json", b"[" * 100_000, "it is no program"),
        ("model.abc", b"", "no importer reads .abc"),
        ("constant.txt", b"%0 = array.constant() {value = dense<int32: [1]>} : () -> tensor<int32>", "array.constant"),
        (
            "symbolic.txt",
            b'builtin.function() {name = "f"} (%x: tensor<(n)xfloat32>) {\n  builtin.return(%x)\n}',
            "only static shapes",
        ),
    ],
)
def test_what_is_wrong_is_one_line(name, content, text, tmp_path, capsys):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    status, out, err = inspect(capsys, path)
    assert status == 2 and not out
    assert text in err and err.count("\n") == 1 and len(err) < 1000


def test_control_flow_is_shown_but_not_compiled(tmp_path, capsys):
    path = tmp_path / "branch.txt"
    path.write_text(
        'builtin.function() {name = "f"} (%c: tensor<bool>, %x: tensor<3xfloat32>) {\n'
        "  %0 = control.if(%c) : (tensor<bool>) -> tensor<3xfloat32> {\n    control.yield(%x)\n  } {\n"
        "    control.yield(%x)\n  }\n  builtin.return(%0)\n}"
    )
    assert inspect(capsys, path)[0] == 0
    status, _, err = inspect(capsys, path, "--stage", "fused")
    assert status == 2 and "control.if: control flow is not compiled yet" in err and err.count("\n") == 1


def test_options_that_do_not_go_together_are_refused(text_file, capsys):
    status, _, err = inspect(capsys, text_file, "--stage", "plan", "--passes")
    assert status == 2 and "--passes goes with --stage array" in err
    status, _, err = inspect(capsys, text_file, "--shape", "x=1")
    assert status == 2 and "--shape" in err
    status, _, err = inspect(capsys, text_file, "--stage", "plan", "--device", "nothing:0")
    assert status == 2 and 'no device "nothing:0"' in err


# --- passes -----------------------------------------------------------------------------------------------------------


def test_programs_after_passes_are_printed(text_file, capsys):
    _, out, _ = inspect(capsys, text_file, "--print-after", "decompose", "--print-after", "dce")
    between = out.split("\n\nafter decompose\n")[1].split("\n\nafter dce\n")
    assert len(between) == 2
    assert all(parse(part, array_context()).name == "builtin.function" for part in between)
    _, out, _ = inspect(capsys, text_file, "--print-after", "all", "--json")
    assert [item["pass"] for item in json.loads(out)["between"]][:3] == ["decompose", "fold", "simplify"]


def test_pipeline_chooses_passes(text_file, capsys):
    def ran(*options):
        _, out, err = inspect(capsys, text_file, "--passes", "--json", *options)
        assert not err
        return [item["name"] for item in json.loads(out)["passes"]]

    assert ran("--pipeline", "fold,dce") == ["fold", "dce"]
    usual = ran()
    assert ran("--pipeline=-sink,+mixed_float16") == [
        *usual[: usual.index("sink")], "mixed_float16", *usual[usual.index("sink") + 1 :],
    ]  # fmt: skip
    assert ran("--level", "0") == ["decompose"]
    assert "layout" not in ran("--level", "1")


def test_pipeline_reaches_the_kernels(text_file, capsys):
    status, out, _ = inspect(capsys, text_file, "--stage", "fused", "--pipeline", "decompose")
    assert status == 0 and "groups on cpu" in out


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--pipeline", "fold,gone"), "no pass 'gone'; there are decompose, fold"),
        (("--pipeline", "fold,+sink"), "give either names, or changes"),
        (("--print-after", "gone"), "--print-after gone: no such pass runs"),
        (("--stage", "fused", "--print-after", "fold"), "--print-after goes with --stage array"),
        (("--stage", "plan", "--pipeline", "fold"), "--pipeline and --level go with"),
    ],
)
def test_passes_that_there_are_not_are_refused(options, text, text_file, capsys):
    status, out, err = inspect(capsys, text_file, *options)
    assert status == 2 and not out and text in err and err.count("\n") == 1
