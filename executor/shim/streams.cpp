// What `tch` lacks of a device's queues: streams, events, copies that do not wait, how much memory is free, and work that is captured once.
//
// It is written against libtorch's device-generic classes alone. So it compiles without CUDA's headers and links without its libraries,
// and where `libtorch_cuda.so` has been loaded the same calls reach PyTorch's own streams, which its caching allocator knows of. Captured work
// has no such class: those of its functions that are needed are asked for by name.
//
// Every function returns 0, or 1 after keeping what went wrong for `tenantry_last_error`, on the thread that called.

#include <dlfcn.h>

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

thread_local std::string last_error;

template <typename Work>
int guarded(Work work) noexcept {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an exception of unknown type";
  }
  return 1;
}

// The first use of a device's library makes it look for devices and make its allocator.
void prepare(c10::DeviceType type) {
  at::globalContext().lazyInitDevice(type);
  // cuDNN's attention plans anew for each shape that it meets, and requests are of ever other lengths. The other kernels need no plan.
  at::globalContext().setSDPUseCuDNN(false);
}

// `at::cuda::CUDAGraph` of PyTorch 2.11, which is declared in a header (`ATen/cuda/CUDAGraph.h`) that needs CUDA's own.
class CapturedGraph {
 public:
  explicit CapturedGraph(c10::Device device) : device_(device) {
    find(construct_, "_ZN2at4cuda9CUDAGraphC1Eb");
    find(destroy_, "_ZN2at4cuda9CUDAGraphD1Ev");
    find(capture_begin_, "_ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode");
    find(capture_end_, "_ZN2at4cuda9CUDAGraph11capture_endEv");
    find(replay_, "_ZN2at4cuda9CUDAGraph6replayEv");
    const c10::DeviceGuard guard(device_);
    construct_(object_, /*keep_graph=*/false);
  }

  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  ~CapturedGraph() { destroy_(object_); }

  // What the calling thread issues to its current stream from now on is recorded and not done; what it allocates meanwhile is the graph's own.
  void begin() {
    const c10::DeviceGuard guard(device_);
    capture_begin_(object_, {0, 0}, kThreadLocal);
  }

  void end() {
    const c10::DeviceGuard guard(device_);
    capture_end_(object_);
  }

  void replay() {
    const c10::DeviceGuard guard(device_);
    replay_(object_);
  }

 private:
  // `cudaStreamCaptureModeThreadLocal`: other lanes may wait and allocate while this thread captures.
  static constexpr int kThreadLocal = 1;
  // As declared, its members take less than 200.
  static constexpr std::size_t kObjectBytes = 4096;

  template <typename Function>
  static void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    if (function == nullptr) {
      throw std::runtime_error(std::string("captured graphs need PyTorch 2.11's part for CUDA, which has ") + name);
    }
  }

  c10::Device device_;
  void (*construct_)(void*, bool) = nullptr;
  void (*destroy_)(void*) = nullptr;
  void (*capture_begin_)(void*, std::pair<unsigned long long, unsigned long long>, int) = nullptr;
  void (*capture_end_)(void*) = nullptr;
  void (*replay_)(void*) = nullptr;
  alignas(std::max_align_t) unsigned char object_[kObjectBytes];
};

}  // namespace

extern "C" {

// A stream as it is passed by value: `executor/src/device/stream.rs` has the same fields.
struct TenantryStream {
  int64_t id;
  int32_t device_type;
  int32_t device_index;
};

static c10::Stream unpack(TenantryStream stream) {
  return c10::Stream::unpack3(stream.id, static_cast<c10::DeviceIndex>(stream.device_index),
                              static_cast<c10::DeviceType>(stream.device_type));
}

static TenantryStream pack(c10::Stream stream) {
  return {stream.id(), static_cast<int32_t>(stream.device_type()), static_cast<int32_t>(stream.device_index())};
}

static c10::impl::VirtualGuardImpl guard_of(int32_t device_type) {
  const auto type = static_cast<c10::DeviceType>(device_type);
  prepare(type);
  return c10::impl::VirtualGuardImpl(type);
}

static c10::Device device_of(int32_t device_type, int32_t device_index) {
  return c10::Device(static_cast<c10::DeviceType>(device_type), static_cast<c10::DeviceIndex>(device_index));
}

const char* tenantry_last_error() { return last_error.c_str(); }

// A library whose symbols register themselves with those that are loaded.
int tenantry_load_library(const char* name) {
  return guarded([&] {
    if (dlopen(name, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw std::runtime_error(dlerror());
    }
  });
}

// What the calling thread makes from now on has no part in gradients, for which each operation would keep count.
void tenantry_thread_infers() {
  static thread_local const c10::InferenceMode inference;
  static_cast<void>(inference);
}

int tenantry_stream_from_pool(int32_t device_type, int32_t device_index, TenantryStream* stream) {
  return guarded([&] {
    *stream = pack(guard_of(device_type).getStreamFromGlobalPool(device_of(device_type, device_index)));
  });
}

int tenantry_stream_current(int32_t device_type, int32_t device_index, TenantryStream* stream) {
  return guarded([&] { *stream = pack(guard_of(device_type).getStream(device_of(device_type, device_index))); });
}

// Lets the calling thread's work on the stream's device go there; where it went before.
int tenantry_stream_exchange(TenantryStream stream, TenantryStream* before) {
  return guarded([&] { *before = pack(guard_of(stream.device_type).exchangeStream(unpack(stream))); });
}

int tenantry_stream_synchronize(TenantryStream stream) {
  return guarded([&] { guard_of(stream.device_type).synchronizeStream(unpack(stream)); });
}

int tenantry_device_synchronize(int32_t device_type, int32_t device_index) {
  return guarded([&] { guard_of(device_type).synchronizeDevice(static_cast<c10::DeviceIndex>(device_index)); });
}

// With a clock: only such events tell how long something took.
int tenantry_event_new(int32_t device_type, c10::Event** event) {
  return guarded([&] {
    const auto type = static_cast<c10::DeviceType>(device_type);
    prepare(type);
    *event = new c10::Event(type, c10::EventFlag::BACKEND_DEFAULT);
  });
}

void tenantry_event_free(c10::Event* event) { delete event; }

int tenantry_event_record(c10::Event* event, TenantryStream stream) {
  return guarded([&] { event->record(unpack(stream)); });
}

int tenantry_event_block(const c10::Event* event, TenantryStream stream) {
  return guarded([&] { event->block(unpack(stream)); });
}

int tenantry_event_synchronize(const c10::Event* event) {
  return guarded([&] { event->synchronize(); });
}

int tenantry_event_query(const c10::Event* event, int32_t* done) {
  return guarded([&] { *done = event->query() ? 1 : 0; });
}

// From the first to the second, in milliseconds; both must be over.
int tenantry_event_elapsed(const c10::Event* first, const c10::Event* second, double* milliseconds) {
  return guarded([&] { *milliseconds = first->elapsedTime(*second); });
}

int tenantry_tensor_copy(at::Tensor* to, const at::Tensor* from, int32_t non_blocking) {
  return guarded([&] {
    c10::NoGradGuard no_grad;
    to->copy_(*from, non_blocking != 0);
  });
}

// A tensor like this one in page-locked memory of the host; what its numbers are is not said.
int tenantry_tensor_locked_like(const at::Tensor* like, at::Tensor** locked) {
  return guarded([&] { *locked = new at::Tensor(at::empty_like(*like, like->options().pinned_memory(true))); });
}

// The tensor's memory is not given to anyone else before what this stream does with it now is over.
int tenantry_tensor_record_stream(const at::Tensor* tensor, TenantryStream stream) {
  return guarded([&] { const_cast<at::Tensor*>(tensor)->record_stream(unpack(stream)); });
}

int tenantry_memory(int32_t device_type, int32_t device_index, uint64_t* free_bytes, uint64_t* total_bytes,
                    uint64_t* peak_bytes) {
  return guarded([&] {
    const auto type = static_cast<c10::DeviceType>(device_type);
    prepare(type);
    const auto index = static_cast<c10::DeviceIndex>(device_index);
    auto* allocator = c10::getDeviceAllocator(type);
    const auto [free, total] = allocator->getMemoryInfo(index);
    *free_bytes = free;
    *total_bytes = total;
    // Of all pools together, which come first.
    *peak_bytes = static_cast<uint64_t>(allocator->getDeviceStats(index).allocated_bytes[0].peak);
  });
}

// From now on the peak is that of what comes after, beginning with what is there.
int tenantry_memory_reset_peak(int32_t device_type, int32_t device_index) {
  return guarded([&] {
    const auto type = static_cast<c10::DeviceType>(device_type);
    prepare(type);
    c10::getDeviceAllocator(type)->resetPeakStats(static_cast<c10::DeviceIndex>(device_index));
  });
}

// What tensors of the past took and nobody takes now is the device's again, for whoever asks for it in other sizes.
int tenantry_memory_give_back(int32_t device_type) {
  return guarded([&] {
    const auto type = static_cast<c10::DeviceType>(device_type);
    prepare(type);
    c10::getDeviceAllocator(type)->emptyCache();
  });
}

int tenantry_graph_new(int32_t device_type, int32_t device_index, CapturedGraph** graph) {
  return guarded([&] {
    prepare(static_cast<c10::DeviceType>(device_type));
    *graph = std::make_unique<CapturedGraph>(device_of(device_type, device_index)).release();
  });
}

void tenantry_graph_free(CapturedGraph* graph) {
  // What goes wrong with a device that is lost has been told before.
  guarded([&] { delete graph; });
}

int tenantry_graph_begin(CapturedGraph* graph) {
  return guarded([&] { graph->begin(); });
}

int tenantry_graph_end(CapturedGraph* graph) {
  return guarded([&] { graph->end(); });
}

// Issues what was captured to the calling thread's current stream.
int tenantry_graph_replay(CapturedGraph* graph) {
  return guarded([&] { graph->replay(); });
}

// Where on the bus a GPU is, as CUDA's runtime writes it, which libtorch's part for CUDA has brought along.
int tenantry_bus_id(int32_t device_index, char* text, int32_t text_bytes) {
  return guarded([&] {
    using BusId = int (*)(char*, int, int);
    const auto bus_id = reinterpret_cast<BusId>(dlsym(RTLD_DEFAULT, "cudaDeviceGetPCIBusId"));
    if (bus_id == nullptr) {
      throw std::runtime_error("CUDA's runtime is not loaded");
    }
    if (const int code = bus_id(text, text_bytes, device_index); code != 0) {
      throw std::runtime_error("cudaDeviceGetPCIBusId: error " + std::to_string(code));
    }
  });
}

}  // extern "C"
