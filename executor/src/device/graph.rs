//! Work that a GPU was told once, to be done again at one call: a captured CUDA graph.

use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use tch::Device;

use super::shim::{self, RawGraph, checked};
use super::stream::{CUDA, gpu};
use crate::error::ExecutorError;

/// Captured work. It reads and writes the memory that it was captured with, and keeps what it allocated meanwhile.
pub(crate) struct Graph(NonNull<RawGraph>);

// SAFETY: a graph is of no thread; it is replayed on the stream that is current where `replay` is called.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures what `work` issues to the current stream, which is not done yet, and returns it with what `work` did. `work` must neither
    /// wait for the device nor read from it, and what it does must have been done before, so that libtorch has chosen its kernels and made
    /// their workspaces.
    ///
    /// # Errors
    /// What `work` says, work that cannot be captured, no GPU, or a libtorch without its part for CUDA.
    pub fn capture<T>(
        device: Device,
        work: impl FnOnce() -> Result<T, ExecutorError>,
    ) -> Result<(Graph, T), ExecutorError> {
        // libtorch's allocator knows of several captures at a time; one after the other asks less of it.
        static CAPTURING: Mutex<()> = Mutex::new(());
        let Some(index) = gpu(device) else {
            return Err(ExecutorError::input(
                "device to capture work of",
                "a GPU",
                "the host's processor",
            ));
        };
        let _one_at_a_time = CAPTURING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut raw = ptr::null_mut();
        // SAFETY: the shim writes a graph's address there.
        checked(unsafe { shim::tenantry_graph_new(CUDA, index, &mut raw) })?;
        let graph = Graph(NonNull::new(raw).expect("the shim made one"));
        // SAFETY: the graph lives.
        checked(unsafe { shim::tenantry_graph_begin(graph.0.as_ptr()) })?;
        let done = work();
        // A capture ends even where its work failed: otherwise the stream would go on recording.
        // SAFETY: likewise.
        let ended = checked(unsafe { shim::tenantry_graph_end(graph.0.as_ptr()) });
        let done = done?;
        ended.map(|()| (graph, done))
    }

    /// Issues it to the calling thread's current stream, and does not wait.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn replay(&self) -> Result<(), ExecutorError> {
        // SAFETY: the graph lives.
        checked(unsafe { shim::tenantry_graph_replay(self.0.as_ptr()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: nobody else has its address.
        unsafe { shim::tenantry_graph_free(self.0.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both refusals are in words: where there is no GPU, and where libtorch has no part for one.
    #[test]
    fn nothing_is_captured_without_a_gpu() {
        let refused = |device| {
            let captured = Graph::capture(device, || -> Result<(), ExecutorError> {
                panic!("nothing captures it")
            });
            captured.map(drop).unwrap_err().to_string()
        };
        assert_eq!(
            refused(Device::Cpu),
            "device to capture work of: must be a GPU, got the host's processor"
        );
        if !tch::Cuda::is_available() {
            assert!(!refused(Device::Cuda(0)).is_empty());
        }
    }
}
