//! Streams and events of a device: what is issued to one stream runs in its order, beside what others do, and an event
//! marks a place in it.
//!
//! On a GPU they are PyTorch's own (`shim/streams.cpp`), of which its caching allocator knows. A CPU does its work in
//! the call that issues it, so that its only stream is always done and an event is an instant: the same code runs
//! there.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use tch::{Device, Tensor};

use super::shim::{self, RawEvent, RawStream, checked};
use crate::error::ExecutorError;

/// `c10::DeviceType::CUDA`.
pub(super) const CUDA: i32 = 1;

/// The device's number among the GPUs; nothing where it is the host's processor.
pub(super) fn gpu(device: Device) -> Option<i32> {
    match device {
        Device::Cuda(index) => Some(index as i32),
        _ => None,
    }
}

/// A queue of work on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// A GPU's.
    raw: Option<RawStream>,
}

impl Stream {
    /// One of those that PyTorch keeps for each GPU, which takes turns among 32; it does not wait for the default
    /// stream.
    ///
    /// # Errors
    /// What libtorch says: no such device, or it is lost.
    pub fn new(device: Device) -> Result<Stream, ExecutorError> {
        Stream::of(device, shim::tenantry_stream_from_pool)
    }

    /// Where the calling thread's work goes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn current(device: Device) -> Result<Stream, ExecutorError> {
        Stream::of(device, shim::tenantry_stream_current)
    }

    fn of(
        device: Device,
        which: unsafe extern "C" fn(i32, i32, *mut RawStream) -> std::ffi::c_int,
    ) -> Result<Stream, ExecutorError> {
        let stream = |index| {
            let mut raw = RawStream::default();
            // SAFETY: the shim writes a stream there.
            checked(unsafe { which(CUDA, index, &mut raw) }).map(|()| raw)
        };
        Ok(Stream {
            raw: gpu(device).map(stream).transpose()?,
        })
    }

    /// Lets the calling thread's work go here from now on.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn make_current(self) -> Result<(), ExecutorError> {
        self.exchange().map(drop)
    }

    /// Likewise, until what is returned is dropped.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn enter(self) -> Result<Entered, ExecutorError> {
        Ok(Entered {
            before: self.exchange()?,
            of_this_thread: PhantomData,
        })
    }

    fn exchange(self) -> Result<Stream, ExecutorError> {
        let exchanged = |raw| {
            let mut before = RawStream::default();
            // SAFETY: the stream is one that libtorch gave, and the shim writes another there.
            checked(unsafe { shim::tenantry_stream_exchange(raw, &mut before) }).map(|()| before)
        };
        Ok(Stream {
            raw: self.raw.map(exchanged).transpose()?,
        })
    }

    /// Waits, on the host, until all that was issued here has ended.
    ///
    /// # Errors
    /// That something of it failed.
    pub fn synchronize(self) -> Result<(), ExecutorError> {
        // SAFETY: the stream is one that libtorch gave.
        let synchronized = |raw| checked(unsafe { shim::tenantry_stream_synchronize(raw) });
        self.raw.map_or(Ok(()), synchronized)
    }

    /// Lets what is issued here from now on wait, on the device, until the event is over. The host does not wait.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn wait_for(self, event: &Event) -> Result<(), ExecutorError> {
        match (self.raw, &event.0) {
            // SAFETY: the event lives, and the stream is one that libtorch gave.
            (Some(raw), Mark::Device(event)) => checked(unsafe { shim::tenantry_event_block(event.0.as_ptr(), raw) }),
            // What a CPU was told to do is over.
            _ => Ok(()),
        }
    }

    /// Keeps a tensor's memory, should it be dropped, until what was issued here has ended: needed where it was made
    /// while another stream was current.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn keeps(self, tensor: &Tensor) -> Result<(), ExecutorError> {
        match (self.raw, gpu(tensor.device())) {
            (Some(raw), Some(_)) => shim::record_stream(tensor, raw),
            _ => Ok(()),
        }
    }
}

/// A stream that is the current one; dropping this puts the one before back.
#[must_use]
pub struct Entered {
    before: Stream,
    /// Which stream is current is a thread's own matter.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // It was current before, so that nothing is wrong with it.
        let _ = self.before.exchange();
    }
}

/// A place in a stream's work, with the time at which it was reached.
#[derive(Debug)]
pub struct Event(Mark);

#[derive(Debug)]
enum Mark {
    /// When it was recorded, if it was.
    Host(Option<Instant>),
    Device(DeviceEvent),
}

#[derive(Debug)]
struct DeviceEvent(NonNull<RawEvent>);

// SAFETY: an event may be used from any thread, though not from two at once, which `&mut` and `Sync`'s absence see to.
unsafe impl Send for DeviceEvent {}

impl Drop for DeviceEvent {
    fn drop(&mut self) {
        // SAFETY: the shim made it, and nobody else frees it.
        unsafe { shim::tenantry_event_free(self.0.as_ptr()) };
    }
}

impl Event {
    /// An event that is not recorded.
    ///
    /// # Errors
    /// What libtorch says: no such device, or it is lost.
    pub fn new(device: Device) -> Result<Event, ExecutorError> {
        let mark = match gpu(device) {
            None => Mark::Host(None),
            Some(_) => {
                let mut event = ptr::null_mut();
                // SAFETY: the shim writes a pointer to a new event there.
                checked(unsafe { shim::tenantry_event_new(CUDA, &mut event) })?;
                Mark::Device(DeviceEvent(NonNull::new(event).expect("the shim made an event")))
            }
        };
        Ok(Event(mark))
    }

    /// An event recorded where the calling thread's work on a device stands now.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn now(device: Device) -> Result<Event, ExecutorError> {
        let mut event = Event::new(device)?;
        event.record(Stream::current(device)?)?;
        Ok(event)
    }

    /// Marks the place after all that was issued to a stream so far; where it marked one before, that is forgotten.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn record(&mut self, stream: Stream) -> Result<(), ExecutorError> {
        match (&mut self.0, stream.raw) {
            (Mark::Host(at), _) => *at = Some(Instant::now()),
            // SAFETY: the event lives, and the stream is one that libtorch gave.
            (Mark::Device(event), Some(raw)) => {
                checked(unsafe { shim::tenantry_event_record(event.0.as_ptr(), raw) })?;
            }
            (Mark::Device(_), None) => {
                return Err(ExecutorError::input("stream of a GPU's event", "a GPU's", "the CPU's"));
            }
        }
        Ok(())
    }

    /// Waits, on the host, until the place is reached; at once where it marks none.
    ///
    /// # Errors
    /// That something before it failed.
    pub fn synchronize(&self) -> Result<(), ExecutorError> {
        match &self.0 {
            Mark::Host(_) => Ok(()),
            // SAFETY: the event lives.
            Mark::Device(event) => checked(unsafe { shim::tenantry_event_synchronize(event.0.as_ptr()) }),
        }
    }

    /// Whether the place is reached.
    ///
    /// # Errors
    /// That something before it failed.
    pub fn is_over(&self) -> Result<bool, ExecutorError> {
        match &self.0 {
            Mark::Host(_) => Ok(true),
            Mark::Device(event) => {
                let mut over = 0;
                // SAFETY: the event lives, and the shim writes a number there.
                checked(unsafe { shim::tenantry_event_query(event.0.as_ptr(), &mut over) })?;
                Ok(over != 0)
            }
        }
    }

    /// How long after another of the same device this one was reached, as the device's clock has it: in half
    /// microseconds on a GPU.
    ///
    /// # Errors
    /// One of them is not recorded or not reached.
    pub fn since(&self, earlier: &Event) -> Result<Duration, ExecutorError> {
        let not_recorded = || ExecutorError::input("events to compare", "recorded on one device", "others");
        match (&self.0, &earlier.0) {
            (Mark::Host(Some(at)), Mark::Host(Some(earlier))) => Ok(at.saturating_duration_since(*earlier)),
            (Mark::Device(at), Mark::Device(earlier)) => {
                let mut milliseconds = 0.0;
                // SAFETY: both live, and the shim writes a number there.
                checked(unsafe { shim::tenantry_event_elapsed(earlier.0.as_ptr(), at.0.as_ptr(), &mut milliseconds) })?;
                Ok(Duration::from_secs_f64(milliseconds.max(0.0) / 1e3))
            }
            _ => Err(not_recorded()),
        }
    }
}

/// Issues a copy of all of a tensor's numbers to the current stream. From page-locked host memory to a GPU it does not
/// wait: the source must not change before the stream has come past it. Otherwise it may wait.
///
/// # Errors
/// Tensors of different shapes, or no memory for the copy.
pub fn copy_without_waiting(to: &mut Tensor, from: &Tensor) -> Result<(), ExecutorError> {
    shim::copy(to, from, true)
}

/// Waits until all work on a device has ended, whichever thread issued it.
///
/// # Errors
/// That something of it failed.
pub fn synchronize_all(device: Device) -> Result<(), ExecutorError> {
    // SAFETY: numbers alone are passed.
    let synchronized = |index| checked(unsafe { shim::tenantry_device_synchronize(CUDA, index) });
    gpu(device).map_or(Ok(()), synchronized)
}

/// A GPU's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Not taken by anyone, this process's allocator included.
    pub free: u64,
    /// All.
    pub total: u64,
    /// The most that tensors of this process took at once since [`forget_peak_memory`].
    pub peak: u64,
}

/// What a GPU's memory is like now; nothing of a CPU, whose memory is the host's.
///
/// # Errors
/// What libtorch says.
pub fn device_memory(device: Device) -> Result<Option<DeviceMemory>, ExecutorError> {
    let memory = |index| {
        let (mut free, mut total, mut peak) = (0, 0, 0);
        // SAFETY: the shim writes three numbers there.
        checked(unsafe { shim::tenantry_memory(CUDA, index, &mut free, &mut total, &mut peak) })?;
        Ok(DeviceMemory { free, total, peak })
    };
    gpu(device).map(memory).transpose()
}

/// Lets a GPU's peak of memory begin anew, with the tensors that are there now. Nothing for a CPU.
///
/// # Errors
/// What libtorch says.
pub fn forget_peak_memory(device: Device) -> Result<(), ExecutorError> {
    // SAFETY: numbers alone are passed.
    let forget = |index| checked(unsafe { shim::tenantry_memory_reset_peak(CUDA, index) });
    gpu(device).map_or(Ok(()), forget)
}

/// Gives back the memory of a GPU that libtorch keeps of tensors that are gone: what comes next asks for other sizes,
/// and would find it in pieces. Nothing for a CPU.
///
/// # Errors
/// What libtorch says.
pub fn give_memory_back(device: Device) -> Result<(), ExecutorError> {
    // SAFETY: a number alone is passed.
    let give_back = |_| checked(unsafe { shim::tenantry_memory_give_back(CUDA) });
    gpu(device).map_or(Ok(()), give_back)
}

/// Where on the bus a GPU is, as `0000:3b:00.0`; nothing of a CPU.
///
/// # Errors
/// What CUDA says, or that it is not there.
pub(crate) fn bus_id(device: Device) -> Result<Option<String>, ExecutorError> {
    let id = |index| {
        let mut text = [0_u8; 32];
        // SAFETY: the shim writes a text there that is no longer than what it is told, its end included.
        checked(unsafe { shim::tenantry_bus_id(index, text.as_mut_ptr().cast(), text.len() as i32) })?;
        let text =
            CStr::from_bytes_until_nul(&text).map_or_else(|_| String::new(), |text| text.to_string_lossy().into());
        Ok(text)
    };
    gpu(device).map(id).transpose()
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    #[test]
    fn a_cpu_has_one_stream_that_is_always_done() {
        let stream = Stream::new(Device::Cpu).unwrap();
        assert_eq!(stream, Stream::current(Device::Cpu).unwrap());
        let entered = stream.enter().unwrap();
        let event = Event::now(Device::Cpu).unwrap();
        assert!(event.is_over().unwrap());
        stream.wait_for(&event).unwrap();
        event.synchronize().unwrap();
        stream.keeps(&Tensor::zeros([2], (Kind::Float, Device::Cpu))).unwrap();
        drop(entered);
        stream.make_current().unwrap();
        stream.synchronize().unwrap();
        synchronize_all(Device::Cpu).unwrap();
        assert_eq!(device_memory(Device::Cpu).unwrap(), None);
        assert_eq!(bus_id(Device::Cpu).unwrap(), None);
        forget_peak_memory(Device::Cpu).unwrap();
        give_memory_back(Device::Cpu).unwrap();
    }

    #[test]
    fn events_tell_how_long_something_took() {
        let mut start = Event::new(Device::Cpu).unwrap();
        let never = Event::new(Device::Cpu).unwrap();
        start.record(Stream::current(Device::Cpu).unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        let end = Event::now(Device::Cpu).unwrap();
        assert!(end.since(&start).unwrap() >= Duration::from_millis(3));
        assert_eq!(start.since(&end).unwrap(), Duration::ZERO);
        assert!(end.since(&never).is_err());
    }

    #[test]
    fn copies_reach_a_view_and_refuse_another_shape() {
        let all = Tensor::zeros([4, 3], (Kind::Float, Device::Cpu));
        let ones = Tensor::ones([3], (Kind::Double, Device::Cpu));
        copy_without_waiting(&mut all.get(2), &ones).unwrap();
        assert_eq!(all.sum(Kind::Float).double_value(&[]), 3.0);
        assert_eq!(all.get(2).sum(Kind::Float).double_value(&[]), 3.0);
        let error = copy_without_waiting(&mut all.get(0), &Tensor::ones([5], (Kind::Float, Device::Cpu)));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("size of tensor"), "{error}");
    }

    /// The shim reaches a GPU's functions through the same table of functions as a CPU's, which has no streams to give
    /// away.
    #[test]
    fn what_a_device_lacks_is_an_error_with_its_reason() {
        let mut raw = RawStream::default();
        // SAFETY: the shim writes a stream there, if any.
        let error = checked(unsafe { shim::tenantry_stream_from_pool(0, -1, &mut raw) }).unwrap_err();
        assert!(error.to_string().contains("stream"), "{error}");
        // SAFETY: likewise.
        checked(unsafe { shim::tenantry_stream_current(0, -1, &mut raw) }).unwrap();
        assert_eq!((raw.id, raw.device_type), (0, 0));
        // SAFETY: the stream is the CPU's.
        checked(unsafe { shim::tenantry_stream_exchange(raw, &mut raw) }).unwrap();
    }

    #[test]
    fn without_a_gpu_its_streams_and_events_are_errors_and_not_crashes() {
        if tch::Cuda::device_count() > 0 {
            return;
        }
        let gpu = Device::Cuda(0);
        assert!(Stream::new(gpu).is_err() && Stream::current(gpu).is_err() && Event::new(gpu).is_err());
        assert!(synchronize_all(gpu).is_err() && device_memory(gpu).is_err());
        assert!(forget_peak_memory(gpu).is_err() && give_memory_back(gpu).is_err() && bus_id(gpu).is_err());
    }
}
