//! Files that are there whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempPath};
use tenantry_traces::whole::{self, PREFIX};

use crate::error::ReportError;

/// A file that is written beside its place and takes its name when it is finished: whoever opens the path finds the old
/// contents or the new ones, even after a power cut. Dropped unfinished, it leaves nothing.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    /// Where it is written until then. The file itself is apart, so that errors do not speak of this name.
    beside: TempPath,
    out: BufWriter<File>,
}

impl WholeFile {
    /// Begins a file.
    ///
    /// # Errors
    /// When the folder is missing or not writable; the error names `path`.
    pub fn create(path: &Path) -> Result<WholeFile, ReportError> {
        let (file, beside) = whole::begin(path).map_err(|source| ReportError::io(path, source))?;
        Ok(WholeFile {
            path: path.to_owned(),
            beside,
            out: BufWriter::with_capacity(1 << 16, file),
        })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// When the disk is full or the name is a folder's; the error names the path.
    pub fn finish(self) -> Result<(), ReportError> {
        let WholeFile { path, beside, out } = self;
        let persist = || -> io::Result<()> {
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            whole::finish(file, beside, &path)
        };
        persist().map_err(|source| ReportError::io(&path, source))
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes a file whole or not at all.
///
/// # Errors
/// As [`WholeFile`].
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    whole::write_whole(path, bytes).map_err(|source| ReportError::io(path, source))
}

/// Writes the files of a folder that belong together, the last of which says that all are there. All are written beside
/// their places before any takes its name, so that a full disk leaves what was there; then the last of an earlier time
/// goes first, and with it what was `gone` since.
///
/// # Errors
/// When a file cannot be written or removed; the error names it.
pub fn write_together<'a>(
    folder: &Path,
    files: Vec<(&'a str, Vec<u8>)>,
    gone: impl IntoIterator<Item = &'a str>,
) -> Result<(), ReportError> {
    let last = files.last().map(|(name, _)| *name);
    let beside = |(name, bytes): (&str, Vec<u8>)| {
        let path = folder.join(name);
        let mut file = WholeFile::create(&path)?;
        file.write_all(&bytes)
            .and_then(|()| file.flush())
            .map_err(|source| ReportError::io(&path, source))?;
        Ok(file)
    };
    let written = files.into_iter().map(beside).collect::<Result<Vec<_>, ReportError>>()?;
    for name in last.into_iter().chain(gone) {
        remove_earlier(&folder.join(name))?;
    }
    written.into_iter().try_for_each(WholeFile::finish)
}

/// Removes what an earlier run left under a name that this one does not write: it would be taken for this one's.
///
/// # Errors
/// When it cannot be removed; the error names it.
pub fn remove_earlier(path: &Path) -> Result<(), ReportError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(ReportError::io(path, source)),
        _ => Ok(()),
    }
}

/// Removes what killed processes left of files that they had begun in `folder`. No other process may be writing there.
///
/// # Errors
/// When the folder cannot be read or changed; the error names it.
pub fn remove_unfinished(folder: &Path) -> Result<(), ReportError> {
    let remove = || -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    };
    remove().map_err(|source| ReportError::io(folder, source))
}

/// A part of a file that is joined from several: it lies beside its place, is closed when it is finished, since there
/// may be thousands of them, and is removed when it is dropped.
#[derive(Debug)]
pub struct Part(TempPath);

/// A part that is being written.
pub type PartFile = BufWriter<NamedTempFile>;

impl Part {
    /// Begins a part of the file at `path`.
    ///
    /// # Errors
    /// When the folder is missing or not writable.
    pub fn begin(path: &Path) -> io::Result<PartFile> {
        whole::begin_part(path).map(BufWriter::new)
    }

    /// The part is complete.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn end(file: PartFile) -> io::Result<Part> {
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Part(file.into_temp_path()))
    }

    /// To be read from its beginning.
    ///
    /// # Errors
    /// When somebody has removed it.
    pub fn open(&self) -> io::Result<File> {
        File::open(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_is_not_finished_is_not_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("trace.csv");
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        drop(Part::end(Part::begin(&path).unwrap()).unwrap());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_failed_write_names_the_file_and_leaves_the_old_one() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("missing/summary.json");
        let error = write_whole(&missing, b"{}").unwrap_err().to_string();
        assert!(error.starts_with(&missing.display().to_string()), "{error}");
        assert!(
            error.contains("cannot write in the folder") && !error.contains(PREFIX),
            "{error}"
        );

        // A folder cannot be replaced by a file, so that the last step fails.
        let taken = place.path().join("summary.json");
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("old"), "old").unwrap();
        write_whole(&taken, b"{}").unwrap_err();
        assert_eq!(fs::read_to_string(taken.join("old")).unwrap(), "old");
        assert_eq!(
            fs::read_dir(place.path()).unwrap().count(),
            1,
            "nothing temporary is left"
        );
    }
}
