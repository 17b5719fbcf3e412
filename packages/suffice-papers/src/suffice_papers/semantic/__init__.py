"""Semantic Early-Stopping: the judge-efficient protocol on any recording with distances between drafts."""

from suffice.papers.semantic.data import split_drafts
from suffice.papers.semantic.debate import read_debate
from suffice.papers.semantic.figures import MARGINS
from suffice.papers.semantic.ircot import read_ircot
from suffice.papers.semantic.protocol import SemanticProtocol, semantic_protocol
from suffice.papers.semantic.reflexion import read_reflexion
from suffice.papers.semantic.self_refine import read_self_refine
from suffice.papers.semantic.tuning import Tuned, given, published, tune

__all__ = [
    "MARGINS",
    "SemanticProtocol",
    "Tuned",
    "given",
    "published",
    "read_debate",
    "read_ircot",
    "read_reflexion",
    "read_self_refine",
    "semantic_protocol",
    "split_drafts",
    "tune",
]
