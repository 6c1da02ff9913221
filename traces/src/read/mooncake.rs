//! Mooncake's JSON lines, and their prefix hashes by ticket.

use std::path::Path;

use serde::Deserialize;

use super::format::Format;
use super::records::{Record, Records};
use crate::error::TraceError;
use crate::request::Ticket;
use crate::time::Time;

/// One request. Other keys are none of ours.
#[derive(Debug, Default, Deserialize)]
pub(super) struct MooncakeLine {
    /// In milliseconds from the start.
    timestamp: u64,
    input_length: u32,
    output_length: u32,
    pub hash_ids: Vec<u64>,
}

impl MooncakeLine {
    pub fn record(&self) -> Result<Record, String> {
        let ns = self.timestamp.checked_mul(1_000_000);
        let arrival = ns.ok_or_else(|| format!("timestamp: must be within 584 years, got `{}`", self.timestamp))?;
        if self.input_length == 0 {
            return Err("input_length: must be at least 1, got `0`".into());
        }
        Ok(Record {
            arrival: Some(Time(arrival)),
            input_tokens: Some(self.input_length),
            output_tokens: Some(self.output_length),
            ..Record::default()
        })
    }
}

/// serde_json counts lines within the line; only the column is of use.
pub(super) fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    let must_be =
        "must be {\"timestamp\": ms, \"input_length\": tokens, \"output_length\": tokens, \"hash_ids\": [ids]}";
    format!("column {}: {must_be}, got {what}", error.column())
}

/// The prefix hashes of a whole trace by ticket, beside the requests: equal leading hashes are a shared prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    ends: Vec<usize>,
    hashes: Vec<u64>,
}

impl Prefixes {
    /// Reads those of a Mooncake trace into memory, 8 bytes a hash.
    ///
    /// # Errors
    /// As [`Records::open`] and its iterator; [`TraceError::File`] where the format is another.
    pub fn read(path: &Path, skip_bad_lines: bool) -> Result<Prefixes, TraceError> {
        let mut records = Records::open(path, skip_bad_lines)?;
        if records.format() != Format::Mooncake {
            let message = format!(
                "must be a Mooncake trace to have prefix hashes, got {}",
                records.format().name()
            );
            return Err(TraceError::file(path, message));
        }
        let mut prefixes = Prefixes::default();
        while let Some(record) = records.next() {
            record?;
            prefixes.hashes.extend_from_slice(records.prefix_hashes());
            prefixes.ends.push(prefixes.hashes.len());
        }
        Ok(prefixes)
    }

    /// The hashes of `ticket`, one per 512 tokens of input (Qin et al., "Mooncake", FAST 2025; the release's README);
    /// empty beyond the trace.
    pub fn of(&self, ticket: Ticket) -> &[u64] {
        let ticket = ticket as usize;
        let Some(&end) = self.ends.get(ticket) else {
            return &[];
        };
        let start = if ticket == 0 { 0 } else { self.ends[ticket - 1] };
        &self.hashes[start..end]
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}
