//! Numbers that the host writes and a device reads.

use tch::{Device, Kind, Tensor};

use super::slice_of;
use super::stream::copy_without_waiting;
use crate::error::ExecutorError;

/// A buffer in host memory, page-locked where it is copied to a GPU.
#[derive(Debug)]
pub(crate) enum HostNumbers {
    Paged(Vec<f32>),
    Locked {
        /// `[capacity]`, in single precision.
        buffer: Tensor,
        length: usize,
        device: Device,
    },
}

impl HostNumbers {
    /// An empty buffer for a device.
    ///
    /// # Errors
    /// No memory.
    pub fn new(device: Device) -> Result<HostNumbers, ExecutorError> {
        Ok(match device.is_cuda() {
            false => HostNumbers::Paged(Vec::new()),
            true => HostNumbers::Locked {
                buffer: Tensor::f_empty([0], (Kind::Float, Device::Cpu))?,
                length: 0,
                device,
            },
        })
    }

    /// Makes room for so many numbers. Which they are is not said.
    ///
    /// # Errors
    /// No memory that can be locked.
    pub fn resize(&mut self, numbers: usize) -> Result<(), ExecutorError> {
        match self {
            HostNumbers::Paged(buffer) => buffer.resize(numbers, 0.0),
            HostNumbers::Locked { buffer, length, device } => {
                if buffer.numel() < numbers {
                    *buffer = super::empty_host_memory_for(*device, &[numbers as i64], Kind::Float)?;
                }
                *length = numbers;
            }
        }
        Ok(())
    }

    /// The numbers, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        match self {
            HostNumbers::Paged(buffer) => buffer,
            HostNumbers::Locked { buffer, length, .. } => &mut slice_of(buffer)[..*length],
        }
    }

    /// Issues their copy to a device, in these dimensions and this number format. From locked memory it does not wait:
    /// the numbers must stay until the current stream has come past it.
    ///
    /// # Errors
    /// As many numbers as do not fit `size`, or no memory on the device.
    pub fn on_device(&self, size: &[i64], kind: Kind, device: Device) -> Result<Tensor, ExecutorError> {
        match self {
            HostNumbers::Paged(buffer) => {
                Ok(Tensor::f_from_slice(buffer)?.f_view(size)?.f_to_kind(kind)?.f_to(device)?)
            }
            HostNumbers::Locked { buffer, length, .. } => {
                let numbers = buffer.f_narrow(0, 0, *length as i64)?.f_view(size)?;
                let mut there = Tensor::f_empty(numbers.size(), (Kind::Float, device))?;
                copy_without_waiting(&mut there, &numbers)?;
                Ok(there.f_to_kind(kind)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a CPU nothing is locked, and the code is the same.
    #[test]
    fn locked_and_other_numbers_reach_the_device_alike() {
        let locked = HostNumbers::Locked {
            buffer: Tensor::empty([0], (Kind::Float, Device::Cpu)),
            length: 0,
            device: Device::Cpu,
        };
        for mut numbers in [HostNumbers::new(Device::Cpu).unwrap(), locked] {
            assert_eq!(numbers.as_mut_slice(), &[0.0; 0]);
            for count in [6, 2, 4] {
                numbers.resize(count).unwrap();
                let slice = numbers.as_mut_slice();
                assert_eq!(slice.len(), count);
                (0..).zip(slice).for_each(|(at, number)| *number = at as f32 + count as f32);
                let there = numbers.on_device(&[-1, 2], Kind::Double, Device::Cpu).unwrap();
                assert_eq!((there.size(), there.kind()), (vec![count as i64 / 2, 2], Kind::Double));
                let expected: Vec<f64> = (0..count).map(|at| (at + count) as f64).collect();
                assert_eq!(Vec::<f64>::try_from(there.view([-1])).unwrap(), expected);
            }
            assert!(numbers.on_device(&[3, 3], Kind::Float, Device::Cpu).is_err());
        }
    }
}
