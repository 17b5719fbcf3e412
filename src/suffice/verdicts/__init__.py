"""Verdicts about loops and policies: decide, certify, watch and diagnose."""
