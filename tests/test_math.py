"""runtime/math.h and scalar.h: accuracy, the same bits on every instruction set, loops that vectorize."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from math import erf
from pathlib import Path

import numpy as np
import pytest
from scalar_drivers import Driver, compile_c, levels

Function = Callable[[np.ndarray], np.ndarray]
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)

pytestmark = pytest.mark.skipif(not levels(), reason="loads the driver into this process: needs Linux on x86-64")


def sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, e, 1) / (1 + e))


UNARY: dict[str, Function] = {
    "exp": np.exp, "log": np.log, "erf": np.vectorize(erf, otypes=[np.float64]), "tanh": np.tanh, "sigmoid": sigmoid,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
EXACT: dict[str, Function] = {
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "sign": np.sign,
}  # fmt: skip
SPECIAL = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2, -2, 2.5, 3, -3, 88.72284, 88.73, -87.4, -103.9, -104.1, 1e30]
SPECIAL += [-1e30, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 1.1754944e-38, 3.4028235e38, 8388607.5, 8388609.0, 16777217]
STRIDE = 16381  # of the sample of all 2^32 floats


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Driver]:
    """The driver for each level of this machine."""
    folder = tmp_path_factory.mktemp("math")
    for level in levels():
        compile_c("math_driver.c", folder / f"{level}.so", "x86_64-linux-gnu", f"-mcpu={level}")
    return {level: Driver(folder / f"{level}.so") for level in levels()}


@pytest.fixture(scope="module")
def floats() -> np.ndarray:
    sample = np.arange(0, 2**32, STRIDE, dtype=np.uint32).view(np.float32)
    usual = np.random.default_rng(0).normal(0, 3, 30000).astype(np.float32)
    return np.concatenate([sample, usual, np.array(SPECIAL, np.float32)])


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, all NaN taken as one (processors differ in the NaN they make)."""
    nan = np.isnan(a) & np.isnan(b)
    return bool(np.all(nan | ((a == b) & (np.signbit(a) == np.signbit(b)))))


def everywhere(drivers: dict[str, Driver], name: str, out: np.dtype, *arrays: np.ndarray) -> np.ndarray:
    """What every level gives, which must be the same."""
    results = [d.call(name, out, *arrays) for d in drivers.values()]
    for level, result in zip(drivers, results, strict=True):
        assert same_bits(result, results[0]), f"{name}: {level} differs from {next(iter(drivers))}"
    return results[0]


def ulps(got: np.ndarray, exact: np.ndarray, fraction: int, least: int, end: int) -> np.ndarray:
    """|got - exact| in ulp; infinity counts as 2^end, NaN must meet NaN, signs of zero must agree."""
    wide = exact.dtype
    limit = np.ldexp(wide.type(1), end)
    exact, signs = np.clip(exact, -limit, limit), np.signbit(got) == np.signbit(exact)
    unit = np.ldexp(wide.type(1), np.maximum(np.frexp(np.nan_to_num(exact))[1] - 1 - fraction, least))
    error = np.abs(np.clip(got.astype(wide), -limit, limit) - exact) / unit
    error = np.where((got == 0) & ~signs, np.inf, error)
    return np.where(np.isnan(got) | np.isnan(exact), np.where(np.isnan(got) & np.isnan(exact), 0, np.inf), error)


def worst(error: np.ndarray, *arrays: np.ndarray) -> str:
    at = int(np.argmax(error))
    return f"{error[at]} ulp at {[a[at] for a in arrays]}"


@pytest.mark.parametrize("name", UNARY)
def test_float_is_within_two_ulp_everywhere(name: str, drivers: dict[str, Driver], floats: np.ndarray) -> None:
    got = everywhere(drivers, f"{name}_f32", F32, floats)
    with np.errstate(all="ignore"):
        error = ulps(got, UNARY[name](floats.astype(np.float64)), 23, -149, 128)
    assert error.max() <= 2, worst(error, floats, got)


def doubles() -> np.ndarray:
    random = np.random.default_rng(1)
    bits = random.integers(0, 2**64, 20000, dtype=np.uint64).view(np.float64)
    parts = [bits, random.normal(0, 3, 20000), random.uniform(-1, 1, 20000), random.uniform(-750, 750, 5000)]
    return np.concatenate([*parts, np.array(SPECIAL)])


@pytest.mark.parametrize("name", UNARY)
def test_double_is_within_two_ulp_everywhere(name: str, drivers: dict[str, Driver]) -> None:
    x = doubles()
    got = everywhere(drivers, f"{name}_f64", F64, x)
    with np.errstate(all="ignore"):
        exact = np.asarray(UNARY[name](x if name == "erf" else x.astype(np.longdouble)), np.longdouble)
        error = ulps(got, exact, 52, -1074, 1024)
    assert error.max() <= 2 + (name == "erf"), worst(error, x, got)  # math.erf has an error of its own


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("type", [F32, F64])
def test_rounding_is_exact(name: str, type: np.dtype, drivers: dict[str, Driver], floats: np.ndarray) -> None:
    x = floats.astype(type)
    got = everywhere(drivers, f"{name}_f{type.itemsize * 8}", type, x)
    with np.errstate(all="ignore"):
        assert same_bits(got, EXACT[name](x))


def pairs(type: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Special values against each other, random bits, and values of everyday size."""
    random = np.random.default_rng(2)
    x, y = (a.ravel() for a in np.meshgrid(np.array([*SPECIAL, 2.0**53, 5e-324], type), np.array(SPECIAL, type)))
    bits = random.integers(0, 256, (2, 20000 * type.itemsize), dtype=np.uint8).view(type)
    size = np.exp(random.normal(0, 3, 20000)).astype(type)
    return np.concatenate([x, bits[0], size]), np.concatenate([y, bits[1], random.normal(0, 9, 20000).astype(type)])


@pytest.mark.parametrize("type", [F32, F64])
def test_pow(type: np.dtype, drivers: dict[str, Driver]) -> None:
    x, y = pairs(type)
    got = everywhere(drivers, f"pow_f{type.itemsize * 8}", type, x, y)
    scale = (23, -149, 128) if type == F32 else (52, -1074, 1024)
    with np.errstate(all="ignore"):
        error = ulps(got, np.power(x.astype(np.longdouble), y.astype(np.longdouble)), *scale)
    assert error.max() <= 2, worst(error, x, y, got)


@pytest.mark.parametrize("type", [F32, F64])
def test_arithmetic_of_two_floats(type: np.dtype, drivers: dict[str, Driver]) -> None:
    x, y = pairs(type)
    suffix = f"f{type.itemsize * 8}"
    with np.errstate(all="ignore"):
        assert same_bits(everywhere(drivers, f"fmod_{suffix}", type, x, y), np.fmod(x, y))
        mod = np.where(y == 0, type.type(0), np.mod(x, np.where(y == 0, type.type(1), y)))
        np.testing.assert_array_equal(everywhere(drivers, f"mod_{suffix}", type, x, y), mod)
        np.testing.assert_array_equal(everywhere(drivers, f"min_{suffix}", type, x, y), np.minimum(x, y))
        np.testing.assert_array_equal(everywhere(drivers, f"max_{suffix}", type, x, y), np.maximum(x, y))


def test_fma_of_floats_is_exact_without_the_instruction(drivers: dict[str, Driver]) -> None:
    x, y = pairs(F32)
    with np.errstate(all="ignore"):
        for z in (y[::-1], -(x * y), x * y * np.float32(1e-7), np.full_like(x, 1e-40)):
            got = everywhere(drivers, "fma_f32", F32, x, y, z)
            exact = x.astype(np.longdouble) * y + z.astype(np.longdouble)
            error = ulps(got, exact, 23, -149, 128)
            assert error[~((got == 0) & (exact == 0))].max() <= 0.5 + 2**-30, worst(error, x, y, z)


def test_fma_of_doubles_of_usual_size_is_the_same_everywhere(drivers: dict[str, Driver]) -> None:
    x, y, z = np.random.default_rng(3).normal(size=(3, 50000))
    for addend in (z, -(x * y), -(x * y) * (1 + 2**-52), z * 1e-17):
        everywhere(drivers, "fma_f64", F64, x, y, addend)


def test_loops_over_float_functions_vectorize(tmp_path: Path) -> None:
    listing = tmp_path / "driver.s"
    flags = ("-mcpu=x86_64_v3", "-S", "-Wno-unused-command-line-argument")
    compile_c("math_driver.c", listing, "x86_64-linux-gnu", *flags)
    bodies = dict(re.findall(r"^run_(\w+):(.*?)^\.Lfunc_end", listing.read_text(), re.MULTILINE | re.DOTALL))
    names = [n for n in bodies if re.fullmatch(r"(?!f?mod)\w+_f32|round_b?f16", n)]
    assert len(names) > 25
    assert not [n for n in names if "%ymm" not in bodies[n]]


def test_arm64_gives_the_same_bits(drivers: dict[str, Driver], floats: np.ndarray, tmp_path: Path) -> None:
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        pytest.skip("needs qemu-aarch64")
    compile_c("math_driver.c", tmp_path / "driver", "aarch64-linux-musl", "-DCI_MAIN", "-static")
    x = np.concatenate([floats[::97], floats[-3000:]])
    done = subprocess.run([emulator, str(tmp_path / "driver")], input=x.tobytes(), capture_output=True, check=True)
    results = np.frombuffer(done.stdout, np.float32).reshape(-1, x.size)
    names = [*(f"{n}_f32" for n in (*UNARY, "floor", "ceil", "round", "trunc")), "round_f16", "round_bf16"]
    for name, result in zip(names, results, strict=True):
        assert same_bits(result, next(iter(drivers.values())).call(name, F32, x)), name
