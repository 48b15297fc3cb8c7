// The operating system's part on Linux.
#include "platform/platform.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace emu::platform {
namespace {

// Repeats a system call that a signal interrupted.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

bool write_all(int file, std::span<const char> contents) {
  while (!contents.empty()) {
    const ssize_t written = uninterrupted([&] { return write(file, contents.data(), contents.size()); });
    if (written <= 0) return false;
    contents = contents.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

// A file in memory with these contents, made at the first call; -1 where that is impossible.
int shared_file(std::size_t bytes, void (*fill)(unsigned char*, std::size_t)) {
  static const int file = [&] {
    const int made = memfd_create("poison", MFD_CLOEXEC);
    if (made < 0) return -1;
    void* const memory = ftruncate(made, static_cast<off_t>(bytes)) == 0
                             ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0)
                             : MAP_FAILED;
    if (memory == MAP_FAILED) {
      close(made);
      return -1;
    }
    fill(static_cast<unsigned char*>(memory), bytes);
    munmap(memory, bytes);
    return made;
  }();
  return file;
}

}  // namespace

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

std::filesystem::path library_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) == 0 || info.dli_fname == nullptr ? "" : info.dli_fname;
}

bool copy_checked(void* target, const void* source, std::size_t bytes) {
  if (bytes == 0) return true;
  const iovec to{target, bytes}, from{const_cast<void*>(source), bytes};
  const ssize_t copied = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  if (copied == static_cast<ssize_t>(bytes)) return true;
  if (copied >= 0 || errno == EFAULT) return false;
  std::memcpy(target, source, bytes);  // the call itself is forbidden here (a sandbox)
  return true;
}

void* map_pages(std::size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void unmap_pages(void* memory, std::size_t bytes) { munmap(memory, bytes); }

Sharing share_pages(unsigned char* memory, std::size_t bytes, std::size_t part,
                    void (*fill)(unsigned char* memory, std::size_t bytes)) {
  const int file = shared_file(part, fill);
  if (file < 0) return Sharing::kImpossible;
  for (std::size_t done = 0; done < bytes; done += part)
    if (mmap(memory + done, std::min(part, bytes - done), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, file, 0) == MAP_FAILED)
      return Sharing::kOutOfMemory;
  return Sharing::kDone;
}

std::filesystem::path user_cache() {
  if (const std::string root = environment("XDG_CACHE_HOME"); !root.empty()) return root;
  const std::string home = environment("HOME");
  return home.empty() ? std::filesystem::path() : std::filesystem::path(home) / ".cache";
}

std::filesystem::path write_new_file(const std::filesystem::path& stem, std::span<const char> contents) {
  std::string path = stem.string() + ".XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return {};
  const bool written = write_all(file, contents) && fchmod(file, 0644) == 0;
  if (close(file) == 0 && written) return path;
  unlink(path.c_str());
  return {};
}

Output run_program(const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Output output;
  if (error == 0) {
    char buffer[65536];
    ssize_t n = 0;
    while ((n = uninterrupted([&] { return read(ends[0], buffer, sizeof buffer); })) > 0)
      output.text.append(buffer, static_cast<std::size_t>(n));
    int status = 0;
    const bool ended = uninterrupted([&] { return waitpid(child, &status, 0); }) == child && WIFEXITED(status);
    if (ended && n == 0) output.exit_code = WEXITSTATUS(status);
  }
  close(ends[0]);
  return output;
}

}  // namespace emu::platform
