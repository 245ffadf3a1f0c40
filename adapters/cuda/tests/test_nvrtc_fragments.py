"""Which element each thread gives to a tensor core: loads and stores against the layout that the PTX ISA documents.

No GPU runs here: the text that CUDA kernels get is compiled by the host's compiler, its ``mma.sync`` replaced by a
function that reads the registers of all 32 threads as the PTX ISA lays them out (``fragments.h``).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from oarlock.codegen.render.cuda_matrix import MATRIX

HERE = Path(__file__).parent
_ASM = re.compile(
    r'asm\("mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.f32\.(\w+)\.\w+\.f32 [^"]*"(?:\s*"\{[^"]*")?\s*'
    r':(?:\s*"\+f"\(t\[\d\]\),?)+\s*:\s*([^;]*)\);'
)
_MAIN = """
int main() {
    static ELEMENT a[16 * STRIDE], b[16 * STRIDE];
    static float out[16 * 20];
    if (fread(a, sizeof a, 1, stdin) != 1 || fread(b, sizeof b, 1, stdin) != 1) return 1;
    for (int pass = 0; pass < 2; ++pass)
        for (threadIdx.x = 0; threadIdx.x < 32; ++threadIdx.x) {
            noting = pass == 0;
            call = 0;
            float32x8 total;
            for (float &x : total.s) x = 3;
            total = FUNCTION<STRIDE>(a, b, total);
            if (pass == 1) matrix_store<20>(out, total);
        }
    fwrite(out, sizeof out, 1, stdout);
}
"""


def host_text(kind: str) -> str:
    """The device functions of ``kind`` as host C++."""

    def call(found: re.Match[str]) -> str:
        depth, dtype = int(found[1]), found[2]
        words = re.findall(r'"r"\((\w+(?:\(row\[\d\]\))?)\)', found[3])
        split = len(words) * 2 // 3
        a, b = (", ".join(part) for part in (words[:split], words[split:]))
        return f"mma(t, {{{{{a}}}, {{{b}}}}}, {depth}, {'false' if dtype == 'tf32' else 'true'});"

    text = MATRIX[f"matrix_{kind}"].replace("static __device__ __forceinline__ unsigned int tf32_of", "#if 0\n", 1)
    text = text.replace("    return bits;\n}\n", "#endif\n", 1) if kind == "tf32" else text
    text, count = _ASM.subn(call, text)
    assert count == (1 if kind == "tf32" else 3) and "asm" not in re.sub(r"#if 0.*?#endif", "", text, flags=re.S)
    return "\n".join(['#include "fragments.h"', "#define __CUDACC__", MATRIX["matrix_store"], text, _MAIN])


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [("float16", 750), ("float16", 800), ("bfloat16", 800), ("tf32", 800)],
    ids=lambda part: str(part),
)
def test_threads_hold_what_the_instruction_expects(kind: str, architecture: int, tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("UNAVAILABLE: no C++ compiler")
    multiply(compiler, host_text(kind), kind, [f"-D__CUDA_ARCH__={architecture}"], tmp_path)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_the_simulation_multiplies_too(kind: str, tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("UNAVAILABLE: no C++ compiler")
    lane = "static unsigned sim_lane() { return threadIdx.x; }"
    text = "\n".join(['#include "fragments.h"', lane, '#include "simulated_driver/matrix.h"', _MAIN])
    multiply(compiler, text, kind, [], tmp_path)


def multiply(compiler: str, text: str, kind: str, defines: list[str], folder: Path) -> None:
    """Compile ``text``, run it on 16 x 16 numbers whose products are exact, and compare."""
    (folder / "test.cpp").write_text(text)
    element, held = {
        "float16": ("unsigned short", np.dtype(np.float16)),
        "bfloat16": ("unsigned short", np.dtype(ml_dtypes.bfloat16)),
        "tf32": ("float", np.dtype(np.float32)),
    }[kind]
    stride = 24
    defines += [f"-DELEMENT={element}", f"-DSTRIDE={stride}", f"-DFUNCTION=matrix_{kind}"]
    defines += ["-DBFLOAT16"] if kind == "bfloat16" else []
    program = folder / "test"
    command = [compiler, "-std=c++17", "-O1", f"-I{HERE}", *defines, str(folder / "test.cpp"), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    random = np.random.default_rng(1)
    a, b = (random.integers(-8, 9, (16, stride)).astype(held) for _ in range(2))  # every sum is exact
    out = subprocess.run([program], input=a.tobytes() + b.tobytes(), capture_output=True, check=True).stdout
    got = np.frombuffer(out, np.float32).reshape(16, 20)
    wanted = 3 + a[:, :16].astype(np.float64) @ b[:, :16].astype(np.float64).T
    np.testing.assert_array_equal(got[:, :16], wanted)
    assert not got[:, 16:].any()
