//! ShareGPT conversations: a JSON array, read element by element, or JSON lines, a conversation each.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::lines::{BYTE_ORDER_MARK, Lines, first_bytes, open_bytes};
use super::records::Record;
use crate::error::TraceError;

/// Counts a text's tokens.
pub trait Tokenize: Send {
    /// How many tokens `text` has.
    ///
    /// # Errors
    /// What the text must be, and what it is, where the tokenizer cannot take it.
    fn count(&mut self, text: &str) -> Result<u32, String>;
}

/// An approximation: so many characters (Unicode code points) make a token, the last one perhaps fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CharsPerToken(pub u32);

/// OpenAI's rule of thumb for English ("What are tokens and how to count them", help.openai.com): four characters a
/// token. Code and other languages take more tokens than it says.
pub const FOUR_CHARS_A_TOKEN: CharsPerToken = CharsPerToken(4);

impl Tokenize for CharsPerToken {
    fn count(&mut self, text: &str) -> Result<u32, String> {
        Ok(u32::try_from(text.chars().count().div_ceil(self.0 as usize)).unwrap_or(u32::MAX))
    }
}

/// One element, in the original schema or one of its variants: `messages`, `role` and `content`, no `id`.
#[derive(Deserialize)]
struct Conversation {
    #[serde(alias = "messages")]
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    #[serde(alias = "role")]
    from: Speaker,
    #[serde(alias = "content")]
    value: String,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Speaker {
    #[serde(alias = "user")]
    Human,
    #[serde(
        alias = "chatgpt",
        alias = "bing",
        alias = "bard",
        alias = "assistant",
        alias = "model"
    )]
    Gpt,
    System,
    #[serde(alias = "function")]
    Tool,
}

/// Requests from conversations: each human turn is one, whose input is the conversation so far and whose output is the
/// answer.
pub(super) struct Conversations {
    elements: Elements,
    tokenize: Box<dyn Tokenize>,
    /// The current conversation's.
    requests: VecDeque<Record>,
}

enum Elements {
    Array(Array),
    Lines(Lines),
}

impl Conversations {
    pub fn open(path: &Path, tokenize: Box<dyn Tokenize>) -> Result<Conversations, TraceError> {
        let elements = match first_bytes(path)?.trim_ascii_start().first() {
            Some(b'{') => Elements::Lines(Lines::open(path)?),
            _ => Elements::Array(Array::open(path)?),
        };
        Ok(Conversations {
            elements,
            tokenize,
            requests: VecDeque::new(),
        })
    }

    /// An error at the line that was read last.
    pub fn error(&self, message: String) -> TraceError {
        match &self.elements {
            Elements::Array(array) => array.error(message),
            Elements::Lines(lines) => lines.error(message),
        }
    }

    /// The next request. A conversation that is not of the schema is the inner error; of an array, broken JSON is the
    /// outer one, since nothing after it can be told apart.
    pub fn advance(&mut self) -> Result<Option<Result<Record, TraceError>>, TraceError> {
        loop {
            if let Some(request) = self.requests.pop_front() {
                return Ok(Some(Ok(request)));
            }
            let conversation = match &mut self.elements {
                Elements::Array(array) => array.next()?.map(serde_json::from_value),
                Elements::Lines(lines) => lines.advance()?.then(|| serde_json::from_slice(lines.line())),
            };
            let taken = match conversation {
                None => return Ok(None),
                Some(Ok(conversation)) => self.take(&conversation),
                Some(Err(error)) => Err(explain(&error)),
            };
            if let Err(message) = taken {
                self.requests.clear();
                return Ok(Some(Err(self.error(message))));
            }
        }
    }

    fn take(&mut self, conversation: &Conversation) -> Result<(), String> {
        let mut context_tokens: u32 = 0;
        // The input of a human turn that has no answer yet.
        let mut asked: Option<u32> = None;
        let request = |input: u32, output_tokens| Record {
            input_tokens: Some(input.max(1)),
            output_tokens,
            ..Record::default()
        };
        for turn in &conversation.conversations {
            let tokens = self.tokenize.count(&turn.value)?;
            if turn.from == Speaker::Gpt
                && let Some(input) = asked.take()
            {
                self.requests.push_back(request(input, Some(tokens)));
            }
            context_tokens = context_tokens.saturating_add(tokens);
            if turn.from == Speaker::Human {
                // Two human turns in a row are one question.
                asked = Some(context_tokens);
            }
        }
        self.requests.extend(asked.map(|input| request(input, None)));
        Ok(())
    }
}

/// What a conversation must be, and what it is.
fn explain(error: &serde_json::Error) -> String {
    // Of a line it is known where in it.
    let column = match error.line() {
        0 => String::new(),
        _ => format!("column {}: ", error.column()),
    };
    format!(
        "{column}must be {{\"conversations\": [{{\"from\": \"human\"|\"gpt\", \"value\": text}}]}}, got {}",
        without_position(error)
    )
}

/// The library counts lines from where it began.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

/// The elements of a JSON array.
struct Array {
    path: PathBuf,
    reader: CountingLines<Box<dyn BufRead + Send>>,
    at: Position,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    BeforeArray,
    FirstElement,
    LaterElement,
    End,
}

impl Array {
    fn open(path: &Path) -> Result<Array, TraceError> {
        let mut inner = open_bytes(path)?;
        let start = inner.fill_buf().map_err(|source| TraceError::unreadable(path, source))?;
        if start.starts_with(BYTE_ORDER_MARK) {
            inner.consume(BYTE_ORDER_MARK.len());
        }
        Ok(Array {
            path: path.to_path_buf(),
            reader: CountingLines { inner, lines: 1 },
            at: Position::BeforeArray,
        })
    }

    fn error(&self, message: String) -> TraceError {
        TraceError::Line {
            path: self.path.clone(),
            line: self.reader.lines,
            message,
        }
    }

    /// The next element; nothing after an error.
    fn next(&mut self) -> Result<Option<serde_json::Value>, TraceError> {
        let element = self.element();
        if element.is_err() {
            self.at = Position::End;
        }
        element
    }

    fn element(&mut self) -> Result<Option<serde_json::Value>, TraceError> {
        if self.at == Position::BeforeArray {
            self.expect(b'[', "`[` at the start of the conversations")?;
            self.at = Position::FirstElement;
        }
        if self.at == Position::End {
            return Ok(None);
        }
        match (self.peek()?, self.at) {
            (Some(b']'), _) => {
                self.reader.consume(1);
                // Two files in one: what stands behind would be lost.
                if let Some(got) = self.peek()? {
                    return Err(self.error(format!(
                        "must end after the conversations, got `{}`",
                        got.escape_ascii()
                    )));
                }
                self.at = Position::End;
                return Ok(None);
            }
            (_, Position::LaterElement) => self.expect(b',', "`,` or `]` after a conversation")?,
            _ => {}
        }
        self.at = Position::LaterElement;
        if self.peek()?.is_none() {
            return Err(self.error("must be a conversation or `]`, got the end of the file".into()));
        }
        // A deserializer of its own for each element: it stops right behind the object's closing brace.
        let mut deserializer = serde_json::Deserializer::from_reader(&mut self.reader);
        match serde_json::Value::deserialize(&mut deserializer) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_io() => Err(TraceError::unreadable(&self.path, error.into())),
            Err(error) => Err(self.error(format!("must be JSON, got {}", without_position(&error)))),
        }
    }

    fn expect(&mut self, byte: u8, must_be: &str) -> Result<(), TraceError> {
        match self.peek()? {
            Some(got) if got == byte => {
                self.reader.consume(1);
                Ok(())
            }
            Some(got) => Err(self.error(format!("must be {must_be}, got `{}`", got.escape_ascii()))),
            None => Err(self.error(format!("must be {must_be}, got the end of the file"))),
        }
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Result<Option<u8>, TraceError> {
        loop {
            let buffer = self.reader.fill_buf().map_err(|source| TraceError::unreadable(&self.path, source))?;
            let Some(&byte) = buffer.first() else {
                return Ok(None);
            };
            if !byte.is_ascii_whitespace() {
                return Ok(Some(byte));
            }
            self.reader.consume(1);
        }
    }
}

/// Knows how many lines have gone by.
struct CountingLines<R> {
    inner: R,
    /// The current line, 1-based.
    lines: u64,
}

impl<R: BufRead> Read for CountingLines<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        self.lines += out[..read].iter().filter(|&&byte| byte == b'\n').count() as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for CountingLines<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        if let Ok(buffer) = self.inner.fill_buf() {
            self.lines += buffer[..amount.min(buffer.len())].iter().filter(|&&byte| byte == b'\n').count() as u64;
        }
        self.inner.consume(amount);
    }
}
