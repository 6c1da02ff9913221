//! What waking a lane takes: handing an op over by the rhythm of work and pauses, and the first work after idleness.

use std::collections::BTreeSet;

use crate::cost::{Cost, Drawn};
use crate::grid::Grid;

/// The rhythm in which a lane works and pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// From hearing of its last op's end until the next is handed over, in nanoseconds.
    pub pause_ns: u64,
    /// What its op takes, in nanoseconds.
    pub work_ns: u64,
    /// Whether all other cores compute.
    pub others_busy: bool,
}

/// What handing over takes.
#[derive(Clone, Debug)]
pub struct HandOver {
    others_idle: ByRhythm,
    others_busy: Option<ByRhythm>,
}

impl HandOver {
    /// Where it was not measured with all other cores busy, they make no difference.
    pub(crate) fn new(others_idle: ByRhythm, others_busy: Option<ByRhythm>) -> HandOver {
        HandOver {
            others_idle,
            others_busy,
        }
    }

    /// The same whatever the rhythm.
    pub(crate) fn always(cost: Cost) -> HandOver {
        let always = ByRhythm {
            pauses_end_ns: vec![u64::MAX],
            works_end_ns: vec![u64::MAX],
            costs: vec![cost.into()],
        };
        HandOver::new(always, None)
    }

    /// That of the measured pause and work which are nearest in proportion, or of the edge.
    #[inline]
    pub fn at(&self, rhythm: Rhythm) -> &Drawn {
        match &self.others_busy {
            Some(busy) if rhythm.others_busy => busy.at(rhythm),
            _ => self.others_idle.at(rhythm),
        }
    }
}

/// What handing over takes by pause and work.
#[derive(Clone, Debug)]
pub(crate) struct ByRhythm {
    /// Of the measured pauses, ascending: up to which other one none is nearer.
    pauses_end_ns: Vec<u64>,
    /// The same of works.
    works_end_ns: Vec<u64>,
    /// By pause, then by work.
    costs: Vec<Drawn>,
}

impl ByRhythm {
    /// The cost at each measured pause and work, in microseconds.
    pub fn new(pauses_us: &BTreeSet<u32>, works_us: &BTreeSet<u32>, cost: impl Fn(u32, u32) -> Drawn) -> ByRhythm {
        let pairs = pauses_us.iter().flat_map(|&pause_us| works_us.iter().map(move |&work_us| (pause_us, work_us)));
        ByRhythm {
            pauses_end_ns: ends_ns(pauses_us),
            works_end_ns: ends_ns(works_us),
            costs: pairs.map(|(pause_us, work_us)| cost(pause_us, work_us)).collect(),
        }
    }

    #[inline]
    fn at(&self, rhythm: Rhythm) -> &Drawn {
        if let [only] = self.costs.as_slice() {
            return only;
        }
        let nearest = |ends_ns: &[u64], ns: u64| ends_ns.iter().take_while(|end_ns| ns > **end_ns).count();
        let pause = nearest(&self.pauses_end_ns, rhythm.pause_ns);
        let work = nearest(&self.works_end_ns, rhythm.work_ns);
        &self.costs[pause * self.works_end_ns.len() + work]
    }
}

/// Up to where each value is the nearest in proportion, to the microsecond; the last has no end.
fn ends_ns(values_us: &BTreeSet<u32>) -> Vec<u64> {
    let above = values_us.iter().skip(1);
    let ends = values_us
        .iter()
        .zip(above)
        .map(|(&below, &above)| (u64::from(below) * u64::from(above)).isqrt() * 1_000 + 999);
    ends.chain([u64::MAX]).collect()
}

/// What an op takes longer by how long its lane was idle and by what it takes without. It settles once caches are cold
/// and clocks are low, so beyond the measured range it is that of the edge and never extrapolated.
#[derive(Clone, Debug)]
pub struct Resume {
    /// The op and what it takes longer: spreads are kept in proportion to medians, and there may be next to nothing
    /// longer.
    pub(crate) whole: Grid<2>,
    /// Idleness that was measured, ascending.
    pub(crate) idles_us: Vec<u32>,
    /// Works that were, ascending.
    pub(crate) works_us: Vec<u32>,
}

impl Resume {
    /// What `work_us` microseconds of work take longer after `idle_us` microseconds without any, in nanoseconds. `of`
    /// says where within its spread a cost lies.
    pub fn extra_ns(&self, idle_us: u32, work_us: u32, of: impl Fn(Cost) -> u64) -> u64 {
        let ends = |knots: &[u32]| (knots[0], knots[knots.len() - 1]);
        let (idles, works) = (ends(&self.idles_us), ends(&self.works_us));
        let (near_idle_us, near_work_us) = (idle_us.clamp(idles.0, idles.1), work_us.clamp(works.0, works.1));
        // Between measured points it is what they take longer that lies on a line. The whole op's spread is in
        // proportion to all of it, and would make much of a large one at a little work where there is more.
        let longer_ns = |idle_us: u32, work_us: u32| {
            let whole_ns = of(self.whole.cost([idle_us.into(), work_us.into()]));
            whole_ns.saturating_sub(u64::from(work_us) * 1_000)
        };
        let extra_ns = between(&self.idles_us, near_idle_us, |idle_us| {
            between(&self.works_us, near_work_us, |work_us| longer_ns(idle_us, work_us))
        });
        // Back to back nothing is lost. Below the least that was measured, of idleness or of work, it is in proportion.
        let part = |us: u32, least: u32| (u64::from(us.min(least)), u64::from(least));
        let (idle, work) = (part(idle_us, idles.0), part(work_us, works.0));
        extra_ns * idle.0 / idle.1 * work.0 / work.1
    }

    /// Work after which a lane is as fast as it gets, in microseconds: the most that was measured.
    pub fn warm_after_us(&self) -> u32 {
        self.works_us[self.works_us.len() - 1]
    }
}

/// On the line between the two of `knots`, ascending, next to `at`, which lies among them.
fn between(knots: &[u32], at: u32, value: impl Fn(u32) -> u64) -> u64 {
    let place = knots.partition_point(|&knot| knot < at);
    let above = knots[place];
    if above == at {
        return value(at);
    }
    let below = knots[place - 1];
    let parts = u64::from(above - below);
    (value(below) * u64::from(above - at) + value(above) * u64::from(at - below)) / parts
}
