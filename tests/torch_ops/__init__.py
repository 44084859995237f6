"""torch's databases of operators and modules, compiled to native code by castiron's own pipeline: `python -m tests.torch_ops`."""
