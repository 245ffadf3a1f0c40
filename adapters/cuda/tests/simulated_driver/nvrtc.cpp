// A stand-in for NVRTC: compiles the same CUDA C++ text with the host's compiler, as a shared object for the CPU.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>
#include <dlfcn.h>
#include <unistd.h>

namespace {
struct Program {
    std::string source, log, binary;
};
enum { OK = 0, INVALID_INPUT = 3, INVALID_OPTION = 5, COMPILATION = 6 };
const int ARCHITECTURES[] = {75, 80, 86, 89, 90, 100, 120};

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
// The kernels of a text: name, and the threads that __launch_bounds__ names.
std::string entries(const std::string &source) {
    std::regex head(R"re(__launch_bounds__\(([^()]*)\)\s*void\s+(\w+)\s*\()re");
    std::string text;
    for (std::sregex_iterator it(source.begin(), source.end(), head), end; it != end; ++it)
        text += "SIM_ENTRY(" + (*it)[2].str() + ", " + (*it)[1].str() + ")\n";
    return text;
}
}  // namespace

extern "C" {
const char *nvrtcGetErrorString(int status) {
    return status == COMPILATION ? "NVRTC_ERROR_COMPILATION (simulated)" : "NVRTC error (simulated)";
}
int nvrtcVersion(int *major, int *minor) {
    *major = 0, *minor = 1;
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
                                      << "extern \"C\" int oarlock_sim_arch() { return " << arch << "; }\n";
    const char *checked = std::getenv("OARLOCK_CUDA_SIM_CHECK");
    std::string command = "cd " + at + " && g++ -x c++ -std=c++17 -O1 -fno-exceptions -ffp-contract=off -fwrapv "
                          "-fno-math-errno -march=native -fPIC -shared -w -Wno-narrowing ";
    if (checked && *checked == '1') command += "-fsanitize=alignment -fsanitize-undefined-trap-on-error ";
    command += "-o k.so kernels.cu > log.txt 2>&1";
    int status = std::system(command.c_str());
    program->log = read(at + "/log.txt");
    program->binary = read(at + "/k.so");
    status = std::system(("rm -rf " + at).c_str()) != 0 || status != 0;
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
