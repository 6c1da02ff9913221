//! The known formats, and which one a file is in.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::columns::{Columns, Instants};
use super::field::{Clock, fields, shown};
use super::lines::{Lines, first_bytes};
use super::{activity, invocations, parquet, shape};
use crate::error::TraceError;

/// A known format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tenantry's own CSV ([`crate::read::own`]).
    Tenantry,
    /// The same in Parquet ([`crate::write::parquet`]).
    TenantryParquet,
    /// Arrivals and token lengths as Vidur writes them (microsoft/vidur, `data/processed_traces`).
    Vidur,
    /// Token lengths without arrivals, as Sarathi-Serve writes them (microsoft/sarathi-serve, `data/processed_traces`).
    Sarathi,
    /// Token lengths of ShareGPT's first pairs.
    PromptResponse,
    /// Azure's LLM inference traces (Patel et al., "Splitwise", ISCA 2024).
    AzureLlm,
    /// Tweets with their arrival and lengths.
    Tweets,
    /// BurstGPT (Wang et al., 2024), the columns as published.
    BurstGpt,
    /// LLMServingSim's request lists (casys-kaist/LLMServingSim), without token ids.
    LlmServingSim,
    /// Mooncake's JSON lines with prefix hashes (Qin et al., FAST 2025).
    Mooncake,
    /// ShareGPT conversations.
    ShareGpt,
    /// Requests in each second.
    Counts,
    /// Azure Functions 2019 (Shahrad et al., USENIX ATC 2020) as `tenant,minute,invocations`.
    ActivitySparse,
    /// Azure Functions 2019 as released: a row per function and a column per minute.
    ActivityWide,
    /// Azure Functions 2021 (Zhang et al., SOSP 2021): a row per invocation.
    Invocations,
    /// Aggregated rates ([`crate::read::shape`]).
    RateShape,
    /// Any other CSV with a header, through a mapping of its columns ([`crate::read::Columns`]); no first line tells
    /// it.
    Columns,
}

/// A CSV format with a row per request: the columns that it is known by and read from.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub arrival: Option<(&'static str, Clock)>,
    /// Whether instants count from the first row on, rather than from a zero of their own.
    pub from_first: bool,
    pub tenant: Option<&'static str>,
    pub input: &'static str,
    pub output: Option<&'static str>,
    /// Whether an output of 0 says that there was no answer, rather than that none is generated.
    pub failures: bool,
    pub class: Option<&'static str>,
    /// Where it is there and not empty, the row is a management request.
    pub change: Option<&'static str>,
}

const BARE: Layout = Layout {
    arrival: None,
    from_first: false,
    tenant: None,
    input: "",
    output: None,
    failures: false,
    class: None,
    change: None,
};

impl Format {
    /// All that a first line tells; of two that a header fits, the earlier one is meant.
    pub const ALL: [Format; 16] = [
        Format::Tenantry,
        Format::TenantryParquet,
        Format::Vidur,
        Format::Sarathi,
        Format::PromptResponse,
        Format::AzureLlm,
        Format::Tweets,
        Format::BurstGpt,
        Format::LlmServingSim,
        Format::Mooncake,
        Format::ShareGpt,
        Format::ActivitySparse,
        Format::ActivityWide,
        Format::Invocations,
        Format::RateShape,
        Format::Counts,
    ];

    /// For messages and tables.
    pub fn name(self) -> &'static str {
        match self {
            Format::Tenantry => "tenantry",
            Format::TenantryParquet => "tenantry-parquet",
            Format::Vidur => "vidur",
            Format::Sarathi => "sarathi",
            Format::PromptResponse => "prompt-response",
            Format::AzureLlm => "azure-llm",
            Format::Tweets => "tweets",
            Format::BurstGpt => "burstgpt",
            Format::LlmServingSim => "llmservingsim",
            Format::Mooncake => "mooncake",
            Format::ShareGpt => "sharegpt",
            Format::Counts => "counts",
            Format::ActivitySparse => "azure-functions-sparse",
            Format::ActivityWide => "azure-functions",
            Format::Invocations => "azure-functions-2021",
            Format::RateShape => "rate-shape",
            Format::Columns => "columns",
        }
    }

    /// Whether it has a request in each row, and says when it came.
    pub fn has_arrivals(self) -> bool {
        match self {
            Format::TenantryParquet | Format::Mooncake | Format::Invocations | Format::Columns => true,
            other => other.layout().is_some_and(|layout| layout.arrival.is_some()),
        }
    }

    /// Whether its requests can be replayed as they were: each has an arrival and lengths.
    pub fn replays(self) -> bool {
        self.has_arrivals() && self != Format::Invocations
    }

    /// How its rows are read, where it is a CSV with a row per request.
    pub fn layout(self) -> Option<Layout> {
        Some(match self {
            Format::Tenantry => Layout {
                arrival: Some(("arrival_ns", Clock::Nanoseconds)),
                tenant: Some("tenant"),
                input: "input_tokens",
                output: Some("output_tokens"),
                class: Some("class"),
                change: Some("change"),
                ..BARE
            },
            Format::Vidur => Layout {
                arrival: Some(("arrived_at", Clock::Seconds)),
                input: "num_prefill_tokens",
                output: Some("num_decode_tokens"),
                ..BARE
            },
            Format::Sarathi => Layout {
                input: "num_prefill_tokens",
                output: Some("num_decode_tokens"),
                ..BARE
            },
            Format::PromptResponse => Layout {
                input: "prompt_tokens",
                output: Some("response_tokens"),
                ..BARE
            },
            Format::AzureLlm => Layout {
                arrival: Some(("TIMESTAMP", Clock::DateTime)),
                from_first: true,
                input: "ContextTokens",
                output: Some("GeneratedTokens"),
                ..BARE
            },
            Format::Tweets => Layout {
                arrival: Some(("timestamp_ms", Clock::Milliseconds)),
                from_first: true,
                input: "text_bert_tokens",
                ..BARE
            },
            Format::BurstGpt => Layout {
                arrival: Some(("Timestamp", Clock::Seconds)),
                input: "Request tokens",
                output: Some("Response tokens"),
                failures: true,
                ..BARE
            },
            Format::LlmServingSim => Layout {
                arrival: Some(("arrival_time_ns", Clock::Nanoseconds)),
                input: "input_toks",
                output: Some("output_toks"),
                ..BARE
            },
            Format::TenantryParquet
            | Format::Mooncake
            | Format::ShareGpt
            | Format::Counts
            | Format::ActivitySparse
            | Format::ActivityWide
            | Format::Invocations
            | Format::RateShape
            | Format::Columns => return None,
        })
    }

    /// The columns that it is read from, as a mapping has them ([`Columns`]), where it is a CSV with a row per request.
    /// A format's own rules, such as that an output of 0 is a failure, are no part of it.
    pub fn columns(self) -> Option<Columns> {
        let layout = self.layout()?;
        let instants = |clock| match clock {
            Clock::Nanoseconds => Instants::Nanoseconds,
            Clock::Milliseconds => Instants::Milliseconds,
            Clock::Seconds => Instants::Seconds,
            Clock::DateTime => Instants::Iso,
        };
        Some(Columns {
            arrival: layout.arrival.map(|(name, clock)| (name.to_owned(), instants(clock))),
            tenant: layout.tenant.map(str::to_owned),
            input_tokens: Some(layout.input.to_owned()),
            output_tokens: layout.output.map(str::to_owned),
            class: layout.class.map(str::to_owned),
        })
    }

    /// The columns of `path`, a CSV with a row per request, that this format does not read; none of other formats.
    ///
    /// # Errors
    /// [`TraceError::Io`], and [`TraceError::File`] where the file is empty.
    pub fn unread_columns(self, path: &Path) -> Result<Vec<String>, TraceError> {
        let (Some(layout), Start::Line(line)) = (self.layout(), Start::of(path)?) else {
            return Ok(Vec::new());
        };
        // A request's place in the file is counted, not read.
        let read: Vec<&str> = layout.columns().chain(layout.others()).chain(["ticket"]).collect();
        let unread = fields(&line).filter(|field| !read.iter().any(|name| *field == name.as_bytes()));
        Ok(unread.map(|field| String::from_utf8_lossy(field).into_owned()).collect())
    }

    /// Whether an output of 0 says that there was no answer.
    pub fn has_failures(self) -> bool {
        self.layout().is_some_and(|layout| layout.failures)
    }

    /// The columns, or the beginning, that it is known by.
    fn marks(self) -> Vec<&'static str> {
        match self {
            Format::TenantryParquet => vec!["PAR1…"],
            Format::Mooncake => vec!["{\"timestamp\": …"],
            Format::ShareGpt => vec!["[{\"conversations\": … or {\"conversations\": … on each line"],
            Format::Counts => vec!["requests"],
            Format::ActivitySparse => vec!["tenant", "minute", "invocations"],
            Format::ActivityWide => vec!["HashFunction", activity::FIRST_MINUTE[0]],
            Format::Invocations => invocations::COLUMNS.to_vec(),
            Format::RateShape => vec!["day|hour|minute", "requests|requests_per_hour|tokens_per_second"],
            _ => self.layout().map_or(vec![], |layout| layout.columns().collect()),
        }
    }

    /// The format of `path`, by its first line.
    ///
    /// # Errors
    /// [`TraceError::Io`], and [`TraceError::File`] with the known formats where it is none of them.
    pub fn of(path: &Path) -> Result<Format, TraceError> {
        match Start::of(path)? {
            Start::Parquet => Ok(Format::TenantryParquet),
            Start::Array => Ok(Format::ShareGpt),
            Start::Line(line) => {
                let found = Format::ALL.into_iter().find(|format| format.fits(&line));
                let format = found.ok_or_else(|| TraceError::file(path, unknown(&line)))?;
                format.has_each_once(path, &line)?;
                Ok(format)
            }
        }
    }

    /// That `path` can be read as this format, whatever else its first line fits too: a table with the columns of
    /// several formats is of each of them.
    ///
    /// # Errors
    /// [`TraceError::Io`], and [`TraceError::File`] with what the file lacks.
    pub fn confirm(self, path: &Path) -> Result<(), TraceError> {
        let (fits, got) = match Start::of(path)? {
            Start::Parquet => (self == Format::TenantryParquet, "Parquet".to_owned()),
            Start::Array => (self == Format::ShareGpt, "a JSON array".to_owned()),
            Start::Line(line) => {
                self.has_each_once(path, &line)?;
                (self.may_begin_with(&line), shown(&line))
            }
        };
        match fits {
            true => Ok(()),
            false => Err(TraceError::file(path, self.must_be(&got))),
        }
    }

    /// That no column that is read, or that the format is known by, stands in a first line twice: which of them is
    /// meant, nobody knows.
    fn has_each_once(self, path: &Path, line: &[u8]) -> Result<(), TraceError> {
        let others = self.layout().into_iter().flat_map(Layout::others);
        let names: Vec<&str> = self.marks().into_iter().chain(others).collect();
        let is_named = |field: &&[u8]| names.iter().any(|name| *field == name.as_bytes());
        let mut read: Vec<&[u8]> = match self {
            // From the first minute on, each is one.
            Format::ActivityWide => {
                let is_hash = |field: &&[u8]| !activity::is_first_minute(field);
                let (hashes, minutes) = (fields(line).take_while(is_hash), fields(line).skip_while(is_hash));
                hashes.filter(is_named).chain(minutes).collect()
            }
            _ => fields(line).filter(is_named).collect(),
        };
        read.sort_unstable();
        match read.chunk_by(|a, b| a == b).find(|same| same.len() > 1) {
            Some(same) => {
                let name = String::from_utf8_lossy(same[0]);
                let message = format!("must have one column `{name}`, got {}", same.len());
                Err(TraceError::file(path, message))
            }
            None => Ok(()),
        }
    }

    fn must_be(self, got: &str) -> String {
        format!(
            "must begin as {} does ({}), got {got}",
            self.name(),
            self.marks().join(",")
        )
    }

    /// As [`Format::fits`], where it is said to be this format: of JSON lines the first may be broken and be skipped.
    fn may_begin_with(self, line: &[u8]) -> bool {
        match self {
            Format::ShareGpt | Format::Mooncake => line.trim_ascii_start().starts_with(b"{"),
            _ => self.fits(line),
        }
    }

    /// Whether a first line is that of this format, perhaps among others.
    fn fits(self, line: &[u8]) -> bool {
        let header: Vec<&[u8]> = fields(line).collect();
        let begins_with = |byte| line.trim_ascii_start().first() == Some(&byte);
        match self {
            Format::TenantryParquet | Format::Columns => false,
            // A key is looked for rather than JSON parsed, so that a first line that is broken can be skipped.
            Format::ShareGpt => begins_with(b'{') && has_key(line, &["conversations", "messages"]),
            Format::Mooncake => {
                begins_with(b'{')
                    && !Format::ShareGpt.fits(line)
                    && has_key(line, &["timestamp", "input_length", "hash_ids"])
            }
            _ if begins_with(b'{') => false,
            Format::RateShape => shape::HEADERS.iter().any(|(names, _)| shape::is(&header, names)),
            Format::ActivityWide => {
                header.contains(&&b"HashFunction"[..]) && header.iter().any(|field| activity::is_first_minute(field))
            }
            // Other tables of aggregates have a `requests` column too.
            Format::Counts => matches!(header[..], [b"requests"] | [b"second", b"requests"]),
            _ => self.marks().iter().all(|mark| header.contains(&mark.as_bytes())),
        }
    }
}

impl Layout {
    /// That must be there.
    fn columns(self) -> impl Iterator<Item = &'static str> {
        let arrival = self.arrival.map(|(column, _)| column);
        [arrival, self.tenant, Some(self.input), self.output].into_iter().flatten()
    }

    /// That may be there.
    fn others(self) -> impl Iterator<Item = &'static str> {
        [self.class, self.change].into_iter().flatten()
    }
}

/// What a file begins with.
enum Start {
    Parquet,
    /// Of JSON: it may be one line for all its conversations, so that the line is not asked for.
    Array,
    /// The first line, without its end.
    Line(Vec<u8>),
}

impl Start {
    fn of(path: &Path) -> Result<Start, TraceError> {
        let mut magic = Vec::new();
        let kind = std::fs::metadata(path).map_err(|source| TraceError::unreadable(path, source))?;
        let kind = kind.file_type();
        // What a pipe gave to this look nobody would read again; and to open one waits for who writes.
        if !kind.is_file() && !kind.is_dir() {
            return Err(TraceError::File {
                path: path.to_owned(),
                message: "must be a file, since it is looked at before it is read, got a pipe or a device; \
                          save it to a file first"
                    .into(),
            });
        }
        let file = File::open(path).map_err(|source| TraceError::unreadable(path, source))?;
        let read = file.take(parquet::MAGIC.len() as u64).read_to_end(&mut magic);
        read.map_err(|source| TraceError::unreadable(path, source))?;
        if magic == parquet::MAGIC {
            return Ok(Start::Parquet);
        }
        let start = first_bytes(path)?;
        if start.starts_with(parquet::MAGIC) {
            let message = "must be plain where it is Parquet, which is packed already, got Parquet inside gzip; unpack \
                           it with `gunzip`";
            return Err(TraceError::file(path, message));
        }
        if start.trim_ascii_start().first() == Some(&b'[') {
            return Ok(Start::Array);
        }
        let mut lines = Lines::open(path)?;
        match lines.advance()? {
            true => Ok(Start::Line(lines.line().to_vec())),
            false => Err(TraceError::file(path, "must have a first line, got an empty file")),
        }
    }
}

/// Whether one of `keys` is in a line of JSON.
fn has_key(line: &[u8], keys: &[&str]) -> bool {
    keys.iter().any(|key| memchr::memmem::find(line, format!("\"{key}\"").as_bytes()).is_some())
}

/// Says what would have been known, and which format came closest.
fn unknown(line: &[u8]) -> String {
    let header: Vec<&[u8]> = fields(line).collect();
    let has = |mark: &str| header.iter().any(|name| name.eq_ignore_ascii_case(mark.as_bytes()));
    let missing = |format: &Format| -> Vec<&str> { format.marks().into_iter().filter(|mark| !has(mark)).collect() };
    let nearest = Format::ALL
        .iter()
        .filter(|format| missing(format).len() < format.marks().len())
        .min_by_key(|format| missing(format).len());
    let hint = nearest.map_or(String::new(), |format| match &missing(format)[..] {
        [] => format!(
            "; the nearest is {}, whose columns are called `{}`",
            format.name(),
            format.marks().join("`, `")
        ),
        missing => format!(
            "; the nearest is {}, which lacks `{}`",
            format.name(),
            missing.join("`, `")
        ),
    });
    let known: Vec<String> = Format::ALL
        .iter()
        .map(|format| format!("{} ({})", format.name(), format.marks().join(",")))
        .collect();
    format!(
        "must begin as one of the known formats, got {}{hint}; `tenantry trace convert --columns` reads any other CSV \
         with a header; known: {}",
        shown(line),
        known.join("; ")
    )
}
