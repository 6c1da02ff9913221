//! Lines of a file, plain or gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use crate::error::TraceError;

/// No format has longer lines; a file without line ends must not fill the memory.
pub const MAX_LINE_BYTES: usize = 16 << 20;
const BUFFER_BYTES: usize = 64 << 10;
/// Several of the reader's own, so that it copies nothing itself.
const LINES_BYTES: usize = 256 << 10;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes of `path`, unpacked where they begin as gzip does.
pub fn open_bytes(path: &Path) -> Result<Box<dyn BufRead + Send>, TraceError> {
    let file = File::open(path).map_err(|source| TraceError::unreadable(path, source))?;
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let start = reader.fill_buf().map_err(|source| TraceError::unreadable(path, source))?;
    Ok(if start.starts_with(&GZIP_MAGIC) {
        let unpacked = Unpacked(Some(GzDecoder::new(reader)));
        Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
    } else {
        Box::new(reader)
    })
}

/// The first bytes of `path`, unpacked; at most so many as a buffer holds, and none only where there are none.
pub fn first_bytes(path: &Path) -> Result<Vec<u8>, TraceError> {
    let mut reader = open_bytes(path)?;
    let start = reader.fill_buf().map_err(|source| TraceError::unreadable(path, source))?;
    Ok(start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start).to_vec())
}

/// Gzip, whose errors say what is wrong with the file and what to do about it. One member follows another, and after
/// the last there may be zeros: tapes and blocks are filled up with them. `None` when it is over.
struct Unpacked<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Unpacked<R> {
    /// The member behind the one that has ended, if there is one.
    fn next_member(ended: GzDecoder<R>) -> io::Result<Option<GzDecoder<R>>> {
        let mut reader = ended.into_inner();
        if reader.fill_buf()?.first() == Some(&GZIP_MAGIC[0]) {
            return Ok(Some(GzDecoder::new(reader)));
        }
        loop {
            let rest = reader.fill_buf()?;
            if rest.iter().any(|&byte| byte != 0) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, BrokenGzip::Followed));
            }
            match rest.len() {
                0 => return Ok(None),
                zeros => reader.consume(zeros),
            }
        }
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let read = member.read(out).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), BrokenGzip::CutOff),
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                    io::Error::new(error.kind(), BrokenGzip::Damaged(error.to_string()))
                }
                _ => error,
            })?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            self.0 = self.0.take().map_or(Ok(None), Unpacked::next_member)?;
        }
        Ok(0)
    }
}

/// Why a gzip file cannot be unpacked to its end.
#[derive(Debug, thiserror::Error)]
pub enum BrokenGzip {
    #[error("must be a whole gzip file, got one that is cut off; copy or download it again")]
    CutOff,
    #[error("must be a whole gzip file, got one that is damaged ({0}); copy or download it again")]
    Damaged(String),
    #[error("must be a whole gzip file, got one with other bytes behind its end; copy or download it again")]
    Followed,
}

/// Reads line by line. A line is not copied: it is a part of what was read last.
pub struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    /// As long as it has ever had to be; what was read ends at `filled`.
    buffer: Vec<u8>,
    filled: usize,
    /// The current line, without its end.
    line: Range<usize>,
    /// Where the next line begins.
    next: usize,
    number: u64,
}

impl Lines {
    pub fn open(path: &Path) -> Result<Lines, TraceError> {
        Ok(Lines {
            path: path.to_path_buf(),
            reader: open_bytes(path)?,
            buffer: vec![0; LINES_BYTES],
            filled: 0,
            line: 0..0,
            next: 0,
            number: 0,
        })
    }

    /// Goes to the next line that is not empty; [`Lines::line`] is then that line. False at the end.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, TraceError> {
        loop {
            let end = match memchr::memchr(b'\n', &self.buffer[self.next..self.filled]) {
                Some(length) => self.next + length,
                None => match self.end_of_more()? {
                    Some(end) => end,
                    None => return Ok(false),
                },
            };
            self.number += 1;
            self.line = self.next..end;
            // Without a line end only where the file ends.
            let has_end = end < self.filled;
            self.next = end + usize::from(has_end);
            if has_end && self.line().last() == Some(&b'\r') {
                self.line.end -= 1;
            }
            if self.number == 1 && self.line().starts_with(BYTE_ORDER_MARK) {
                self.line.start += BYTE_ORDER_MARK.len();
            }
            if !self.line.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Where the next line ends, of which no end was read yet. `None` where there is no next line.
    fn end_of_more(&mut self) -> Result<Option<usize>, TraceError> {
        self.line = 0..0;
        loop {
            let searched = self.filled - self.next;
            if searched >= MAX_LINE_BYTES {
                self.number += 1;
                self.next = self.filled;
                return Err(self.error(format!("must be a line below {} MiB", MAX_LINE_BYTES >> 20)));
            }
            if !self.fill().map_err(|source| TraceError::unreadable(&self.path, source))? {
                return Ok((searched > 0).then_some(self.filled));
            }
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..self.filled]) {
                return Ok(Some(searched + at));
            }
        }
    }

    /// Moves the next line to the front of the buffer and reads on behind it. False at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.next..self.filled, 0);
        self.filled -= self.next;
        self.next = 0;
        if self.filled == self.buffer.len() {
            self.buffer.resize(2 * self.filled, 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    let read = read?;
                    self.filled += read;
                    return Ok(read > 0);
                }
            }
        }
    }

    /// The current line's number, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The current line, without its end.
    #[inline]
    pub fn line(&self) -> &[u8] {
        &self.buffer[self.line.clone()]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out a few bytes at a time.
    struct Drops<'a>(&'a [u8]);

    impl io::Read for Drops<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let most = out.len().min(3);
            io::Read::read(&mut self.0, &mut out[..most])
        }
    }

    fn lines(text: &'static [u8], buffer: usize) -> Lines {
        Lines {
            path: PathBuf::new(),
            reader: Box::new(BufReader::with_capacity(1, Drops(text))),
            buffer: vec![0; buffer],
            filled: 0,
            line: 0..0,
            next: 0,
            number: 0,
        }
    }

    #[test]
    fn lines_are_whole_however_they_are_read() {
        let text = b"\xef\xbb\xbffirst\r\n\n\r\nthe second is longer than all buffers\nx\nlast\r";
        for buffer in [1, 2, 7, 64, 1024] {
            let mut lines = lines(text, buffer);
            let mut got = Vec::new();
            while lines.advance().unwrap() {
                got.push((lines.number, String::from_utf8_lossy(lines.line()).into_owned()));
            }
            let expected = [
                (1, "first"),
                (4, "the second is longer than all buffers"),
                (5, "x"),
                (6, "last\r"),
            ];
            assert_eq!(
                got,
                expected.map(|(number, line)| (number, line.to_owned())),
                "{buffer}"
            );
            assert!(!lines.advance().unwrap(), "the end stays the end");
        }
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        struct Endless;
        impl io::Read for Endless {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                out.fill(b'x');
                Ok(out.len())
            }
        }
        let mut lines = lines(b"", 1024);
        lines.reader = Box::new(BufReader::new(Endless));
        let error = lines.advance().unwrap_err().to_string();
        assert!(error.ends_with(":1: must be a line below 16 MiB"), "{error}");
        assert!(lines.buffer.len() <= 2 * MAX_LINE_BYTES);
    }
}
