// The loop that a person would write around ONNX Runtime's C API; for ci/bench_cpp.py.
//
//     bare_loop LIBRARY GRAPH CALLS SIZE…
//
// The model has one input of these sizes. It prints "ready", and for each line of its input the median of so many calls in seconds.

#include <dlfcn.h>
#include <onnxruntime_c_api.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

static const OrtApi* api;

static void check(OrtStatus* status) {
  if (!status) return;
  std::fprintf(stderr, "%s\n", api->GetErrorMessage(status));
  std::exit(1);
}

static double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

int main(int, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW);
  auto base = library ? (decltype(&OrtGetApiBase))dlsym(library, "OrtGetApiBase") : nullptr;
  if (!base || !(api = base()->GetApi(ORT_API_VERSION))) return 1;
  const int calls = std::atoi(argv[3]);
  std::vector<int64_t> shape;
  size_t count = 1;
  for (int place = 4; argv[place]; ++place) {
    shape.push_back(std::atoll(argv[place]));
    count *= shape.back();
  }
  std::vector<float> input(count);
  for (size_t place = 0; place < count; ++place) input[place] = (place % 17) / 16.0f;

  OrtEnv* env;
  OrtSessionOptions* options;
  OrtSession* session;
  OrtMemoryInfo* memory;
  OrtAllocator* allocator;
  OrtValue* value = nullptr;
  char *inputName, *outputName;
  check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "bare", &env));
  check(api->CreateSessionOptions(&options));
  check(api->SetIntraOpNumThreads(options, 1));
  check(api->CreateSession(env, argv[2], options, &session));
  check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  check(api->GetAllocatorWithDefaultOptions(&allocator));
  check(api->SessionGetInputName(session, 0, allocator, &inputName));
  check(api->SessionGetOutputName(session, 0, allocator, &outputName));
  check(api->CreateTensorWithDataAsOrtValue(memory, input.data(), 4 * count, shape.data(),
                                            shape.size(), ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
                                            &value));

  std::vector<double> seconds(calls);
  auto time = [&] {
    for (double& each : seconds) {
      OrtValue* output = nullptr;
      const double before = now();
      check(api->Run(session, nullptr, &inputName, &value, 1, &outputName, 1, &output));
      each = now() - before;
      api->ReleaseValue(output);
    }
    std::nth_element(seconds.begin(), seconds.begin() + calls / 2, seconds.end());
    return seconds[calls / 2];
  };
  time();
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::printf("%.9g\n", time());
    std::fflush(stdout);
  }
}
