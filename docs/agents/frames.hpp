// Frames: a line of JSON, then the bytes of its arrays. They come and go by the channel.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <system_error>

#include "json.hpp"

struct Array {
  std::string name;
  std::string dtype;  // as numpy writes it, such as <f4
  std::vector<int64_t> shape;
  std::vector<char> bytes;
};

using Arrays = std::vector<Array>;

struct Frame {
  Json header;
  Arrays arrays;
};

inline size_t countOf(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), size_t{1},
                         [](size_t count, int64_t size) { return count * size; });
}

// Private copies of standard input and output. What a library prints goes to standard error.
class Channel {
 public:
  Channel() : requests_(fcntl(0, F_DUPFD_CLOEXEC, 3)), replies_(fcntl(1, F_DUPFD_CLOEXEC, 3)) {
    int null = open("/dev/null", O_RDONLY);
    if (requests_ < 0 || replies_ < 0 || null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0)
      fail("can't take the channel");
    close(null);
  }

  // Read a frame; false where the input has ended.
  bool read(Frame& frame) {
    size_t end;
    while ((end = unread_.find('\n')) == std::string::npos) {
      char block[1 << 16];
      size_t count = receive(block, sizeof block);
      if (!count) return false;
      unread_.append(block, count);
    }
    frame.header = JsonReader::parse(std::string_view(unread_).substr(0, end));
    unread_.erase(0, end + 1);
    frame.arrays.clear();
    for (const Json& spec : frame.header["arrays"].as<Json::List>()) {
      Array array{spec["name"].as<std::string>(), spec["dtype"].as<std::string>(), {}, {}};
      for (const Json& size : spec["shape"].as<Json::List>())
        array.shape.push_back(size.as<int64_t>());
      size_t width = std::stoul(array.dtype.substr(2)) * (array.dtype[1] == 'U' ? 4 : 1);
      array.bytes.resize(width * countOf(array.shape));
      if (!fill(array.bytes)) return false;
      frame.arrays.push_back(std::move(array));
    }
    return true;
  }

  void write(Json::Object header, const Arrays& arrays) {
    Json::List specs;
    for (const Array& array : arrays)
      specs.push_back(Json::Object{
          {"name", array.name}, {"dtype", array.dtype}, {"shape", array.shape}});
    header["arrays"] = std::move(specs);
    std::string line;
    ::write(line, Json(std::move(header)));
    line += '\n';
    send(line.data(), line.size());
    for (const Array& array : arrays) send(array.bytes.data(), array.bytes.size());
  }

 private:
  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
  }

  bool fill(std::vector<char>& bytes) {
    size_t done = std::min(bytes.size(), unread_.size());
    std::copy_n(unread_.begin(), done, bytes.begin());
    unread_.erase(0, done);
    while (done < bytes.size()) {
      size_t count = receive(bytes.data() + done, bytes.size() - done);
      if (!count) return false;
      done += count;
    }
    return true;
  }

  size_t receive(char* into, size_t most) {
    ssize_t count;
    while ((count = ::read(requests_, into, most)) < 0)
      if (errno != EINTR) fail("can't read a request");
    return count;
  }

  void send(const char* data, size_t size) {
    while (size) {
      ssize_t count = ::write(replies_, data, size);
      if (count < 0 && errno != EINTR) fail("can't write a reply");
      if (count > 0) data += count, size -= count;
    }
  }

  int requests_, replies_;
  std::string unread_;
};
