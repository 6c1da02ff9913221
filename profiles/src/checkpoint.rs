//! Where the files of a model's checkpoint lie.

use std::path::{Path, PathBuf};

/// Where a file of this name lies that belongs to a checkpoint: in its folder, or beside the file that is given for it.
pub fn of_checkpoint(path: &Path, name: &str) -> PathBuf {
    match path.is_dir() {
        true => path.join(name),
        false => path.with_file_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_a_folder_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.json");
        assert_eq!(of_checkpoint(folder.path(), "config.json"), config);
        assert_eq!(
            of_checkpoint(&folder.path().join("model.safetensors"), "config.json"),
            config
        );
    }
}
