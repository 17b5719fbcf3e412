"""The embedded reader and embedder, which give real answers offline on two cores, and their demo."""

from suffice_reader.minilm import MiniLM
from suffice_reader.model import SpanReaderModel
from suffice_reader.span_reader import SpanReader

__all__ = ["MiniLM", "SpanReader", "SpanReaderModel"]
