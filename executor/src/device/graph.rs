//! Work that a GPU was told once, to be done again at one call: a captured CUDA graph.

use std::mem::ManuallyDrop;
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

/// libtorch's allocator and generators keep lists of captures without a lock: one is made, or let go of, at a time.
static CAPTURES: Mutex<()> = Mutex::new(());

impl Graph {
    /// Captures what `work` issues to the current stream, which is not done yet, and returns it with what `work` did.
    /// `work` must neither wait for the device nor read from it, and what it does must have been done before, so that
    /// libtorch has chosen its kernels and made their workspaces.
    ///
    /// # Errors
    /// What `work` says, work that cannot be captured, no GPU, or a libtorch without its part for CUDA. After work that
    /// could not be captured libtorch's allocator keeps what it would give back, and its random numbers on the device
    /// fail: whatever else needs these goes into a new process.
    pub fn capture<T>(
        device: Device,
        work: impl FnOnce() -> Result<T, ExecutorError>,
    ) -> Result<(Graph, T), ExecutorError> {
        let Some(index) = gpu(device) else {
            return Err(ExecutorError::input(
                "device to capture work of",
                "a GPU",
                "the host's processor",
            ));
        };
        let one_at_a_time = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
        let mut raw = ptr::null_mut();
        // SAFETY: the shim writes a graph's address there.
        checked(unsafe { shim::tenantry_graph_new(CUDA, index, &mut raw) })?;
        // Until its capture has ended well libtorch refers to it from elsewhere, and it is not let go of.
        let graph = ManuallyDrop::new(Graph(NonNull::new(raw).expect("the shim made one")));
        // SAFETY: the graph lives.
        checked(unsafe { shim::tenantry_graph_begin(graph.0.as_ptr()) })?;
        let done = work();
        // A capture ends even where its work failed: otherwise the stream would go on recording.
        // SAFETY: likewise.
        let ended = checked(unsafe { shim::tenantry_graph_end(graph.0.as_ptr()) });
        drop(one_at_a_time);
        match (ended, done) {
            (Ok(()), Ok(done)) => Ok((ManuallyDrop::into_inner(graph), done)),
            (Ok(()), Err(error)) => {
                drop(ManuallyDrop::into_inner(graph));
                Err(error)
            }
            // What the work says is nearer to the cause.
            (Err(error), done) => Err(done.err().unwrap_or(error)),
        }
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
        let _one_at_a_time = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
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
