//! A table while it is being written, and writing whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tenantry_traces::whole;

use crate::PlotError;
use crate::format::{Hash, Header, row_sum};
use crate::slots::Slots;
use crate::table::index_sum;

/// The table while it is being written.
pub(crate) struct Draft {
    path: PathBuf,
    rows: File,
    journal_path: PathBuf,
    journal: File,
    header: Header,
    /// The checksums of the chunks that are done,
    sums: Vec<u8>,
    /// and of their rows.
    row_sums: Vec<u8>,
}

impl Draft {
    /// Opens or begins the draft, and keeps its chunks up to the first whose rows are not what the journal says.
    pub(crate) fn resume(folder: &Path, header: Header) -> Result<Draft, PlotError> {
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.open(path).map_err(PlotError::io(path))
        };
        let (path, journal_path) = (folder.join("rows"), folder.join("journal"));
        let mut draft = Draft {
            rows: open(&path)?,
            journal: open(&journal_path)?,
            path,
            journal_path,
            header,
            sums: Vec::new(),
            row_sums: Vec::new(),
        };
        let mut journal = Vec::new();
        draft.journal.read_to_end(&mut journal).map_err(PlotError::io(&draft.journal_path))?;
        let mut bytes = Vec::new();
        for (chunk, sum) in (0..header.chunks()).zip(journal.chunks_exact(size_of::<Hash>())) {
            let range = header.chunk(chunk);
            bytes.resize(((range.end - range.start) * header.shape.row_bytes()) as usize, 0);
            let there = draft.rows.read_exact_at(&mut bytes, header.row_at(range.start)).is_ok();
            if !there || blake3::hash(&bytes).as_bytes() != sum {
                break;
            }
            draft.sums.extend_from_slice(sum);
            draft.sum_rows(&bytes);
        }
        let done = header.chunk(draft.chunks_done()).start.min(header.counted.fragments);
        draft.rows.set_len(header.row_at(done)).map_err(PlotError::io(&draft.path))?;
        draft.journal.set_len(draft.sums.len() as u64).map_err(PlotError::io(&draft.journal_path))?;
        Ok(draft)
    }

    pub(crate) fn chunks_done(&self) -> u64 {
        (self.sums.len() / size_of::<Hash>()) as u64
    }

    pub(crate) fn append(&mut self, rows: &[u8]) -> Result<(), PlotError> {
        let at = self.header.row_at(self.header.chunk(self.chunks_done()).start);
        self.rows.write_all_at(rows, at).map_err(PlotError::io(&self.path))?;
        let sum = blake3::hash(rows);
        let at = self.sums.len() as u64;
        self.journal.write_all_at(sum.as_bytes(), at).map_err(PlotError::io(&self.journal_path))?;
        self.sums.extend_from_slice(sum.as_bytes());
        self.sum_rows(rows);
        Ok(())
    }

    fn sum_rows(&mut self, rows: &[u8]) {
        let rows = rows.chunks_exact(self.header.shape.row_bytes() as usize);
        self.row_sums.extend(rows.flat_map(row_sum));
    }

    /// Adds index, sums and, last, the header; then renames.
    pub(crate) fn finish(mut self, keys: &[u32], path: &Path) -> Result<(), PlotError> {
        let disk = |error| PlotError::io(&self.path)(error);
        let fragment_tokens = self.header.shape.fragment_tokens as usize;
        let mut slots = Slots::new(fragment_tokens, self.header.slots()).map_err(disk)?;
        for (key, ordinal) in keys.chunks_exact(fragment_tokens).zip(0..) {
            slots.find_or_insert(key, ordinal);
        }
        self.sums.append(&mut self.row_sums);
        self.header.index_sum = index_sum(&slots, &self.sums);
        let at = self.header.index_at();
        self.rows.write_all_at(slots.bytes(), at).map_err(disk)?;
        self.rows.write_all_at(&self.sums, at + self.header.index_bytes()).map_err(disk)?;
        self.rows.write_all_at(&self.header.encode(), 0).map_err(disk)?;
        self.rows.sync_all().map_err(disk)?;
        fs::rename(&self.path, path).map_err(PlotError::io(path))?;
        sync_folder(path)
    }
}

/// Writes a small file whole or not at all.
pub(crate) fn publish(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
) -> Result<(), PlotError> {
    let publish = || {
        let (mut file, beside) = whole::begin(path)?;
        let mut writer = BufWriter::new(&mut file);
        write(&mut writer)?;
        writer.flush()?;
        drop(writer);
        whole::finish(file, beside, path)
    };
    publish().map_err(PlotError::io(path))?;
    sync_folder(path)
}

/// Makes a rename outlast a power failure.
pub(crate) fn sync_folder(path: &Path) -> Result<(), PlotError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(PlotError::io(folder))
}
