"""Semantic Early-Stopping: the protocol with few judge calls, for any recording with distances between drafts."""

from suffice_papers.semantic.data import split_drafts
from suffice_papers.semantic.debate import read_debate
from suffice_papers.semantic.figures import MARGINS
from suffice_papers.semantic.ircot import read_ircot
from suffice_papers.semantic.protocol import SemanticProtocol, semantic_protocol
from suffice_papers.semantic.reflexion import read_reflexion
from suffice_papers.semantic.self_refine import read_self_refine
from suffice_papers.semantic.tuning import Tuned, given, published, tune

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
