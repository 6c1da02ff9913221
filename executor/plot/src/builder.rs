//! Building a table: count, choose, encode chunk by chunk, publish whole.
//!
//! Next to the table to be, in `NAME.building/`, lie `plan` (what is being built), `fragments` (what was chosen, in
//! order), `rows` (the table so far) and `journal` (the checksum of each chunk that is done). A build that was killed,
//! or ran into a full disk, goes on from the last chunk whose rows have the checksum that the journal says; so an
//! interruption while encoding costs one chunk, one while counting costs the count. The file is renamed to its name
//! when it is complete and on the disk.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::count::Counter;
use crate::draft::{Draft, publish};
use crate::format::{Fields, Hash, Header};
use crate::slots::FRAGMENTS_MAX;
use crate::table::read_exact;
use crate::{Cause, Counted, PlotError, Select, Shape, Table, Tier};

/// The lower layers, as the builder sees them.
pub trait Encode {
    /// What tells these layers from others: model, checkpoint, split. A build is resumed, and a table recognised, by
    /// it.
    fn name(&self) -> &str;

    /// Runs the lower layers over a chunk of fragments, each for itself. `fragments` is `[count, fragment_tokens]`;
    /// `rows`, to be filled, `[count, positions, hidden]`. The same fragments must give the same rows.
    ///
    /// # Errors
    ///
    /// Whatever keeps the layers from running; the build stops with it and can be resumed.
    fn encode(&mut self, fragments: &[u32], rows: &mut [f32]) -> Result<(), Cause>;
}

/// What to build, and with how much memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildSpec {
    /// What the table is looked up by, and what it answers.
    pub shape: Shape,
    /// Which fragments of the corpus it holds.
    pub select: Select,
    /// Fragments encoded at once: what an interruption costs, and what one checksum covers.
    pub chunk_fragments: u32,
    /// Memory for counting and sorting; what does not fit is spilled to disk. Encoding then needs the chosen keys and
    /// the index.
    pub memory_bytes: usize,
}

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Sequences and tokens of the corpus counted.
    Counting {
        /// Sequences.
        sequences: u64,
        /// Tokens.
        tokens: u64,
    },
    /// Fragments encoded, of how many.
    Encoding {
        /// Encoded and kept.
        done: u64,
        /// To be encoded.
        total: u64,
    },
}

/// Sequences between two reports while counting.
const REPORT_SEQUENCES: u64 = 1 << 12;

/// A build, new or found interrupted.
pub struct Builder {
    path: PathBuf,
    folder: PathBuf,
    spec: BuildSpec,
    /// Locked while this is the one build of the table.
    _lock: Lock,
}

impl Builder {
    /// Whether the table is there and its build is over. One that was killed before it had cleaned up is not: to
    /// [`open`](Self::open) it and [`run`](Self::run) it again takes as long as to count.
    ///
    /// # Errors
    ///
    /// If what was to be removed of it cannot be.
    pub fn is_done(path: impl AsRef<Path>) -> Result<bool, PlotError> {
        let path = path.as_ref();
        if !path.exists() || beside(path, ".building").exists() {
            return Ok(false);
        }
        remove_remains(path)?;
        Ok(true)
    }

    /// Begins to build the table `path`, or goes on with a build of it that was interrupted.
    ///
    /// # Errors
    ///
    /// If the spec is of no table, another process is building this one, or what was interrupted was a build of
    /// something else; then `NAME.building` must be removed.
    pub fn open(path: impl AsRef<Path>, spec: BuildSpec) -> Result<Builder, PlotError> {
        spec.shape.check()?;
        if spec.chunk_fragments == 0 {
            return Err(PlotError::input("chunk_fragments", "at least 1", 0));
        }
        if let Select::Coverage(share) = spec.select
            && !(0.0..=1.0).contains(&share)
        {
            return Err(PlotError::input("select.coverage", "a share from 0 to 1", share));
        }
        let path = path.as_ref().to_path_buf();
        remove_remains(&path)?;
        let folder = beside(&path, ".building");
        fs::create_dir_all(&folder).map_err(PlotError::io(&folder))?;
        let builder = Builder {
            _lock: lock(&folder)?,
            path,
            folder,
            spec,
        };
        builder.agree(
            "plan",
            &format!("{:?} {:?} {}\n", spec.shape, spec.select, spec.chunk_fragments),
        )?;
        Ok(builder)
    }

    /// Writes what is built, or checks that it is what was begun.
    fn agree(&self, name: &'static str, plan: &str) -> Result<(), PlotError> {
        let path = self.folder.join(name);
        match fs::read_to_string(&path) {
            Ok(begun) if begun == plan => Ok(()),
            Ok(begun) => {
                let must = format!("what was begun ({}), or the folder removed", begun.trim_end());
                Err(PlotError::field(&path, name, must, plan.trim_end()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                publish(&path, |file| file.write_all(plan.as_bytes()))
            }
            Err(error) => Err(PlotError::io(&path)(error)),
        }
    }

    /// Whether the fragments are chosen already, so that the corpus need not be read again.
    pub fn is_counted(&self) -> bool {
        self.folder.join("fragments").exists()
    }

    /// Counts the corpus's fragments, exactly, and chooses the table's. Does nothing, and leaves the corpus unread, if
    /// that was done before the interruption.
    ///
    /// # Errors
    ///
    /// The corpus's own, a full disk, more fragments than a table can hold, or [`PlotError::Interrupted`].
    pub fn count<S: AsRef<[u32]>, E: Into<Cause>>(
        &mut self,
        corpus: impl IntoIterator<Item = Result<S, E>>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), PlotError> {
        if self.is_counted() {
            return Ok(());
        }
        let disk = |error| PlotError::io(&self.folder)(error);
        let fragment_tokens = self.spec.shape.fragment_tokens as usize;
        let mut counter = Counter::new(&self.folder, fragment_tokens, self.spec.memory_bytes).map_err(disk)?;
        let (mut sequences, mut tokens) = (0, 0);
        for sequence in corpus {
            let sequence = sequence.map_err(|error| PlotError::Corpus {
                sequence: sequences,
                source: error.into(),
            })?;
            counter.push(sequence.as_ref()).map_err(disk)?;
            sequences += 1;
            tokens += sequence.as_ref().len() as u64;
            if sequences % REPORT_SEQUENCES == 0 && progress(Progress::Counting { sequences, tokens }).is_break() {
                return Err(self.interrupted(0, 0));
            }
        }
        // A corpus's last few sequences are reported as well.
        let _ = progress(Progress::Counting { sequences, tokens });
        let mut counted = Counted::default();
        publish(&self.folder.join("fragments"), |file| {
            let mut hasher = blake3::Hasher::new();
            counted = counter.select(self.spec.select, |key| {
                let bytes: &[u8] = bytemuck::cast_slice(key);
                hasher.update(bytes);
                file.write_all(bytes)
            })?;
            if counted.fragments > FRAGMENTS_MAX {
                let message = format!("{} fragments, and a table holds {FRAGMENTS_MAX}", counted.fragments);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
            }
            let trailer = trailer(&counted);
            hasher.update(&trailer);
            file.write_all(&trailer)?;
            file.write_all(hasher.finalize().as_bytes())
        })
    }

    fn interrupted(&self, done: u64, total: u64) -> PlotError {
        PlotError::Interrupted {
            path: self.path.clone(),
            done,
            total,
        }
    }

    /// The chosen fragments' keys, and how they were counted.
    fn chosen(&self) -> Result<(Vec<u32>, Counted), PlotError> {
        let path = self.folder.join("fragments");
        let file = File::open(&path).map_err(PlotError::io(&path))?;
        let length = file.metadata().map_err(PlotError::io(&path))?.len() as usize;
        let end_bytes = 4 * size_of::<u64>() + size_of::<Hash>();
        let corrupt = || PlotError::Checksum {
            path: path.clone(),
            part: "chosen fragments".into(),
        };
        let key_bytes = length.checked_sub(end_bytes).filter(|bytes| bytes % 4 == 0).ok_or_else(corrupt)?;
        let mut keys = vec![0u32; key_bytes / 4];
        let mut end = vec![0; end_bytes];
        read_exact(&file, &path, bytemuck::cast_slice_mut(&mut keys), 0)?;
        read_exact(&file, &path, &mut end, key_bytes as u64)?;
        let (trailer, sum) = end.split_at(end_bytes - size_of::<Hash>());
        let hash = blake3::Hasher::new().update(bytemuck::cast_slice(&keys)).update(trailer).finalize();
        let mut fields = Fields(trailer);
        let counted = Counted {
            fragments: fields.u64(),
            distinct: fields.u64(),
            occurrences: fields.u64(),
            covered: fields.u64(),
        };
        match hash.as_bytes() == sum
            && keys.len() as u64 == counted.fragments * u64::from(self.spec.shape.fragment_tokens)
        {
            true => Ok((keys, counted)),
            false => Err(corrupt()),
        }
    }

    /// Encodes what is not encoded yet, and publishes the table under its name.
    ///
    /// # Errors
    ///
    /// The encoder's own, rows that half precision cannot hold, a full disk, or [`PlotError::Interrupted`]. The table's
    /// name then shows what it showed before, and building again goes on after the last whole chunk.
    pub fn encode(
        self,
        encoder: &mut dyn Encode,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Counted, PlotError> {
        self.agree("encoder", &format!("{}\n", encoder.name()))?;
        let (keys, counted) = self.chosen()?;
        let header = Header {
            shape: self.spec.shape,
            chunk_fragments: self.spec.chunk_fragments,
            counted,
            encoder: *blake3::hash(encoder.name().as_bytes()).as_bytes(),
            index_sum: Hash::default(),
        };
        if self.is_published(&header) {
            self.clean_up()?;
            return Ok(counted);
        }
        let mut draft = Draft::resume(&self.folder, header)?;
        let mut chunk = Chunk::default();
        while draft.chunks_done() < header.chunks() {
            let range = header.chunk(draft.chunks_done());
            chunk.encode(&self.spec.shape, &keys, range.clone(), encoder)?;
            draft.append(bytemuck::cast_slice(&chunk.rows))?;
            let report = Progress::Encoding {
                done: range.end,
                total: counted.fragments,
            };
            if progress(report).is_break() {
                return Err(self.interrupted(range.end, counted.fragments));
            }
        }
        draft.finish(&keys, &self.path)?;
        self.clean_up()?;
        Ok(counted)
    }

    /// Whether this build was killed between publishing the table and cleaning up.
    fn is_published(&self, header: &Header) -> bool {
        let draft_was_renamed = self.folder.join("journal").exists() && !self.folder.join("rows").exists();
        draft_was_renamed && Table::open(&self.path, Tier::Disk).is_ok_and(|table| table.is_of(header))
    }

    /// By a rename first, so that being killed does not leave half a build to go on with.
    fn clean_up(&self) -> Result<(), PlotError> {
        let remains = remains(&self.path);
        fs::rename(&self.folder, &remains).map_err(PlotError::io(&self.folder))?;
        remove_remains(&self.path)
    }

    /// Counts, encodes and publishes, going on where an interrupted build stopped.
    ///
    /// # Errors
    ///
    /// As [`Builder::count`] and [`Builder::encode`].
    pub fn run<S: AsRef<[u32]>, E: Into<Cause>>(
        mut self,
        corpus: impl IntoIterator<Item = Result<S, E>>,
        encoder: &mut dyn Encode,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Counted, PlotError> {
        self.count(corpus, progress)?;
        self.encode(encoder, progress)
    }
}

/// A file that nobody else has locked. The system unlocks it when the process ends, however it does.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing does not do: a process that another thread is about to start has the file open too, until it runs its
        // program.
        let _ = self.0.unlock();
    }
}

fn lock(folder: &Path) -> Result<Lock, PlotError> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(PlotError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(PlotError::field(
            &path,
            "lock",
            "free",
            "held by another build of this table",
        )),
        Err(TryLockError::Error(error)) => Err(PlotError::io(&path)(error)),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_path_buf().into_os_string();
    name.push(suffix);
    name.into()
}

/// Another process that begins on the same table may have removed them.
fn remove_remains(path: &Path) -> Result<(), PlotError> {
    let remains = remains(path);
    match fs::remove_dir_all(&remains) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(PlotError::io(&remains)),
    }
}

/// Where the folder of a build that is done is removed from.
fn remains(path: &Path) -> PathBuf {
    beside(path, ".built")
}

fn trailer(counted: &Counted) -> Vec<u8> {
    [
        counted.fragments,
        counted.distinct,
        counted.occurrences,
        counted.covered,
    ]
    .into_iter()
    .flat_map(u64::to_le_bytes)
    .collect()
}

/// Buffers for one chunk.
#[derive(Default)]
struct Chunk {
    values: Vec<f32>,
    rows: Vec<f16>,
}

impl Chunk {
    fn encode(
        &mut self,
        shape: &Shape,
        keys: &[u32],
        range: std::ops::Range<u64>,
        encoder: &mut dyn Encode,
    ) -> Result<(), PlotError> {
        let fragment_tokens = shape.fragment_tokens as usize;
        let fragments = &keys[range.start as usize * fragment_tokens..range.end as usize * fragment_tokens];
        let values = fragments.len() / fragment_tokens * shape.row_values();
        self.values.clear();
        self.values.resize(values, 0.0);
        self.rows.resize(values, f16::ZERO);
        encoder
            .encode(fragments, &mut self.values)
            .and_then(|()| check_half_precision(&self.values))
            .map_err(|source| PlotError::Encode {
                first: range.start,
                last: range.end - 1,
                source,
            })?;
        self.rows.convert_from_f32_slice(&self.values);
        Ok(())
    }
}

/// Values beyond half precision would become infinite, and poison every sequence that has the fragment.
fn check_half_precision(values: &[f32]) -> Result<(), Cause> {
    let most = f16::MAX.to_f32();
    match values.iter().find(|value| !value.is_finite() || value.abs() > most) {
        None => Ok(()),
        Some(value) => {
            Err(format!("a row's values: must be finite and at most {most} (half precision), got {value}").into())
        }
    }
}
