//! Sizes of the blocks that are copied, loaded and read.

use tenantry_profiles::ModelKind;

use super::{Plan, Suite};
use crate::adapters::AdapterShape;
use crate::device::{element_bytes, kind};
use crate::error::ExecutorError;
use crate::lora::LoraShape;

/// Sizes of what is read from the disk, whatever tenants have.
const STORED_BYTES: [u64; 5] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Of a whole model that is read so: larger ones go on along the line, as a disk reads them for long.
const STORED_BYTES_MAX: u64 = 256 << 20;
/// What a quick suite on a GPU reads from the disk at most, checkpoints included: a card is rented by the minute, and
/// its disk is the host's.
const STORED_BYTES_MAX_QUICK_ON_GPU: u64 = 32 << 20;

/// Largest copies to a GPU that are measured: they are assumed to take as long a byte as still larger ones, for which
/// page-locked memory would have to be found.
const GPU_COPY_BYTES_MAX: u64 = 1 << 30;

/// Sizes in bytes, ascending.
pub(crate) struct Sizes {
    /// Copies to the device: round ones, and those that serving the plan's models takes.
    pub copies: Vec<u64>,
    /// Whole models.
    pub models: Vec<u64>,
    /// What is read from the disk in blocks: tenants' adapters, whole models, and round sizes about them.
    pub stored: Vec<u64>,
}

/// The most that is read from the disk at once.
pub(super) fn stored_bytes_max(plan: &Plan) -> u64 {
    match (plan.device.is_cuda(), plan.suite) {
        (true, Suite::Quick) => STORED_BYTES_MAX_QUICK_ON_GPU,
        _ => u64::MAX,
    }
}

impl Sizes {
    /// What a plan needs.
    ///
    /// # Errors
    /// Adapters or LoRA that a model cannot have.
    pub fn new(plan: &Plan) -> Result<Sizes, ExecutorError> {
        let element = element_bytes(kind(plan.dtype));
        let mut sizes = Sizes {
            copies: round_bytes(plan.suite),
            models: plan.models.iter().map(|model| model.parameters() * element).collect(),
            stored: STORED_BYTES.to_vec(),
        };
        sizes.copies.extend(&sizes.models);
        sizes.stored.extend(sizes.models.iter().filter(|bytes| **bytes <= STORED_BYTES_MAX));
        for model in &plan.models {
            let ops = plan.ops.of(&model.name);
            for &bottleneck in &ops.bottlenecks {
                let shape = AdapterShape::new(model, bottleneck)?;
                sizes.copies.push(shape.parameters_per_layer() * element);
                sizes.stored.push(shape.parameters() * element);
            }
            if model.kind == ModelKind::Decoder {
                for &rank in &ops.ranks {
                    let bytes = LoraShape::new(model, rank)?.parameters() * element;
                    sizes.copies.push(bytes);
                    sizes.stored.push(bytes);
                }
            }
        }
        if plan.device.is_cuda() {
            for sizes in [&mut sizes.models, &mut sizes.copies] {
                // What larger ones take is extrapolated from the last doubling.
                sizes.extend([GPU_COPY_BYTES_MAX / 2, GPU_COPY_BYTES_MAX]);
                sizes.retain(|bytes| *bytes <= GPU_COPY_BYTES_MAX);
            }
        }
        let stored_most = stored_bytes_max(plan);
        sizes.stored.retain(|bytes| *bytes <= stored_most);
        for sizes in [&mut sizes.models, &mut sizes.copies, &mut sizes.stored] {
            sizes.sort_unstable();
            sizes.dedup();
        }
        Ok(sizes)
    }
}

/// Sizes of copies beside those that the models need, in bytes.
fn round_bytes(suite: Suite) -> Vec<u64> {
    let largest_power = match suite {
        Suite::Quick => 24,
        Suite::Full => 28,
    };
    let powers = (8..=largest_power).step_by(2);
    // Of large ones, more: those that are as large as the processor's caches take less a byte than larger ones.
    let between = (25..largest_power).step_by(2);
    powers.chain(between).map(|power| 1 << power).collect()
}
