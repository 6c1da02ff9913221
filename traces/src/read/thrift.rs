//! How many flags the metadata of a Parquet file claims to hold.
//!
//! Metadata is in Thrift's compact protocol. The `parquet` library skips what it does not know, item by item, and takes a flag in a list for
//! nothing at all: some bytes that claim a list of two billion flags keep it busy for a second, and a file may hold thousands of such lists.
//! So what it is about to read is gone through here first, as it would skip it, and refused where it claims more flags than it has bytes
//! (on the wire each has one). All other items take bytes, so that a list of them ends with the bytes. What the library knows it reads by the
//! type that it should have: where a file has another type there, the library may come by lists that were not seen here.
//!
//! Source: <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>.

use std::io::Read;

/// Deeper than the library goes: 64 from what it does not know, and some more down to there.
const MAX_DEPTH: u32 = 80;

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// How many flags a structure claims beyond the bytes that it has, `Ok` where it does not. Where it ends too early or is no structure at all
/// is up to the library to say.
pub fn too_many_flags(structure: impl Read, bytes: u64) -> Option<u64> {
    let mut walk = Walk { structure, left: bytes };
    match walk.skip(STRUCT, MAX_DEPTH) {
        Err(Stop::Claims(flags)) => Some(flags),
        Err(Stop::Broken) | Ok(()) => None,
    }
}

enum Stop {
    /// So many flags.
    Claims(u64),
    /// Cut off, or not of the protocol.
    Broken,
}

struct Walk<R> {
    structure: R,
    /// How many flags there may still be.
    left: u64,
}

impl<R: Read> Walk<R> {
    fn byte(&mut self) -> Result<u8, Stop> {
        let mut byte = [0];
        self.structure.read_exact(&mut byte).map_err(|_| Stop::Broken)?;
        Ok(byte[0])
    }

    /// However long it is, as the library has it.
    fn varint(&mut self) -> Result<u64, Stop> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).wrapping_shl(shift);
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
    }

    fn bytes(&mut self, count: u64) -> Result<(), Stop> {
        let read = std::io::copy(&mut self.structure.by_ref().take(count), &mut std::io::sink());
        if read.is_ok_and(|read| read == count) {
            Ok(())
        } else {
            Err(Stop::Broken)
        }
    }

    fn flags(&mut self, count: u64) -> Result<(), Stop> {
        self.left = self.left.checked_sub(count).ok_or(Stop::Claims(count))?;
        Ok(())
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Result<(), Stop> {
        let depth = depth.checked_sub(1).ok_or(Stop::Broken)?;
        match kind {
            TRUE | FALSE => Ok(()),
            BYTE => self.byte().map(drop),
            I16..=I64 => self.varint().map(drop),
            DOUBLE => self.bytes(8),
            BINARY => {
                let length = self.varint()?;
                self.bytes(length)
            }
            LIST | SET => {
                let header = self.byte()?;
                let count = match header >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                match header & 0xf {
                    TRUE | FALSE => self.flags(count),
                    kind => (0..count).try_for_each(|_| self.skip(kind, depth)),
                }
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                let (key, value) = (kinds >> 4, kinds & 0xf);
                if [key, value].iter().all(|kind| (TRUE..=FALSE).contains(kind)) {
                    return self.flags(count);
                }
                (0..count).try_for_each(|_| {
                    self.skip(key, depth)?;
                    self.skip(value, depth)
                })
            }
            STRUCT => loop {
                let header = self.byte()?;
                if header & 0xf == 0 {
                    return Ok(());
                }
                // Where it is not the difference to the one before, a field's number follows.
                if header >> 4 == 0 {
                    self.varint()?;
                }
                self.skip(header & 0xf, depth)?;
            },
            UUID => self.bytes(16),
            _ => Err(Stop::Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(structure: &[u8]) -> Option<u64> {
        too_many_flags(structure, structure.len() as u64)
    }

    /// A list of 2^31 - 1 flags in field 15 further on.
    const TWO_BILLION: &[u8] = &[0xf0 | LIST, 0xf0 | TRUE, 0xff, 0xff, 0xff, 0xff, 0x07];

    #[test]
    fn flags_that_have_no_bytes_are_claims() {
        assert_eq!(claimed(TWO_BILLION), Some((1 << 31) - 1));
        // Behind all that a structure may hold, two lists and a structure down.
        let before = [
            &[0x10 | TRUE, 0x10 | BYTE, 7, BINARY, 0x08, 2, b'a', b'b'][..],
            &[0x10 | I64, 0x80, 0x01, 0x10 | DOUBLE, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x10 | MAP, 1, BINARY << 4 | 5, 1, b'k', 9, 0x10 | MAP, 0],
            &[0x10 | LIST, 0x20 | STRUCT, 0, 0x10 | LIST, 0x10 | SET, 0x10 | STRUCT],
        ]
        .concat();
        assert_eq!(claimed(&[&before[..], TWO_BILLION].concat()), Some((1 << 31) - 1));
        let map = [0x10 | MAP, 0xff, 0xff, 0x03, TRUE << 4 | FALSE];
        assert_eq!(claimed(&map), Some(0xffff));
        // Behind a number that is longer than any number.
        let long = [&[0x10 | I64][..], &[0xc5; 30], &[0x05]].concat();
        assert_eq!(claimed(&[&long[..], TWO_BILLION].concat()), Some((1 << 31) - 1));
        // Each fits, but not all together.
        let many = [0x10 | LIST, 0xe0 | FALSE].repeat(50);
        assert_eq!(claimed(&many), Some(14));
    }

    #[test]
    fn what_has_bytes_or_none_at_all_is_let_through() {
        let honest = [0x10 | LIST, 0x40 | TRUE, 0];
        assert_eq!(too_many_flags(&honest[..], 4), None);
        for broken in [&[][..], &[0x10 | BINARY, 0xff, 0xff, 0x7f], &[0x1f], &[0xff; 40]] {
            assert_eq!(claimed(broken), None, "{broken:?}");
        }
        assert_eq!(claimed(&[0x10 | STRUCT].repeat(1000)), None, "too deep");
        // Two billion integers end with the bytes.
        assert_eq!(
            claimed(&[0x10 | LIST, 0xf0 | 5, 0xff, 0xff, 0xff, 0xff, 0x07, 1, 2, 3]),
            None
        );
    }
}
