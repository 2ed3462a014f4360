// An agent of pytest-mlms in C++17: ONNX models on the CPU, by ONNX Runtime's C API.
//
//     g++ -std=c++17 -O2 -I. agent.cpp -o agent -ldl
//     mlms agent check ./agent PATH/libonnxruntime.so.1.32.0
//
// agents.md describes the requests. This agent has those of performance, accuracy and upgrades.

#include <chrono>
#include <iostream>
#include <limits>
#include <thread>

#include "model.hpp"
#include "process.hpp"

constexpr int kProtocol = 4;
constexpr size_t kCapacity = 10000;      // calls of a run
constexpr double kBetweenReadings = 5e-4;  // seconds
constexpr size_t kMostHeld = 64;         // outputs of a turn
constexpr size_t kMostBytes = 4 << 20;   // of them
constexpr size_t kMostKept = 8;          // outputs that differ
const std::string kTime = "time:";

struct Reply {
  Json::Object fields;
  Arrays arrays;
};

struct Refusal : std::runtime_error {
  Refusal(std::string name, const std::string& text) : runtime_error(text), name(std::move(name)) {}
  std::string name;
};

// The end of a loop: once both seconds and least calls are reached, or after longest seconds.
struct Stop {
  double seconds;
  size_t least;
  double longest;
};

// Raw times of a loop, in seconds; wait and cpu are readings of counters after so many calls.
struct Samples {
  std::vector<double> start, end, wait, cpu, at;

  Samples() {
    for (auto* each : {&start, &end, &wait, &cpu, &at}) each->reserve(kCapacity + 1);
  }

  void clear() {
    for (auto* each : {&start, &end, &wait, &cpu, &at}) each->clear();
  }

  void addTo(Arrays& arrays) const {
    const std::pair<const char*, const std::vector<double>*> named[] = {
        {"start", &start}, {"end", &end}, {"wait", &wait}, {"cpu", &cpu}, {"at", &at}};
    for (auto [name, values] : named) {
      const char* bytes = reinterpret_cast<const char*>(values->data());
      const int64_t count = static_cast<int64_t>(values->size());
      arrays.push_back({kTime + name, "<f8", {count}, {bytes, bytes + 8 * count}});
    }
  }
};

// What calls of turns gave for the same inputs: how many gave what, and those unlike the first.
struct Repeats {
  int64_t calls = 0;
  std::map<size_t, std::map<size_t, int64_t>> counts;
  std::map<size_t, size_t> first;
  std::vector<std::pair<size_t, Arrays>> kept;

  void add(size_t place, Arrays outputs) {
    size_t digest = 0;
    for (const Array& each : outputs)
      digest = 31 * digest + std::hash<std::string_view>()({each.bytes.data(), each.bytes.size()});
    ++calls;
    ++counts[place][digest];
    if (first.emplace(place, digest).first->second != digest && kept.size() < kMostKept)
      kept.emplace_back(place, std::move(outputs));
  }

  int64_t differing() const {
    int64_t found = 0;
    for (const auto& [place, digests] : counts) {
      int64_t all = 0, most = 0;
      for (const auto& [digest, count] : digests) all += count, most = std::max(most, count);
      found += all - most;
    }
    return found;
  }
};

class Agent {
 public:
  Agent(double ready, const char* library) : ready_(ready), library_(library) {}
  ~Agent() { unload(); }

  Reply answer(const std::string& type, const Json& request, Arrays& arrays) {
    auto known = kRequests.find(type);
    if (known == kRequests.end()) throw Refusal("NotImplementedError", "no request " + type);
    return (this->*known->second)(request, arrays);
  }

 private:
  Reply hello(const Json&, Arrays&) {
    QueueWait queue;
    const double waited = queue.read(), began = now();
    try {
      if (!ort_) ort_ = std::make_unique<Ort>(library_);
    } catch (const std::runtime_error& error) {
      throw Refusal("ImportError", error.what());
    }
    Json::List requests;
    for (const auto& each : kRequests) requests.push_back(each.first);
    char program[4096] = {};
    (void)!readlink("/proc/self/exe", program, sizeof program - 1);
    return {{{"protocol", kProtocol},
             {"process", getpid()},
             {"python", ""},
             {"executable", program},
             {"versions", Json::Object{{"onnxruntime", ort_->version}}},
             {"devices", Json::List{"cpu"}},
             {"cores", coresOf(0)},
             {"ready", ready_},
             {"import_seconds", now() - began},
             {"import_waited", queue.read() - waited},
             {"requests", requests}},
            {}};
  }

  Reply load(const Json& request, Arrays&) {
    if (!ort_) throw std::logic_error("the framework is not loaded; request hello first");
    if (request["device"].as<std::string>() != "cpu") throw std::invalid_argument("this agent has the CPU only");
    for (const auto& option : request["options"].as<Json::Object>())
      throw std::invalid_argument("this agent has no option " + option.first);
    for (const auto& file : request["files"].as<Json::Object>())
      if (file.first != "graph") throw std::invalid_argument("this agent takes no " + file.first);
    unload();
    const Json& threads = request["threads"];
    const bool isSinceLoad = resetPeak();
    const int64_t before = peakMemory();
    QueueWait queue;
    const double waited = queue.read(), began = now();
    model_ = std::make_unique<Model>(*ort_, request["files"]["graph"].as<std::string>(),
                                     threads.isNull() ? 0 : threads.as<int64_t>());
    const double ended = now();
    return {{{"device", "cpu"},
             {"threads", threads},
             {"inputs", signature(model_->inputs)},
             {"outputs", signature(model_->outputs)},
             {"seconds", ended - began},
             {"waited", queue.read() - waited},
             {"rss_before", before},
             {"peak_is_since_load", isSinceLoad}},
            {}};
  }

  Reply predict(const Json&, Arrays& arrays) {
    return {{}, outputsOf(Model::Call(model(), std::move(arrays)))};
  }

  Reply run(const Json& request, Arrays& arrays) {
    const std::string& scenario = request["scenario"].as<std::string>();
    if (scenario != "single_stream" && scenario != "offline")
      throw std::invalid_argument("no scenario " + scenario);
    double bindSeconds = 0;
    if (!request["batches"].isNull()) bindSeconds = bindAll(request, arrays);
    if (order_.empty()) throw std::logic_error("no calls are bound; send batches");
    std::vector<size_t> slots(order_.size(), 1);
    slots[0] = 0;
    const Json& stop = request["stop"];
    const int64_t held = ownMemory();
    loop(order_, slots,
         {stop["seconds"].number(), static_cast<size_t>(stop["least"].number()), stop["longest"].number()},
         scenario == "offline" ? std::numeric_limits<double>::infinity() : kBetweenReadings);
    Reply reply{{{"peak_rss", peakMemory()},
                 {"bind_seconds", bindSeconds},
                 {"grown", ownMemory() - held},
                 {"energy_missing", "this agent reads no counter of energy"}},
                model_->arraysOf(held_[0])};
    samples_.addTo(reply.arrays);
    return reply;
  }

  Reply outputs(const Json& request, Arrays&) {
    return {{}, outputsOf(bound_.at(request["batch"].as<int64_t>()))};
  }

  Reply usage(const Json&, Arrays&) {
    const struct mallinfo2 given = mallinfo2();
    return {{{"memory", ownMemory()},
             {"device_memory", nullptr},
             {"threads", entriesOf("/proc/self/task").size()},
             {"descriptors", entriesOf("/proc/self/fd").size()},
             {"allocated", given.uordblks + given.hblkhd}},
            {}};
  }

  Reply bind(const Json& request, Arrays& arrays) {
    const double seconds = bindAll(request, arrays);
    repeats_ = {};
    return {{{"wait", QueueWait().available()},
             {"device", false},
             {"stoppable", true},
             {"bind_seconds", seconds}},
            {}};
  }

  Reply turn(const Json& request, Arrays&) {
    const size_t first = request["first"].as<int64_t>(), skip = request["skip"].as<int64_t>();
    const size_t count = std::max<int64_t>(1, request["count"].as<int64_t>());
    const bool wantsOutputs = request["outputs"].as<bool>();
    if (order_.empty()) throw std::logic_error("no calls are bound; request bind first");
    const bool isSingle = cycle_ <= first && first < order_.size();
    std::vector<size_t> calls(order_.begin(), order_.begin() + cycle_);
    if (isSingle) calls = {order_[first]};
    else std::rotate(calls.begin(), calls.begin() + first % cycle_, calls.end());
    const size_t made = std::min(count, calls.size()), kept = std::min(mostHeld_, made);
    const size_t begin = wantsOutputs ? 0 : turns_++ % made;  // turns may all begin with one call
    std::vector<size_t> slots;
    for (size_t place = 0; place < calls.size(); ++place)
      slots.push_back(std::min((place + made - begin) % made, kept));
    for (size_t place = 0; place < skip; ++place) outputsOf(bound_[calls[place % calls.size()]]);
    loop(calls, slots, {0, count, std::numeric_limits<double>::infinity()}, kBetweenReadings);
    Reply reply{{{"peak_rss", request["memory"].as<bool>() ? Json(peakMemory()) : Json()}}, {}};
    for (size_t slot = 0; slot < kept; ++slot) {
      Arrays outputs = model_->arraysOf(held_[slot]);
      if (wantsOutputs && slot == 0) reply.arrays = outputs;
      mostHeld_ = std::min(mostHeld_, std::max<size_t>(1, kMostBytes / bytesOf(outputs)));
      if (!isSingle) repeats_.add((first + (begin + slot) % made) % cycle_, std::move(outputs));
    }
    samples_.addTo(reply.arrays);
    return reply;
  }

  Reply repeats(const Json& request, Arrays&) {
    Json::List batches;
    for (const auto& each : repeats_.kept) batches.push_back(each.first);
    const size_t place = request["place"].as<int64_t>();
    Reply reply{{{"calls", repeats_.calls}, {"differing", repeats_.differing()}, {"kept", batches}}, {}};
    if (place < repeats_.kept.size()) reply.arrays = repeats_.kept[place].second;
    return reply;
  }

  Reply idle(const Json& request, Arrays&) {
    const double before = cpuTime();
    std::this_thread::sleep_for(std::chrono::duration<double>(request["seconds"].number()));
    return {{{"cpu", cpuTime() - before}}, {}};
  }

  Reply hold(const Json& request, Arrays&) {
    std::vector<int> cores;
    for (const Json& core : request["cores"].as<Json::List>()) cores.push_back(core.as<int64_t>());
    useCores(0, cores);
    return {};
  }

  // Move all threads of this process from cores to others, one for one.
  Reply move(const Json& request, Arrays&) {
    std::map<int, int> places;
    for (const Json& pair : request["places"].as<Json::List>()) {
      const Json::List& fromTo = pair.as<Json::List>();
      places[fromTo.at(0).as<int64_t>()] = fromTo.at(1).as<int64_t>();
    }
    bool wereBeyond = false;
    for (int thread : entriesOf("/proc/self/task")) {
      std::vector<int> cores = coresOf(thread);
      for (int& core : cores) {
        auto found = places.find(core);
        if (found == places.end()) wereBeyond = true;
        else core = found->second;
      }
      if (!cores.empty()) useCores(thread, cores);
    }
    return {{{"cores", coresOf(0)}, {"were_beyond", wereBeyond}}, {}};
  }

  // Make calls in turn, with their times: between two readings of the clock is the call alone.
  void loop(const std::vector<size_t>& calls, const std::vector<size_t>& slots, Stop stop, double between) {
    Model::Outputs outputs(model_->outputs.size());
    while (held_.size() <= *std::max_element(slots.begin(), slots.end())) held_.push_back(outputs);
    samples_.clear();
    QueueWait queue;
    auto readCounters = [&](size_t count) {
      samples_.wait.push_back(queue.read());
      samples_.cpu.push_back(cpuTime());
      samples_.at.push_back(static_cast<double>(count));
    };
    readCounters(0);
    const double began = now(), over = began + stop.longest;
    double after = began, reading = began + between;
    size_t count = 0;
    while (!count || (count < kCapacity && after < over &&
                      (after - samples_.start[0] < stop.seconds || count < stop.least))) {
      const size_t place = count % calls.size();
      const Model::Call& call = bound_[calls[place]];
      const double before = now();
      OrtStatus* status = call(outputs);
      after = now();
      ort_->check(status);
      samples_.start.push_back(before);
      samples_.end.push_back(after);
      std::swap(outputs, held_[slots[place]]);
      model_->release(outputs);
      ++count;
      if (after >= reading) {
        readCounters(count);
        reading = after + between;
      }
    }
    if (samples_.at.back() != static_cast<double>(count)) readCounters(count);
  }

  // Bind a call to each batch, whose arrays follow one another; return the first one's seconds.
  double bindAll(const Json& request, Arrays& arrays) {
    const size_t batches = request["batches"].as<int64_t>();
    if (!batches || arrays.size() % batches) throw std::invalid_argument("the arrays are not whole batches");
    const size_t size = arrays.size() / batches;
    model();
    forgetCalls();
    double bindSeconds = 0;
    for (size_t first = 0; first < arrays.size(); first += size) {
      const double began = now();
      bound_.emplace_back(*model_, Arrays(std::make_move_iterator(&arrays[first]),
                                          std::make_move_iterator(&arrays[first] + size)));
      if (!bindSeconds) bindSeconds = now() - began;
    }
    if (!request["order"].isNull())
      for (const Json& batch : request["order"].as<Json::List>()) order_.push_back(batch.as<int64_t>());
    if (order_.empty())
      for (size_t batch = 0; batch < batches; ++batch) order_.push_back(batch);
    for (size_t batch : order_) bound_.at(batch);
    cycle_ = request["cycle"].isNull() ? 0 : request["cycle"].as<int64_t>();
    if (!cycle_ || cycle_ > order_.size()) cycle_ = order_.size();
    return bindSeconds;
  }

  Arrays outputsOf(const Model::Call& call) {
    Model::Outputs values(model_->outputs.size());
    ort_->check(call(values));
    Arrays found = model_->arraysOf(values);
    model_->release(values);
    return found;
  }

  Model& model() {
    if (!model_) throw std::logic_error("no model is loaded; request load first");
    return *model_;
  }

  static Json::List signature(const std::vector<Tensor>& tensors) {
    Json::List found;
    for (const Tensor& each : tensors) found.push_back(each.json());
    return found;
  }

  static size_t bytesOf(const Arrays& arrays) {
    size_t bytes = 1;
    for (const Array& each : arrays) bytes += each.bytes.size();
    return bytes;
  }

  void forgetCalls() {
    for (Model::Outputs& each : held_) model_->release(each);
    held_.clear();
    mostHeld_ = kMostHeld;
    bound_.clear();
    order_.clear();
  }

  void unload() {
    forgetCalls();
    model_.reset();
  }

  using Method = Reply (Agent::*)(const Json&, Arrays&);
  inline static const std::map<std::string, Method> kRequests = {
      {"hello", &Agent::hello},     {"load", &Agent::load},   {"predict", &Agent::predict},
      {"run", &Agent::run},         {"outputs", &Agent::outputs}, {"usage", &Agent::usage},
      {"bind", &Agent::bind},       {"turn", &Agent::turn},   {"repeats", &Agent::repeats},
      {"idle", &Agent::idle},       {"hold", &Agent::hold},   {"move", &Agent::move},
  };

  const double ready_;
  const char* library_;
  std::unique_ptr<Ort> ort_;
  std::unique_ptr<Model> model_;
  std::vector<Model::Call> bound_;
  std::vector<size_t> order_;  // numbers of bound calls, as they are used in turn
  size_t cycle_ = 0, mostHeld_ = kMostHeld, turns_ = 0;
  std::vector<Model::Outputs> held_;
  Samples samples_;
  Repeats repeats_;
};

// The reply to a request, or what went wrong with it.
Frame answer(Agent& agent, const std::string& type, Frame& request) {
  std::string name = "RuntimeError", message;
  try {
    auto [fields, arrays] = agent.answer(type, request.header, request.arrays);
    fields["type"] = type;
    return {std::move(fields), std::move(arrays)};
  } catch (const Refusal& error) {
    name = error.name, message = error.what();
  } catch (const std::bad_alloc& error) {
    name = "MemoryError", message = error.what();
  } catch (const std::logic_error& error) {  // invalid_argument and out_of_range are such
    name = "ValueError", message = error.what();
  } catch (const std::exception& error) {
    message = error.what();
  }
  std::cerr << type << ": " << message << std::endl;
  return {Json::Object{{"type", "error"}, {"error", name}, {"message", message}}, {}};
}

int main(int argc, char** argv) {
  const double ready = now();
  try {
    Channel channel;
    Agent agent(ready, argc > 1 ? argv[1] : "libonnxruntime.so.1");
    for (Frame request; channel.read(request);) {
      const std::string type = request.header["type"].as<std::string>();
      if (type == "bye") return 0;
      Frame reply = answer(agent, type, request);
      Json::Object fields = reply.header.as<Json::Object>();
      fields["number"] = request.header["number"];
      channel.write(std::move(fields), reply.arrays);
    }
  } catch (const std::exception& error) {
    std::cerr << "the agent ends: " << error.what() << std::endl;
  }
  return 1;
}
