// A stand-in for NVRTC: compiles the same CUDA C++ text with the host's compiler, as a shared object for the CPU.
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>
#include "faults.h"

namespace {
struct Program {
    std::string source, log, binary;
};
enum { OK = 0, INVALID_INPUT = 3, INVALID_OPTION = 5, COMPILATION = 6 };
const int ARCHITECTURES[] = {75, 80, 86, 89, 90, 100, 120};
const size_t SHARED_BYTES = 48 << 10;

std::string folder() {  // this library's own folder: device.h lies beside it
    Dl_info info;
    dladdr(reinterpret_cast<void *>(&folder), &info);
    std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/'));
}
std::string read(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
}
bool is_checked() {
    const char *word = std::getenv("OARLOCK_CUDA_SIM_CHECK");
    return word && *word == '1';
}
bool meets(const std::string &text) {
    return text.find("__syncthreads") != std::string::npos || text.find("_sync(") != std::string::npos ||
           text.find("__syncwarp") != std::string::npos;
}
// What the simulated driver finds of one kernel. A struct of the parameters has the layout of a parameter buffer.
std::string entry(const std::string &name, std::string parameters, const std::string &threads, bool together) {
    std::string members, arguments, last;
    std::stringstream each(parameters);
    for (std::string one; std::getline(each, one, ',');) {
        size_t end = one.find_last_not_of(" \n\t"), begin = end;
        while (begin && (std::isalnum(one[begin - 1]) || one[begin - 1] == '_')) --begin;
        last = one.substr(begin, end - begin + 1);
        members += one + ";";
        arguments += (arguments.empty() ? "a->" : ", a->") + last;
    }
    const std::string args = name + "__sim_args", mark = "extern \"C\" __attribute__((visibility(\"default\"))) ";
    std::string size = last.empty() ? "0" : "__builtin_offsetof(" + args + ", " + last + ") + sizeof(" + args + "::" + last + ")";
    return "struct " + args + " { " + members + " };\n" + mark + "void " + name +
           "__sim_range(const char *buffer, unsigned first, unsigned last) {\n"
           "    auto *a = (const " + args + " *)buffer;\n"
           "    const SimIndex d = blockDim;\n"
           "    threadIdx = {first % d.x, first / d.x % d.y, first / d.x / d.y};\n"
           "    for (unsigned t = first; t < last; ++t) {\n"
           "        " + name + "(" + arguments + ");\n"
           "        if (last - first > 1 && ++threadIdx.x == d.x) {\n"
           "            threadIdx.x = 0;\n"
           "            if (++threadIdx.y == d.y) threadIdx.y = 0, ++threadIdx.z;\n"
           "        }\n    }\n}\n" +
           mark + "unsigned long " + name + "__sim_bytes() { return " + size + "; }\n" +
           mark + "unsigned " + name + "__sim_threads() { return " + threads + "; }\n" +
           mark + "unsigned " + name + "__sim_meets() { return " + (together ? "1" : "0") + "; }\n";
}
// Entries for all kernels of a text: ``__global__ [__launch_bounds__(threads)] void name(parameters)``.
std::string entries(const std::string &source) {
    const std::string word = "__global__", bounds = "__launch_bounds__(";
    std::string made;
    size_t at = source.find(word);
    const bool before = at != std::string::npos && meets(source.substr(0, at));
    while (at != std::string::npos) {
        const size_t next = source.find(word, at + word.size()), open = source.find("void", at);
        if (open == std::string::npos) break;
        std::string threads = "1024";
        const size_t bound = source.find(bounds, at);
        if (bound < open) threads = source.substr(bound + bounds.size(), source.rfind(')', open) - bound - bounds.size());
        const size_t left = source.find('(', open), right = source.find(')', left);
        if (right == std::string::npos) break;
        const size_t name = source.find_first_not_of(" \n", open + 4), end = source.find_first_of(" \n(", name);
        made += entry(source.substr(name, end - name), source.substr(left + 1, right - left - 1), threads,
                      before || meets(source.substr(at, next - at)));
        at = next;
    }
    return made;
}
// Shared memory by kernel, from the thread-local symbols of the binary: a kernel that has too much is refused.
std::string too_much(const std::string &binary) {
    const char *base = binary.data();
    const auto *head = reinterpret_cast<const Elf64_Ehdr *>(base);
    const auto *section = reinterpret_cast<const Elf64_Shdr *>(base + head->e_shoff);
    std::string names[64];
    size_t bytes[64] = {}, known = 0;
    for (int s = 0; s < head->e_shnum; ++s) {
        if (section[s].sh_type != SHT_SYMTAB) continue;
        const auto *symbol = reinterpret_cast<const Elf64_Sym *>(base + section[s].sh_offset);
        const char *text = base + section[section[s].sh_link].sh_offset;
        for (size_t k = 0; k < section[s].sh_size / sizeof *symbol; ++k) {
            const char *name = text + symbol[k].st_name;
            if (ELF64_ST_TYPE(symbol[k].st_info) != STT_TLS || std::strncmp(name, "_ZZ", 3)) continue;
            char *rest;
            const size_t length = std::strtoul(name + 3, &rest, 10);
            const std::string kernel(rest, length);
            size_t n = 0;
            while (n < known && names[n] != kernel) ++n;
            if (n == 64) continue;
            if (n == known) names[known++] = kernel;
            bytes[n] += symbol[k].st_size;
            if (bytes[n] > SHARED_BYTES)
                return "error: entry function '" + kernel + "' uses too much shared data (" + std::to_string(bytes[n]) +
                       " bytes, " + std::to_string(SHARED_BYTES) + " max)\n";
        }
    }
    return {};
}
}  // namespace

extern "C" {
const char *nvrtcGetErrorString(int status) {
    return status == COMPILATION ? "NVRTC_ERROR_COMPILATION (simulated)" : "NVRTC error (simulated)";
}
int nvrtcVersion(int *major, int *minor) {
    const char *asked = std::getenv("OARLOCK_CUDA_SIM_NVRTC");
    // The minor number is no NVRTC's: a cache must not take a simulation's executables for a device's.
    *major = asked ? std::atoi(asked) : 13, *minor = is_checked() ? 901 : 900;
    return OK;
}
int nvrtcGetNumSupportedArchs(int *count) {
    *count = sizeof ARCHITECTURES / sizeof *ARCHITECTURES;
    return OK;
}
int nvrtcGetSupportedArchs(int *numbers) {
    std::memcpy(numbers, ARCHITECTURES, sizeof ARCHITECTURES);
    return OK;
}
int nvrtcCreateProgram(void **program, const char *source, const char *, int, const char *const *, const char *const *) {
    *program = new Program{source, {}, {}};
    return OK;
}
int nvrtcDestroyProgram(void **program) {
    delete static_cast<Program *>(*program);
    *program = nullptr;
    return OK;
}
int nvrtcCompileProgram(void *handle, int count, const char *const *options) {
    auto *program = static_cast<Program *>(handle);
    std::string arch = "0";
    for (int k = 0; k < count; ++k) {
        std::string option = options[k];
        if (option.rfind("--gpu-architecture=sm_", 0) == 0) arch = option.substr(22);
        else if (option.rfind("--", 0) != 0) return INVALID_OPTION;
    }
    char work[] = "/tmp/oarlock-nvrtc-XXXXXX";
    if (!mkdtemp(work)) return INVALID_INPUT;
    std::string at = work;
    std::ofstream(at + "/kernels.cu") << "#include \"" << folder() << "/device.h\"\n#line 1 \"kernels.cu\"\n"
                                      << program->source << "\n" << entries(program->source)
                                      << "extern \"C\" __attribute__((visibility(\"default\"))) int oarlock_sim_arch() "
                                         "{ return " << arch << "; }\n";
    std::string command = "cd " + at + " && g++ -x c++ -std=c++17 -O1 -fno-exceptions -fno-rtti -fwrapv -fno-math-errno "
                          "-fno-strict-aliasing -march=native -fvisibility=hidden -fPIC -w -Wno-narrowing ";
    command += fault("compile_contract") ? "-O2 -ffp-contract=fast " : "-ffp-contract=off ";
    if (fault("compile_shuffle")) command += "-DSIM_SHUFFLES_NOTHING ";
    if (fault("compile_fast_math")) command += "-O2 -ffast-math ";
    if (is_checked()) command += "-fsanitize=alignment -fsanitize-undefined-trap-on-error ";
    command += "-c -o k.o kernels.cu > log.txt 2>&1 && ld -shared -o k.so k.o >> log.txt 2>&1";  // g++ would link slowly
    int status = std::system(command.c_str());
    program->log = read(at + "/log.txt");
    program->binary = read(at + "/k.so");
    std::system(("rm -rf " + at).c_str());
    if (!status) {
        const std::string complaint = too_much(program->binary);
        program->log += complaint, status = !complaint.empty();
    }
    return status ? COMPILATION : OK;
}
static int give(const std::string &text, char *to) {
    std::memcpy(to, text.data(), text.size());
    return OK;
}
int nvrtcGetProgramLogSize(void *program, size_t *size) {
    *size = static_cast<Program *>(program)->log.size() + 1;
    return OK;
}
int nvrtcGetProgramLog(void *program, char *log) {
    log[static_cast<Program *>(program)->log.size()] = 0;
    return give(static_cast<Program *>(program)->log, log);
}
int nvrtcGetCUBINSize(void *program, size_t *size) {
    *size = static_cast<Program *>(program)->binary.size();
    return OK;
}
int nvrtcGetCUBIN(void *program, char *binary) { return give(static_cast<Program *>(program)->binary, binary); }
}
