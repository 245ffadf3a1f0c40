"""The conformance suite of Oarlock: cases over every level of the stack, and the certificate that they end in."""

from oarlock_conformance.case import LEVELS, Case, Failure, Level, Options, Outcome
from oarlock_conformance.certify import Certification, certify

__all__ = ["LEVELS", "Case", "Certification", "Failure", "Level", "Options", "Outcome", "certify"]
