"""Executables, libraries, archives and source folders: what they are, their bits, and how they appear."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import castiron
from castiron.artifact import load as loading
from castiron.lab.inspect import describe
from castiron.pipeline import check_artifact
from tests.artifacts.builds import MLP, QEMU, ROOT, ZIG, X, built, command, one_line, outputs, run, scratch

DRIVER = Path(__file__).parent / "artifacts" / "mlp_main.c"
NEEDS_QEMU = pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 is not installed")
X86_64, AARCH64 = 62, 183


def elf_header(path: Path) -> tuple[int, set[int], int]:
    """(machine, types of program headers, number of sections with symbols)."""
    data = path.read_bytes()
    (machine,) = struct.unpack_from("<H", data, 18)
    phoff, shoff = struct.unpack_from("<QQ", data, 32)
    phsize, phcount, shsize, shcount = struct.unpack_from("<HHHH", data, 54)
    segments = {struct.unpack_from("<I", data, phoff + i * phsize)[0] for i in range(phcount)}
    symbol_tables = sum(struct.unpack_from("<I", data, shoff + i * shsize + 4)[0] == 2 for i in range(shcount))
    return machine, segments, symbol_tables


def bits(text: str) -> np.ndarray:
    """What mlp_main.c prints, as floats."""
    return np.array([int(line, 16) for line in text.split()], np.uint32).view(np.float32)


def mlp_bits() -> np.ndarray:
    """The MLP's output on X by the executable."""
    return array(outputs(built(), cpu="x86-64-v3")).ravel()


def array(npy: bytes) -> np.ndarray:
    """The array of a .npy file."""
    path = scratch() / "answer.npy"
    path.write_bytes(npy)
    return np.load(path)


# What they are -------------------------------------------------------------------------------------------------------


def test_executable_is_static_and_stripped() -> None:
    machine, segments, symbol_tables = elf_header(built())
    interpreter = 3
    assert machine == X86_64
    assert interpreter not in segments
    assert symbol_tables == 0
    assert os.access(built(), os.X_OK)


def test_instruction_sets_with_fma_agree() -> None:
    done = run(built(), X, "-o", "-", cpu="x86-64-v4")
    if b"does not have it" in done.stderr:
        pytest.skip("this processor has no AVX-512")
    assert done.stdout == outputs(built(), cpu="x86-64-v3")


@pytest.mark.parametrize("form", ["shared", "static"])
def test_libraries_come_with_their_header(form: str) -> None:
    path = built(form)
    assert sorted(f.name for f in path.parent.iterdir()) == sorted([path.name, "mlp.h"])


def exported(path: Path) -> set[str]:
    """Names that a shared library defines for others."""
    listed = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listed.splitlines()}


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
def test_library_shows_its_own_names_only() -> None:
    names = exported(built("shared"))
    assert "mlp_session_run" in names
    assert {n for n in names if not n.startswith("mlp_")} == {"castiron_about", "castiron_name"}


def test_header_of_cplusplus() -> None:
    source = scratch() / "use.cpp"
    source.write_text(
        '#include "mlp.h"\nint main() { mlp_array a = {}; return a.rank + mlp_load(nullptr, nullptr, nullptr) * 0; }\n'
    )
    folder = built("static").parent
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", folder, "-c", source, "-o", scratch() / "use.o"]
    subprocess.run([ZIG, "c++", "-std=c++17", "-O1", *flags], check=True)
    if shutil.which("g++"):
        subprocess.run(["g++", "-std=c++11", *flags], check=True)


# The C interface -----------------------------------------------------------------------------------------------------

COMPILERS = {
    "gcc": ["gcc"],
    "clang": ["clang"],
    "zig": [ZIG, "cc", "-target", "x86_64-linux-musl", "-static"],
}


def compiler(name: str) -> list[str]:
    """Its command; skips the test where it is not installed."""
    if shutil.which(COMPILERS[name][0]) is None:
        pytest.skip(f"{name} is not installed")
    return COMPILERS[name]


def compiled(cc: list[str], *arguments: str | Path) -> Path:
    """The program of mlp_main.c."""
    program = scratch() / f"use-{abs(hash((*cc, *arguments)))}"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*cc, *flags, DRIVER, *arguments, "-o", program], check=True)
    return program


@pytest.mark.parametrize("name", ["gcc", "zig"])
def test_archive_links(name: str) -> None:
    library = built("static")
    program = compiled(compiler(name), f"-I{library.parent}", library, "-lpthread")
    done = subprocess.run([program], env={"CASTIRON_CPU": "x86-64-v3"}, capture_output=True, text=True, check=True)
    np.testing.assert_array_equal(bits(done.stdout), mlp_bits())


@pytest.mark.parametrize("name", ["gcc", "zig"])
@pytest.mark.parametrize("first", ["mlp", "conv"])
def test_two_models_in_one_program(name: str, first: str) -> None:
    libraries = [built("static"), built("static", model="conv")]
    order = libraries if first == "mlp" else libraries[::-1]
    folders = [f"-I{library.parent}" for library in libraries]
    program = compiled(compiler(name), "-DWITH_CONV", *folders, *order, "-lpthread")
    done = subprocess.run([program], env={"CASTIRON_CPU": "x86-64-v3"}, capture_output=True, text=True, check=True)
    found = bits(done.stdout)
    x = (0.1 * np.arange(108) - 0.7).astype(np.float32).reshape(1, 3, 6, 6)
    conv = array(outputs(built(model="conv"), x, cpu="x86-64-v3"))
    np.testing.assert_array_equal(found[:15], mlp_bits())
    np.testing.assert_array_equal(found[15:], conv.ravel())


def test_shared_library_links() -> None:
    library = built("shared")
    program = compiled(compiler("gcc"), f"-I{library.parent}", library, f"-Wl,-rpath,{library.parent}")
    done = subprocess.run([program], env={"CASTIRON_CPU": "x86-64-v3"}, capture_output=True, text=True, check=True)
    np.testing.assert_array_equal(bits(done.stdout), mlp_bits())


# Source folders ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "native_flag", "weights"),
    [
        ("gcc", "-march=native", "embed"),
        ("clang", "-march=native", "embed"),
        ("zig", "-march=native", "embed"),
        ("gcc", "", "file"),
    ],
)
def test_source_builds_by_its_readme(name: str, native_flag: str, weights: str, tmp_path: Path) -> None:
    folder = shutil.copytree(built("source", weights), tmp_path / "source")
    (line,) = re.findall(r"^    cc (.*)$", (folder / "README.md").read_text(), re.MULTILINE)
    line = line.replace("-march=native", native_flag)
    cc = " ".join(compiler(name)[:2])
    done = subprocess.run(f"{cc} -Wall -Wextra -Werror {line}", shell=True, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if native_flag:  # else there is no fused multiply-add on x86-64
        assert outputs(folder / "mlp") == outputs(built(), cpu="x86-64-v3")
    assert run(folder / "mlp", X, "--selftest").returncode == 0


def test_source_folder_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "mlp"
    for _ in range(2):
        castiron.build(str(MLP), target, form="source", verify=False)
        assert (target / "mlp.c").exists()
        assert os.listdir(tmp_path) == ["mlp"]


# load ----------------------------------------------------------------------------------------------------------------


def test_load_needs_numpy_only() -> None:
    program = f"""
import sys, numpy as np, castiron
model = castiron.load({str(built("shared"))!r})
x = (0.1 * np.arange(20) - 0.7).astype(np.float32).reshape(5, 4)
sys.stdout.write(model(x)["y"].tobytes().hex())
for name in ("torch", "onnx", "onnx_ir", "ml_dtypes", "sympy"):
    assert name not in sys.modules, name
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CASTIRON_CPU": "x86-64-v3"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout) == mlp_bits().tobytes()


def test_load_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    call = loading.Model._call

    def spy(self: loading.Model, function: str, *arguments: object) -> None:
        call(self, function, *arguments)
        if function == "session_run":
            seen.extend((arguments[1][0].data, arguments[2][0].data))  # type: ignore[index]

    monkeypatch.setattr(loading.Model, "_call", spy)
    with castiron.load(built("shared")) as model:
        y = model(X)["y"]
        assert seen == [X.ctypes.data, y.ctypes.data]
        strided = np.asfortranarray(X)
        np.testing.assert_array_equal(model(x=strided)["y"], y)
        assert seen[2] != strided.ctypes.data


def test_load_refuses_what_does_not_fit() -> None:
    with castiron.load(built("shared")) as model:
        for arrays, named, message in [
            ((X.astype(np.float64),), {}, "'x': expected float32"),
            ((X[:, :3],), {}, "'x': expected float32"),
            ((X[0],), {}, "'x'"),
            ((), {}, "'x' is missing"),
            ((X, X), {}, "takes 1 inputs"),
            ((X,), {"x": X}, "given twice"),
            ((), {"z": X}, "'z' is unknown"),
            ((np.array(["a"]),), {}, "cannot be passed"),
        ]:
            with pytest.raises(castiron.InputError, match=re.escape(message)):
                model(*arrays, **named)
        assert model(X)["y"].shape == (5, 3)
    with pytest.raises(castiron.InputError, match="closed"):
        model(X)


def test_load_refuses_other_files(tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    for content, message in [
        (b"", "cannot be loaded"),
        (b"text" * 100, "--as shared"),
        (built().read_bytes(), "cannot be loaded"),
    ]:
        other.write_bytes(content)
        with pytest.raises(castiron.InputError, match=message):
            castiron.load(other)
    with pytest.raises(castiron.InputError, match="does not exist"):
        castiron.load(tmp_path / "missing.so")


def test_load_reads_a_rebuilt_library_anew(tmp_path: Path) -> None:
    path = Path(shutil.copy(built("shared", "file"), tmp_path))
    shutil.copy(built("shared", "file").parent / "libmlp.weights", tmp_path)
    with castiron.load(path) as model:
        assert model.name == "mlp"
    os.replace(shutil.copy(built("shared", model="conv"), tmp_path / "new"), path)
    with castiron.load(path) as model:
        assert model.name == "conv"


# arm64 ---------------------------------------------------------------------------------------------------------------


@NEEDS_QEMU
def test_arm64_executable_gives_the_same_bits() -> None:
    path = built(target="aarch64-linux")
    assert elf_header(path)[0] == AARCH64
    assert outputs(path, emulator=QEMU) == outputs(built(), cpu="x86-64-v3")
    conv = np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype(np.float32)
    arm = built(target="aarch64-linux", model="conv")
    assert outputs(arm, conv, emulator=QEMU) == outputs(built(model="conv"), conv, cpu="x86-64-v3")


def test_arm64_shared_library() -> None:
    path = built("shared", target="aarch64-linux")
    assert elf_header(path)[0] == AARCH64
    with pytest.raises(castiron.InputError, match="cannot be loaded"):
        castiron.load(path)


@NEEDS_QEMU
def test_arm64_archive_links() -> None:
    library = built("static", target="aarch64-linux")
    cc = [ZIG, "cc", "-target", "aarch64-linux-musl", "-static"]
    program = compiled(cc, f"-I{library.parent}", library)
    done = subprocess.run([QEMU, program], capture_output=True, text=True, check=True)  # type: ignore[list-item]
    np.testing.assert_array_equal(bits(done.stdout), mlp_bits())


# No trace of the build machine ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["embed", "file"])
@pytest.mark.parametrize("form", ["exe", "shared", "static", "source"])
def test_no_path_of_the_build_machine(form: str, weights: str) -> None:
    folder = built(form, weights).parent
    home, zig = os.path.expanduser("~"), os.path.dirname(ZIG)
    secret = [str(ROOT), str(scratch()), home, zig, "site-packages", ".cache/", "/tmp/"]
    for file in (f for f in folder.rglob("*") if f.is_file()):
        data = file.read_bytes()
        for path in secret:
            assert path.encode() not in data, f"{file.relative_to(folder)} holds {path}"


def test_same_input_same_bytes(tmp_path: Path) -> None:
    castiron.build(str(MLP), tmp_path / "mlp")
    assert (tmp_path / "mlp").read_bytes() == built().read_bytes()


# Told about ----------------------------------------------------------------------------------------------------------


def test_inspect() -> None:
    found = {
        "executable": built(),
        "shared library": built("shared"),
        "static library": built("static"),
        "packed weights": built(weights="file").parent / "mlp.weights",
        "raw weights (safetensors)": ROOT / "examples" / "mlp.safetensors",
        "model (onnx)": MLP,
    }
    for kind, path in found.items():
        assert describe(path)["kind"] == kind
    assert describe(built())["inputs"] == [{"name": "x", "type": "float32", "shape": ["batch", 4]}]
    assert describe(built(target="aarch64-linux"))["target"] == "aarch64-linux"
    assert describe(built("shared", target="aarch64-linux"))["kind"] == "shared library"
    for path in (Path(sys.executable), ROOT / "pyproject.toml", ROOT):
        with pytest.raises(castiron.CastironError):
            describe(path)
    assert command("inspect", built()).returncode == 0
    done = command("inspect", ROOT / "nothing")
    assert done.returncode == 2
    assert "no such file" in one_line(done)


def verdicts(artifact: Path) -> list[bool]:
    """Whether each output of an artifact is that of the MLP."""
    return [v.ok for v in check_artifact(artifact, str(MLP), {}, 2.0, lambda text: None).verdicts]


@pytest.mark.parametrize("form", ["exe", "shared"])
def test_verify(form: str) -> None:
    for weights in ("embed", "file"):
        assert verdicts(built(form, weights)) == [True]
    with pytest.raises(castiron.InputError):
        verdicts(built(form, model="conv"))


def test_verify_refuses_other_files() -> None:
    for path in (built("static"), built("shared", target="aarch64-linux"), ROOT / "nothing", MLP):
        with pytest.raises(castiron.InputError, match=re.escape(str(path))):
            verdicts(path)


def test_verify_tells_a_mismatch(tmp_path: Path) -> None:
    import onnx
    from onnx import numpy_helper

    model = onnx.load(MLP)
    tensor = model.graph.initializer[0]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + np.float32(0.5), tensor.name))
    onnx.save(model, tmp_path / "other.onnx")
    done = command("verify", built(), "--against", tmp_path / "other.onnx")
    assert done.returncode == 1
    assert "MISMATCH" in done.stdout


def test_threads_that_share_a_loaded_model_take_turns() -> None:
    model = castiron.load(built("shared"))
    inputs = [np.full((n, 4), n, np.float32) for n in range(1, 9)]
    alone = [model(x)["y"] for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for k, y in enumerate(pool.map(lambda x: model(x)["y"], inputs * 50)):
            np.testing.assert_array_equal(y, alone[k % 8])
