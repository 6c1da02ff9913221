//! What the metadata of a Parquet file claim to hold.
//!
//! Metadata are in Thrift's compact protocol. The `parquet` library skips what it does not know, item by item, and
//! takes a flag in a list for nothing at all: some bytes that claim a list of two billion flags keep it busy for a
//! second, and a file may hold thousands of such lists. So what it is about to read is gone through here first, as it
//! would, and refused where it claims more flags than it has bytes (on the wire each has one). All other items take
//! bytes, so that a list of them ends with the bytes. What the library knows it reads without asking for its type, so
//! that a file with another type there is refused as well: the two would go different ways from there on.
//!
//! Sources: <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>,
//! <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>.

use std::fmt;
use std::io::Read;

use Type::{Byte, Bytes, Double, Flag, I16, I32, I64, List, Struct};

/// The type of a field that the library knows.
pub enum Type {
    Flag,
    Byte,
    I16,
    /// Enumerations too.
    I32,
    I64,
    Double,
    /// Texts too.
    Bytes,
    List(&'static Type),
    Struct(Fields),
}

/// By their numbers.
pub type Fields = &'static [(i16, Type)];

const STATISTICS: Fields = &[
    (1, Bytes),
    (2, Bytes),
    (3, I64),
    (4, I64),
    (5, Bytes),
    (6, Bytes),
    (7, Flag),
    (8, Flag),
    (9, I64),
];

/// In front of each page.
pub const PAGE_HEADER: Fields = &[
    (1, I32),
    (2, I32),
    (3, I32),
    (4, I32),
    (
        5,
        Struct(&[(1, I32), (2, I32), (3, I32), (4, I32), (5, Struct(STATISTICS))]),
    ),
    (6, Struct(&[])),
    (7, Struct(&[(1, I32), (2, I32), (3, Flag)])),
    (
        8,
        Struct(&[
            (1, I32),
            (2, I32),
            (3, I32),
            (4, I32),
            (5, I32),
            (6, I32),
            (7, Flag),
            (8, Struct(STATISTICS)),
        ]),
    ),
];

const KEY_VALUE: Fields = &[(1, Bytes), (2, Bytes)];

/// Microseconds and the like, with or without a time zone.
const TIME: Fields = &[
    (1, Flag),
    (2, Struct(&[(1, Struct(&[])), (2, Struct(&[])), (3, Struct(&[]))])),
];

const LOGICAL_TYPE: Fields = &[
    (1, Struct(&[])),
    (2, Struct(&[])),
    (3, Struct(&[])),
    (4, Struct(&[])),
    (5, Struct(&[(1, I32), (2, I32)])),
    (6, Struct(&[])),
    (7, Struct(TIME)),
    (8, Struct(TIME)),
    (10, Struct(&[(1, Byte), (2, Flag)])),
    (11, Struct(&[])),
    (12, Struct(&[])),
    (13, Struct(&[])),
    (14, Struct(&[])),
    (15, Struct(&[])),
    (16, Struct(&[(1, Byte)])),
    (17, Struct(&[(1, Bytes)])),
    (18, Struct(&[(1, Bytes), (2, I32)])),
];

const SCHEMA_ELEMENT: Fields = &[
    (1, I32),
    (2, I32),
    (3, I32),
    (4, Bytes),
    (5, I32),
    (6, I32),
    (7, I32),
    (8, I32),
    (9, I32),
    (10, Struct(LOGICAL_TYPE)),
];

const BOUNDING_BOX: Fields = &[
    (1, Double),
    (2, Double),
    (3, Double),
    (4, Double),
    (5, Double),
    (6, Double),
    (7, Double),
    (8, Double),
];

const COLUMN: Fields = &[
    (1, I32),
    (2, List(&I32)),
    (3, List(&Bytes)),
    (4, I32),
    (5, I64),
    (6, I64),
    (7, I64),
    (8, List(&Struct(KEY_VALUE))),
    (9, I64),
    (10, I64),
    (11, I64),
    (12, Struct(STATISTICS)),
    (13, List(&Struct(&[(1, I32), (2, I32), (3, I32)]))),
    (14, I64),
    (15, I32),
    (16, Struct(&[(1, I64), (2, List(&I64)), (3, List(&I64))])),
    (17, Struct(&[(1, Struct(BOUNDING_BOX)), (2, List(&I32))])),
];

const COLUMN_CHUNK: Fields = &[
    (1, Bytes),
    (2, I64),
    (3, Struct(COLUMN)),
    (4, I64),
    (5, I32),
    (6, I64),
    (7, I32),
];

const ROW_GROUP: Fields = &[
    (1, List(&Struct(COLUMN_CHUNK))),
    (2, I64),
    (3, I64),
    (4, List(&Struct(&[(1, I32), (2, Flag), (3, Flag)]))),
    (5, I64),
    (6, I64),
    (7, I16),
];

/// At the end of a file.
pub const FILE: Fields = &[
    (1, I32),
    (2, List(&Struct(SCHEMA_ELEMENT))),
    (3, I64),
    (4, List(&Struct(ROW_GROUP))),
    (5, List(&Struct(KEY_VALUE))),
    (6, Bytes),
    (7, List(&Struct(&[(1, Struct(&[])), (2, Struct(&[]))]))),
];

/// Why metadata are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// So many flags are more than there are bytes.
    Flags(u64),
    /// This field has another type than it must have.
    Field(i16),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Flags(flags) => write!(f, "a claim of {flags} flags, more than there are bytes"),
            Refusal::Field(number) => write!(f, "metadata whose field {number} has another type than it must have"),
        }
    }
}

/// Whether the library may read the structure of `bytes` bytes with the known `fields`. Where it ends too early or is
/// no structure at all, it says so itself, and this does not.
pub fn check(structure: impl Read, bytes: u64, fields: Fields) -> Result<(), Refusal> {
    let mut walk = Walk {
        structure,
        flags_left: bytes,
    };
    match walk.fields(fields, MAX_DEPTH) {
        Err(Stop::Refused(refusal)) => Err(refusal),
        Err(Stop::Broken) | Ok(()) => Ok(()),
    }
}

/// Deeper than the library goes: 64 from what it does not know, and some more down to there.
const MAX_DEPTH: u32 = 80;

// The numbers of types on the wire.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const INT_16: u8 = 4;
const INT_32: u8 = 5;
const INT_64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

impl Type {
    fn is(&self, wire: u8) -> bool {
        match self {
            Flag => wire == TRUE || wire == FALSE,
            Byte => wire == BYTE,
            I16 => wire == INT_16,
            I32 => wire == INT_32,
            I64 => wire == INT_64,
            Double => wire == DOUBLE,
            Bytes => wire == BINARY,
            List(_) => wire == LIST,
            Struct(_) => wire == STRUCT,
        }
    }
}

enum Stop {
    Refused(Refusal),
    /// Cut off, or not of the protocol.
    Broken,
}

struct Walk<R> {
    structure: R,
    /// How many flags there may still be.
    flags_left: u64,
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
        let left = self.flags_left.checked_sub(count);
        self.flags_left = left.ok_or(Stop::Refused(Refusal::Flags(count)))?;
        Ok(())
    }

    /// A structure of which the library knows some fields.
    fn fields(&mut self, fields: Fields, depth: u32) -> Result<(), Stop> {
        let mut number = 0i16;
        loop {
            let header = self.byte()?;
            if header & 0xf == 0 {
                return Ok(());
            }
            number = match i16::from(header >> 4) {
                // Zigzag, of which the library keeps the low bits.
                0 => {
                    let number = self.varint()?;
                    ((number >> 1) as i64 ^ -((number & 1) as i64)) as i16
                }
                difference => number.checked_add(difference).ok_or(Stop::Broken)?,
            };
            match fields.iter().find(|(known, _)| *known == number) {
                None => self.skip(header & 0xf, depth)?,
                Some((_, known)) if known.is(header & 0xf) => self.known(known, number, depth)?,
                Some(_) => return Err(Stop::Refused(Refusal::Field(number))),
            }
        }
    }

    /// What is of the type that it must have, in field `number`.
    fn known(&mut self, known: &Type, number: i16, depth: u32) -> Result<(), Stop> {
        let depth = depth.checked_sub(1).ok_or(Stop::Broken)?;
        match known {
            Flag => Ok(()),
            Byte => self.byte().map(drop),
            I16 | I32 | I64 => self.varint().map(drop),
            Double => self.bytes(8),
            Bytes => {
                let length = self.varint()?;
                self.bytes(length)
            }
            List(of) => {
                let (count, wire) = self.list()?;
                match count == 0 || of.is(wire) {
                    true => (0..count).try_for_each(|_| self.known(of, number, depth)),
                    false => Err(Stop::Refused(Refusal::Field(number))),
                }
            }
            Struct(fields) => self.fields(fields, depth),
        }
    }

    /// How many items a list has, and of which type.
    fn list(&mut self) -> Result<(u64, u8), Stop> {
        let header = self.byte()?;
        let count = match header >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        Ok((count, header & 0xf))
    }

    /// What the library does not know.
    fn skip(&mut self, wire: u8, depth: u32) -> Result<(), Stop> {
        let depth = depth.checked_sub(1).ok_or(Stop::Broken)?;
        match wire {
            TRUE | FALSE => Ok(()),
            BYTE => self.byte().map(drop),
            INT_16 | INT_32 | INT_64 => self.varint().map(drop),
            DOUBLE => self.bytes(8),
            BINARY => {
                let length = self.varint()?;
                self.bytes(length)
            }
            LIST | SET => match self.list()? {
                (count, TRUE | FALSE) => self.flags(count),
                (count, wire) => (0..count).try_for_each(|_| self.skip(wire, depth)),
            },
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let types = self.byte()?;
                let (key, value) = (types >> 4, types & 0xf);
                if [key, value].iter().all(|wire| (TRUE..=FALSE).contains(wire)) {
                    return self.flags(count);
                }
                (0..count).try_for_each(|_| {
                    self.skip(key, depth)?;
                    self.skip(value, depth)
                })
            }
            STRUCT => self.fields(&[], depth),
            UUID => self.bytes(16),
            _ => Err(Stop::Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(structure: &[u8]) -> Option<Refusal> {
        check(structure, structure.len() as u64, FILE).err()
    }

    /// A list of 2^31 - 1 flags in field 15 further on.
    const TWO_BILLION: &[u8] = &[0xf0 | LIST, 0xf0 | TRUE, 0xff, 0xff, 0xff, 0xff, 0x07];
    /// Number 100, which is none of the library's: what follows is one further on.
    const UNKNOWN: &[u8] = &[BYTE, 0xc8, 0x01, 0];

    #[test]
    fn flags_that_have_no_bytes_are_refused() {
        let claimed = Some(Refusal::Flags((1 << 31) - 1));
        assert_eq!(refusal(TWO_BILLION), claimed);
        // Behind all that a structure may hold, two lists and a structure down.
        let before = [
            UNKNOWN,
            &[0x10 | TRUE, 0x10 | BYTE, 7, BINARY, 0x86, 0x02, 2, b'a', b'b'],
            &[0x10 | INT_64, 0x80, 0x01, 0x10 | DOUBLE, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x10 | MAP, 1, BINARY << 4 | 5, 1, b'k', 9, 0x10 | MAP, 0],
            &[0x10 | LIST, 0x20 | STRUCT, 0, 0x10 | LIST, 0x10 | SET, 0x10 | STRUCT],
        ]
        .concat();
        assert_eq!(refusal(&[&before[..], TWO_BILLION].concat()), claimed);
        // Behind what the library knows.
        assert_eq!(refusal(&[&[0x15, 2, 0x26, 4], TWO_BILLION].concat()), claimed);
        let map = [UNKNOWN, &[0x10 | MAP, 0xff, 0xff, 0x03, TRUE << 4 | FALSE]].concat();
        assert_eq!(refusal(&map), Some(Refusal::Flags(0xffff)));
        // Behind a number that is longer than any number.
        let long = [UNKNOWN, &[0x10 | INT_64], &[0xc5; 30], &[0x05]].concat();
        assert_eq!(refusal(&[&long[..], TWO_BILLION].concat()), claimed);
        // Each fits, but not all together.
        let many = [UNKNOWN, &[0x10 | LIST, 0xe0 | FALSE].repeat(50)].concat();
        assert_eq!(refusal(&many), Some(Refusal::Flags(14)));
    }

    #[test]
    fn a_known_field_of_another_type_is_refused() {
        // The version as a text, the schema as flags, a column's name as a number.
        for (structure, field) in [
            (&[0x18, 1, b'1'][..], 1),
            (&[0x29, 0xf1, 0xff, 0x7f], 2),
            (&[0x29, 0x1c, 0x45, 1], 4),
        ] {
            assert_eq!(refusal(structure), Some(Refusal::Field(field)), "{structure:?}");
        }
    }

    #[test]
    fn what_has_bytes_or_none_at_all_is_left_to_the_library() {
        let honest = [UNKNOWN, &[0x10 | LIST, 0x40 | TRUE, 0]].concat();
        assert_eq!(refusal(&honest), None);
        for broken in [&[][..], &[0xf0 | BINARY, 0xff, 0xff, 0x7f], &[0xfe], &[0xff; 40]] {
            assert_eq!(refusal(broken), None, "{broken:?}");
        }
        assert_eq!(refusal(&[0xf0 | STRUCT].repeat(1000)), None, "too deep");
        // Two billion integers end with the bytes.
        assert_eq!(
            refusal(&[0xf0 | LIST, 0xf0 | INT_32, 0xff, 0xff, 0xff, 0xff, 0x07, 1, 2, 3]),
            None
        );
    }
}
