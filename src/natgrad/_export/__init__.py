"""Programs of JAX as NumPy source and as ONNX graphs."""
