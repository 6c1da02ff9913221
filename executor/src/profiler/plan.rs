//! What is to be measured, how thoroughly, and what comes of it.

use std::path::PathBuf;
use std::time::Duration;

use tenantry_profiles::{Card, DType, Device, ModelKind, ModelShape, Tables};

use super::after_points;
use super::axes::Served;
use super::ops::Ops;
use super::texts::ServedRoute;

/// How thorough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// A minute for the first model and 80 seconds for each further one; on a GPU 3 minutes.
    Quick,
    /// 14 minutes a model, on a GPU 7 minutes for all: adapters at every length, larger copies, and time for every
    /// point to settle.
    Full,
}

/// What a suite takes at most on a GPU, which may be rented by the minute: most ops are assumed to take so little there
/// that each is measured often enough. A full one leaves some of nine minutes for starting, for loading models, and for
/// what does not end on the second.
const GPU_QUICK: Duration = Duration::from_secs(170);
const GPU_FULL: Duration = Duration::from_secs(430);

impl Suite {
    /// How long it takes where nobody says. It ends earlier when every point's median is known to 2 %, and later where
    /// ops are so slow that three measurements of each take longer, or where what is no op (idleness, hand-overs) takes
    /// more than half of it.
    pub fn duration(self, models: usize, device: tch::Device) -> Duration {
        let seconds = match self {
            Suite::Quick => 60 + 80 * (models as u64).saturating_sub(1),
            Suite::Full => 840 * models as u64,
        };
        let all = Duration::from_secs(seconds);
        match (self, device.is_cuda()) {
            (_, false) => all,
            (Suite::Quick, true) => all.min(GPU_QUICK),
            (Suite::Full, true) => all.min(GPU_FULL),
        }
    }
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The card's name.
    pub name: String,
    /// Where.
    pub device: tch::Device,
    /// What that is: [`describe`](crate::describe).
    pub description: Device,
    /// The models; the first is the one whose ops are set beside copies to find how they disturb each other.
    pub models: Vec<ModelShape>,
    /// Of weights and activations.
    pub dtype: DType,
    /// Numbers of classes of heads.
    pub classes: Vec<u32>,
    /// Beside those that every model takes.
    pub ops: Ops,
    /// By encoders.
    pub served: Served,
    /// Routes whose trained models answer texts.
    pub texts: Vec<ServedRoute>,
    /// Tables that a card has which these are added to: no time goes into points of such.
    pub there: Tables,
    /// Whether that card has the device's limits in this number format too.
    pub has_limits: bool,
    /// How thorough.
    pub suite: Suite,
    /// How long it may take, where that is not what the suite says.
    pub time: Option<Duration>,
    /// Of weights, and of the order of measurement.
    pub seed: u64,
    /// A folder on the disk that models are loaded from; a file of each model's size is written there for a while.
    pub scratch: PathBuf,
    /// Where measurements are kept while there is no card: a run goes on with what an interrupted one of the same plan
    /// left there, at the same place of the same order. Whoever has saved the card removes it. Nothing is kept where
    /// absent.
    pub partial: Option<PathBuf>,
    /// The command that measures this card again.
    pub command: String,
    /// The day, as `2025-01-31`.
    pub date: String,
}

impl Plan {
    /// How long measuring may take.
    pub fn duration(&self) -> Duration {
        self.time.unwrap_or_else(|| self.suite.duration(self.models.len(), self.device))
    }

    /// How long its points are measured: half of the time at least, however much comes after them.
    pub(super) fn points_duration(&self) -> Duration {
        let suite = self.duration();
        suite.saturating_sub(after_points(self)).max(suite / 2)
    }

    /// How long measuring takes where every point is visited often enough within its time.
    pub fn expected(&self) -> Duration {
        self.points_duration() + after_points(self)
    }
}

/// How far a profile has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Points whose median is known as well as is asked for, or that were visited as often as any is.
    pub points_done: usize,
    /// All.
    pub points: usize,
    /// Of the suite's time, or what points with too few measurements still take where that is more, with what comes
    /// after the points. It ends earlier when all points are done.
    pub time_left: Duration,
}

/// What was measured.
#[derive(Debug)]
pub struct Profiled {
    /// The card. Its notes say what is uncertain, or missing of what was to be measured.
    pub card: Card,
    /// Whether it was interrupted; the card holds the tables that were complete.
    pub interrupted: bool,
    /// Tables that were there and go less far than was asked for, by name.
    pub kept_short: Option<String>,
}

/// What of a plan is not measured on its device, and why.
pub(super) fn unmeasured(plan: &Plan) -> Vec<String> {
    if !plan.device.is_cuda() {
        return Vec::new();
    }
    let is_concurrent = |model: &ModelShape| model.kind == ModelKind::Decoder && plan.ops.of(&model.name).concurrent;
    let steps = plan
        .models
        .iter()
        .any(is_concurrent)
        .then_some("concurrent_step is not measured: instances on GPUs do not share the host's cores");
    let resume = "resume is measured of passes in which only the heads change: that other parameters are new is a \
                  matter of a CPU's caches";
    [steps, Some(resume)].into_iter().flatten().map(str::to_string).collect()
}
