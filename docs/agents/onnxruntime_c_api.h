// The part of ONNX Runtime's C API that this agent calls, for builds without the official header.
//
// Its wheels have the library alone. The table of functions only grows at its end, and no function
// changes its place: the numbers are those places, and all of them are of version 1. With the
// official header of any release first on the include path, it is used instead of this one.
#pragma once

#include <cstddef>
#include <cstdint>

#define ORT_API_VERSION 1

enum OrtLoggingLevel { ORT_LOGGING_LEVEL_WARNING = 2 };
enum OrtAllocatorType { OrtArenaAllocator = 1 };
enum OrtMemType { OrtMemTypeDefault = 0 };
enum ONNXTensorElementDataType {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
};

struct OrtEnv;
struct OrtStatus;
struct OrtMemoryInfo;
struct OrtSession;
struct OrtValue;
struct OrtRunOptions;
struct OrtTypeInfo;
struct OrtTensorTypeAndShapeInfo;
struct OrtSessionOptions;
struct OrtAllocator;

struct OrtApi {
  void* from0[2];
  const char* (*GetErrorMessage)(const OrtStatus*);
  OrtStatus* (*CreateEnv)(OrtLoggingLevel, const char* name, OrtEnv**);
  void* from4[3];
  OrtStatus* (*CreateSession)(const OrtEnv*, const char* path, const OrtSessionOptions*,
                              OrtSession**);
  void* from8[1];
  OrtStatus* (*Run)(OrtSession*, const OrtRunOptions*, const char* const* inputNames,
                    const OrtValue* const* inputs, size_t inputCount,
                    const char* const* outputNames, size_t outputCount, OrtValue** outputs);
  OrtStatus* (*CreateSessionOptions)(OrtSessionOptions**);
  void* from11[13];
  OrtStatus* (*SetIntraOpNumThreads)(OrtSessionOptions*, int);
  void* from25[5];
  OrtStatus* (*SessionGetInputCount)(const OrtSession*, size_t*);
  OrtStatus* (*SessionGetOutputCount)(const OrtSession*, size_t*);
  void* from32[1];
  OrtStatus* (*SessionGetInputTypeInfo)(const OrtSession*, size_t, OrtTypeInfo**);
  OrtStatus* (*SessionGetOutputTypeInfo)(const OrtSession*, size_t, OrtTypeInfo**);
  void* from35[1];
  OrtStatus* (*SessionGetInputName)(const OrtSession*, size_t, OrtAllocator*, char**);
  OrtStatus* (*SessionGetOutputName)(const OrtSession*, size_t, OrtAllocator*, char**);
  void* from38[11];
  OrtStatus* (*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo*, void* data, size_t bytes,
                                               const int64_t* shape, size_t axes,
                                               ONNXTensorElementDataType, OrtValue**);
  void* from50[1];
  OrtStatus* (*GetTensorMutableData)(OrtValue*, void**);
  void* from52[3];
  OrtStatus* (*CastTypeInfoToTensorInfo)(const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**);
  void* from56[4];
  OrtStatus* (*GetTensorElementType)(const OrtTensorTypeAndShapeInfo*, ONNXTensorElementDataType*);
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo*, size_t*);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo*, int64_t*, size_t);
  void* from63[2];
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue*, OrtTensorTypeAndShapeInfo**);
  void* from66[3];
  OrtStatus* (*CreateCpuMemoryInfo)(OrtAllocatorType, OrtMemType, OrtMemoryInfo**);
  void* from70[6];
  OrtStatus* (*AllocatorFree)(OrtAllocator*, void*);
  void* from77[1];
  OrtStatus* (*GetAllocatorWithDefaultOptions)(OrtAllocator**);
  void* from79[13];
  void (*ReleaseEnv)(OrtEnv*);
  void (*ReleaseStatus)(OrtStatus*);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo*);
  void (*ReleaseSession)(OrtSession*);
  void (*ReleaseValue)(OrtValue*);
  void* from97[1];
  void (*ReleaseTypeInfo)(OrtTypeInfo*);
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo*);
  void (*ReleaseSessionOptions)(OrtSessionOptions*);
};

#define AT(place, name) static_assert(offsetof(OrtApi, name) == (place) * sizeof(void*))
AT(3, CreateEnv);
AT(9, Run);
AT(24, SetIntraOpNumThreads);
AT(37, SessionGetOutputName);
AT(49, CreateTensorWithDataAsOrtValue);
AT(62, GetDimensions);
AT(78, GetAllocatorWithDefaultOptions);
AT(100, ReleaseSessionOptions);
#undef AT

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);  // null where the library is older
  const char* (*GetVersionString)();
};

extern "C" const OrtApiBase* OrtGetApiBase();
