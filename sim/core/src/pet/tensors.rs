//! Whether a task's tensors are those that its kind has (`kinds`): names, element types, shapes, and what these do not
//! show. One check for whoever simulates a file and for whoever computes with it, so that both refuse the same files
//! for the same reasons, and give the others as much memory.

use std::collections::{BTreeMap, BTreeSet};

use tenantry_profiles::{ModelShape, PetKind};

use super::kinds::{Element, Part, Place, Size, Unfit, rules};
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
            Size::Between(least, most) => write!(f, "{least} to {most}"),
        }
    }
}

/// A task's own classification layer in its file: both tensors, or neither.
pub const HEAD: [&str; 2] = ["classifier.weight", "classifier.bias"];

/// A dense layer of the task's own between the encoder and its classification layer: both tensors, or neither.
pub const POOLER: [&str; 2] = ["pooler.weight", "pooler.bias"];

/// What of its head a task's file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadInFile {
    /// Nothing.
    None,
    /// A classification layer.
    Linear,
    /// A classification layer over a pooler.
    Pooled,
}

/// Tensors of one linear layer or norm that make one operator together.
#[derive(Debug)]
struct Group {
    place: Place,
    parts: Vec<Part>,
    /// A task may leave it out as a whole, though not everywhere.
    optional: bool,
}

impl Group {
    /// The name of one of its tensors in a layer.
    fn name(&self, layer: u32, part: &str) -> String {
        format!("layer.{layer}.{}.{part}", self.place.name())
    }
}

/// The groups of each encoder layer.
fn groups(kind: PetKind, shape: &ModelShape) -> Vec<Group> {
    let rules = rules(kind);
    let group = |place: Place| Group {
        place,
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

impl std::ops::AddAssign for Resident {
    fn add_assign(&mut self, other: Resident) {
        self.numbers += other.numbers;
        self.indices += other.indices;
    }
}

/// A tensor as it is stored.
#[derive(Clone, Debug)]
pub struct StoredTensor<'a> {
    /// The element type as safetensors calls it.
    pub dtype: String,
    /// The dimensions.
    pub shape: &'a [usize],
    /// The elements, little-endian.
    pub data: &'a [u8],
}

/// Tensors by name.
pub type Stored<'a> = BTreeMap<&'a str, StoredTensor<'a>>;

/// Holds a task's classification layer, and its pooler, against a model of this shape and a system that tells so many
/// classes apart, of which a task may have fewer. Returns what there is.
///
/// # Errors
/// The first of the tensors that is missing, or of another element type or shape. A pooler alone lacks a classification
/// layer.
pub fn check_head(shape: &ModelShape, classes: u32, stored: &Stored<'_>) -> Result<HeadInFile, Misfit> {
    let there = |names: [&str; 2]| names.iter().any(|name| stored.contains_key(name));
    if !there(HEAD) && !there(POOLER) {
        return Ok(HeadInFile::None);
    }
    let hidden = Size::Is(shape.hidden as usize);
    let classes = match classes as usize {
        few @ ..=2 => Size::Is(few),
        more => Size::Between(2, more),
    };
    let mut own = None;
    for (name, sizes) in HEAD.iter().zip([&[classes, hidden][..], &[classes]]) {
        fits(name, Element::F32, sizes, &mut own, stored)?;
    }
    if !there(POOLER) {
        return Ok(HeadInFile::Linear);
    }
    for (name, sizes) in POOLER.iter().zip([&[hidden, hidden][..], &[hidden]]) {
        fits(name, Element::F32, sizes, &mut None, stored)?;
    }
    Ok(HeadInFile::Pooled)
}

/// Holds a task's tensors, its [head](check_head) apart, against those that its kind has for a model of this shape.
/// Returns what they will take on the device.
///
/// # Errors
/// The first tensor, in the order of the layers, that is missing, or of another element type or shape; else the first
/// by name that neither kind nor model has; else the first whose content cannot be computed with.
pub fn check(kind: PetKind, shape: &ModelShape, stored: &Stored<'_>) -> Result<Resident, Misfit> {
    let groups = groups(kind, shape);
    let mut known = BTreeSet::new();
    let mut resident = Resident::default();
    let mut there = Vec::new();
    for layer in 0..shape.layers {
        for group in &groups {
            let Group { parts, optional, .. } = group;
            let name = |part: &str| group.name(layer, part);
            if *optional && parts.iter().all(|(part, ..)| !stored.contains_key(name(part).as_str())) {
                continue;
            }
            there.push((layer, group));
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
        let name = first.name(0, first.parts[0].0);
        return Err(misfit(&name, "there, or another linear layer's", "no such tensor"));
    }
    if let Some(name) = stored.keys().find(|name| !known.contains(**name) && ![HEAD, POOLER].concat().contains(name)) {
        let must = "a tensor of this kind and shared model";
        return Err(misfit(name, must, "one that neither kind nor shared model has"));
    }
    for (layer, group) in there {
        let data = |(part, ..): &Part| stored[group.name(layer, part).as_str()].data;
        let data: Vec<&[u8]> = group.parts.iter().map(data).collect();
        let content = rules(kind).content(group.place, &data);
        resident += content.map_err(|Unfit { part, must, got }| misfit(&group.name(layer, part), &must, &got))?;
    }
    Ok(resident)
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
            (Size::AtLeast(_) | Size::Between(..), Some(own)) => Size::Is(own),
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
    let Some(StoredTensor {
        dtype,
        shape: found,
        data,
    }) = stored.get(name)
    else {
        return misfit("no such tensor".into());
    };
    let fits = |(found, wanted): (&usize, &Size)| match wanted {
        Size::Is(size) => found == size,
        Size::AtLeast(least) => found >= least,
        Size::Between(least, most) => (least..=most).contains(&found),
    };
    if dtype != element.name() || found.len() != wanted.len() || !found.iter().zip(&wanted).all(fits) {
        return misfit(format!("{dtype} of shape {found:?}"));
    }
    if !are_finite(dtype, data) {
        return Err(Misfit {
            tensor: name.to_string(),
            must: FINITE.to_string(),
            got: INFINITE.to_string(),
        });
    }
    let free = wanted.iter().position(|size| !matches!(size, Size::Is(_)));
    *own = own.or(free.map(|dimension| found[dimension]));
    Ok(found.iter().map(|&size| size as u64).product())
}

/// What parameters must be, since whatever is computed with others is no number, and no answer, …
pub const FINITE: &str = "of finite numbers";

/// … and what they are where they are not.
pub const INFINITE: &str = "NaN or infinity";

/// Whether all elements of a tensor, little-endian, are finite: none has all bits of its exponent. `dtype` is as
/// safetensors calls it; what is no floating-point number is finite.
pub fn are_finite(dtype: &str, data: &[u8]) -> bool {
    // Without an early end, so that many are looked at in one instruction.
    let any_of_16 = |exponent: u16| {
        let numbers = data.chunks_exact(2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        numbers.fold(false, |any, bits| any | (bits & exponent == exponent))
    };
    let any_of_32 = |exponent: u32| {
        let numbers = data.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        numbers.fold(false, |any, bits| any | (bits & exponent == exponent))
    };
    !match dtype {
        "F16" => any_of_16(0x7c00),
        "BF16" => any_of_16(0x7f80),
        "F32" => any_of_32(0x7f80_0000),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pet::work::{PetSizes, layer_bytes};

    type Tensor = (String, String, Vec<usize>, Vec<u8>);

    /// Elements that can be computed with: three of a difference, all in the last row, and a mask that keeps
    /// everything.
    fn content(part: &str, element: Element, elements: usize) -> Vec<u8> {
        let integers = |of: &dyn Fn(usize) -> i32| (0..elements).flat_map(|at| of(at).to_le_bytes()).collect();
        match (part, element) {
            ("delta.starts", _) => integers(&|row| if row + 1 == elements { 3 } else { 0 }),
            ("delta.columns", _) => integers(&|at| at as i32),
            (_, Element::U8) => vec![u8::MAX; elements],
            _ => vec![0; 4 * elements],
        }
    }

    /// The tensors that each kind has for `tiny`, with 3 for each size of the task's own.
    fn whole(kind: PetKind, shape: &ModelShape) -> Vec<Tensor> {
        let size = |size: &Size| match size {
            Size::Is(size) => *size,
            Size::AtLeast(_) | Size::Between(..) => 3,
        };
        let tensors = (0..shape.layers).flat_map(|layer| {
            groups(kind, shape).into_iter().flat_map(move |group| {
                group.parts.into_iter().map(move |(part, element, sizes)| {
                    let name = format!("layer.{layer}.{}.{part}", group.place.name());
                    let sizes: Vec<usize> = sizes.iter().map(size).collect();
                    let content = content(part, element, sizes.iter().product());
                    (name, element.name().to_string(), sizes, content)
                })
            })
        });
        tensors.collect()
    }

    fn stored(tensors: &[Tensor]) -> Stored<'_> {
        tensors
            .iter()
            .map(|(name, dtype, shape, data)| {
                let dtype = dtype.clone();
                (name.as_str(), StoredTensor { dtype, shape, data })
            })
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
                if tensors[index].1 == "F32" {
                    let mut no_number = tensors.clone();
                    let data = &mut no_number[index].3;
                    let last = data.len() - 4;
                    data[last..].copy_from_slice(&f32::NAN.to_le_bytes());
                    let misfit = check(kind, &shape, &stored(&no_number)).unwrap_err().to_string();
                    assert_eq!(
                        misfit,
                        format!("{name}: must be of finite numbers, got NaN or infinity")
                    );
                }
                let mut longer = tensors.clone();
                longer[index].2.push(1);
                assert_eq!(check(kind, &shape, &stored(&longer)).unwrap_err().tensor, name);
            }
            let mut more = tensors.clone();
            more.push(("layer.2.output.bias".into(), "F32".into(), vec![128], vec![0; 512]));
            assert_eq!(
                check(kind, &shape, &stored(&more)).unwrap_err().tensor,
                "layer.2.output.bias"
            );
        }
    }

    #[test]
    fn what_is_no_floating_point_number_is_finite() {
        assert!(are_finite("I32", &[255; 4]) && !are_finite("BF16", &[255; 4]));
    }

    #[test]
    fn a_tasks_own_sizes_are_its_own_and_one_at_least() {
        let shape = ModelShape::builtin("tiny").unwrap();
        let lora = |a: usize, b: usize| {
            [("lora_a", [a, 512]), ("lora_b", [128, b])].map(|(part, shape)| {
                (
                    format!("layer.1.output.{part}"),
                    "F32".to_string(),
                    shape.to_vec(),
                    Vec::new(),
                )
            })
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
    /// What a mask takes away is resident, bit by bit; the bits beyond the last column are nobody's.
    #[test]
    fn a_mask_takes_as_much_as_it_takes_away() {
        let shape = ModelShape {
            hidden: 12,
            heads: 2,
            intermediate: 20,
            layers: 1,
            ..ModelShape::builtin("tiny").unwrap()
        };
        let mut tensors = whole(PetKind::MaskBert, &shape);
        let resident = |tensors: &[Tensor]| check(PetKind::MaskBert, &shape, &stored(tensors)).unwrap();
        let rows = 36 + 12 + 20 + 12;
        let none = Resident {
            numbers: 0,
            indices: rows + 4,
        };
        assert_eq!(resident(&tensors), none);
        // Of the second row of `attention_output` the first byte has two zeros, and the second one among its four
        // columns and two beyond.
        let mask = tensors.iter_mut().find(|(name, ..)| name == "layer.0.attention_output.mask");
        mask.unwrap().3[2..4].copy_from_slice(&[0b1101_1110, 0b1010_0111]);
        let three = Resident {
            numbers: 3,
            indices: rows + 4 + 3,
        };
        assert_eq!(resident(&tensors), three);
    }

    /// A classification layer tells as many classes apart as the system, or fewer.
    #[test]
    fn a_classification_layer_fits_model_and_system() {
        let shape = ModelShape::builtin("tiny").unwrap();
        let said = |weight: &[usize], bias: &[usize]| {
            let tensors: Vec<Tensor> = HEAD
                .iter()
                .zip([weight, bias])
                .filter(|(_, size)| !size.is_empty())
                .map(|(name, size)| (name.to_string(), "F32".to_string(), size.to_vec(), Vec::new()))
                .collect();
            check_head(&shape, 5, &stored(&tensors)).map_err(|misfit| misfit.to_string())
        };
        assert_eq!(said(&[], &[]), Ok(HeadInFile::None));
        assert_eq!(said(&[5, 128], &[5]), Ok(HeadInFile::Linear));
        assert_eq!(said(&[2, 128], &[2]), Ok(HeadInFile::Linear));
        for (weight, bias, why) in [
            (
                &[6, 128][..],
                &[6][..],
                "weight: must be F32 of shape [2 to 5, 128], got F32 of shape [6, 128]",
            ),
            (
                &[3, 64],
                &[3],
                "weight: must be F32 of shape [2 to 5, 128], got F32 of shape [3, 64]",
            ),
            (&[3, 128], &[4], "bias: must be F32 of shape [3], got F32 of shape [4]"),
            (&[3, 128], &[], "bias: must be F32 of shape [3], got no such tensor"),
            (
                &[],
                &[3],
                "weight: must be F32 of shape [2 to 5, 128], got no such tensor",
            ),
        ] {
            assert_eq!(said(weight, bias).unwrap_err(), format!("classifier.{why}"));
        }
    }

    #[test]
    fn a_pooler_is_as_wide_as_the_model_and_stands_before_a_classification_layer() {
        let shape = ModelShape::builtin("tiny").unwrap();
        let tensor = |name: &str, size: &[usize]| {
            (
                name.to_string(),
                "F32".to_string(),
                size.to_vec(),
                vec![0; 4 * size.iter().product::<usize>()],
            )
        };
        let head = [tensor(HEAD[0], &[3, 128]), tensor(HEAD[1], &[3])];
        let said = |tensors: &[Tensor]| check_head(&shape, 5, &stored(tensors)).map_err(|misfit| misfit.to_string());
        let pooled = |weight: &[usize], bias: &[usize]| {
            [&head[..], &[tensor(POOLER[0], weight), tensor(POOLER[1], bias)]].concat()
        };
        let whole_head = pooled(&[128, 128], &[128]);
        assert_eq!(said(&whole_head), Ok(HeadInFile::Pooled));
        for (tensors, why) in [
            (
                pooled(&[128, 64], &[128]),
                "pooler.weight: must be F32 of shape [128, 128], got F32 of shape [128, 64]",
            ),
            (
                pooled(&[128, 128], &[64]),
                "pooler.bias: must be F32 of shape [128], got F32 of shape [64]",
            ),
            (
                whole_head[..3].to_vec(),
                "pooler.bias: must be F32 of shape [128], got no such tensor",
            ),
            (
                whole_head[2..].to_vec(),
                "classifier.weight: must be F32 of shape [2 to 5, 128], got no such tensor",
            ),
        ] {
            assert_eq!(said(&tensors).unwrap_err(), why);
        }
        // Beside a kind's tensors it is none of them.
        let of_kind = whole(PetKind::BitFit, &shape);
        let with_head = [&of_kind[..], &whole_head].concat();
        assert_eq!(
            check(PetKind::BitFit, &shape, &stored(&with_head)),
            check(PetKind::BitFit, &shape, &stored(&of_kind))
        );
    }

    /// What the shapes of a sparse matrix do not show: rows that do not add up, and columns beyond it or out of order.
    #[test]
    fn a_difference_that_is_no_matrix_is_refused() {
        let shape = ModelShape::builtin("tiny").unwrap();
        let refused = |part: &str, at: usize, number: i32| {
            let mut tensors = whole(PetKind::DiffPruning, &shape);
            let name = format!("layer.1.output.delta.{part}");
            let (.., data) = tensors.iter_mut().find(|(of, ..)| *of == name).unwrap();
            data[4 * at..][..4].copy_from_slice(&number.to_le_bytes());
            check(PetKind::DiffPruning, &shape, &stored(&tensors)).unwrap_err().to_string()
        };
        for (at, number, got) in [
            (0, 1, "from 1 to 3"),
            (128, 2, "from 0 to 2"),
            (7, 3, "0 after 3 at row 7"),
        ] {
            let must = "layer.1.output.delta.starts: must be rising from 0 to 3, the number of values, got";
            assert_eq!(refused("starts", at, number), format!("{must} {got}"));
        }
        for (at, number) in [(2, 512), (0, -1), (1, 0)] {
            let must = "layer.1.output.delta.columns: must be from 0 to 511, rising within a row, got";
            assert_eq!(refused("columns", at, number), format!("{must} {number}"));
        }
    }
}
