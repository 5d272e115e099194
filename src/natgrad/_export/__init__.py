"""Functions of JAX as NumPy source code or ONNX graphs.

`trace` turns a function of rows into a `program`, a list of array operations.
`numpy_code` and `onnx_graph` write it.
"""
