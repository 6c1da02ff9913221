//! Requests into a file of our own: CSV, gzipped CSV or Parquet, whole or not at all.

pub mod parquet;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempPath;

use crate::error::TraceError;
use crate::management::ManageRequest;
use crate::read::own;
use crate::request::{Entry, Request};
use crate::whole;
use crate::workload::Workload;

const BUFFER_BYTES: usize = 256 << 10;

/// A trace that is being written. Until [`TraceFile::finish`] nothing stands under its name, so that an interrupted
/// recording leaves no half file behind.
pub struct TraceFile {
    path: PathBuf,
    /// Where it is written until then. The file itself is in the sink, so that errors do not speak of this name.
    beside: TempPath,
    sink: Sink,
}

enum Sink {
    Csv(own::Writer<BufWriter<File>>),
    Gzip(own::Writer<BufWriter<GzEncoder<File>>>),
    Parquet(parquet::Writer<BufWriter<File>>),
}

impl TraceFile {
    /// Begins a trace; `path` says which kind it is by its ending: `.parquet`, `.csv.gz`, or `.csv`.
    ///
    /// # Errors
    /// [`TraceError::File`] at another ending, [`TraceError::Io`] where nothing can be written beside `path`.
    pub fn create(path: &Path) -> Result<TraceFile, TraceError> {
        TraceFile::begin(path, false)
    }

    /// Likewise, of a workload with management requests, which have a column of their own.
    ///
    /// # Errors
    /// As [`TraceFile::create`].
    pub fn create_with_changes(path: &Path) -> Result<TraceFile, TraceError> {
        TraceFile::begin(path, true)
    }

    fn begin(path: &Path, changes: bool) -> Result<TraceFile, TraceError> {
        let name = path.to_string_lossy();
        let kinds = [".parquet", ".csv.gz", ".csv"];
        let Some(kind) = kinds.iter().find(|kind| name.ends_with(**kind)) else {
            let message = "must end in .parquet, .csv or .csv.gz to be written, got another name";
            return Err(TraceError::file(path, message));
        };
        let (file, beside) = whole::begin(path).map_err(|source| TraceError::unwritable(path, source))?;
        let buffered = |file| BufWriter::with_capacity(BUFFER_BYTES, file);
        let sink = match *kind {
            ".parquet" => parquet::Writer::new(buffered(file), changes).map(Sink::Parquet),
            ".csv.gz" => {
                let packed = GzEncoder::new(file, Compression::default());
                own::Writer::new(BufWriter::with_capacity(BUFFER_BYTES, packed), changes).map(Sink::Gzip)
            }
            _ => own::Writer::new(buffered(file), changes).map(Sink::Csv),
        };
        Ok(TraceFile {
            path: path.to_path_buf(),
            beside,
            sink: sink.map_err(|source| TraceError::unwritable(path, source))?,
        })
    }

    /// Appends a request.
    ///
    /// # Errors
    /// [`TraceError::Io`], as where the disk is full.
    pub fn write(&mut self, request: &Request) -> Result<(), TraceError> {
        match &mut self.sink {
            Sink::Csv(writer) => writer.write(request),
            Sink::Gzip(writer) => writer.write(request),
            Sink::Parquet(writer) => writer.write(request),
        }
        .map_err(|source| TraceError::unwritable(&self.path, source))
    }

    /// Appends a management request.
    ///
    /// # Errors
    /// As [`TraceFile::write`].
    pub fn write_change(&mut self, request: &ManageRequest) -> Result<(), TraceError> {
        match &mut self.sink {
            Sink::Csv(writer) => writer.write_change(request),
            Sink::Gzip(writer) => writer.write_change(request),
            Sink::Parquet(writer) => writer.write_change(request),
        }
        .map_err(|source| TraceError::unwritable(&self.path, source))
    }

    /// Writes what is left, and gives the file its name in place of what had it.
    ///
    /// # Errors
    /// As [`TraceFile::write`].
    pub fn finish(self) -> Result<(), TraceError> {
        let TraceFile { path, beside, sink } = self;
        finish(sink, beside, &path).map_err(|source| TraceError::unwritable(&path, source))
    }

    /// Writes all requests of an open loop; returns how many. A client's giving up is not part of a trace and is left
    /// out.
    ///
    /// # Errors
    /// As [`Workload::next`] and [`TraceFile::write`].
    pub fn write_all(&mut self, workload: &mut dyn Workload) -> Result<u64, TraceError> {
        let mut requests = 0;
        while let Some(entry) = workload.next()? {
            match entry {
                Entry::Request(request) => {
                    self.write(&request)?;
                    requests += 1;
                }
                Entry::Manage(request) => self.write_change(&request)?,
                Entry::Cancel { .. } => {}
            }
        }
        Ok(requests)
    }
}

/// Writes what numbers stand for, a row each, from 0 on: `tenant,name` where `of` is `tenant`.
///
/// # Errors
/// [`TraceError::Io`], as where the disk is full.
pub fn write_names<'a>(path: &Path, of: &str, names: impl IntoIterator<Item = &'a str>) -> Result<(), TraceError> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    let write = || {
        rows.write_record([of, "name"])?;
        for (number, name) in names.into_iter().enumerate() {
            rows.write_record([number.to_string().as_str(), name])?;
        }
        Ok::<(), csv::Error>(())
    };
    let written = write().map_err(io::Error::from);
    let bytes = written.and_then(|()| rows.into_inner().map_err(csv::IntoInnerError::into_error));
    bytes
        .and_then(|bytes| whole::write_whole(path, &bytes))
        .map_err(|source| TraceError::unwritable(path, source))
}

fn finish(sink: Sink, beside: TempPath, path: &Path) -> io::Result<()> {
    let unbuffered = |buffered: BufWriter<File>| buffered.into_inner().map_err(io::IntoInnerError::into_error);
    let file = match sink {
        Sink::Csv(writer) => unbuffered(writer.finish()?)?,
        Sink::Parquet(writer) => unbuffered(writer.finish()?)?,
        Sink::Gzip(writer) => {
            let packed = writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
            packed.finish()?
        }
    };
    whole::finish(file, beside, path)
}
