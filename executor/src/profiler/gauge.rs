//! How fast the device is now, beside what a card says of it.
//!
//! The same machine is faster in one hour than in another: its clock, its neighbours on the same host. Some of the
//! card's own points, measured again within seconds, tell by how much, whatever is served and by which policy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenantry_profiles::{Card, DType, ModelKind, ModelShape, Ratios, Tables, compare};

use super::Suite;
use super::axes::Served;
use super::compute::Subject;
use super::decoder::DecoderSubject;
use super::held_out::HoldOut;
use super::schedule::{Schedule, Watch};
use crate::device::prepare_lane_thread;
use crate::error::ExecutorError;

/// From which a model's points are chosen: the smaller ones of those that its profile has.
const GRID: Duration = Duration::from_secs(1);
/// How long a model's points are measured.
const MEASURE: Duration = Duration::from_secs(3);

/// What points of a card take now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Over what the card says, all points together: what a machine loses or gains differs by the size of ops, and the
    /// large ones are what serving waits for. Above 1 where the device has become slower.
    pub ratio: f64,
    /// Points that were measured.
    pub points: usize,
}

/// Measures points of these models' layers, in this number format, that the card has too. Nothing where it has none of
/// them, or the user has asked to stop.
///
/// # Errors
/// A model that this executor does not run, or no memory.
pub fn gauge(
    card: &Card,
    models: &[ModelShape],
    dtype: DType,
    device: tch::Device,
    seed: u64,
    interrupted: &AtomicBool,
) -> Result<Option<Pace>, ExecutorError> {
    let measure = || {
        prepare_lane_thread();
        let of_kind = |kind| models.iter().filter(move |model| model.kind == kind);
        let encoders = of_kind(ModelKind::Encoder)
            .map(|shape| {
                Subject::new(
                    shape,
                    seed,
                    dtype,
                    device,
                    (Suite::Quick, Served::default()),
                    GRID,
                    None,
                )
            })
            .collect::<Result<Vec<_>, _>>()?;
        let decoders = of_kind(ModelKind::Decoder)
            .map(|shape| DecoderSubject::new(shape, seed, dtype, device, Suite::Quick, GRID, None))
            .collect::<Result<Vec<_>, _>>()?;
        let hold_out = HoldOut::new(Suite::Quick, seed);
        let mut points = Vec::new();
        for encoder in &encoders {
            points.extend(encoder.points(&[], false, hold_out)?);
        }
        for decoder in &decoders {
            points.extend(decoder.points(hold_out)?);
        }
        let mut schedule = Schedule::new(points, device, seed);
        schedule.measure(&mut Watch {
            until: Instant::now() + MEASURE * models.len() as u32,
            progress: &mut |_| {},
            keep: &mut |_| Ok(()),
            interrupted,
        })?;
        // What was cut off is of some of the points alone.
        if interrupted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut tables = Tables::default();
        schedule.record(&mut tables, &mut Tables::default());
        let now = Card { tables, ..card.clone() };
        Ok(pace(&compare(card, &now)))
    };
    // What a lane's thread is made to be would stay with the caller's.
    std::thread::scope(|scope| scope.spawn(measure).join().expect("measuring does not panic"))
}

fn pace(ratios: &[Ratios]) -> Option<Pace> {
    let families = || ratios.iter().filter(|ratios| ratios.table.is_none());
    let points = families().map(|ratios| ratios.points).sum();
    let sum = |of: fn(&Ratios) -> f64| families().map(of).sum::<f64>();
    (points > 0).then(|| Pace {
        ratio: sum(|ratios| ratios.second_us) / sum(|ratios| ratios.first_us),
        points,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tenantry_profiles::testing::synthetic_card;

    use super::*;

    #[test]
    fn a_card_is_compared_with_points_that_it_has() {
        let card = synthetic_card();
        let never = AtomicBool::new(false);
        let tiny = [ModelShape::builtin("tiny").unwrap()];
        let paced = gauge(&card, &tiny, DType::F32, tch::Device::Cpu, 7, &never).unwrap().unwrap();
        assert!(paced.points > 4 && paced.ratio > 0.0, "{paced:?}");

        let others = [ModelShape {
            name: "nobody's".into(),
            ..tiny[0].clone()
        }];
        assert_eq!(
            gauge(&card, &others, DType::F32, tch::Device::Cpu, 7, &never).unwrap(),
            None
        );
        never.store(true, Ordering::Relaxed);
        assert_eq!(
            gauge(&card, &tiny, DType::F32, tch::Device::Cpu, 7, &never).unwrap(),
            None
        );
    }

    #[test]
    fn a_card_of_half_the_speed_is_of_half_the_pace() {
        let card = synthetic_card();
        let slow = card.at_pace(2.0);
        let now = pace(&compare(&card, &slow)).unwrap();
        assert!((now.ratio - 2.0).abs() < 1e-9, "{now:?}");
    }
}
