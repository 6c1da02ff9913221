//! Sorting more records than memory holds: runs sorted in memory, spilled to unnamed files, and merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Runs merged at once: each takes a file handle and a buffer.
const RUNS_MAX: usize = 200;

/// Records of one width in bytes, sorted as byte strings.
pub(crate) struct Sorter {
    folder: PathBuf,
    width: usize,
    records_max: usize,
    records: Vec<u8>,
    runs: Vec<File>,
}

impl Sorter {
    /// A sorter that holds at most about `memory_bytes` and spills into unnamed files in `folder`: killed, it leaves
    /// nothing.
    pub(crate) fn new(folder: &Path, width: usize, memory_bytes: usize) -> Sorter {
        Sorter {
            folder: folder.to_path_buf(),
            width,
            records_max: (memory_bytes / (width + size_of::<(u64, u32)>())).clamp(1, u32::MAX as usize),
            records: Vec::new(),
            runs: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, record: &[u8]) -> io::Result<()> {
        assert_eq!(record.len(), self.width);
        self.records.extend_from_slice(record);
        if self.records.len() >= self.records_max * self.width {
            self.spill()?;
        }
        Ok(())
    }

    /// The first record's bytes decide nearly always: they are compared as numbers, without a look at the record.
    fn order(&self) -> Vec<(u64, u32)> {
        let records = self.records.chunks_exact(self.width);
        let mut order: Vec<(u64, u32)> = records.zip(0..).map(|(record, at)| (leading(record), at)).collect();
        let tail = |at: u32| &self.records[at as usize * self.width..][..self.width];
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| tail(a.1).cmp(tail(b.1))));
        order
    }

    pub(crate) fn spill(&mut self) -> io::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        if self.runs.len() == RUNS_MAX {
            let mut merged = BufWriter::new(tempfile::tempfile_in(&self.folder)?);
            let mut runs = Merge::new(std::mem::take(&mut self.runs), self.width)?;
            while let Some(record) = runs.next()? {
                merged.write_all(record)?;
            }
            self.runs.push(merged.into_inner()?);
        }
        let mut run = BufWriter::new(tempfile::tempfile_in(&self.folder)?);
        for (_, at) in self.order() {
            run.write_all(&self.records[at as usize * self.width..][..self.width])?;
        }
        self.runs.push(run.into_inner()?);
        self.records.clear();
        Ok(())
    }

    /// All records in order.
    pub(crate) fn finish(mut self) -> io::Result<Merge> {
        self.spill()?;
        Merge::new(self.runs, self.width)
    }
}

fn leading(record: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = record.len().min(8);
    bytes[..length].copy_from_slice(&record[..length]);
    u64::from_be_bytes(bytes)
}

/// Runs read as one, in order.
pub(crate) struct Merge {
    runs: Vec<BufReader<File>>,
    /// Each run's next record.
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    /// The record lent out.
    record: Vec<u8>,
}

impl Merge {
    fn new(files: Vec<File>, width: usize) -> io::Result<Merge> {
        let mut merge = Merge {
            runs: Vec::new(),
            heads: BinaryHeap::new(),
            record: vec![0; width],
        };
        for (at, mut file) in files.into_iter().enumerate() {
            file.rewind()?;
            let mut run = BufReader::with_capacity(1 << 18, file);
            let mut head = vec![0; width];
            // No run is empty.
            run.read_exact(&mut head)?;
            merge.runs.push(run);
            merge.heads.push(Reverse((head, at)));
        }
        Ok(merge)
    }

    /// The next record, lent until the next call.
    pub(crate) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let Some(mut least) = self.heads.peek_mut() else {
            return Ok(None);
        };
        let Reverse((head, at)) = &mut *least;
        std::mem::swap(head, &mut self.record);
        if self.runs[*at].fill_buf()?.is_empty() {
            PeekMut::pop(least);
        } else {
            self.runs[*at].read_exact(head)?;
        }
        Ok(Some(&self.record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_like_memory_through_many_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(folder.path(), 11, 150);
        let mut records: Vec<[u8; 11]> = (0..3000u32)
            .map(|i| {
                let mut record = [0; 11];
                // Ties in the leading bytes, and duplicates.
                record[6..10].copy_from_slice(&(i.wrapping_mul(0x9e37_79b9) >> 20).to_be_bytes());
                record[10] = i as u8;
                record
            })
            .collect();
        for record in &records {
            sorter.push(record).unwrap();
        }
        assert!(sorter.runs.len() > 2 && sorter.runs.len() <= RUNS_MAX);
        let mut merge = sorter.finish().unwrap();
        records.sort();
        for record in &records {
            assert_eq!(merge.next().unwrap(), Some(&record[..]));
        }
        assert_eq!(merge.next().unwrap(), None);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "spilled files have no names"
        );
    }
}
