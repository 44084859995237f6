"""runtime/small.h: every code of every type of 8 bits and fewer, and stores against ml_dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_ir import DataType
from scalar_drivers import Driver, compile_c, levels

from castiron.program.scalar import C_TYPES, SMALL_FLOATS, SMALL_INTEGERS, convert

pytestmark = pytest.mark.skipif(not levels(), reason="loads the driver into this process: needs Linux on x86-64")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    path = tmp_path_factory.mktemp("small") / "small.so"
    compile_c("small_driver.c", path, "x86_64-linux-gnu", f"-mcpu={levels()[-1]}")
    return Driver(path)


def samples() -> np.ndarray:
    """All float16 values, what lies just beside them, and halfway between neighbours."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = np.sort(halves[np.isfinite(halves)])
    beside = np.nextafter(finite, np.float32(np.inf))
    return np.concatenate([halves, beside, (finite[1:] + finite[:-1]) / 2, np.array([1e30, -1e30, 1e-30], np.float32)])


@pytest.mark.parametrize("type", sorted(SMALL_FLOATS), ids=lambda t: t.name)
def test_floats(type: DataType, driver: Driver) -> None:
    suffix = C_TYPES[type][0]
    codes = np.arange(2 ** max(type.bitwidth, 4), dtype=np.uint8)
    values = driver.call(f"load_{suffix}", np.dtype(np.float32), codes)
    np.testing.assert_array_equal(values, codes.view(type.numpy()).astype(np.float32))
    x = samples()
    x = x[~np.isnan(x)] if type == DataType.FLOAT4E2M1 else x  # it has no NaN
    got = driver.call(f"store_{suffix}", np.dtype(np.uint8), x).view(type.numpy())
    with np.errstate(all="ignore"):
        wanted = convert(x, DataType.FLOAT, type)
    np.testing.assert_array_equal(got.astype(np.float32), wanted.astype(np.float32))
    number = ~np.isnan(wanted.astype(np.float32))
    assert np.array_equal(np.signbit(got)[number], np.signbit(wanted)[number])


@pytest.mark.parametrize("type", sorted(SMALL_INTEGERS), ids=lambda t: t.name)
def test_integers(type: DataType, driver: Driver) -> None:
    suffix, numpy = C_TYPES[type][0], np.dtype(C_TYPES[type][1].removesuffix("_t"))
    x = np.concatenate([np.arange(-20, 20, 0.125), [np.nan, np.inf, -np.inf, 1e30]]).astype(np.float32)
    got = driver.call(f"cast_f32_{suffix}", numpy, x)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, convert(x, DataType.FLOAT, type).astype(numpy))
    whole = np.arange(256, dtype=np.uint8)
    wrapped = driver.call(f"wrap_{suffix}", numpy, whole)
    np.testing.assert_array_equal(wrapped, convert(whole, DataType.UINT8, type).astype(numpy))
