//! What differs between devices: number formats, waiting for work to end, page-locked memory; and the thread settings under
//! which everything is measured and served.

use std::num::NonZeroU64;
use std::sync::Once;

use tch::{Cuda, Device, Kind, Tensor};
use tenantry_profiles::DType;

use crate::error::ExecutorError;

/// libtorch's name for a number format.
pub fn kind(dtype: DType) -> Kind {
    match dtype {
        DType::F32 => Kind::Float,
        DType::Bf16 => Kind::BFloat16,
        DType::F16 => Kind::Half,
    }
}

/// Sets the calling thread up to run one op on one core, as every lane does: work is spread over lanes, never inside an op.
///
/// OpenMP keeps the number of threads per calling thread, so each lane's thread calls this once, before its first op.
pub fn prepare_lane_thread() {
    static INTER_OP: Once = Once::new();
    // libtorch refuses to be told a second time.
    INTER_OP.call_once(|| tch::set_num_interop_threads(1));
    tch::set_num_threads(1);
}

/// Of lanes beside the loop.
const LANE_NICENESS: i32 = 5;

/// Lets the calling thread yield to the loop, which decides for all lanes, in microseconds, and must not wait until one that computes on its
/// core has had its turn.
pub(crate) fn yield_to_loop() {
    // Refused only to those who are nicer already.
    let _ = rustix::process::setpriority_process(None, LANE_NICENESS);
}

/// Lets the thread that runs the loop wake when it asks to: Linux may be some 50 µs late otherwise, to save power.
pub fn prepare_loop_thread() {
    // Refused by systems without such a setting: then it is late.
    let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
}

/// Waits until all work issued to the device has ended. A CPU's has when the call that issued it returns.
pub fn synchronize(device: Device) {
    if let Device::Cuda(index) = device {
        Cuda::synchronize(index as i64);
    }
}

/// Copies one contiguous block of parameters, from host memory or from the same device. Returns when it is done.
pub(crate) fn copy_block(to: &mut Tensor, from: &Tensor) -> Result<(), ExecutorError> {
    Ok(tch::no_grad(|| to.f_copy_(from))?)
}

/// Host memory from which the device copies fastest: page-locked where it is a GPU.
pub(crate) fn host_memory_for(device: Device, tensor: Tensor) -> Result<Tensor, ExecutorError> {
    match device {
        Device::Cuda(_) => Ok(tensor.f_pin_memory(device)?),
        _ => Ok(tensor),
    }
}

/// Bytes of one number.
pub(crate) fn element_bytes(kind: Kind) -> u64 {
    kind.elt_size_in_bytes() as u64
}
