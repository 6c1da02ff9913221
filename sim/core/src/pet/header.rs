//! What the header of a task's file says (`__metadata__` of safetensors). One reading for whoever simulates a file and
//! for whoever computes with it.

use tenantry_profiles::PetKind;

use super::tensors::Misfit;

/// The shared model's name.
pub const SHARED_MODEL: &str = "shared_model";
/// The kind's name.
pub const KIND: &str = "kind";
/// Of adapters: the nonlinearity between down and up.
pub const ACTIVATION: &str = "activation";
/// Of LoRA: what its product is multiplied by, as a rule α over the rank.
pub const SCALE: &str = "scale";

/// The nonlinearity of the task's own pooler.
pub const POOLER_ACTIVATION: &str = "pooler_activation";

/// The only nonlinearity that adapters are computed with.
const RELU: &str = "relu";

/// What a file says of its task.
#[derive(Clone, Debug, PartialEq)]
pub struct PetHeader {
    /// The shared model's name.
    pub model: String,
    /// The kind's name, whether or not anybody implements it.
    pub kind: String,
    /// Of LoRA, 1 where nothing is said.
    pub scale: f32,
    /// Of the task's own pooler, where it has one.
    pub pooler_activation: PoolerActivation,
}

/// The nonlinearity between a pooler and the classification layer over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolerActivation {
    /// As Hugging Face's BERT and RoBERTa have it.
    #[default]
    Tanh,
    /// As DistilBERT.
    Relu,
    /// As DeBERTa, by the error function.
    Gelu,
}

impl PoolerActivation {
    /// All.
    pub const ALL: [PoolerActivation; 3] = [PoolerActivation::Tanh, PoolerActivation::Relu, PoolerActivation::Gelu];

    /// As headers call it.
    pub fn name(self) -> &'static str {
        match self {
            PoolerActivation::Tanh => "tanh",
            PoolerActivation::Relu => "relu",
            PoolerActivation::Gelu => "gelu",
        }
    }
}

impl PetHeader {
    /// Reads the entries of a header by their keys; those of other kinds, and those that nobody knows, are not looked
    /// at.
    ///
    /// # Errors
    /// The first entry that is missing, or that says what cannot be computed.
    pub fn read<'a>(entry: impl Fn(&str) -> Option<&'a str>) -> Result<PetHeader, Misfit> {
        let misfit = |must: String, got: &str| Misfit {
            tensor: "header".into(),
            must,
            got: got.into(),
        };
        let named =
            |key: &str| entry(key).map(str::to_owned).ok_or_else(|| misfit(format!("one with an entry {key}"), "none"));
        let (model, kind) = (named(SHARED_MODEL)?, named(KIND)?);
        if kind == PetKind::Adapters.name()
            && let Some(other) = entry(ACTIVATION).filter(|activation| *activation != RELU)
        {
            return Err(misfit(format!("one whose entry {ACTIVATION} is {RELU}"), other));
        }
        let scale = match entry(SCALE).filter(|_| kind == PetKind::Lora.name()) {
            None => 1.0,
            Some(text) => text.parse().ok().filter(|scale: &f32| scale.is_finite()).ok_or_else(|| {
                misfit(
                    format!("one whose entry {SCALE} is a finite single-precision number"),
                    text,
                )
            })?,
        };
        let pooler_activation = match entry(POOLER_ACTIVATION) {
            None => PoolerActivation::default(),
            Some(name) => PoolerActivation::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
                let known = PoolerActivation::ALL.map(PoolerActivation::name).join(", ");
                misfit(format!("one whose entry {POOLER_ACTIVATION} is one of {known}"), name)
            })?,
        };
        Ok(PetHeader {
            model,
            kind,
            scale,
            pooler_activation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(&str, &str)]) -> Result<PetHeader, String> {
        let entry = |key: &str| entries.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
        PetHeader::read(entry).map_err(|misfit| misfit.to_string())
    }

    #[test]
    fn a_header_says_what_is_computed() {
        let of = |kind: &'static str, more: &[(&'static str, &'static str)]| {
            read(&[&[(SHARED_MODEL, "tiny"), (KIND, kind)], more].concat())
        };
        assert_eq!(of("lora", &[]).unwrap().scale, 1.0);
        assert_eq!(of("lora", &[(SCALE, "0.25")]).unwrap().scale, 0.25);
        for text in ["much", "inf", "NaN", "", "-1e39"] {
            let why = of("lora", &[(SCALE, text)]).unwrap_err();
            assert_eq!(
                why,
                format!("header: must be one whose entry scale is a finite single-precision number, got {text}")
            );
        }
        assert_eq!(of("bit-fit", &[(SCALE, "much"), ("format", "pt")]).unwrap().scale, 1.0);
        assert_eq!(of("adapters", &[(ACTIVATION, "relu")]).unwrap().kind, "adapters");
        let why = of("adapters", &[(ACTIVATION, "gelu")]).unwrap_err();
        assert_eq!(why, "header: must be one whose entry activation is relu, got gelu");
        let pooler = |name| of("bit-fit", &[(POOLER_ACTIVATION, name)]).map(|header| header.pooler_activation);
        assert_eq!(of("bit-fit", &[]).unwrap().pooler_activation, PoolerActivation::Tanh);
        assert_eq!(pooler("relu"), Ok(PoolerActivation::Relu));
        let why = "header: must be one whose entry pooler_activation is one of tanh, relu, gelu, got swish";
        assert_eq!(pooler("swish").unwrap_err(), why);
    }

    #[test]
    fn a_header_names_model_and_kind() {
        let why = read(&[(SHARED_MODEL, "tiny")]).unwrap_err();
        assert_eq!(why, "header: must be one with an entry kind, got none");
        let why = read(&[]).unwrap_err();
        assert_eq!(why, "header: must be one with an entry shared_model, got none");
    }
}
