"""Operators that onnxruntime has beyond the standard, compiled natively and compared with onnxruntime."""
