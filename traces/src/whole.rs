//! Files and folders that are there whole or not at all, written by whichever crate.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use tempfile::{Builder, NamedTempFile, TempDir, TempPath};

use crate::left_over;
pub use crate::left_over::PREFIX;

/// Begins a file beside `path`, as readable as any new file: temporary ones are their owner's alone by default. Dropped
/// unfinished, it leaves nothing.
///
/// # Errors
/// When the folder is missing or not writable; the error names it.
pub fn begin(path: &Path) -> io::Result<(File, TempPath)> {
    let mut builder = Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    Ok(beside(&mut builder, path)?.into_parts())
}

/// Begins a file beside `path` that is read again and removed: its owner's alone.
///
/// # Errors
/// As [`begin`].
pub fn begin_part(path: &Path) -> io::Result<NamedTempFile> {
    beside(&mut Builder::new(), path)
}

/// The folder that a path lies in: the one that one is in, of a name alone.
pub fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// The system's own error has the temporary name in it, which the user has not asked for.
fn beside(builder: &mut Builder<'_, '_>, path: &Path) -> io::Result<NamedTempFile> {
    let folder = folder_of(path);
    left_over::remove_once(folder);
    builder.prefix(PREFIX).tempfile_in(folder).map_err(|error| {
        let kind = error.kind();
        io::Error::new(kind, format!("cannot write in the folder {}: {kind}", folder.display()))
    })
}

/// Gives a file that was [begun](begin) its name: whoever opens the path finds the old contents or the new ones, even
/// after a power cut.
///
/// # Errors
/// When the disk is full or the name is a folder's.
pub fn finish(file: File, beside: TempPath, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    drop(file);
    beside.persist(path)?;
    Ok(())
}

/// Writes a file whole or not at all.
///
/// # Errors
/// As [`begin`] and [`finish`].
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (mut file, beside) = begin(path)?;
    file.write_all(bytes)?;
    finish(file, beside, path)
}

/// Begins a folder in `parent`, as open as any new folder: temporary ones are their owner's alone by default. Dropped
/// unfinished, it leaves nothing.
///
/// # Errors
/// When `parent` is missing or not writable.
pub fn begin_folder(parent: &Path) -> io::Result<TempDir> {
    let mut builder = Builder::new();
    builder.prefix(".unfinished-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    builder.tempdir_in(parent)
}

/// Gives a folder that was [begun](begin_folder) its name.
///
/// # Errors
/// When the name is taken.
pub fn finish_folder(beside: TempDir, path: &Path) -> io::Result<()> {
    fs::rename(beside.path(), path)?;
    // There is nothing to remove any more.
    let _ = beside.keep();
    Ok(())
}

/// A safetensors file with its header's keys in order: the library writes metadata as its hash map has it, so that
/// equal contents would be other files each time.
///
/// # Panics
/// If it is none, whole.
pub fn header_in_order(mut file: Vec<u8>) -> Vec<u8> {
    const LENGTH: usize = size_of::<u64>();
    let length = u64::from_le_bytes(file[..LENGTH].try_into().expect("eight bytes")) as usize;
    let header = &mut file[LENGTH..LENGTH + length];
    // A map of this library's is in order.
    let ordered: serde_json::Value = serde_json::from_slice(header).expect("the header is JSON");
    let ordered = ordered.to_string();
    assert!(ordered.len() <= length, "the same keys and values in another order");
    header[..ordered.len()].copy_from_slice(ordered.as_bytes());
    header[ordered.len()..].fill(b' ');
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_finished_is_not_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("trace.csv");
        let (mut file, beside) = begin(&path).unwrap();
        file.write_all(b"half").unwrap();
        drop((file, beside));
        drop(begin_part(&path).unwrap());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        write_whole(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn a_folder_that_is_not_finished_is_not_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("model");
        drop(begin_folder(place.path()).unwrap());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        let beside = begin_folder(place.path()).unwrap();
        fs::write(beside.path().join("config.json"), b"{}").unwrap();
        finish_folder(beside, &path).unwrap();
        assert_eq!(fs::read(path.join("config.json")).unwrap(), b"{}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn equal_contents_are_equal_files() {
        let metadata = || (0..20).map(|key| (format!("key {key}"), format!("\"{key}\"")));
        let file = || {
            let view = safetensors::tensor::TensorView::new(safetensors::Dtype::U8, vec![3], &[1, 2, 3]).unwrap();
            header_in_order(safetensors::serialize([("numbers", view)], Some(metadata().collect())).unwrap())
        };
        let found = file();
        assert!((0..8).all(|_| file() == found), "hash maps differ in their order");
        let (_, header) = safetensors::SafeTensors::read_metadata(&found).unwrap();
        assert_eq!(header.metadata(), &Some(metadata().collect()));
        let read = safetensors::SafeTensors::deserialize(&found).unwrap();
        assert_eq!(read.tensor("numbers").unwrap().data(), [1, 2, 3]);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_as_readable_as_any_new_one() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(place.path().join(name)).unwrap().permissions().mode();
        write_whole(&place.path().join("ours"), b"").unwrap();
        fs::write(place.path().join("any"), b"").unwrap();
        assert_eq!(mode("ours"), mode("any"));
    }
}
