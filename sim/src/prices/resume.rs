//! What ops take longer on a lane that was idle, or had another tenant's model.

use tenantry_core::ids::PoolId;
use tenantry_core::spec::PoolSpec;
use tenantry_core::topology::LaneKind;
use tenantry_profiles::{Card, Changing, MissingTable, Resume};
use tenantry_traces::Duration;

use super::Prices;
use super::draws::OpSpread;

/// What a lane did before an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Nothing, for so long.
    pub idle: Duration,
    /// Whose model its last op was of.
    pub model: ModelBefore,
}

/// Whose model a lane's last op was of, where tenants have models of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelBefore {
    /// The same tenant's, or nobody has their own.
    Same,
    /// Another's, and this tenant's lay on the card.
    Other,
    /// Another's, and this tenant's was copied to the card for the op.
    Copied,
}

impl Before {
    /// It was at work, for the same tenant or for any.
    pub const AT_WORK: Before = Before {
        idle: Duration::ZERO,
        model: ModelBefore::Same,
    };
}

/// How far a lane has warmed up: the coldest that it was, and what it has worked since.
#[derive(Clone, Copy, Debug)]
pub struct Warmth {
    before: Before,
    /// As on a warm lane, in microseconds.
    work_us: u32,
}

impl Warmth {
    /// Of a lane that has not been idle yet.
    pub const WARM: Warmth = Warmth {
        before: Before::AT_WORK,
        work_us: 0,
    };
}

/// What a pool's ops take longer after that.
#[derive(Debug)]
pub struct ResumePrices {
    /// Than back to back with the same model.
    pub same: Option<Resume>,
    /// Likewise, where tenants have whole models.
    pub other: Option<Resume>,
    /// Likewise, after the model's copy.
    pub copied: Option<Resume>,
}

impl ResumePrices {
    pub fn new(card: &Card, pool: &PoolSpec) -> Result<ResumePrices, MissingTable> {
        let of = |changing| card.resume(&pool.model, changing, pool.first_layer());
        Ok(match pool.changing() {
            Changing::Model => ResumePrices {
                same: of(Changing::Heads)?,
                other: of(Changing::Model)?,
                copied: of(Changing::CopiedModel)?,
            },
            less => ResumePrices {
                same: of(less)?,
                other: None,
                copied: None,
            },
        })
    }
}

impl Prices {
    /// Whether it matters whose model the pool's last batch was computed with.
    pub fn changes_model(&self, pool: PoolId) -> bool {
        self.resume[pool.index()].other.is_some()
    }

    /// What an op that takes `work_ns` on a warm lane of this kind takes longer on one that was idle before or had
    /// another tenant's model, in nanoseconds: caches are cold and clocks are low. Nothing on cards where this was not
    /// measured.
    ///
    /// A lane warms up as it works, which may take it several ops: an op without any idleness before it pays what is
    /// left of that.
    pub fn resume_ns(
        &self,
        lane: LaneKind,
        pool: PoolId,
        before: Before,
        work_ns: u64,
        warmth: &mut Warmth,
        spread: &mut OpSpread,
    ) -> u64 {
        let Some(after) = self.resume_after(lane, pool, before) else {
            return 0;
        };
        let micros = |ns: u64| u32::try_from(ns / 1_000).unwrap_or(u32::MAX);
        let work_us = micros(work_ns);
        let going_on = self
            .resume_after(lane, pool, warmth.before)
            .filter(|resume| warmth.work_us < resume.warm_after_us());
        if before == Before::AT_WORK && going_on.is_none() {
            return 0;
        }
        let draw = spread.draw();
        let extra_ns = |resume: &Resume, before: Before, work_us| {
            // Another model costs without any idleness too, for which the least of the table stands.
            let idle_us = micros(before.idle.0).max((before.model != ModelBefore::Same).into());
            resume.extra_ns(idle_us, work_us, |whole| draw.of(whole))
        };
        let anew_ns = extra_ns(after, before, work_us);
        let all_us = warmth.work_us.saturating_add(work_us);
        let left_ns = going_on.map_or(0, |resume| {
            let until = |work_us| extra_ns(resume, warmth.before, work_us);
            until(all_us).saturating_sub(until(warmth.work_us))
        });
        *warmth = match anew_ns >= left_ns {
            true => Warmth { before, work_us },
            false => Warmth {
                work_us: all_us,
                ..*warmth
            },
        };
        anew_ns.max(left_ns)
    }

    /// The kind of lane whose idleness an op pays for: what it is work for, but of a card that was measured without
    /// look-ups' idleness, on a lane of copies, theirs is the nearest that is known.
    pub fn cools_as(&self, lane: LaneKind, working_as: LaneKind) -> LaneKind {
        match (lane, working_as, &self.lookup_resume) {
            (LaneKind::Copy, LaneKind::Lookup, None) => LaneKind::Copy,
            _ => working_as,
        }
    }

    /// Whether an op takes longer after this: nothing does on cards where it was not measured.
    pub fn cools_down(&self, lane: LaneKind, pool: PoolId, before: Before) -> bool {
        self.resume_after(lane, pool, before).is_some()
    }

    pub(super) fn resume_after(&self, lane: LaneKind, pool: PoolId, before: Before) -> Option<&Resume> {
        let of_pool = &self.resume[pool.index()];
        match lane {
            LaneKind::Compute => match before.model {
                ModelBefore::Same => of_pool.same.as_ref(),
                ModelBefore::Other => of_pool.other.as_ref(),
                ModelBefore::Copied => of_pool.copied.as_ref(),
            },
            LaneKind::Copy => self.copy_resume.as_ref(),
            LaneKind::Lookup => self.lookup_resume.as_ref(),
            LaneKind::Solve | LaneKind::Link | LaneKind::Disk => None,
        }
    }
}
