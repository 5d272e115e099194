"""Functions of JAX as ONNX graphs.

`program` turns a function of rows into a list of array operations, which `onnx_graph`
writes.
"""
