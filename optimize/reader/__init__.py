"""Training of the local reader: from labelled questions and passages to an int8 ONNX file."""

__all__ = ["examples", "train"]
