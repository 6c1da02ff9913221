//! Whether a task's tensors are those that its kind has (`pet_kinds`): names, element types and shapes. One check for whoever reads a file's header and
//! for whoever computes with its content, so that both refuse the same files for the same reasons.

use std::collections::{BTreeMap, BTreeSet};

use tenantry_profiles::{ModelShape, PetKind};

use super::pet_kinds::{Element, Part, Place, Size, rules};
use crate::command::TaskFault;

impl Element {
    /// As safetensors calls it.
    fn name(self) -> &'static str {
        match self {
            Element::F32 => "F32",
            Element::I32 => "I32",
            Element::U8 => "U8",
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Size::Is(size) => size.fmt(f),
            Size::AtLeast(0) => f.write_str("any"),
            Size::AtLeast(least) => write!(f, "{least} or more"),
        }
    }
}

/// Tensors of one linear layer or norm that make one operator together.
#[derive(Debug)]
struct Group {
    of: &'static str,
    parts: Vec<Part>,
    /// A task may leave it out as a whole, though not everywhere.
    optional: bool,
}

/// The groups of each encoder layer.
fn groups(kind: PetKind, shape: &ModelShape) -> Vec<Group> {
    let rules = rules(kind);
    let group = |place: Place| Group {
        of: place.name(),
        parts: rules.tensors(place),
        optional: rules.optional(),
    };
    let groups = Place::all(shape).into_iter().map(group);
    groups.filter(|group| !group.parts.is_empty()).collect()
}

/// Parameters that do not fit what they are used with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{tensor}: must be {must}, got {got}")]
pub struct Misfit {
    /// The tensor's name.
    pub tensor: String,
    /// What it must be.
    pub must: String,
    /// What it is.
    pub got: String,
}

impl Misfit {
    /// The reason for which its task is refused.
    pub fn fault(&self) -> TaskFault {
        match self.tensor.ends_with(".mask") {
            true => TaskFault::WrongMask,
            false => TaskFault::WrongShape,
        }
    }
}

/// What a task's parameters will take on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Numbers, in the shared model's number format.
    pub numbers: u64,
    /// Indices of sparse matrices, 4 bytes each.
    pub indices: u64,
}

/// Tensors as they are stored: by name, the element type as safetensors calls it, and the dimensions.
pub type Stored<'a> = BTreeMap<&'a str, (String, &'a [usize])>;

/// Holds a task's tensors against those that its kind has for a model of this shape. Returns its numbers and indices: none of masks,
/// which are bits and no resident form.
///
/// # Errors
/// The first tensor, in the order of the layers, that is missing, or of another element type or shape; else the first by name that neither
/// kind nor model has.
pub fn check(kind: PetKind, shape: &ModelShape, stored: &Stored<'_>) -> Result<Resident, Misfit> {
    let groups = groups(kind, shape);
    let mut known = BTreeSet::new();
    let mut resident = Resident::default();
    for layer in 0..shape.layers {
        for Group { of, parts, optional } in &groups {
            let name = |part: &str| format!("layer.{layer}.{of}.{part}");
            if *optional && parts.iter().all(|(part, ..)| !stored.contains_key(name(part).as_str())) {
                continue;
            }
            let mut own = None;
            for (part, element, sizes) in parts {
                let name = name(part);
                let elements = fits(&name, *element, sizes, &mut own, stored)?;
                match element {
                    Element::F32 => resident.numbers += elements,
                    Element::I32 => resident.indices += elements,
                    Element::U8 => {}
                }
                known.insert(name);
            }
        }
    }
    let misfit = |tensor: &str, must: &str, got: &str| Misfit {
        tensor: tensor.into(),
        must: must.into(),
        got: got.into(),
    };
    if known.is_empty() {
        let first = groups.first().expect("each kind has tensors");
        let name = format!("layer.0.{}.{}", first.of, first.parts[0].0);
        return Err(misfit(&name, "there, or another linear layer's", "no such tensor"));
    }
    match stored.keys().find(|name| !known.contains(**name)) {
        Some(name) => {
            let must = "a tensor of this kind and shared model";
            Err(misfit(name, must, "one that neither kind nor shared model has"))
        }
        None => Ok(resident),
    }
}

/// The elements of a tensor that fits. `own` is the task's own size, once a tensor of the group has told it.
fn fits(
    name: &str,
    element: Element,
    sizes: &[Size],
    own: &mut Option<usize>,
    stored: &Stored<'_>,
) -> Result<u64, Misfit> {
    let wanted: Vec<Size> = sizes
        .iter()
        .map(|size| match (size, *own) {
            (Size::AtLeast(_), Some(own)) => Size::Is(own),
            _ => *size,
        })
        .collect();
    let misfit = |got| {
        let sizes: Vec<String> = wanted.iter().map(Size::to_string).collect();
        Err(Misfit {
            tensor: name.to_string(),
            must: format!("{} of shape [{}]", element.name(), sizes.join(", ")),
            got,
        })
    };
    let Some((dtype, found)) = stored.get(name) else {
        return misfit("no such tensor".into());
    };
    let fits = |(found, wanted): (&usize, &Size)| match wanted {
        Size::Is(size) => found == size,
        Size::AtLeast(least) => found >= least,
    };
    if dtype != element.name() || found.len() != wanted.len() || !found.iter().zip(&wanted).all(fits) {
        return misfit(format!("{dtype} of shape {found:?}"));
    }
    let free = wanted.iter().position(|size| matches!(size, Size::AtLeast(_)));
    *own = own.or(free.map(|dimension| found[dimension]));
    Ok(found.iter().map(|&size| size as u64).product())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pet_work::{PetSizes, layer_bytes};

    /// The tensors that each kind has for `tiny`, with 3 for each size of the task's own.
    fn whole(kind: PetKind, shape: &ModelShape) -> Vec<(String, String, Vec<usize>)> {
        let size = |size: &Size| match size {
            Size::Is(size) => *size,
            Size::AtLeast(_) => 3,
        };
        let tensors = (0..shape.layers).flat_map(|layer| {
            groups(kind, shape).into_iter().flat_map(move |group| {
                group.parts.into_iter().map(move |(part, element, sizes)| {
                    let name = format!("layer.{layer}.{}.{part}", group.of);
                    (name, element.name().to_string(), sizes.iter().map(size).collect())
                })
            })
        });
        tensors.collect()
    }

    fn stored(tensors: &[(String, String, Vec<usize>)]) -> Stored<'_> {
        let stored = tensors.iter();
        stored
            .map(|(name, dtype, shape)| (name.as_str(), (dtype.clone(), shape.as_slice())))
            .collect()
    }

    #[test]
    fn what_each_kind_has_is_taken_and_weighs_what_the_arithmetic_says() {
        let shape = ModelShape::builtin("tiny").unwrap();
        for &kind in PetKind::ALL {
            let tensors = whole(kind, &shape);
            let resident = check(kind, &shape, &stored(&tensors)).unwrap();
            let bytes = 4 * (resident.numbers + resident.indices);
            let sizes = PetSizes {
                bottleneck: 3,
                rank: 3,
                masked_share: 0.0,
                difference_share: 0.0,
            };
            match kind {
                PetKind::MaskBert => assert_eq!(bytes, 0),
                // Three elements of each linear layer are not the same share of each.
                PetKind::DiffPruning => {
                    let rows = |place| match place {
                        Place::Linear { outputs, .. } => 2 * outputs + 1 + 2 * 3,
                        Place::Norm { .. } => 0,
                    };
                    let rows: u64 = Place::all(&shape).into_iter().map(rows).sum();
                    assert_eq!(bytes, 2 * 4 * rows);
                }
                _ => assert_eq!(bytes, 2 * layer_bytes(kind, &shape, &sizes), "{kind}"),
            }
        }
    }

    #[test]
    fn each_tensor_that_is_left_out_or_changed_is_named() {
        let shape = ModelShape::builtin("tiny").unwrap();
        for &kind in PetKind::ALL {
            let tensors = whole(kind, &shape);
            for index in 0..tensors.len() {
                let name = tensors[index].0.clone();
                let mut less = tensors.clone();
                less.remove(index);
                assert_eq!(check(kind, &shape, &stored(&less)).unwrap_err().tensor, name);
                let mut other = tensors.clone();
                other[index].1 = "BF16".into();
                let misfit = check(kind, &shape, &stored(&other)).unwrap_err();
                assert_eq!(misfit.tensor, name);
                assert!(misfit.got.starts_with("BF16 of shape ["), "{misfit}");
                let mut longer = tensors.clone();
                longer[index].2.push(1);
                assert_eq!(check(kind, &shape, &stored(&longer)).unwrap_err().tensor, name);
            }
            let mut more = tensors.clone();
            more.push(("layer.2.output.bias".into(), "F32".into(), vec![128]));
            assert_eq!(
                check(kind, &shape, &stored(&more)).unwrap_err().tensor,
                "layer.2.output.bias"
            );
        }
    }

    #[test]
    fn a_tasks_own_sizes_are_its_own_and_one_at_least() {
        let shape = ModelShape::builtin("tiny").unwrap();
        let lora = |a: usize, b: usize| {
            [("lora_a", [a, 512]), ("lora_b", [128, b])]
                .map(|(part, shape)| (format!("layer.1.output.{part}"), "F32".to_string(), shape.to_vec()))
        };
        let said = |a, b| check(PetKind::Lora, &shape, &stored(&lora(a, b))).map_err(|misfit| misfit.to_string());
        let numbers = 4 * (512 + 128);
        assert_eq!(said(4, 4), Ok(Resident { numbers, indices: 0 }), "not at every layer");
        assert_eq!(
            said(0, 0).unwrap_err(),
            "layer.1.output.lora_a: must be F32 of shape [1 or more, 512], got F32 of shape [0, 512]"
        );
        assert_eq!(
            said(4, 8).unwrap_err(),
            "layer.1.output.lora_b: must be F32 of shape [128, 4], got F32 of shape [128, 8]"
        );
        let nothing = check(PetKind::Lora, &shape, &Stored::new()).unwrap_err().to_string();
        assert_eq!(
            nothing,
            "layer.0.query_key_value.lora_a: must be there, or another linear layer's, got no such tensor"
        );
    }
}
