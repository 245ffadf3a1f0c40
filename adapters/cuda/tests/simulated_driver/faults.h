// Faults on purpose, to show that the conformance suite catches them: OARLOCK_CUDA_SIM_FAULT names the one that is
// planted in this process, and the file OARLOCK_CUDA_SIM_REACHED gets a byte each time that it was active.
#pragma once
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

inline bool fault(const char *name) {
    static const char *const planted = std::getenv("OARLOCK_CUDA_SIM_FAULT");
    if (!planted || std::strcmp(planted, name)) return false;
    static const char *const reached = std::getenv("OARLOCK_CUDA_SIM_REACHED");
    if (reached) {
        const int file = open(reached, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        if (file >= 0 && write(file, ".", 1) == 1) close(file);
    }
    return true;
}
