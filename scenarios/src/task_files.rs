//! Tasks handed in as files: what a file says of its task, and whether its tensors are those that its kind has for the
//! shared model.

use std::path::Path;

use safetensors::SafeTensors;
use tenantry_core::command::TaskFault;
use tenantry_core::pet::header::PetHeader;
use tenantry_core::pet::tensors::{self, HeadInFile, Stored, StoredTensor};
use tenantry_profiles::{ModelShape, PetKind};

/// A file and what its header says of its task.
pub(crate) struct StoredTask {
    pub model: String,
    pub kind: String,
    /// The whole file, which is one of tensors.
    bytes: Vec<u8>,
}

/// Why nothing is known of a file.
pub(crate) enum Unread {
    /// It cannot be read.
    Absent(std::io::Error),
    /// It is no task's.
    Foreign(String),
}

impl StoredTask {
    pub fn read(path: &Path) -> Result<StoredTask, Unread> {
        let bytes = std::fs::read(path).map_err(Unread::Absent)?;
        let foreign = |error| Unread::Foreign(format!("header: must be that of a safetensors file, got {error}"));
        // Refuses a file that is shorter than its header says, too.
        SafeTensors::deserialize(&bytes).map_err(foreign)?;
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(foreign)?;
        let entries = metadata.metadata().as_ref();
        let header = PetHeader::read(|key| entries.and_then(|entries| entries.get(key)).map(String::as_str));
        let PetHeader { model, kind, .. } = header.map_err(|misfit| Unread::Foreign(misfit.to_string()))?;
        Ok(StoredTask { model, kind, bytes })
    }

    /// Bytes that the parameters take on the card, beside the classification layer, which every task has, and a pooler:
    /// numbers and indices of 4 bytes each; and whether there is a pooler. Nothing where nobody implements the kind.
    ///
    /// # Errors
    /// The first tensor that does not fit the kind, the model and a system of so many classes.
    pub fn resident_bytes(&self, model: &ModelShape, classes: u32) -> Result<Option<(u64, bool)>, (TaskFault, String)> {
        let Some(kind) = PetKind::ALL.iter().copied().find(|kind| kind.name() == self.kind) else {
            return Ok(None);
        };
        let tensors = SafeTensors::deserialize(&self.bytes).expect("the file was just read");
        let tensors = tensors.tensors();
        let stored: Stored<'_> = tensors
            .iter()
            .map(|(name, view)| {
                let tensor = StoredTensor {
                    dtype: format!("{:?}", view.dtype()),
                    shape: view.shape(),
                    data: view.data(),
                };
                (name.as_str(), tensor)
            })
            .collect();
        let resident = tensors::check(kind, model, &stored);
        let with_head = resident.and_then(|resident| Ok((resident, tensors::check_head(model, classes, &stored)?)));
        match with_head {
            Ok((resident, head)) => {
                let bytes = 4 * (resident.numbers + resident.indices);
                Ok(Some((bytes, head == HeadInFile::Pooled)))
            }
            Err(misfit) => Err((misfit.fault(), misfit.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use tenantry_core::pet::header::{ACTIVATION, KIND, SHARED_MODEL};

    use super::*;

    fn write(path: &Path, header: &[(&str, &str)], tensors: &[(&str, Dtype, &[usize])]) {
        let data: Vec<Vec<u8>> = tensors
            .iter()
            .map(|(_, dtype, shape)| vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8])
            .collect();
        let views = tensors
            .iter()
            .zip(&data)
            .map(|((name, dtype, shape), data)| (*name, TensorView::new(*dtype, shape.to_vec(), data).unwrap()));
        let header: HashMap<String, String> = header.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        std::fs::write(path, safetensors::serialize(views, Some(header)).unwrap()).unwrap();
    }

    fn tiny() -> ModelShape {
        ModelShape::builtin("tiny").unwrap()
    }

    fn stored(kind: &str, tensors: &[(&str, Dtype, &[usize])]) -> StoredTask {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("task.safetensors");
        write(&path, &[(SHARED_MODEL, "tiny"), (KIND, kind)], tensors);
        StoredTask::read(&path).unwrap_or_else(|_| panic!("it was just written"))
    }

    #[test]
    fn tensors_that_fit_say_what_they_take() {
        // `tiny` has two layers, 128 wide, 512 inside.
        let tensors: [(&str, Dtype, &[usize]); 4] = [
            ("layer.0.intermediate.lora_a", Dtype::F32, &[8, 128]),
            ("layer.0.intermediate.lora_b", Dtype::F32, &[512, 8]),
            ("layer.1.output.lora_a", Dtype::F32, &[8, 512]),
            ("layer.1.output.lora_b", Dtype::F32, &[128, 8]),
        ];
        let task = stored("lora", &tensors);
        assert_eq!((task.model.as_str(), task.kind.as_str()), ("tiny", "lora"));
        assert_eq!(
            task.resident_bytes(&tiny(), 3),
            Ok(Some((4 * 2 * 8 * (128 + 512), false)))
        );
        let head: [(&str, Dtype, &[usize]); 4] = [
            ("classifier.weight", Dtype::F32, &[3, 128]),
            ("classifier.bias", Dtype::F32, &[3]),
            ("pooler.weight", Dtype::F32, &[128, 128]),
            ("pooler.bias", Dtype::F32, &[128]),
        ];
        let pooled = stored("lora", &[&tensors[..], &head].concat());
        assert_eq!(
            pooled.resident_bytes(&tiny(), 3),
            Ok(Some((4 * 2 * 8 * (128 + 512), true)))
        );
        assert_eq!(stored("dora", &tensors).resident_bytes(&tiny(), 3), Ok(None));
        let columns = [
            ("query_key_value", 384, 16),
            ("attention_output", 128, 16),
            ("intermediate", 512, 16),
            ("output", 128, 64),
        ];
        let names: Vec<(String, [usize; 2])> = (0..2)
            .flat_map(|layer| columns.map(|(of, rows, bytes)| (format!("layer.{layer}.{of}.mask"), [rows, bytes])))
            .collect();
        let masks: Vec<(&str, Dtype, &[usize])> =
            names.iter().map(|(name, size)| (name.as_str(), Dtype::U8, &size[..])).collect();
        // All bits are 0: everything is taken away, and resident with its column; so are where the rows start.
        let (weights, rows) = (2 * (4 * 128 * 128 + 2 * 128 * 512), 2 * (384 + 128 + 512 + 128 + 4));
        assert_eq!(
            stored("mask-bert", &masks).resident_bytes(&tiny(), 3),
            Ok(Some((4 * (2 * weights + rows), false)))
        );
    }

    #[test]
    fn a_tensor_that_does_not_fit_is_named() {
        let refused =
            |kind, tensors: &[(&str, Dtype, &[usize])]| stored(kind, tensors).resident_bytes(&tiny(), 3).unwrap_err();
        let (fault, reason) = refused("lora", &[("layer.0.output.lora_a", Dtype::F32, &[8, 768])]);
        assert_eq!(fault, TaskFault::WrongShape);
        assert_eq!(
            reason,
            "layer.0.output.lora_a: must be F32 of shape [1 or more, 512], got F32 of shape [8, 768]"
        );
        let lora: [(&str, Dtype, &[usize]); 4] = [
            ("layer.0.output.lora_a", Dtype::F32, &[8, 512]),
            ("layer.0.output.lora_b", Dtype::F32, &[128, 8]),
            ("classifier.weight", Dtype::F32, &[4, 128]),
            ("classifier.bias", Dtype::F32, &[4]),
        ];
        assert_eq!(
            refused("lora", &lora),
            (
                TaskFault::WrongShape,
                "classifier.weight: must be F32 of shape [2 to 3, 128], got F32 of shape [4, 128]".to_string()
            )
        );
        let (fault, reason) = refused("mask-bert", &[("layer.0.query_key_value.mask", Dtype::F32, &[384, 16])]);
        assert_eq!(fault, TaskFault::WrongMask);
        assert!(
            reason.ends_with("must be U8 of shape [384, 16], got F32 of shape [384, 16]"),
            "{reason}"
        );
    }

    #[test]
    fn what_is_no_tasks_file_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("task");
        let why = || match StoredTask::read(&path) {
            Err(Unread::Foreign(why)) => why,
            _ => panic!("it is no task's file"),
        };
        std::fs::write(&path, "text").unwrap();
        assert!(why().starts_with("header: must be that of a safetensors file"));
        write(&path, &[(SHARED_MODEL, "tiny")], &[]);
        assert_eq!(why(), "header: must be one with an entry kind, got none");
        write(
            &path,
            &[(SHARED_MODEL, "tiny"), (KIND, "adapters"), (ACTIVATION, "gelu")],
            &[],
        );
        assert_eq!(why(), "header: must be one whose entry activation is relu, got gelu");
        let absent = StoredTask::read(&folder.path().join("nothing"));
        assert!(matches!(absent, Err(Unread::Absent(_))));
    }
}
