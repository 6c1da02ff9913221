//! Texts of users' own, from files.

use std::fs;
use std::path::{Path, PathBuf};

use tenantry_traces::read::tokenizer::TokenizerJson;

use crate::PlotError;

/// Of users' texts, one in so many is kept for requests, so that what they meet is not what tables were built from.
const HELD_OUT: usize = 10;

/// Texts of users' own, for a model of so many token ids. Each file has one a line: token ids separated by spaces, or
/// text for a tokenizer, around which come the special tokens of the model's template. Sequences are classified by what
/// comes of the first of them (HMI, section 3.3.2).
#[derive(Debug)]
pub struct Corpus {
    pub(crate) vocabulary: u32,
    /// Domain `d` has file `d`, in turns.
    pub(crate) files: Vec<OneDomain>,
    pub(crate) hash: blake3::Hash,
}

#[derive(Debug, Default)]
pub(crate) struct OneDomain {
    pub corpus: Vec<Vec<u32>>,
    pub held_out: Vec<Vec<u32>>,
    /// Before each of these texts and behind it.
    pub around: [Vec<u32>; 2],
}

impl OneDomain {
    fn is_empty(&self) -> bool {
        self.corpus.is_empty() && self.held_out.is_empty()
    }

    /// The texts that tables are built from, each with what comes around it.
    pub fn whole(&self) -> impl Iterator<Item = Vec<u32>> + '_ {
        let [before, behind] = &self.around;
        self.corpus.iter().map(move |text| [before, text, behind].map(Vec::as_slice).concat())
    }

    /// Writes the beginning of a text that is kept for requests, of `first` or where it is too short of those after it,
    /// so that with what comes around it is as long as `out`.
    pub fn write(&self, first: usize, out: &mut [u32]) {
        let [before, behind] = &self.around;
        let own = out.len().saturating_sub(before.len() + behind.len());
        let text = self.held_out.iter().cycle().skip(first).flatten().take(own);
        let ids = before.iter().chain(text).chain(behind);
        out.iter_mut().zip(ids).for_each(|(token, id)| *token = *id);
    }
}

impl Corpus {
    /// The texts of these files. Those of which a line is not all numbers are text for the tokenizer.
    ///
    /// # Errors
    /// A file that cannot be read, has too few texts, text without a tokenizer, or ids that the model does not have.
    pub fn read(paths: &[PathBuf], tokenizer: Option<&Path>, vocabulary: u32) -> Result<Corpus, PlotError> {
        let mut hasher = blake3::Hasher::new();
        let mut known = None;
        let mut files = Vec::new();
        for path in paths {
            let text = read_text(path)?;
            hasher.update(text.as_bytes());
            // Where a file ends is a matter of domains.
            hasher.update(&(text.len() as u64).to_le_bytes());
            let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
            let is_ids = |line: &str| line.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_whitespace());
            let first_words = lines().position(|line| !is_ids(line));
            let ids = first_words.is_none();
            if let (Some(words), None) = (first_words, &known) {
                known = Some(Words::open(path, words + 1, tokenizer)?);
            }
            let mut domain = OneDomain::default();
            let of_model = |ids: &[u32]| match ids.iter().find(|&&id| id >= vocabulary) {
                None => Ok(()),
                Some(id) => Err((
                    format!("of token ids below {vocabulary}, the model's vocabulary"),
                    id.to_string(),
                )),
            };
            for (index, line) in lines().enumerate() {
                let wrong = |must: String, got: String| {
                    PlotError::field(path, "text", must, format!("{got} (text {})", index + 1))
                };
                let tokens: Vec<u32> = match &known {
                    Some(words) if !ids => {
                        words.0.ids(line).map_err(|error| wrong("one that the tokenizer knows".into(), error))?
                    }
                    _ => line
                        .split_ascii_whitespace()
                        .map(|id| id.parse().map_err(|_| wrong("token ids".into(), id.to_owned())))
                        .collect::<Result<_, PlotError>>()?,
                };
                // Of a line without tokens nobody could say where its text would be.
                if let Some(words) = known.as_ref().filter(|_| !ids && domain.is_empty() && !tokens.is_empty()) {
                    let around = words.0.around(line);
                    domain.around = around.map_err(|error| wrong("one that the tokenizer knows".into(), error))?;
                    for special in &domain.around {
                        of_model(special).map_err(|(must, got)| PlotError::field(path, "special tokens", must, got))?;
                    }
                    domain.around.iter().flatten().for_each(|id| _ = hasher.update(&id.to_le_bytes()));
                }
                // Another tokenizer makes other tokens of the same words.
                tokens.iter().for_each(|id| _ = hasher.update(&id.to_le_bytes()));
                of_model(&tokens).map_err(|(must, got)| wrong(must, got))?;
                match (index + 1) % HELD_OUT {
                    _ if tokens.is_empty() => {}
                    0 => domain.held_out.push(tokens),
                    _ => domain.corpus.push(tokens),
                }
            }
            if domain.held_out.is_empty() {
                let must = format!("at least {HELD_OUT} texts, one a line, of which each tenth is kept for requests");
                return Err(PlotError::field(path, "texts", must, lines().count()));
            }
            files.push(domain);
        }
        Ok(Corpus {
            vocabulary,
            files,
            hash: hasher.finalize(),
        })
    }
}

fn read_text(path: &Path) -> Result<String, PlotError> {
    let bytes = fs::read(path).map_err(PlotError::io(path))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let got = format!("another byte after the first {}", error.utf8_error().valid_up_to());
        PlotError::field(path, "text", "UTF-8", got)
    })?;
    // Some editors begin a file with a byte order mark.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// A tokenizer.
struct Words(TokenizerJson);

impl Words {
    /// That which reads a file whose text of this number is no token ids.
    fn open(path: &Path, text: usize, tokenizer: Option<&Path>) -> Result<Words, PlotError> {
        let Some(tokenizer) = tokenizer else {
            let must = "token ids separated by spaces where there is no tokenizer.json beside the model's weights";
            return Err(PlotError::field(
                path,
                "text",
                must,
                format!("other text (text {text})"),
            ));
        };
        let open = TokenizerJson::open(tokenizer);
        open.map(Words).map_err(|error| PlotError::field(tokenizer, "tokenizer", "readable", error))
    }
}
