"""The judge-efficient protocol of Semantic Early-Stopping, on any recording with distances between drafts."""

from suffice.report.protocol.data import split
from suffice.report.protocol.protocol import MARGINS, SemanticProtocol, semantic_protocol
from suffice.report.protocol.tuning import Tuned, given, published, tune

__all__ = ["MARGINS", "SemanticProtocol", "Tuned", "given", "published", "semantic_protocol", "split", "tune"]
