// What `tch` lacks of a device's queues: streams, events, copies that do not wait, and how much memory is free.
//
// It is written against libtorch's device-generic classes alone. So it compiles without CUDA's headers and links without its libraries,
// and where `libtorch_cuda.so` has been loaded the same calls reach PyTorch's own streams, which its caching allocator knows of.
//
// Every function returns 0, or 1 after keeping what went wrong for `tenantry_last_error`, on the thread that called.

#include <dlfcn.h>

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

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
void prepare(c10::DeviceType type) { at::globalContext().lazyInitDevice(type); }

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
