"""The official ONNX node tests, compiled to native code by castiron's own pipeline: `python -m tests.node_suite`."""
