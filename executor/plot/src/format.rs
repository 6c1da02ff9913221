//! The file: a header of one page, rows, index, and checksums of rows.
//!
//! ```text
//! 0      header, 4096 bytes, all numbers little-endian
//! 4096   rows: fragments × positions × hidden half-precision values, the most frequent fragment first
//!        index: slots × (fragment_tokens + 1) u32 (see `slots.rs`)
//!        sums: a BLAKE3 hash of each chunk of rows, and then a CRC-32 of each row
//! ```
//!
//! The header carries its own checksum and that of index and sums together, so that opening verifies all but the rows.
//! The hashes verify those where all are read, chunk by chunk; the CRCs verify a row that is read alone, which costs a
//! fraction of reading it.

use std::path::Path;

use crate::slots::{FRAGMENTS_MAX, Slots, slots_for};
use crate::{Context, Counted, PlotError, Shape};

/// Bytes of the header, and where rows begin: a page, so that rows are read page by page.
pub(crate) const HEADER_BYTES: u64 = 4096;

/// As PNG's: a byte with the high bit set, a name, and a line ending that a conversion of text would change.
const MAGIC: [u8; 8] = *b"\x89PLOT\r\n\x1a";
const BYTE_ORDER: u32 = 0x0a0b_0c0d;
const VERSION: u32 = 2;
const HASH_BYTES: usize = 32;
const SUM_AT: usize = HEADER_BYTES as usize - HASH_BYTES;

/// A BLAKE3 hash.
pub(crate) type Hash = [u8; HASH_BYTES];

/// A row's CRC-32, little-endian.
pub(crate) type RowSum = [u8; 4];

/// The checksum of a row that is read alone.
pub(crate) fn row_sum(row: &[u8]) -> RowSum {
    crc32fast::hash(row).to_le_bytes()
}

/// What a table's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) shape: Shape,
    /// Fragments whose rows one sum covers.
    pub(crate) chunk_fragments: u32,
    pub(crate) counted: Counted,
    /// The hash of what the caller calls the layers that encoded.
    pub(crate) encoder: Hash,
    /// The hash of index and sums.
    pub(crate) index_sum: Hash,
}

impl Header {
    pub(crate) fn slots(&self) -> u64 {
        slots_for(self.counted.fragments)
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.counted.fragments.div_ceil(self.chunk_fragments.into())
    }

    /// The fragments of a chunk.
    pub(crate) fn chunk(&self, chunk: u64) -> std::ops::Range<u64> {
        let first = chunk * u64::from(self.chunk_fragments);
        first..(first + u64::from(self.chunk_fragments)).min(self.counted.fragments)
    }

    pub(crate) fn row_at(&self, ordinal: u64) -> u64 {
        HEADER_BYTES + ordinal * self.shape.row_bytes()
    }

    pub(crate) fn index_at(&self) -> u64 {
        self.row_at(self.counted.fragments)
    }

    pub(crate) fn index_bytes(&self) -> u64 {
        self.slots() * Slots::slot_bytes(self.shape.fragment_tokens as usize)
    }

    /// Of the hashes of chunks.
    pub(crate) fn chunk_sums_bytes(&self) -> u64 {
        self.chunks() * HASH_BYTES as u64
    }

    /// Of all sums.
    pub(crate) fn sums_bytes(&self) -> u64 {
        self.chunk_sums_bytes() + self.counted.fragments * size_of::<RowSum>() as u64
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.index_at() + self.index_bytes() + self.sums_bytes()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let shape = &self.shape;
        let context = match shape.context {
            Context::Both => 0u32,
            Context::Preceding => 1,
        };
        let mut bytes = MAGIC.to_vec();
        for number in [
            BYTE_ORDER,
            VERSION,
            shape.fragment_tokens,
            context,
            shape.hidden,
            self.chunk_fragments,
        ] {
            bytes.extend(number.to_le_bytes());
        }
        let counted = &self.counted;
        for number in [
            counted.fragments,
            counted.distinct,
            counted.occurrences,
            counted.covered,
            self.file_bytes(),
        ] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.encoder);
        bytes.extend(self.index_sum);
        bytes.resize(SUM_AT, 0);
        let sum = blake3::hash(&bytes);
        bytes.extend(sum.as_bytes());
        bytes
    }

    /// Whether a file that begins so is a table, whole or cut.
    pub(crate) fn has_magic(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Reads a header from a file of so many bytes. Magic, byte order and version come before the checksum, since they
    /// say more about a foreign file than that its checksum is wrong.
    pub(crate) fn decode(path: &Path, bytes: &[u8], file_bytes: u64) -> Result<Header, PlotError> {
        let at_path = || path.to_path_buf();
        let magic: [u8; 8] = bytes[..8].try_into().expect("eight bytes");
        if magic != MAGIC {
            return Err(PlotError::Magic {
                path: at_path(),
                got: magic,
            });
        }
        let mut fields = Fields(&bytes[8..]);
        let order = fields.u32();
        if order == BYTE_ORDER.swap_bytes() {
            return Err(PlotError::ByteOrder { path: at_path() });
        }
        let version = fields.u32();
        if order == BYTE_ORDER && version != VERSION {
            return Err(PlotError::Version {
                path: at_path(),
                must: VERSION,
                got: version,
            });
        }
        if blake3::hash(&bytes[..SUM_AT]).as_bytes() != &bytes[SUM_AT..] {
            return Err(PlotError::Checksum {
                path: at_path(),
                part: "header".into(),
            });
        }
        let shape = Shape {
            fragment_tokens: fields.u32(),
            context: match fields.u32() {
                0 => Context::Both,
                1 => Context::Preceding,
                other => return Err(PlotError::field(path, "context", "0 (both) or 1 (preceding)", other)),
            },
            hidden: fields.u32(),
        };
        shape.check()?;
        let chunk_fragments = fields.u32();
        if chunk_fragments == 0 {
            return Err(PlotError::field(path, "chunk_fragments", "at least 1", chunk_fragments));
        }
        let counted = Counted {
            fragments: fields.u64(),
            distinct: fields.u64(),
            occurrences: fields.u64(),
            covered: fields.u64(),
        };
        if counted.fragments > FRAGMENTS_MAX {
            return Err(PlotError::field(
                path,
                "fragments",
                format!("at most {FRAGMENTS_MAX}"),
                counted.fragments,
            ));
        }
        let declared_bytes = fields.u64();
        let header = Header {
            shape,
            chunk_fragments,
            counted,
            encoder: fields.hash(),
            index_sum: fields.hash(),
        };
        let must_bytes = header.file_bytes();
        if declared_bytes != must_bytes {
            return Err(PlotError::field(
                path,
                "file_bytes",
                format!("{must_bytes}, from the sizes"),
                declared_bytes,
            ));
        }
        if file_bytes < must_bytes {
            return Err(PlotError::Truncated {
                path: at_path(),
                must_bytes,
                got_bytes: file_bytes,
            });
        }
        if file_bytes > must_bytes {
            return Err(PlotError::field(
                path,
                "length",
                format!("{must_bytes} bytes"),
                file_bytes,
            ));
        }
        Ok(header)
    }
}

/// Numbers one after the other.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.0.split_first_chunk().expect("a header is longer than its fields");
        self.0 = rest;
        *head
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    pub(crate) fn hash(&mut self) -> Hash {
        self.take()
    }
}
