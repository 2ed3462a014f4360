// A model of ONNX Runtime on the CPU, by its C API.
#pragma once

#include <dlfcn.h>
#include <onnxruntime_c_api.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "frames.hpp"

struct Type {
  ONNXTensorElementDataType ort;
  const char* name;   // as numpy names it
  const char* dtype;  // as frames have it
  size_t width;
};

inline const Type kTypes[] = {
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, "float32", "<f4", 4},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, "float64", "<f8", 8},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, "float16", "<f2", 2},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, "bool", "|b1", 1},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, "int8", "|i1", 1},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, "int16", "<i2", 2},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, "int32", "<i4", 4},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, "int64", "<i8", 8},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, "uint8", "|u1", 1},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, "uint16", "<u2", 2},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, "uint32", "<u4", 4},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, "uint64", "<u8", 8},
};

// The library, loaded at run time: the program needs none to be built, and runs with any release.
class Ort {
 public:
  explicit Ort(const char* library) {
    void* loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!loaded) throw std::runtime_error(dlerror());
    auto base = reinterpret_cast<decltype(&OrtGetApiBase)>(dlsym(loaded, "OrtGetApiBase"));
    if (!base) throw std::runtime_error(std::string(library) + " is not ONNX Runtime");
    version = base()->GetVersionString();
    api = base()->GetApi(ORT_API_VERSION);
    if (!api)
      throw std::runtime_error("ONNX Runtime " + version + " is older than the header's API " +
                               std::to_string(ORT_API_VERSION));
    check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "agent", &env));
  }

  void check(OrtStatus* status) const {
    if (!status) return;
    std::string message = api->GetErrorMessage(status);
    api->ReleaseStatus(status);
    throw std::runtime_error(message);
  }

  std::string version;
  const OrtApi* api;
  OrtEnv* env = nullptr;
};

template <class Type>
using Owned = std::unique_ptr<Type, void (*)(Type*)>;

// A tensor of the signature; an axis of any size is below 0.
struct Tensor {
  std::string name;
  const Type* type;
  std::vector<int64_t> shape;

  Json json() const {
    Json::List sizes;
    for (int64_t size : shape) sizes.push_back(size < 0 ? Json() : Json(size));
    return Json::List{name, type->name, sizes};
  }
};

class Model {
 public:
  Model(const Ort& ort, const std::string& path, int threads) : ort_(ort), api_(ort.api) {
    OrtSessionOptions* options = nullptr;
    ort_.check(api_->CreateSessionOptions(&options));
    Owned<OrtSessionOptions> freed(options, api_->ReleaseSessionOptions);
    if (threads) ort_.check(api_->SetIntraOpNumThreads(options, threads));
    OrtSession* session = nullptr;
    ort_.check(api_->CreateSession(ort_.env, path.c_str(), options, &session));
    session_.reset(session);
    OrtMemoryInfo* memory = nullptr;
    ort_.check(api_->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    memory_.reset(memory);
    size_t count = 0;
    ort_.check(api_->SessionGetInputCount(session, &count));
    for (size_t place = 0; place < count; ++place)
      inputs.push_back(tensor(place, api_->SessionGetInputName, api_->SessionGetInputTypeInfo));
    ort_.check(api_->SessionGetOutputCount(session, &count));
    for (size_t place = 0; place < count; ++place)
      outputs.push_back(tensor(place, api_->SessionGetOutputName, api_->SessionGetOutputTypeInfo));
    for (const Tensor& each : inputs) inputNames_.push_back(each.name.c_str());
    for (const Tensor& each : outputs) outputNames_.push_back(each.name.c_str());
  }
  Model(const Model&) = delete;

  // The outputs of a call, which the next one replaces.
  using Outputs = std::vector<OrtValue*>;

  // A call whose inputs stay where they are: what the timed loop runs.
  class Call {
   public:
    Call(Model& model, Arrays batch) : model_(model), batch_(std::move(batch)) {
      for (const Tensor& wanted : model_.inputs) {
        values_.push_back(model_.valueOf(wanted, batch_));
        inputs_.push_back(values_.back().get());
      }
      if (batch_.size() != inputs_.size()) throw std::invalid_argument("an input is not the model's");
    }

    OrtStatus* operator()(Outputs& outputs) const {
      return model_.api_->Run(model_.session_.get(), nullptr, model_.inputNames_.data(), inputs_.data(),
                              inputs_.size(), model_.outputNames_.data(), outputs.size(),
                              outputs.data());
    }

   private:
    Model& model_;
    Arrays batch_;
    std::vector<Owned<OrtValue>> values_;
    std::vector<const OrtValue*> inputs_;
  };

  void release(Outputs& values) const {
    for (OrtValue*& each : values) api_->ReleaseValue(std::exchange(each, nullptr));
  }

  Arrays arraysOf(const Outputs& values) const {
    Arrays found;
    for (size_t place = 0; place < values.size(); ++place) {
      OrtTensorTypeAndShapeInfo* info = nullptr;
      ort_.check(api_->GetTensorTypeAndShape(values[place], &info));
      auto [type, shape] = describe(info);
      api_->ReleaseTensorTypeAndShapeInfo(info);
      void* data = nullptr;
      ort_.check(api_->GetTensorMutableData(values[place], &data));
      const char* bytes = static_cast<const char*>(data);
      size_t size = type->width * countOf(shape);
      found.push_back({outputs[place].name, type->dtype, shape, {bytes, bytes + size}});
    }
    return found;
  }

  std::vector<Tensor> inputs, outputs;

 private:
  template <class NameOf, class TypeOf>
  Tensor tensor(size_t place, NameOf nameOf, TypeOf typeOf) {
    OrtAllocator* allocator = nullptr;
    ort_.check(api_->GetAllocatorWithDefaultOptions(&allocator));
    char* name = nullptr;
    ort_.check(nameOf(session_.get(), place, allocator, &name));
    Tensor found{name, nullptr, {}};
    ort_.check(api_->AllocatorFree(allocator, name));
    OrtTypeInfo* type = nullptr;
    ort_.check(typeOf(session_.get(), place, &type));
    Owned<OrtTypeInfo> freed(type, api_->ReleaseTypeInfo);
    const OrtTensorTypeAndShapeInfo* info = nullptr;
    ort_.check(api_->CastTypeInfoToTensorInfo(type, &info));
    if (!info) throw std::invalid_argument(found.name + " is no tensor, and this agent has no others");
    std::tie(found.type, found.shape) = describe(info);
    return found;
  }

  std::pair<const Type*, std::vector<int64_t>> describe(const OrtTensorTypeAndShapeInfo* info) const {
    ONNXTensorElementDataType ort;
    size_t axes = 0;
    ort_.check(api_->GetTensorElementType(info, &ort));
    ort_.check(api_->GetDimensionsCount(info, &axes));
    std::vector<int64_t> shape(axes);
    ort_.check(api_->GetDimensions(info, shape.data(), axes));
    auto found = std::find_if(std::begin(kTypes), std::end(kTypes),
                              [ort](const Type& each) { return each.ort == ort; });
    if (found == std::end(kTypes))
      throw std::invalid_argument("this agent has no tensors of ONNX's type " + std::to_string(ort));
    return {found, shape};
  }

  Owned<OrtValue> valueOf(const Tensor& wanted, Arrays& batch) {
    auto found = std::find_if(batch.begin(), batch.end(),
                              [&](const Array& each) { return each.name == wanted.name; });
    if (found == batch.end()) throw std::invalid_argument("there is no input " + wanted.name);
    bool fits = found->shape.size() == wanted.shape.size() && found->dtype == wanted.type->dtype;
    for (size_t axis = 0; fits && axis < wanted.shape.size(); ++axis)
      fits = wanted.shape[axis] < 0 || wanted.shape[axis] == found->shape[axis];
    if (!fits)
      throw std::invalid_argument("input " + wanted.name + " has another type or shape than the model takes");
    OrtValue* value = nullptr;
    ort_.check(api_->CreateTensorWithDataAsOrtValue(
        memory_.get(), found->bytes.data(), found->bytes.size(), found->shape.data(),
        found->shape.size(), wanted.type->ort, &value));
    return {value, api_->ReleaseValue};
  }

  const Ort& ort_;
  const OrtApi* api_;
  Owned<OrtSession> session_{nullptr, api_->ReleaseSession};
  Owned<OrtMemoryInfo> memory_{nullptr, api_->ReleaseMemoryInfo};
  std::vector<const char*> inputNames_, outputNames_;
};
