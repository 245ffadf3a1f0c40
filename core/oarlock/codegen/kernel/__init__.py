"""The kernel dialect: what a renderer must be able to print, and a builder that makes every operator total."""

from oarlock.codegen.kernel.builder import KernelBuilder
from oarlock.codegen.kernel.dialect import KERNEL, kernel_context, signature_of

__all__ = ["KERNEL", "KernelBuilder", "kernel_context", "signature_of"]
