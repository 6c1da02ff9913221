//! What a broken Parquet file claims of itself. The library believes it: asks the system for two billion things that
//! are not there, one by one, and makes room for them first. What it takes on trust in metadata, [`thrift`] looks at.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};

use bytes::Bytes;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::FOOTER_SIZE;
use parquet::file::reader::{ChunkReader, Length};

use super::thrift;

/// A file that fails where it is read beyond its end, or where metadata claim more than there is.
pub struct Bounded {
    file: File,
    bytes: u64,
}

impl Bounded {
    pub fn new(file: File) -> io::Result<Bounded> {
        Ok(Bounded {
            bytes: file.metadata()?.len(),
            file,
        })
    }

    /// That the metadata at the file's end hold what they claim.
    ///
    /// # Errors
    /// [`ParquetError`] where they do not ([`thrift::check`]), or the file cannot be read.
    pub fn check_footer(&self) -> Result<()> {
        // Where it is too short, the library says so.
        let Some(tail) = self.bytes.checked_sub(FOOTER_SIZE as u64) else {
            return Ok(());
        };
        let mut length = [0; 4];
        self.at(tail)?.read_exact(&mut length)?;
        let length = u64::from(u32::from_le_bytes(length));
        match tail.checked_sub(length) {
            Some(start) => honest(self.at(start)?.take(length), length, thrift::FILE),
            None => Ok(()),
        }
    }

    fn at(&self, start: u64) -> Result<BufReader<Within>> {
        let mut file = self.file.try_clone()?;
        file.seek(io::SeekFrom::Start(start))?;
        Ok(BufReader::new(Within(file)))
    }
}

fn honest(metadata: impl Read, bytes: u64, fields: thrift::Fields) -> Result<()> {
    thrift::check(metadata, bytes, fields).map_err(|refusal| ParquetError::General(refusal.to_string()))
}

impl Length for Bounded {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Bounded {
    type T = BufReader<Within>;

    /// For a page's header, or the file's last bytes, which are too few to claim much.
    fn get_read(&self, start: u64) -> Result<BufReader<Within>> {
        let left = self.bytes.saturating_sub(start);
        if left > FOOTER_SIZE as u64 {
            honest(self.at(start)?, left, thrift::PAGE_HEADER)?;
        }
        self.at(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        match start.checked_add(length as u64) {
            Some(end) if end <= self.bytes => self.file.get_bytes(start, length),
            _ => Err(ParquetError::EOF(format!(
                "{length} bytes at {start} of {}",
                self.bytes
            ))),
        }
    }
}

/// A part of a [`Bounded`].
pub struct Within(File);

impl Read for Within {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.0.read(out)? {
            0 if !out.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

/// Pages whose dictionaries hold no more integers than they have bytes for.
pub struct HonestPages(Box<dyn PageReader>);

/// The narrowest integers that we read are of 32 bits.
const INTEGER_BYTES: u64 = 4;

impl HonestPages {
    pub fn new(pages: Box<dyn PageReader>) -> HonestPages {
        HonestPages(pages)
    }
}

impl Iterator for HonestPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for HonestPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.0.get_next_page()?;
        match &page {
            Some(Page::DictionaryPage { buf, num_values, .. })
                if u64::from(*num_values) * INTEGER_BYTES > buf.len() as u64 =>
            {
                let (claimed, bytes) = (num_values, buf.len());
                Err(ParquetError::General(format!(
                    "a dictionary of {claimed} integers in {bytes} bytes"
                )))
            }
            _ => Ok(page),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.0.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.0.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.0.at_record_boundary()
    }
}
