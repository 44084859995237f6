"""runtime/scalar.h and cast.h: integers that wrap and never trap, casts as `scalar.convert` has them, 16-bit floats."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from onnx_ir import DataType
from scalar_drivers import Driver, compile_c, levels

from castiron.program.scalar import C_TYPES, FLOATS, SMALL_FLOATS, SMALL_INTEGERS, convert

pytestmark = pytest.mark.skipif(not levels(), reason="loads the driver into this process: needs Linux on x86-64")

SUFFIXES = {suffix: type for type, (suffix, _) in C_TYPES.items() if type not in SMALL_FLOATS | SMALL_INTEGERS}
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Driver]]:
    """Each driver without and with the best instruction set of this machine."""
    folder = tmp_path_factory.mktemp("casts")
    out: dict[str, list[Driver]] = {"math_driver.c": [], "cast_driver.c": []}
    for source, level in itertools.product(out, dict.fromkeys((levels()[0], levels()[-1]))):
        path = folder / f"{source}.{level}.so"
        compile_c(source, path, "x86_64-linux-gnu", f"-mcpu={level}")
        out[source].append(Driver(path))
    return out


def samples(suffix: str) -> np.ndarray:
    """Values of a type: all of them up to 16 bits, else the ends, what lies around powers of two, and random ones."""
    type = SUFFIXES[suffix]
    numpy = type.numpy()
    if suffix == "b8":
        return np.array([False, True])
    if numpy.itemsize <= 2:
        return np.arange(2 ** (8 * numpy.itemsize), dtype=f"u{numpy.itemsize}").view(numpy)
    random = np.random.default_rng(0)
    bits = random.integers(0, 256, 4000 * numpy.itemsize, dtype=np.uint8).view(numpy)
    if type.is_integer():
        powers = [s * 2**k + d for k in range(65) for d in (-1, 0, 1) for s in (1, -1)]
        return np.concatenate([bits, np.array([p for p in powers if type.min <= p <= type.max], numpy)])
    near = np.array([s * (2.0**k + d) for k in range(66) for d in (-1, -0.5, 0, 0.5, 1) for s in (1, -1)], numpy)
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.99, 65520, 6e-8, 2.98e-8, 2.9802322387695312e-08, 1e-40]
    halves = np.array(ends, numpy)
    sizes = (random.normal(size=4000) * np.exp2(random.uniform(-28, 18, 4000))).astype(numpy)
    return np.concatenate([bits, near, halves, sizes])


def comparable(array: np.ndarray) -> np.ndarray:
    """NumPy holds NaN equal to NaN in its own types only."""
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array


@pytest.mark.parametrize("source", SUFFIXES)
def test_casts(source: str, drivers: dict[str, list[Driver]]) -> None:
    x = samples(source)
    for target, type in SUFFIXES.items():
        with np.errstate(all="ignore"):
            wanted = convert(x, SUFFIXES[source], type)
        for driver in drivers["cast_driver.c"]:
            got = driver.call(f"cast_{source}_{target}", wanted.dtype, x)
            np.testing.assert_array_equal(comparable(got), comparable(wanted), err_msg=f"{source} to {target}")
            if type in FLOATS:
                number = wanted == wanted
                assert np.array_equal(np.signbit(got)[number], np.signbit(wanted)[number])


@pytest.mark.parametrize(("suffix", "numpy"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_rounding_in_registers_is_store_and_load(suffix: str, numpy: type, drivers: dict[str, list[Driver]]) -> None:
    x = samples("f32")
    with np.errstate(all="ignore"):
        wanted = x.astype(numpy).astype(np.float32)
    for driver in drivers["math_driver.c"]:
        got = driver.call(f"round_{suffix}", np.dtype(np.float32), x)
        np.testing.assert_array_equal(got, wanted)
        assert np.array_equal(np.signbit(got), np.signbit(x))


# Integer arithmetic, in Python's integers ----------------------------------------------------------------------


def truncated(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def power(x: int, n: int, bits: int) -> int:
    if n >= 0:
        return pow(x, n, 1 << bits)
    return {1: 1, -1: -1 if n % 2 else 1}.get(x, 0)


BINARY: dict[str, Callable[[int, int, int], int]] = {
    "div": lambda a, b, bits: truncated(a, b),
    "floordiv": lambda a, b, bits: a // b if b else 0,
    "mod": lambda a, b, bits: a % b if b else 0,
    "fmod": lambda a, b, bits: a - b * truncated(a, b) if b else 0,
    "min": lambda a, b, bits: min(a, b),
    "max": lambda a, b, bits: max(a, b),
    "shl": lambda a, n, bits: a << n if 0 <= n < bits else 0,
    "shr": lambda a, n, bits: a >> (n if 0 <= n < bits else bits),
    "pow": power,
}
UNARY: dict[str, Callable[[int], int]] = {"neg": lambda a: -a, "abs": abs, "sign": lambda a: (a > 0) - (a < 0)}


def wrapped(value: int, type: DataType) -> int:
    least = int(type.min)
    return (value - least) % (1 << int(type.bitwidth)) + least


def operands(type: DataType) -> list[int]:
    low, high = int(type.min), int(type.max)
    random = np.random.default_rng(1)
    few = [low, low + 1, high, high - 1, *range(max(low, -9), 10), 15, 16, 31, 32, 33, 63, 64, 65]
    return [*few, *(int(v) for v in random.integers(low, high, 20, dtype=type.numpy(), endpoint=True))]


@pytest.mark.parametrize("suffix", INTEGERS)
def test_integers(suffix: str, drivers: dict[str, list[Driver]]) -> None:
    type = SUFFIXES[suffix]
    pairs = list(itertools.product(operands(type), repeat=2))
    a, b = (np.array(side, type.numpy()) for side in zip(*pairs, strict=True))

    def check(name: str, wanted: list[int], *arrays: np.ndarray) -> None:
        exact = np.array([wrapped(value, type) for value in wanted], a.dtype)
        for driver in drivers["math_driver.c"]:
            np.testing.assert_array_equal(driver.call(f"{name}_{suffix}", a.dtype, *arrays), exact, err_msg=name)

    for name, meaning in BINARY.items():
        check(name, [meaning(x, y, type.bitwidth) for x, y in pairs], a, b)
    for name, one in UNARY.items():
        check(name, [one(x) for x, _ in pairs], a)
    check("fma", [x * y + x for x, y in pairs], a, b, a)
