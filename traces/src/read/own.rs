//! Tenantry's own CSV: `ticket,tenant,arrival_ns,input_tokens,output_tokens,class`.
//!
//! Reading it back ([`crate::read::Records`]) gives the same requests.

use std::io::{self, Write};

use crate::request::Request;

const HEADER: &str = "ticket,tenant,arrival_ns,input_tokens,output_tokens,class";

/// Writes requests, one a line. Buffer what it writes to.
pub struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes the first line.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn new(mut out: W) -> io::Result<Writer<W>> {
        writeln!(out, "{HEADER}")?;
        Ok(Writer { out })
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
            "{ticket},{tenant},{},{input_tokens},{output_tokens},{class}",
            arrival.0
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
