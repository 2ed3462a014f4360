"""The part of an ONNX model that still shows a failure: its inner outputs, and smaller models."""
