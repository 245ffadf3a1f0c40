"""The conformance suite of Oarlock: cases over every level of the stack, and the certificate that they end in.

``oarlock_conformance.certify.certify`` runs it; ``oarlock certify DEVICE`` is its command.
"""

from oarlock_conformance.case import LEVELS, Case, Failure, Level, Options, Outcome

__all__ = ["LEVELS", "Case", "Failure", "Level", "Options", "Outcome"]
