//! A table, opened for reading.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use half::f16;
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::format::{HEADER_BYTES, Hash, Header, RowSum, row_sum};
use crate::memory::{Memory, prefetch};
use crate::slots::{Slots, hash};
use crate::{Counted, PlotError, Shape};

#[cfg(not(target_endian = "little"))]
compile_error!("a table's rows are read as they lie in the file, little-endian");

/// Where a table's rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Copied into memory and verified on the way. `locked` keeps them from being swapped out.
    Memory {
        /// Whether to lock the pages; fails where the limit on locked memory is lower.
        locked: bool,
    },
    /// In the file: read row by row, from the page cache where it has them.
    Disk,
}

enum Rows {
    Memory(Memory),
    Disk,
}

/// A table on disk, opened: its index in memory, its rows in the tier asked for.
///
/// Nothing of the file is mapped. A mapping of a file that someone truncates ends the process with SIGBUS at the next
/// access, and a check of the length before each access would only narrow the window; a read past the end is an error
/// instead ([`PlotError::Truncated`]). The index must be read in full to be verified anyway, and memory that holds rows
/// is mapped anonymously, which also gives huge pages and locking.
pub struct Table {
    path: PathBuf,
    file: File,
    header: Header,
    slots: Slots,
    /// The checksum of each chunk of rows, and then of each row.
    sums: Vec<u8>,
    rows: Rows,
    /// Whether the file system can say that a row is not in the page cache.
    tells_cold: AtomicBool,
}

impl Table {
    /// Opens a table: checks the header, the file's length, and the checksum of the index, and that the index leads
    /// nowhere else than to rows. The rows themselves are verified here in the memory tier only, where they are all
    /// read. On the disk tier each is verified whenever it is read: a corrupt one is an error, and never an answer.
    /// [`Table::verify`] looks at all of them, which takes as long as reading the whole file.
    ///
    /// # Errors
    ///
    /// One kind each for a file that is no table, of the other byte order, of another version, cut, of wrong sizes, or
    /// corrupt.
    pub fn open(path: impl AsRef<Path>, tier: Tier) -> Result<Table, PlotError> {
        let path = path.as_ref().to_path_buf();
        let file = File::open(&path).map_err(PlotError::io(&path))?;
        let file_bytes = file.metadata().map_err(PlotError::io(&path))?.len();
        let mut page = vec![0; HEADER_BYTES as usize];
        let page_bytes = file_bytes.min(HEADER_BYTES) as usize;
        read_exact(&file, &path, &mut page[..page_bytes], 0)?;
        // A short file that does not begin as a table does is told as that.
        if page_bytes < page.len() && (page_bytes < 8 || Header::has_magic(&page)) {
            return Err(PlotError::Truncated {
                path,
                must_bytes: HEADER_BYTES,
                got_bytes: file_bytes,
            });
        }
        let header = Header::decode(&path, &page, file_bytes)?;
        let slots = Slots::new(header.shape.fragment_tokens as usize, header.slots()).map_err(PlotError::io(&path))?;
        let mut table = Table {
            path,
            file,
            header,
            slots,
            sums: vec![0; header.sums_bytes() as usize],
            rows: Rows::Disk,
            tells_cold: AtomicBool::new(true),
        };
        table.load_index()?;
        if let Tier::Memory { locked } = tier {
            table.load_rows(locked)?;
        }
        Ok(table)
    }

    fn load_index(&mut self) -> Result<(), PlotError> {
        let at = self.header.index_at();
        read_exact(&self.file, &self.path, self.slots.bytes_mut(), at)?;
        read_exact(&self.file, &self.path, &mut self.sums, at + self.header.index_bytes())?;
        if index_sum(&self.slots, &self.sums) != self.header.index_sum {
            return Err(self.corrupt("index"));
        }
        if !self.slots.consistent(self.header.counted.fragments) {
            return Err(PlotError::field(
                &self.path,
                "index",
                "one slot for each row",
                "another number of slots",
            ));
        }
        Ok(())
    }

    fn load_rows(&mut self, locked: bool) -> Result<(), PlotError> {
        let bytes = self.header.counted.fragments * self.header.shape.row_bytes();
        let mut memory = Memory::zeroed(bytes as usize).map_err(PlotError::io(&self.path))?;
        if locked {
            memory.lock().map_err(PlotError::io(&self.path))?;
        }
        for chunk in 0..self.header.chunks() {
            let range = self.header.chunk(chunk);
            let row_bytes = self.header.shape.row_bytes();
            let rows = &mut memory[(range.start * row_bytes) as usize..(range.end * row_bytes) as usize];
            read_exact(&self.file, &self.path, rows, self.header.row_at(range.start))?;
            self.verify_chunk(chunk, rows)?;
        }
        self.rows = Rows::Memory(memory);
        Ok(())
    }

    fn verify_chunk(&self, chunk: u64, rows: &[u8]) -> Result<(), PlotError> {
        let sum = &self.sums[chunk as usize * size_of::<Hash>()..][..size_of::<Hash>()];
        if blake3::hash(rows).as_bytes() == sum {
            return Ok(());
        }
        let range = self.header.chunk(chunk);
        Err(self.corrupt(format!("rows {} to {}", range.start, range.end - 1)))
    }

    fn corrupt(&self, part: impl Into<String>) -> PlotError {
        PlotError::Checksum {
            path: self.path.clone(),
            part: part.into(),
        }
    }

    /// Reads the whole file again and verifies every byte of it.
    ///
    /// # Errors
    ///
    /// [`PlotError::Checksum`] names the first corrupt part, [`PlotError::Truncated`] a file that was cut since it was
    /// opened.
    pub fn verify(&self) -> Result<(), PlotError> {
        let mut page = vec![0; HEADER_BYTES as usize];
        read_exact(&self.file, &self.path, &mut page, 0)?;
        if page != self.header.encode() {
            return Err(self.corrupt("header"));
        }
        let mut bytes = vec![0; (u64::from(self.header.chunk_fragments) * self.header.shape.row_bytes()) as usize];
        for chunk in 0..self.header.chunks() {
            let range = self.header.chunk(chunk);
            let rows = &mut bytes[..((range.end - range.start) * self.header.shape.row_bytes()) as usize];
            read_exact(&self.file, &self.path, rows, self.header.row_at(range.start))?;
            self.verify_chunk(chunk, rows)?;
        }
        let mut sum = blake3::Hasher::new();
        let mut at = self.header.index_at();
        while at < self.header.file_bytes() {
            bytes.resize((self.header.file_bytes() - at).min(1 << 20) as usize, 0);
            read_exact(&self.file, &self.path, &mut bytes, at)?;
            sum.update(&bytes);
            at += bytes.len() as u64;
        }
        match *sum.finalize().as_bytes() == self.header.index_sum {
            true => Ok(()),
            false => Err(self.corrupt("index")),
        }
    }

    /// Fails unless the table is of this shape: the model's hidden size, its n-grams, its kind of context.
    pub fn require(&self, shape: &Shape) -> Result<(), PlotError> {
        let got = &self.header.shape;
        let field = |field, must: String, got: String| Err(PlotError::field(&self.path, field, must, got));
        if got.hidden != shape.hidden {
            return field("hidden", shape.hidden.to_string(), got.hidden.to_string());
        }
        if got.fragment_tokens != shape.fragment_tokens {
            return field(
                "fragment_tokens",
                shape.fragment_tokens.to_string(),
                got.fragment_tokens.to_string(),
            );
        }
        if got.context != shape.context {
            return field("context", format!("{:?}", shape.context), format!("{:?}", got.context));
        }
        Ok(())
    }

    /// Its folder is called so from now on.
    pub(crate) fn renamed(&mut self, folder: &Path) {
        if let Some(name) = self.path.file_name() {
            self.path = folder.join(name);
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the table is looked up by, and what it answers.
    pub fn shape(&self) -> &Shape {
        &self.header.shape
    }

    /// How many fragments the table holds, and what share of its corpus they are.
    pub fn counted(&self) -> &Counted {
        &self.header.counted
    }

    /// The file's length.
    pub fn file_bytes(&self) -> u64 {
        self.header.file_bytes()
    }

    /// Memory that the opened table takes: the index and the checksums, and the rows in the memory tier.
    pub fn resident_bytes(&self) -> u64 {
        let rows = match &self.rows {
            Rows::Memory(memory) => memory.len() as u64,
            Rows::Disk => 0,
        };
        self.header.index_bytes() + self.header.sums_bytes() + rows
    }

    /// Every fragment with its ordinal, in no order.
    pub fn fragments(&self) -> impl Iterator<Item = (&[u32], u32)> {
        self.slots.iter()
    }

    /// A fragment's row, `[positions, hidden]`, or nothing if the table has no such fragment. For single look-ups;
    /// batches go through [`crate::Engine`].
    ///
    /// # Errors
    ///
    /// If `fragment` is of another length than the table's, or the row cannot be read.
    pub fn get(&self, fragment: &[u32]) -> Result<Option<Vec<f16>>, PlotError> {
        if fragment.len() != self.header.shape.fragment_tokens as usize {
            let must = format!("{} tokens", self.header.shape.fragment_tokens);
            return Err(PlotError::input("fragment", must, fragment.len()));
        }
        let Some(ordinal) = self.slots.find(hash(fragment), fragment) else {
            return Ok(None);
        };
        if let Some(row) = self.row(ordinal) {
            return Ok(Some(row.to_vec()));
        }
        let mut row = vec![f16::ZERO; self.header.shape.row_values()];
        self.read_row(ordinal, &mut row)?;
        Ok(Some(row))
    }

    /// Drops the file's pages from the page cache, so that the next reads of rows are cold. For measurements.
    pub fn drop_page_cache(&self) -> Result<(), PlotError> {
        // Dirty pages are not dropped.
        self.file.sync_all().map_err(PlotError::io(&self.path))?;
        fadvise(&self.file, 0, None, Advice::DontNeed).map_err(|errno| PlotError::io(&self.path)(errno.into()))
    }

    /// Whether this is the table that a build with this header makes.
    pub(crate) fn is_of(&self, header: &Header) -> bool {
        let index_sum = self.header.index_sum;
        self.header == Header { index_sum, ..*header }
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.rows, Rows::Memory(_))
    }

    /// A row in memory; nothing on the disk tier.
    #[inline]
    pub(crate) fn row(&self, ordinal: u32) -> Option<&[f16]> {
        let Rows::Memory(memory) = &self.rows else { return None };
        let values = self.header.shape.row_values();
        Some(&memory.numbers()[ordinal as usize * values..][..values])
    }

    /// Fetches a row's first lines, if it is in memory; the processor goes on with the next ones by itself.
    #[inline]
    pub(crate) fn prefetch_row(&self, ordinal: u32) {
        if let Some(row) = self.row(ordinal) {
            for line in row.chunks(32).take(4) {
                prefetch(&line[0]);
            }
        }
    }

    /// Reads a row if the page cache has all of it; else says no without waiting, and leaves the kernel reading it
    /// ahead. Where the file system cannot do this, the row is waited for.
    pub(crate) fn read_cached_row(&self, ordinal: u32, row: &mut [f16]) -> Result<bool, PlotError> {
        if self.tells_cold.load(Ordering::Relaxed) {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(row);
            let length = bytes.len();
            let at = self.header.row_at(ordinal.into());
            match preadv2(&self.file, &mut [IoSliceMut::new(bytes)], at, ReadWriteFlags::NOWAIT) {
                Ok(read) if read == length => return self.verify_row(ordinal, row).map(|()| true),
                // In part there, or interrupted; at the end of a cut file, the full read will say so.
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => self.tells_cold.store(false, Ordering::Relaxed),
                Err(errno) => return Err(PlotError::io(&self.path)(errno.into())),
            }
        }
        self.read_row(ordinal, row)?;
        Ok(true)
    }

    pub(crate) fn read_row(&self, ordinal: u32, row: &mut [f16]) -> Result<(), PlotError> {
        let at = self.header.row_at(ordinal.into());
        read_exact(&self.file, &self.path, bytemuck::cast_slice_mut(row), at)?;
        self.verify_row(ordinal, row)
    }

    fn verify_row(&self, ordinal: u32, row: &[f16]) -> Result<(), PlotError> {
        let at = self.header.chunk_sums_bytes() as usize + ordinal as usize * size_of::<RowSum>();
        match self.sums[at..][..size_of::<RowSum>()] == row_sum(bytemuck::cast_slice(row)) {
            true => Ok(()),
            false => Err(self.corrupt(format!("row {ordinal}"))),
        }
    }
}

/// The hash of index and sums, as the header holds it.
pub(crate) fn index_sum(slots: &Slots, sums: &[u8]) -> Hash {
    *blake3::Hasher::new().update(slots.bytes()).update(sums).finalize().as_bytes()
}

/// Reads all of `bytes` from `at`; a file that ends before is told as cut.
pub(crate) fn read_exact(file: &File, path: &Path, bytes: &mut [u8], at: u64) -> Result<(), PlotError> {
    file.read_exact_at(bytes, at).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => PlotError::Truncated {
            path: path.to_path_buf(),
            must_bytes: at + bytes.len() as u64,
            got_bytes: file.metadata().map_or(0, |metadata| metadata.len()),
        },
        _ => PlotError::io(path)(error),
    })
}
