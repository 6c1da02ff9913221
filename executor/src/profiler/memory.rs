//! Whether the models of a suite fit the memory of what they are measured on.

use tenantry_profiles::{ModelKind, ModelShape};

use super::Plan;
use super::decoder;
use crate::device::device_memory;
use crate::error::ExecutorError;
use crate::host::available_host_bytes;

const GIB: f64 = (1u64 << 30) as f64;

/// Refuses models whose weights alone do not fit: the system would give a processor's memory out until it is gone.
///
/// # Errors
/// They do not, or libtorch does not say how much there is.
pub(super) fn check(plan: &Plan) -> Result<(), ExecutorError> {
    let free = match device_memory(plan.device)? {
        Some(memory) => memory.free,
        None => available_host_bytes(),
    };
    check_weights(&plan.models, plan.dtype.bytes(), free)
}

fn check_weights(models: &[ModelShape], bytes_each: u64, free: u64) -> Result<(), ExecutorError> {
    let parameters = models.iter().map(measured_parameters);
    let bytes = parameters.fold(0u64, u64::saturating_add).saturating_mul(bytes_each);
    if bytes <= free {
        return Ok(());
    }
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    let must = format!("of weights that fit the {:.1} GiB that are free", free as f64 / GIB);
    let got = format!(
        "{} with {:.1} GiB of what is measured of them",
        names.join(", "),
        bytes as f64 / GIB
    );
    Err(ExecutorError::input("models", must, got))
}

/// Of decoders a few layers are made.
fn measured_parameters(model: &ModelShape) -> u64 {
    match model.kind {
        ModelKind::Encoder => model.parameters(),
        ModelKind::Decoder => {
            let left_out = model.layers - model.layers.min(decoder::LAYERS);
            model.parameters() - u64::from(left_out) * model.layer_parameters()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_too_large_for_the_memory_are_refused() {
        let models = ["tiny", "llama-70b"].map(|name| ModelShape::builtin(name).unwrap());
        let few = ModelShape {
            layers: decoder::LAYERS,
            ..models[1].clone()
        };
        let needed = 4 * (models[0].parameters() + few.parameters());
        assert!(check_weights(&models, 4, needed).is_ok());
        let refused = check_weights(&models, 4, needed - 1).unwrap_err();
        assert!(refused.is_bad_input());
        let said = refused.to_string();
        assert!(
            said.starts_with("models: must be of weights that fit the ") && said.contains("tiny, llama-70b with "),
            "{said}"
        );
    }
}
