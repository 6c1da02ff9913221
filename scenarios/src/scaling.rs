//! From `scale:` to the specification of how the number of cards follows the load.

use tenantry_core::policy::scale::{HeadroomSpec, TargetTrackingSpec};
use tenantry_core::spec::{ScaleRule, ScaleSpec};
use tenantry_traces::Duration;

use crate::error::Problem;
use crate::path::Path;
use crate::raw::{RawScaling, RawScalingRule};

/// Whose cards come and go.
pub(crate) struct Scaled<'a> {
    /// The latency that target tracking compares with.
    pub slo: Duration,
    /// On each card.
    pub instances_per_gpu: u32,
    /// Cards that there are at most.
    pub cards: u32,
    /// As an error calls these.
    pub of: &'a str,
    /// Where `scale` is.
    pub path: &'a Path,
}

/// What `scale` means.
pub(crate) fn scale_of(scale: &RawScaling, scaled: &Scaled<'_>, problems: &mut Vec<Problem>) -> ScaleSpec {
    let Scaled { cards, of, path, .. } = *scaled;
    for (key, count) in [("start", scale.start.0), ("min", scale.min.0)] {
        if count > cards {
            problems.push(Problem::new(path.key(key), format!("at most {of} ({cards})"), count));
        }
    }
    // Rules give cards back down to it, and add none for its sake.
    if (scale.start.0.saturating_add(1)..=cards).contains(&scale.min.0) {
        problems.push(Problem::new(
            path.key("min"),
            format!("at most start ({})", scale.start.0),
            scale.min.0,
        ));
    }
    ScaleSpec {
        cards_at_start: scale.start.0,
        start_up: scale.start_up.0,
        rule: match scale.rule {
            RawScalingRule::TargetTracking {
                percentile,
                add,
                release,
                recent,
                period,
                settle,
            } => {
                if percentile.0 > 100 {
                    let path = path.key("rule").key("target-tracking").key("percentile");
                    problems.push(Problem::new(path, "1 to 100", percentile.0));
                }
                if release.ppm() >= add.ppm() {
                    let path = path.key("rule").key("target-tracking").key("release");
                    let got = format!("{}%", release.ppm() as f64 / 1e4);
                    problems.push(Problem::new(
                        path,
                        format!("below add ({}%)", add.ppm() as f64 / 1e4),
                        got,
                    ));
                }
                ScaleRule::TargetTracking(TargetTrackingSpec {
                    slo: scaled.slo,
                    percentile: percentile.0.clamp(1, 100),
                    add_ppm: add.ppm(),
                    release_ppm: release.ppm(),
                    recent: recent.0,
                    period: period.0,
                    settle: settle.0,
                    cards_min: scale.min.0,
                    cards_max: cards,
                })
            }
            RawScalingRule::Headroom {
                spare,
                interval,
                patience,
            } => ScaleRule::Headroom(HeadroomSpec {
                instances_per_card: scaled.instances_per_gpu,
                headroom_ppm: spare.ppm(),
                interval: interval.0,
                patience: patience.0,
                cards_min: scale.min.0,
                cards_max: cards,
            }),
        },
    }
}
