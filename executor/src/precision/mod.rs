//! Whether what a device computes is right: each kind of operation against another program for it, in double precision
//! on the CPU.
//!
//! [`check`] runs the code that serves, on small models whose weights are large enough for everything to matter, and
//! compares with `reference.rs`, which is written with other operations and reads the same weights by their names in
//! checkpoints.

mod decoders;
mod encoders;
mod fragments;
mod reference;

use std::sync::atomic::{AtomicBool, Ordering};

use tch::{Device, Kind, Tensor};
use tenantry_profiles::DType;

use self::reference::double;
use crate::device::{kind, prepare_lane_thread};
use crate::error::ExecutorError;

/// Of weights.
const SEED: u64 = 7;
/// What a part of the computation must change of the result for the comparison to say anything about it, over the
/// tolerance.
const EFFECT_MIN: f64 = 2.0;

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What was computed.
    pub what: String,
    /// In which number format.
    pub dtype: DType,
    /// The largest difference, over the largest number of the result.
    pub error: f64,
    /// What it may be.
    pub tolerance: f64,
    /// How far the result would be off without what is checked, likewise: a check that could not tell is no check.
    pub effect: f64,
}

impl Check {
    /// Whether it is as it must be.
    pub fn holds(&self) -> bool {
        self.error <= self.tolerance && self.effect >= EFFECT_MIN * self.tolerance
    }
}

/// All comparisons on a device.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// What was compared.
    pub checks: Vec<Check>,
    /// What does not run on this device, with the reason: no run uses it there either.
    pub unavailable: Vec<String>,
    /// What should run and failed, with the error.
    pub failed: Vec<String>,
    /// Whether somebody stopped it before all was looked at.
    pub interrupted: bool,
}

impl Checks {
    /// The comparisons that do not hold.
    pub fn broken(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| !check.holds())
    }
}

/// Computes each kind of operation on a device, in each of these number formats, and compares it.
///
/// One that fails does not hide the others: no memory, a device that is lost, or no folder for temporary files. Once
/// `interrupt` is set no other number format is begun.
pub fn check(device: Device, dtypes: &[DType], interrupt: &AtomicBool) -> Checks {
    let run = || {
        prepare_lane_thread();
        let mut checks = Checks::default();
        let mut each = |parts: &dyn Fn(&mut Place<'_>)| {
            for &dtype in dtypes {
                checks.interrupted |= interrupt.load(Ordering::Relaxed);
                if checks.interrupted {
                    return;
                }
                let mut place = Place {
                    device,
                    dtype,
                    checks: &mut checks,
                };
                tch::no_grad(|| parts(&mut place));
            }
        };
        each(&|place| {
            place.part("encoders", |place, _| encoders::check(place));
            place.part("decoders", |place, _| decoders::check(place));
            place.part("upper layers over fragments", |place, _| fragments::check(place));
        });
        // After all else: a capture that fails leaves libtorch's allocator and random numbers on the device unusable.
        each(&|place| place.part("compiled model", |place, _| encoders::check_compiled(place)));
        checks
    };
    // What a lane's thread is made to be would stay with the caller's.
    std::thread::scope(|scope| scope.spawn(run).join().expect("shapes fit"))
}

/// Where is computed and in which number format, and what came of it.
struct Place<'a> {
    device: Device,
    dtype: DType,
    checks: &'a mut Checks,
}

impl Place<'_> {
    fn kind(&self) -> Kind {
        kind(self.dtype)
    }

    /// Does a part of the comparisons, whose failure is kept beside them.
    fn part(&mut self, what: &str, part: impl FnOnce(&mut Self, &str) -> Result<(), ExecutorError>) {
        if let Err(error) = part(self, what) {
            self.checks.failed.push(format!("{what} in {} failed: {error}", self.dtype));
        }
    }

    /// A block of numbers as the device has it.
    fn there(&self, block: &Tensor) -> Result<Tensor, ExecutorError> {
        Ok(block.f_to_kind(self.kind())?.f_to(self.device)?)
    }

    /// Compares what the device `found` with what is `expected`, and that with what it would be `without` what is
    /// checked.
    fn compare(
        &mut self,
        what: impl Into<String>,
        found: &Tensor,
        expected: &Tensor,
        without: &Tensor,
    ) -> Result<(), ExecutorError> {
        self.compare_within(tolerance(self.dtype), what, found, expected, without)
    }

    fn compare_within(
        &mut self,
        tolerance: f64,
        what: impl Into<String>,
        found: &Tensor,
        expected: &Tensor,
        without: &Tensor,
    ) -> Result<(), ExecutorError> {
        let largest = |of: &Tensor| of.f_abs()?.f_max()?.f_double_value(&[]);
        let scale = largest(expected)?;
        self.checks.checks.push(Check {
            what: what.into(),
            dtype: self.dtype,
            error: largest(&double(found)?.f_sub(expected)?)? / scale,
            tolerance,
            effect: largest(&without.f_sub(expected)?)? / scale,
        });
        Ok(())
    }

    fn does_not_run(&mut self, what: &str, reason: &str) {
        self.checks.unavailable.push(format!("{what} in {} does not run here: {reason}", self.dtype));
    }
}

/// Ten roundings of the format (2⁻⁸ and 2⁻¹¹ of a number), all to the same side, or a hundred of single precision's, in
/// which sums of hundreds of terms are rounded as well. Some three times as much as a CPU's errors.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 5e-3,
        DType::Bf16 => 4e-2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cpu_computes_is_right_in_every_number_format() {
        let Checks {
            checks,
            unavailable,
            failed,
            interrupted,
        } = check(Device::Cpu, DType::ALL, &AtomicBool::new(false));
        assert!(failed.is_empty() && !interrupted, "{failed:?}");
        for check in &checks {
            println!("{check:?}");
        }
        let broken: Vec<&Check> = checks.iter().filter(|check| !check.holds()).collect();
        assert!(broken.is_empty(), "{broken:#?}");
        for what in [
            "encoder layers",
            "labels of tokens",
            "attention received",
            "pages of another cache",
            "adapters, loop",
            "adapters, gather",
            "lora, loop",
            "bit-fit",
            "cache",
            "fragments",
        ] {
            let of_all = checks.iter().filter(|check| check.what.contains(what));
            assert!(of_all.count() >= DType::ALL.len(), "{what}: {unavailable:?}");
        }
    }

    #[test]
    fn what_is_wrong_or_cannot_be_told_does_not_hold() {
        let check = |error, effect| Check {
            what: "this".into(),
            dtype: DType::F32,
            error,
            tolerance: 0.1,
            effect,
        };
        assert!(check(0.1, 0.2).holds());
        for wrong in [
            check(0.11, 1.0),
            check(f64::NAN, 1.0),
            check(0.0, 0.1),
            check(0.0, f64::NAN),
        ] {
            assert!(!wrong.holds(), "{wrong:?}");
        }
    }

    #[test]
    fn what_fails_hides_nothing() {
        let mut checks = Checks::default();
        let mut place = Place {
            device: Device::Cpu,
            dtype: DType::Bf16,
            checks: &mut checks,
        };
        let number = Tensor::from_slice(&[1.0]);
        place.part("first", |_, _| Err(ExecutorError::input("batch", "at least 1", 0)));
        place.part("second", |place, what| {
            place.compare(what, &number, &number, &(&number * 2.0))
        });
        assert_eq!(
            checks.failed,
            ["first in bf16 failed: batch: must be at least 1, got 0"]
        );
        assert_eq!(checks.checks.len(), 1);
    }

    #[test]
    fn other_numbers_are_seen() {
        let mut checks = Checks::default();
        let mut place = Place {
            device: Device::Cpu,
            dtype: DType::F32,
            checks: &mut checks,
        };
        let expected = Tensor::from_slice(&[1.0, -4.0]);
        let found = Tensor::from_slice(&[1.0f32, -4.2]);
        place.compare("these", &found, &expected, &(&expected * 2.0)).unwrap();
        let [check] = &checks.checks[..] else { unreachable!() };
        assert!((check.error - 0.05).abs() < 1e-6 && check.effect == 1.0, "{check:?}");
        assert_eq!(checks.broken().count(), 1);
    }
}
