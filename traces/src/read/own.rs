//! Tenantry's own CSV: `ticket,tenant,arrival_ns,input_tokens,output_tokens,class`, and `change` where a recording has
//! management requests. Of such a request, `tenant` is the tenant's or domain's number, `arrival_ns` when it is made,
//! `change` what is to become of it, and the rest 0.
//!
//! Reading it back ([`crate::read::Records`]) gives the same requests.

use std::io::{self, Write};

use crate::management::ManageRequest;
use crate::request::Request;

const HEADER: &str = "ticket,tenant,arrival_ns,input_tokens,output_tokens,class";

/// Writes requests, one a line. Buffer what it writes to.
pub struct Writer<W: Write> {
    out: W,
    /// Whether there is a column for them.
    changes: bool,
}

impl<W: Write> Writer<W> {
    /// Writes the first line.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn new(mut out: W, changes: bool) -> io::Result<Writer<W>> {
        writeln!(out, "{HEADER}{}", if changes { ",change" } else { "" })?;
        Ok(Writer { out, changes })
    }

    /// Writes one management request, for which there must be a column.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn write_change(&mut self, request: &ManageRequest) -> io::Result<()> {
        let ManageRequest { at, change } = request;
        assert!(
            self.changes,
            "a recording with management requests has a column for them"
        );
        writeln!(self.out, "0,{},{},0,0,0,{}", change.of(), at.0, change.name())
    }

    /// Writes one request.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        let Request {
            ticket,
            tenant,
            arrival,
            input_tokens,
            output_tokens,
            class,
        } = request;
        writeln!(
            self.out,
            "{ticket},{tenant},{},{input_tokens},{output_tokens},{class}{}",
            arrival.0,
            if self.changes { "," } else { "" }
        )
    }

    /// Flushes, and gives `out` back.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}
