//! The functions of `shim/streams.cpp`, and what went wrong in them as an error.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use tch::{TchError, Tensor};

use crate::error::ExecutorError;

/// A stream, as it is passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RawStream {
    pub id: i64,
    pub device_type: i32,
    pub device_index: i32,
}

/// An event of `c10`.
#[repr(C)]
pub(super) struct RawEvent {
    _private: [u8; 0],
}

/// `CapturedGraph` of the shim.
#[repr(C)]
pub(super) struct RawGraph {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn tenantry_last_error() -> *const c_char;
    pub(super) fn tenantry_thread_infers();
    pub(super) fn tenantry_load_library(name: *const c_char) -> c_int;
    pub(super) fn tenantry_stream_from_pool(device_type: i32, device_index: i32, stream: *mut RawStream) -> c_int;
    pub(super) fn tenantry_stream_current(device_type: i32, device_index: i32, stream: *mut RawStream) -> c_int;
    pub(super) fn tenantry_stream_exchange(stream: RawStream, before: *mut RawStream) -> c_int;
    pub(super) fn tenantry_stream_synchronize(stream: RawStream) -> c_int;
    pub(super) fn tenantry_device_synchronize(device_type: i32, device_index: i32) -> c_int;
    pub(super) fn tenantry_event_new(device_type: i32, event: *mut *mut RawEvent) -> c_int;
    pub(super) fn tenantry_event_free(event: *mut RawEvent);
    pub(super) fn tenantry_event_record(event: *mut RawEvent, stream: RawStream) -> c_int;
    pub(super) fn tenantry_event_block(event: *const RawEvent, stream: RawStream) -> c_int;
    pub(super) fn tenantry_event_synchronize(event: *const RawEvent) -> c_int;
    pub(super) fn tenantry_event_query(event: *const RawEvent, done: *mut i32) -> c_int;
    pub(super) fn tenantry_event_elapsed(
        first: *const RawEvent,
        second: *const RawEvent,
        milliseconds: *mut f64,
    ) -> c_int;
    pub(super) fn tenantry_graph_new(device_type: i32, device_index: i32, graph: *mut *mut RawGraph) -> c_int;
    pub(super) fn tenantry_graph_free(graph: *mut RawGraph);
    pub(super) fn tenantry_graph_begin(graph: *mut RawGraph) -> c_int;
    pub(super) fn tenantry_graph_end(graph: *mut RawGraph) -> c_int;
    pub(super) fn tenantry_graph_replay(graph: *mut RawGraph) -> c_int;
    fn tenantry_tensor_copy(to: *mut c_void, from: *const c_void, non_blocking: i32) -> c_int;
    fn tenantry_tensor_locked_like(like: *const c_void, locked: *mut *mut c_void) -> c_int;
    fn tenantry_tensor_record_stream(tensor: *const c_void, stream: RawStream) -> c_int;
    pub(super) fn tenantry_memory(
        device_type: i32,
        device_index: i32,
        free_bytes: *mut u64,
        total_bytes: *mut u64,
        peak_bytes: *mut u64,
    ) -> c_int;
    pub(super) fn tenantry_memory_reset_peak(device_type: i32, device_index: i32) -> c_int;
    pub(super) fn tenantry_memory_give_back(device_type: i32) -> c_int;
    pub(super) fn tenantry_bus_id(device_index: i32, text: *mut c_char, text_bytes: i32) -> c_int;
}

/// What a function of the shim returned, as a result. On the thread that called it, and before it calls another.
pub(super) fn checked(returned: c_int) -> Result<(), ExecutorError> {
    if returned == 0 {
        return Ok(());
    }
    // SAFETY: the text is this thread's own, ends with a zero, and stays until the thread calls the shim again.
    let text = unsafe { CStr::from_ptr(tenantry_last_error()) };
    Err(TchError::Torch(text.to_string_lossy().into_owned()).into())
}

/// Copies all of a tensor's numbers into another of the same shape, on the calling thread's current stream.
pub(super) fn copy(to: &mut Tensor, from: &Tensor, non_blocking: bool) -> Result<(), ExecutorError> {
    // SAFETY: a `Tensor` holds a pointer to an `at::Tensor`, and both live until the call returns.
    checked(unsafe { tenantry_tensor_copy(to.as_mut_ptr().cast(), from.as_ptr().cast(), non_blocking.into()) })
}

/// As [`tenantry_tensor_record_stream`].
pub(super) fn record_stream(tensor: &Tensor, stream: RawStream) -> Result<(), ExecutorError> {
    // SAFETY: as in `copy`.
    checked(unsafe { tenantry_tensor_record_stream(tensor.as_ptr().cast(), stream) })
}

/// As [`tenantry_tensor_locked_like`].
pub(super) fn locked_like(like: &Tensor) -> Result<Tensor, ExecutorError> {
    let mut locked = ptr::null_mut();
    // SAFETY: as in `copy`; the shim writes a pointer there, to an `at::Tensor` that nobody else has.
    checked(unsafe { tenantry_tensor_locked_like(like.as_ptr().cast(), &mut locked) })?;
    // SAFETY: it is such a pointer, and the `Tensor` frees it.
    Ok(unsafe { Tensor::from_ptr(locked.cast()) })
}
