//! Lines of a file, plain or gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::error::TraceError;

/// No format has longer lines; a file without line ends must not fill the memory.
const MAX_LINE_BYTES: u64 = 16 << 20;
const BUFFER_BYTES: usize = 256 << 10;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes of `path`, unpacked where they begin as gzip does.
pub fn open_bytes(path: &Path) -> Result<Box<dyn BufRead + Send>, TraceError> {
    let file = File::open(path).map_err(|source| TraceError::io(path, source))?;
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let start = reader.fill_buf().map_err(|source| TraceError::io(path, source))?;
    Ok(if start.starts_with(&GZIP_MAGIC) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(reader)))
    } else {
        Box::new(reader)
    })
}

/// Reads line by line through one buffer.
pub struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    number: u64,
}

impl Lines {
    pub fn open(path: &Path) -> Result<Lines, TraceError> {
        Ok(Lines {
            path: path.to_path_buf(),
            reader: open_bytes(path)?,
            buffer: Vec::new(),
            number: 0,
        })
    }

    /// Goes to the next line that is not empty; [`Lines::line`] is then that line. False at the end.
    pub fn advance(&mut self) -> Result<bool, TraceError> {
        loop {
            self.buffer.clear();
            if !self.read_line().map_err(|source| TraceError::io(&self.path, source))? {
                return Ok(false);
            }
            self.number += 1;
            if self.buffer.last() == Some(&b'\n') {
                self.buffer.pop();
                if self.buffer.last() == Some(&b'\r') {
                    self.buffer.pop();
                }
            } else if self.buffer.len() as u64 == MAX_LINE_BYTES {
                return Err(self.error(format!("must be a line below {} MiB", MAX_LINE_BYTES >> 20)));
            }
            if self.number == 1 && self.buffer.starts_with(BYTE_ORDER_MARK) {
                self.buffer.drain(..BYTE_ORDER_MARK.len());
            }
            if !self.buffer.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Appends a line with its end, or [`MAX_LINE_BYTES`] of it. False at the end. (`read_until` does the same with a slower search.)
    fn read_line(&mut self) -> io::Result<bool> {
        loop {
            let available = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                available => available?,
            };
            let room = MAX_LINE_BYTES as usize - self.buffer.len();
            let window = &available[..available.len().min(room)];
            let end = memchr::memchr(b'\n', window);
            let used = end.map_or(window.len(), |at| at + 1);
            self.buffer.extend_from_slice(&window[..used]);
            self.reader.consume(used);
            if end.is_some() || used == 0 {
                return Ok(!self.buffer.is_empty());
            }
        }
    }

    /// The current line, without its end.
    pub fn line(&self) -> &[u8] {
        &self.buffer
    }

    /// An error at the current line.
    pub fn error(&self, message: String) -> TraceError {
        TraceError::Line {
            path: self.path.clone(),
            line: self.number,
            message,
        }
    }
}
