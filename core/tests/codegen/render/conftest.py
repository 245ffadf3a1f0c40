"""Toolchains that compile and launch rendered kernels, one for each language in the tree."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from oarlock.codegen.kernel import signature_of
from oarlock.codegen.render import renderer
from oarlock.codegen.render.c99 import FLAGS as C_FLAGS
from oarlock.codegen.render.opencl import FLAGS as CL_FLAGS
from oarlock.errors import OarlockError
from oarlock.hal import Adapter
from oarlock.registry import get_adapter
from oarlock.target import Limits, Target

Launch = Callable[[str, tuple[int, int, int], Sequence[np.ndarray], Sequence[np.generic]], None]
"""Runs kernel ``name`` over a grid, on arrays in place, with scalars."""

ALL = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
)  # what processors compute
HALF = (("float16", "uint16"), ("bfloat16", "uint16"))


class Toolchain:
    """Compiles a list of legalised kernels for ``target`` and gives what launches them."""

    def __init__(self, target: Target, build: Callable[[str], Launch]) -> None:
        self.target = target
        self._build = build

    def compile(self, functions: Sequence[Any], target: Target | None = None) -> Launch:
        target = target or self.target
        return self._build(renderer(target.language).render(functions, target))


def _c_abi(address: Callable[[str], int]) -> Launch:
    def launch(
        name: str, grid: tuple[int, int, int], buffers: Sequence[np.ndarray], scalars: Sequence[np.generic]
    ) -> None:
        entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(address(name))
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*(b.ctypes.data for b in buffers))
        block = b""
        for scalar in scalars:
            block += bytes(-len(block) % scalar.itemsize) + scalar.tobytes()
        # two boxes along the last axis that has several blocks: what a caller with two threads does
        axis = max((a for a in range(3) if grid[a] > 1), default=0)
        cuts = [0, grid[axis] // 2, grid[axis]]
        for low, high in zip(cuts, cuts[1:], strict=False):
            begin, end = [0, 0, 0], list(grid)
            begin[axis], end[axis] = low, high
            entry(pointers, block, (ctypes.c_uint32 * 3)(*begin), (ctypes.c_uint32 * 3)(*end))

    return launch


@pytest.fixture(scope="session")
def c99(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: gcc or cc is not on the path")

    def build(source: str) -> Launch:
        folder = tmp_path_factory.mktemp("c99")
        (folder / "k.c").write_text(source)
        command = [compiler, *C_FLAGS, "-O1", "-Wall", "-Wno-unknown-pragmas", "-Wno-psabi", "-o", "k.so", "k.c", "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        unused = ("unused-variable", "declared ‘static’ but never defined")
        assert not [
            line for line in done.stderr.splitlines() if "warning" in line and not any(u in line for u in unused)
        ]
        library = ctypes.CDLL(str(folder / "k.so"))
        return _c_abi(lambda name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)

    return Toolchain(Target("c99", compute=ALL, storage=HALF), build)


@pytest.fixture(scope="session")
def llvm() -> Toolchain:
    binding = pytest.importorskip("llvmlite.binding", reason="llvmlite is not installed")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    engines = []

    def build(source: str) -> Launch:
        machine = binding.Target.from_default_triple().create_target_machine(
            cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=2, jit=True
        )  # the engine owns it
        module = binding.parse_assembly(source)
        module.verify()
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        options = binding.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = True
        passes = binding.create_pass_builder(machine, options)
        passes.getModulePassManager().run(module, passes)
        engine = binding.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        engines.append(engine)
        return _c_abi(engine.get_function_address)

    return Toolchain(Target("llvm", compute=ALL, storage=HALF), build)


@pytest.fixture(scope="session")
def opencl() -> Toolchain:
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    platforms = cl.get_platforms()
    if not platforms:
        pytest.skip("pyopencl finds no OpenCL platform")
    context = cl.Context([platforms[0].get_devices()[0]])
    queue = cl.CommandQueue(context)

    def build(source: str) -> Launch:
        program = cl.Program(context, source).build(list(CL_FLAGS), cache_dir=False)

        def launch(
            name: str, grid: tuple[int, int, int], buffers: Sequence[np.ndarray], scalars: Sequence[np.generic]
        ) -> None:
            kernel = getattr(program, name)
            block = kernel.get_work_group_info(cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, context.devices[0])
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            held = [cl.Buffer(context, flags, hostbuf=b) for b in buffers]
            for position, argument in enumerate((*held, *scalars)):
                kernel.set_arg(position, argument)
            cl.enqueue_nd_range_kernel(queue, kernel, [g * b for g, b in zip(grid, block, strict=True)], block)
            for array, buffer in zip(buffers, held, strict=True):
                cl.enqueue_copy(queue, array, buffer)
            queue.finish()

        return launch

    limits = Limits(max_block=(256, 256, 64), max_threads=256, local_memory=32 << 10, vector_width=16)
    return Toolchain(Target("opencl", compute=ALL, storage=HALF, limits=limits), build)


class WGSL(Toolchain):
    """WGSL through the webgpu adapter's driver, which binds buffers as the signatures say."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter.devices()[0].target, lambda source: pytest.fail("WGSL needs signatures"))
        self.driver = adapter.open(0)

    def compile(self, functions: Sequence[Any], target: Target | None = None) -> Launch:
        signatures = {each.name: each for each in (signature_of(function, self.target) for function in functions)}
        source = renderer("wgsl").render(functions, self.target)
        program, driver = self.driver.load(source.encode(), list(signatures.values())), self.driver

        def launch(
            name: str, grid: tuple[int, int, int], buffers: Sequence[np.ndarray], scalars: Sequence[np.generic]
        ) -> None:
            handles = [driver.allocate(array.nbytes) for array in buffers]
            bindings = [(handle, 0, array.nbytes) for handle, array in zip(handles, buffers, strict=True)]
            for handle, array in zip(handles, buffers, strict=True):
                driver.copy_in(None, handle, 0, array.view(np.uint8).data)
            packed = signatures[name].pack([scalar.item() for scalar in scalars])
            driver.launch(None, program, name, grid, signatures[name].block, bindings, packed)
            for handle, array in zip(handles, buffers, strict=True):
                driver.copy_out(None, array.view(np.uint8).data, handle, 0)
            driver.synchronize(None, 60.0)
            for handle in handles:
                driver.free(handle)

        return launch


@pytest.fixture(scope="session")
def wgsl() -> Iterator[WGSL]:
    """The first WebGPU device; without one, what needs it is skipped with the reason that ``oarlock doctor`` gives."""
    try:
        toolchain = WGSL(get_adapter("webgpu"))
    except OarlockError as error:
        pytest.skip(f"WGSL cannot be run here: {error}")
    yield toolchain
    toolchain.driver.close()


@pytest.fixture(params=["c99", "llvm", "opencl"], scope="session")
def toolchain(request: pytest.FixtureRequest) -> Toolchain:
    """Each toolchain in turn."""
    found: Toolchain = request.getfixturevalue(request.param)
    return found
