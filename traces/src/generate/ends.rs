//! When arrivals end in their own time, whether or not a request is drawn near their end.

use super::counts::CountedRates;
use super::process::Rates;
use crate::error::TraceError;
use crate::read::activity;
use crate::read::shape::RateShape;
use crate::spec::{ArrivalsSpec, PartSpec, Placement};
use crate::time::{Duration, Time};

/// From when on no draw brings a request; `None` where there is no such time, or only a request's own instant can tell.
/// What a file has beyond a cut is not looked at.
///
/// # Errors
/// Where a file that `arrivals` name cannot be read.
pub fn end(arrivals: &ArrivalsSpec) -> Result<Option<Time>, TraceError> {
    Ok(match arrivals {
        ArrivalsSpec::Ramp { points } => points.last().map(|point| point.at),
        ArrivalsSpec::Shape(shape) if !shape.repeat => {
            let table = RateShape::read(&shape.path)?;
            after(shape.step.unwrap_or(table.step), table.values.len() as u64)
        }
        ArrivalsSpec::Counts(counts) if !counts.cut.repeat => {
            // What is wrong with its fields was said when it was built.
            let mut rates = CountedRates::open("counts", counts, 1.0)?;
            let mut end = Time::ZERO;
            while let Some(segment) = rates.next()? {
                end = segment.until;
            }
            Some(end)
        }
        ArrivalsSpec::Activity(recorded) if !recorded.repeat => {
            let mut minutes = 0;
            let extent = activity::for_each(&recorded.path, recorded.skip_bad_lines, |cell| {
                minutes = minutes.max(cell.minute + 1);
            })?;
            after(Duration::from_secs(60), u64::from(minutes.max(extent.minutes)))
        }
        ArrivalsSpec::Superpose(parts) => {
            let ends = parts.iter().map(end).collect::<Result<Option<Vec<Time>>, _>>()?;
            ends.and_then(|ends| ends.into_iter().max())
        }
        ArrivalsSpec::Scaled { arrivals, .. } => end(arrivals)?,
        ArrivalsSpec::Part(part) if !part.cut.repeat => end_of_part(part)?,
        _ => None,
    })
}

/// Whether nothing is drawn of their instants, or nothing anew from round to round, so that all rounds of a part are
/// alike.
pub fn draws_nothing(arrivals: &ArrivalsSpec) -> bool {
    arrivals.leaves().into_iter().all(|leaf| match leaf {
        ArrivalsSpec::Constant { .. }
        | ArrivalsSpec::Trace(_)
        | ArrivalsSpec::PeriodicPerTenant { .. }
        | ArrivalsSpec::ThreadBursts { .. } => true,
        ArrivalsSpec::Counts(counts) => matches!(counts.placement, Placement::Even),
        _ => false,
    })
}

fn end_of_part(part: &PartSpec) -> Result<Option<Time>, TraceError> {
    let own = end(&part.arrivals)?.map(|end| end.0.saturating_sub(part.cut.from.0));
    let lasts = own.into_iter().chain(part.cut.length.map(|length| length.0)).min();
    Ok(lasts.and_then(|lasts| part.delay.0.checked_add(lasts)).map(Time))
}

fn after(step: Duration, steps: u64) -> Option<Time> {
    step.0.checked_mul(steps).map(Time)
}
