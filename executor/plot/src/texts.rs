//! Texts that tables are built from and requests are written in: a made-up language's, or users' own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::generate::Domains;
use tenantry_traces::read::tokenizer::TokenizerJson;

use crate::{Context, Language, PlotError};

/// Of users' texts, one in so many is kept for requests, so that what they meet is not what tables were built from.
const HELD_OUT: usize = 10;

/// Where texts come from. Each domain writes its own, and each tenant writes in a domain.
#[derive(Debug)]
pub enum Texts {
    /// A language without words.
    Made(Language),
    /// Files of users' own.
    Given(GivenTexts),
}

/// Texts from files, one a line: token ids separated by spaces, or text for a tokenizer, around which come the special tokens of the model's
/// template. Sequences are classified by what comes of the first of them (HMI, section 3.3.2).
#[derive(Debug)]
pub struct GivenTexts {
    seed: u64,
    vocabulary: u32,
    domains: Domains,
    /// Domain `d` has file `d`, in turns.
    files: Vec<OneDomain>,
    hash: blake3::Hash,
}

#[derive(Debug, Default)]
struct OneDomain {
    corpus: Vec<Vec<u32>>,
    held_out: Vec<Vec<u32>>,
    /// Before each of these texts and behind it.
    around: [Vec<u32>; 2],
}

impl OneDomain {
    fn is_empty(&self) -> bool {
        self.corpus.is_empty() && self.held_out.is_empty()
    }

    /// The texts that tables are built from, each with what comes around it.
    fn whole(&self) -> impl Iterator<Item = Vec<u32>> + '_ {
        let [before, behind] = &self.around;
        self.corpus
            .iter()
            .map(move |text| [before, text, behind].map(Vec::as_slice).concat())
    }

    /// Writes the beginning of a text that is kept for requests, of `first` or where it is too short of those after it, so that with what comes around
    /// it is as long as `out`.
    fn write(&self, first: usize, out: &mut [u32]) {
        let [before, behind] = &self.around;
        let own = out.len().saturating_sub(before.len() + behind.len());
        let text = self.held_out.iter().cycle().skip(first).flatten().take(own);
        let ids = before.iter().chain(text).chain(behind);
        out.iter_mut().zip(ids).for_each(|(token, id)| *token = *id);
    }
}

impl Texts {
    /// The texts of a workload's domains in these files, for a model of so many token ids; without files, those of the language of a seed.
    /// Files of which a line is not all numbers are text for the tokenizer.
    ///
    /// # Errors
    /// A file that cannot be read, has too few texts, text without a tokenizer, or ids that the model does not have.
    pub fn new(
        files: &[PathBuf],
        tokenizer: Option<&Path>,
        seed: u64,
        vocabulary: u32,
        domains: &Domains,
    ) -> Result<Texts, PlotError> {
        let domains = domains.clone();
        match files {
            [] => Ok(Texts::Made(Language::new(seed, vocabulary).with_domains(domains))),
            files => GivenTexts::read(files, tokenizer, seed, vocabulary, domains).map(Texts::Given),
        }
    }

    /// The domains.
    pub fn domains(&self) -> std::ops::Range<u32> {
        0..self.of_tenants().count()
    }

    /// The domain that a tenant writes in.
    pub fn domain_of(&self, tenant: u32) -> u32 {
        self.of_tenants().of(tenant)
    }

    fn of_tenants(&self) -> &Domains {
        match self {
            Texts::Made(language) => language.domains(),
            Texts::Given(given) => &given.domains,
        }
    }

    /// Writes the beginning of a request's text.
    pub fn write(&self, ticket: u64, tenant: u32, out: &mut [u32]) {
        match self {
            Texts::Made(language) => {
                let text = language.request(ticket, tenant);
                out.iter_mut().zip(text).for_each(|(token, id)| *token = id);
            }
            Texts::Given(given) => {
                let domain = given.of(self.domain_of(tenant));
                let draws = Draws::new(given.seed, Purpose::Tokens);
                let first = draws.about(ticket).below(domain.held_out.len() as u64) as usize;
                domain.write(first, out);
            }
        }
    }

    /// The texts that a domain's tables are built from.
    pub fn corpus(&self, domain: u32) -> Box<dyn Iterator<Item = Vec<u32>> + '_> {
        match self {
            Texts::Made(language) => Box::new(language.corpus(domain)),
            Texts::Given(given) => Box::new(given.of(domain).whole()),
        }
    }

    /// The texts that the root's tables are built from: all domains', and every token that there is as a text of its own, so that each has a
    /// representation. What a decoder generates may be any token of the vocabulary, whether a text has it or not.
    pub fn whole_corpus(&self, context: Context) -> Box<dyn Iterator<Item = Vec<u32>> + '_> {
        let given = match self {
            Texts::Made(language) => return Box::new(language.whole_corpus(context)),
            Texts::Given(given) => given,
        };
        let single: BTreeSet<u32> = match context {
            Context::Preceding => (0..given.vocabulary).collect(),
            Context::Both => {
                let texts = given.files.iter();
                let texts = texts.flat_map(|file| file.corpus.iter().chain(&file.held_out).chain(&file.around));
                texts.flatten().copied().collect()
            }
        };
        let texts = given.files.iter().flat_map(OneDomain::whole);
        Box::new(texts.chain(single.into_iter().map(|token| vec![token])))
    }

    /// What tells tables of these texts from those of others.
    pub fn name(&self) -> String {
        match self {
            Texts::Made(language) => format!(
                "corpus{}x{}-seed{}",
                language.domains().count(),
                language.corpus_sequences(),
                language.seed()
            ),
            Texts::Given(given) => format!("texts{}-{}", given.domains.count(), &given.hash.to_hex()[..16]),
        }
    }
}

impl GivenTexts {
    fn read(
        paths: &[PathBuf],
        tokenizer: Option<&Path>,
        seed: u64,
        vocabulary: u32,
        domains: Domains,
    ) -> Result<GivenTexts, PlotError> {
        let mut hasher = blake3::Hasher::new();
        let mut known = None;
        let mut files = Vec::new();
        for path in paths {
            let text = fs::read_to_string(path).map_err(PlotError::io(path))?;
            hasher.update(text.as_bytes());
            // Where a file ends is a matter of domains.
            hasher.update(&(text.len() as u64).to_le_bytes());
            let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
            let is_ids = |line: &str| line.bytes().all(|byte| byte.is_ascii_digit() || byte == b' ');
            let ids = lines().all(is_ids);
            if !ids && known.is_none() {
                known = Some(Words::open(path, tokenizer)?);
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
                    Some(words) if !ids => words
                        .0
                        .ids(line)
                        .map_err(|error| wrong("one that the tokenizer knows".into(), error))?,
                    _ => { line.split_ascii_whitespace() }
                        .map(|id| id.parse().map_err(|_| wrong("token ids".into(), id.to_owned())))
                        .collect::<Result<_, PlotError>>()?,
                };
                // Of a line without tokens nobody could say where its text would be.
                if let Some(words) = known
                    .as_ref()
                    .filter(|_| !ids && domain.is_empty() && !tokens.is_empty())
                {
                    let around = words.0.around(line);
                    domain.around = around.map_err(|error| wrong("one that the tokenizer knows".into(), error))?;
                    for special in &domain.around {
                        of_model(special).map_err(|(must, got)| PlotError::field(path, "special tokens", must, got))?;
                    }
                    domain
                        .around
                        .iter()
                        .flatten()
                        .for_each(|id| _ = hasher.update(&id.to_le_bytes()));
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
                let must = format!("at least {HELD_OUT}, one a line, of which each tenth is kept for requests");
                return Err(PlotError::field(path, "texts", must, lines().count()));
            }
            files.push(domain);
        }
        Ok(GivenTexts {
            seed,
            vocabulary,
            domains,
            files,
            hash: hasher.finalize(),
        })
    }

    fn of(&self, domain: u32) -> &OneDomain {
        &self.files[domain as usize % self.files.len()]
    }
}

/// A tokenizer.
struct Words(TokenizerJson);

impl Words {
    fn open(path: &Path, tokenizer: Option<&Path>) -> Result<Words, PlotError> {
        let Some(tokenizer) = tokenizer else {
            let must = "token ids separated by spaces where there is no tokenizer.json beside the model's weights";
            return Err(PlotError::field(path, "text", must, "other text"));
        };
        let open = TokenizerJson::open(tokenizer);
        open.map(Words)
            .map_err(|error| PlotError::field(tokenizer, "tokenizer", "readable", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that are tokens, and a template as BERT's.
    const TOKENIZER: &str = r#"{
      "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
      "added_tokens": [
        { "id": 7, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true },
        { "id": 8, "content": "[SEP]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true }
      ],
      "pre_tokenizer": { "type": "Whitespace" },
      "post_processor": {
        "type": "TemplateProcessing",
        "single": [{ "SpecialToken": { "id": "[CLS]", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }, { "SpecialToken": { "id": "[SEP]", "type_id": 0 } }],
        "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
        "special_tokens": {
          "[CLS]": { "id": "[CLS]", "ids": [7], "tokens": ["[CLS]"] },
          "[SEP]": { "id": "[SEP]", "ids": [8], "tokens": ["[SEP]"] }
        }
      },
      "model": { "type": "WordLevel", "vocab": { "be": 0, "not": 1, "or": 2, "to": 3, "[UNK]": 4, "[CLS]": 7, "[SEP]": 8 }, "unk_token": "[UNK]" }
    }"#;

    fn given(texts: &[&str], vocabulary: u32) -> Result<Texts, String> {
        tokenized(texts, None, vocabulary)
    }

    fn tokenized(texts: &[&str], tokenizer: Option<&str>, vocabulary: u32) -> Result<Texts, String> {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = tokenizer.map(|json| {
            let path = folder.path().join("tokenizer.json");
            fs::write(&path, json).unwrap();
            path
        });
        let write = |(index, text): (usize, &&str)| {
            let path = folder.path().join(format!("{index}.txt"));
            fs::write(&path, text).unwrap();
            path
        };
        let paths: Vec<PathBuf> = texts.iter().enumerate().map(write).collect();
        Texts::new(&paths, tokenizer.as_deref(), 7, vocabulary, &Domains::IN_TURNS).map_err(|error| {
            let text = error.to_string();
            text.split_once(".txt: ")
                .map_or(text.clone(), |(_, rest)| rest.to_owned())
        })
    }

    fn lines(first: u32) -> String {
        (0..20)
            .map(|line| format!("{} {} {}\n", first + line, first + line + 1, first))
            .collect()
    }

    #[test]
    fn each_domain_has_its_file_and_requests_have_texts_of_their_own() {
        let texts = given(&[&lines(0), &lines(100)], 200).unwrap();
        assert_eq!(texts.corpus(0).count(), 18);
        assert_eq!(texts.corpus(1).next().unwrap(), [100, 101, 100]);
        assert_eq!(texts.corpus(2).next(), texts.corpus(0).next(), "in turns");
        let request = |ticket, tenant| {
            let mut out = [0; 7];
            texts.write(ticket, tenant, &mut out);
            out
        };
        assert_eq!(request(3, 1), request(3, 1 + Domains::UNSAID));
        for ticket in 0..10 {
            let text = request(ticket, 1);
            assert!(
                text == [109, 110, 100, 119, 120, 100, 109] || text == [119, 120, 100, 109, 110, 100, 119],
                "{text:?}"
            );
        }
        // Two files' texts, and the tokens alone: 21 of each file.
        assert_eq!(texts.whole_corpus(Context::Both).count(), 36 + 42);
        assert_eq!(texts.whole_corpus(Context::Preceding).count(), 36 + 200);
        assert_ne!(texts.name(), given(&[&lines(1)], 200).unwrap().name());
    }

    /// Text has the special tokens of the model's template around it, in tables and in requests; ids are as they are.
    #[test]
    fn text_has_the_special_tokens_of_the_model_around_it() {
        let words = "to be or not to be\n".repeat(20);
        let texts = tokenized(&[&words, &lines(10)], Some(TOKENIZER), 40).unwrap();
        assert_eq!(texts.corpus(0).next().unwrap(), [7, 3, 0, 2, 1, 3, 0, 8]);
        assert_eq!(texts.corpus(1).next().unwrap(), [10, 11, 10]);
        let request = |tenant, length| {
            let mut out = vec![99; length];
            texts.write(3, tenant, &mut out);
            out
        };
        assert_eq!(request(0, 8), [7, 3, 0, 2, 1, 3, 0, 8]);
        assert_eq!(request(0, 5), [7, 3, 0, 2, 8], "cut to what there is room for");
        assert_eq!(
            request(0, 10),
            [7, 3, 0, 2, 1, 3, 0, 3, 0, 8],
            "and followed by the next"
        );
        assert_eq!((request(0, 2), request(0, 1)), (vec![7, 8], vec![7]));
        assert!(!request(1, 8).iter().any(|id| [7, 8].contains(id)));
        let singles: Vec<Vec<u32>> = { texts.whole_corpus(Context::Both) }
            .filter(|text| text.len() == 1)
            .collect();
        assert!(singles.contains(&vec![7]) && singles.contains(&vec![8]), "{singles:?}");

        let plain = TOKENIZER
            .replace(r#"{ "SpecialToken": { "id": "[CLS]", "type_id": 0 } }, "#, "")
            .replace(r#", { "SpecialToken": { "id": "[SEP]", "type_id": 0 } }"#, "");
        let without = tokenized(&[&words], Some(&plain), 40).unwrap();
        assert_eq!(without.corpus(0).next().unwrap(), [3, 0, 2, 1, 3, 0]);
        assert_ne!(texts.name(), without.name());
        let small = tokenized(&[&words], Some(TOKENIZER), 5).err().unwrap();
        assert_eq!(
            small,
            "special tokens: must be of token ids below 5, the model's vocabulary, got 7"
        );
    }

    /// A workload's own domains: as many corpora, and each tenant's requests in its domain's words.
    #[test]
    fn domains_are_the_workloads() {
        let domains = Domains::by_share(7, &[1.0; 10]).unwrap();
        let texts = Texts::new(&[], None, 7, 1024, &domains).unwrap();
        let in_turns = Texts::new(&[], None, 7, 1024, &Domains::IN_TURNS).unwrap();
        assert_eq!((texts.domains(), in_turns.domains()), (0..10, 0..8));
        assert_ne!(texts.name(), in_turns.name());
        let request = |texts: &Texts, tenant| {
            let mut out = [0; 40];
            texts.write(3, tenant, &mut out);
            out
        };
        for tenant in 0..50 {
            assert_eq!(texts.domain_of(tenant), domains.of(tenant));
            let same = (0..8).find(|&other| other == domains.of(tenant));
            let expected = same.map(|other| request(&in_turns, other));
            assert!(expected.is_none_or(|text| text == request(&texts, tenant)), "{tenant}");
        }
        assert_ne!(request(&texts, 1), request(&in_turns, 1), "in domain {}", domains.of(1));
    }

    #[test]
    fn what_is_no_corpus_is_refused() {
        for (text, vocabulary, message) in [
            (
                lines(0),
                15,
                "text: must be of token ids below 15, the model's vocabulary, got 15 (text 15)",
            ),
            (
                "1 2 3\n".repeat(9),
                15,
                "texts: must be at least 10, one a line, of which each tenth is kept for requests, got 9",
            ),
            (
                "to be or not to be\n".repeat(20),
                15,
                "text: must be token ids separated by spaces where there is no tokenizer.json beside the model's \
                 weights, got other text",
            ),
            (
                "99999999999\n".repeat(20),
                15,
                "text: must be token ids, got 99999999999 (text 1)",
            ),
        ] {
            assert_eq!(given(&[&text], vocabulary).err().unwrap(), message);
        }
    }
}
