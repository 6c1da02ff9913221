//! What differs between devices: number formats, waiting for work to end, page-locked memory, streams, events and
//! captured work; and the thread settings under which everything is measured and served.

mod graph;
mod host_numbers;
mod shim;
mod stream;

use std::num::NonZeroU64;
use std::sync::{Once, OnceLock};

use tch::{Device, Kind, Tensor};
use tenantry_profiles::DType;

pub(crate) use self::graph::Graph;
pub(crate) use self::host_numbers::HostNumbers;
pub(crate) use self::stream::bus_id;
pub use self::stream::{
    DeviceMemory, Entered, Event, Stream, copy_without_waiting, device_memory, forget_peak_memory, give_memory_back,
    synchronize_all,
};
use crate::error::ExecutorError;

/// Loads libtorch's part for CUDA, once: from `LD_LIBRARY_PATH`, or from where the linked libtorch lies. To be called
/// before anything asks libtorch for GPUs, since it remembers that there were none.
///
/// # Errors
/// Why it could not be loaded: mostly that this libtorch is one for CPUs alone.
pub(crate) fn load_cuda() -> Result<(), &'static str> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    let load = || {
        let name = c"libtorch_cuda.so";
        // SAFETY: the name ends with a zero. What the library does when it is loaded is to register its kernels.
        shim::checked(unsafe { shim::tenantry_load_library(name.as_ptr()) }).map_err(|error| error.to_string())
    };
    LOADED.get_or_init(load).as_ref().map(|&()| ()).map_err(String::as_str)
}

/// libtorch's name for a number format.
pub fn kind(dtype: DType) -> Kind {
    match dtype {
        DType::F32 => Kind::Float,
        DType::Bf16 => Kind::BFloat16,
        DType::F16 => Kind::Half,
    }
}

/// Sets the calling thread up to compute as every lane does: an op on one core, as [`use_one_core`] says, and no
/// gradients, for which libtorch otherwise keeps count in each operation (a fifth of what a small one takes). It can no
/// longer train.
pub fn prepare_lane_thread() {
    use_one_core();
    // SAFETY: it changes this thread's own state alone.
    unsafe { shim::tenantry_thread_infers() };
}

/// Sets the calling thread up to run one op on one core: work is spread over lanes, never inside an op.
///
/// OpenMP keeps the number of threads per calling thread, so each thread calls this once, before its first op.
pub fn use_one_core() {
    static INTER_OP: Once = Once::new();
    // libtorch refuses to be told a second time.
    INTER_OP.call_once(|| tch::set_num_interop_threads(1));
    tch::set_num_threads(1);
}

/// Of lanes beside the loop.
const LANE_NICENESS: i32 = 5;

/// Lets the calling thread yield to the loop, which decides for all lanes, in microseconds, and must not wait until one
/// that computes on its core has had its turn.
pub(crate) fn yield_to_loop() {
    // Refused only to those who are nicer already.
    let _ = rustix::process::setpriority_process(None, LANE_NICENESS);
}

/// Lets the thread that runs the loop wake when it asks to: Linux may be some 50 µs late otherwise, to save power.
pub fn prepare_loop_thread() {
    // Refused by systems without such a setting: then it is late.
    let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
}

/// Waits until all work that this thread issued to the device has ended, as far as it went to the stream that is
/// current. A CPU's has when the call that issued it returns.
///
/// # Errors
/// That something of it failed.
pub fn synchronize(device: Device) -> Result<(), ExecutorError> {
    Stream::current(device)?.synchronize()
}

/// Copies one contiguous block of parameters, from host memory or from the same device. Returns when it is done.
pub(crate) fn copy_block(to: &mut Tensor, from: &Tensor) -> Result<(), ExecutorError> {
    copy_without_waiting(to, from)?;
    synchronize(from.device())?;
    synchronize(to.device())
}

/// Host memory from which the device copies fastest: page-locked where it is a GPU.
pub(crate) fn host_memory_for(device: Device, tensor: Tensor) -> Result<Tensor, ExecutorError> {
    match device {
        Device::Cuda(_) => {
            let mut locked = shim::locked_like(&tensor)?;
            shim::copy(&mut locked, &tensor, false)?;
            Ok(locked)
        }
        _ => Ok(tensor),
    }
}

/// The same, of so many numbers of which it is not said what they are.
pub(crate) fn empty_host_memory_for(device: Device, size: &[i64], kind: Kind) -> Result<Tensor, ExecutorError> {
    // Memory that nobody has touched is not there yet: to be given it costs nothing.
    let like = Tensor::f_empty(size, (kind, Device::Cpu))?;
    match device {
        Device::Cuda(_) => shim::locked_like(&like),
        _ => Ok(like),
    }
}

/// Small numbers of the host, such as indices, on a device. Their copy to a GPU is issued to the current stream: from
/// memory that is not page-locked it would wait until all that was issued before is done, and the device would then
/// wait for the host.
pub(crate) fn sent_to(device: Device, tensor: &Tensor) -> Result<Tensor, ExecutorError> {
    if !device.is_cuda() {
        return Ok(tensor.f_to(device)?);
    }
    // Its memory is kept until the copy is done, by libtorch's allocator.
    let locked = host_memory_for(device, tensor.shallow_clone())?;
    let mut there = Tensor::f_empty(tensor.size(), (tensor.kind(), device))?;
    copy_without_waiting(&mut there, &locked)?;
    Ok(there)
}

/// The numbers of a tensor in the host's memory, in single precision and in one piece, to be written.
///
/// # Panics
/// If it is not such a tensor.
pub(crate) fn slice_of(tensor: &mut Tensor) -> &mut [f32] {
    assert_eq!(
        (tensor.device(), tensor.kind()),
        (Device::Cpu, Kind::Float),
        "numbers that the host writes"
    );
    assert!(tensor.is_contiguous(), "in one piece");
    match tensor.numel() {
        // An empty tensor has no address.
        0 => &mut [],
        // SAFETY: so many numbers of this format lie there, one after the other, as long as the tensor is borrowed.
        numbers => unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast(), numbers) },
    }
}

/// Bytes of one number.
pub(crate) fn element_bytes(kind: Kind) -> u64 {
    kind.elt_size_in_bytes() as u64
}
