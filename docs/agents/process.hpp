// This process as Linux sees it: times in seconds, memory in bytes, cores.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

inline double seconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline double now() { return seconds(CLOCK_MONOTONIC); }

inline double cpuTime() { return seconds(CLOCK_PROCESS_CPUTIME_ID); }

// The time that this thread has waited for a core: field 2 of schedstat; 0 where it isn't counted.
class QueueWait {
 public:
  QueueWait() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  QueueWait(const QueueWait&) = delete;
  ~QueueWait() { close(file_); }

  bool available() const { return file_ >= 0; }

  double read() const {
    char text[64] = {};
    if (pread(file_, text, sizeof text - 1, 0) <= 0) return 0.0;
    char* waited = nullptr;
    std::strtoull(text, &waited, 10);
    return 1e-9 * static_cast<double>(std::strtoull(waited, nullptr, 10));
  }

 private:
  int file_;
};

// A field of /proc/self/status, such as RssAnon:; 0 where there is none.
inline int64_t statusBytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(key, 0) == 0) return 1024 * std::strtoll(&line[key.size()], nullptr, 10);
  return 0;
}

inline int64_t ownMemory() { return statusBytes("RssAnon:") + statusBytes("VmSwap:"); }

// The peak without pages of files: how many of those are mapped depends on the kernel.
inline int64_t peakMemory() { return statusBytes("VmHWM:") - statusBytes("RssFile:"); }

inline bool resetPeak() {
  std::ofstream file("/proc/self/clear_refs");
  return static_cast<bool>(file << "5" << std::flush);
}

inline std::vector<int> entriesOf(const char* folder) {
  std::vector<int> found;
  DIR* open = opendir(folder);
  while (dirent* entry = open ? readdir(open) : nullptr)
    if (entry->d_name[0] != '.') found.push_back(std::atoi(entry->d_name));
  if (open) closedir(open);
  return found;
}

inline std::vector<int> coresOf(pid_t thread) {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(thread, sizeof set, &set)) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

inline void useCores(pid_t thread, const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(core, &set);
  if (sched_setaffinity(thread, sizeof set, &set))
    throw std::system_error(errno, std::generic_category(), "can't use these cores");
  if (coresOf(thread).size() != static_cast<size_t>(CPU_COUNT(&set)))
    throw std::runtime_error("the system gave other cores than these");
}
