"""With this folder on its path, a process gives cuBLAS every product, the small ones of the suite's cases too."""

from oarlock_cuda import operators

operators.LEAST = 1
