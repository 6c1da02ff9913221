//! Texts that tables are built from and requests are written in: a made-up language's, or users' own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::generate::Domains;

use crate::corpus::OneDomain;
use crate::{Context, Corpus, Language, PlotError};

/// Where texts come from. Each domain writes its own, and each tenant writes in a domain.
#[derive(Debug)]
pub enum Texts {
    /// A language without words.
    Made(Language),
    /// Files of users' own.
    Given(GivenTexts),
}

/// Texts of users' own, in a workload's domains.
#[derive(Debug)]
pub struct GivenTexts {
    seed: u64,
    domains: Domains,
    corpus: Arc<Corpus>,
}

impl GivenTexts {
    /// These texts, of which requests have others by each seed.
    pub fn new(corpus: Arc<Corpus>, seed: u64, domains: &Domains) -> GivenTexts {
        GivenTexts {
            seed,
            domains: domains.clone(),
            corpus,
        }
    }

    fn of(&self, domain: u32) -> &OneDomain {
        let files = &self.corpus.files;
        &files[domain as usize % files.len()]
    }
}

impl Texts {
    /// The texts of a workload's domains in these files, for a model of so many token ids; without files, those of the
    /// language of a seed.
    ///
    /// # Errors
    /// As [`Corpus::read`].
    pub fn new(
        files: &[PathBuf],
        tokenizer: Option<&Path>,
        seed: u64,
        vocabulary: u32,
        domains: &Domains,
    ) -> Result<Texts, PlotError> {
        if files.is_empty() {
            return Ok(Texts::Made(
                Language::new(seed, vocabulary).with_domains(domains.clone()),
            ));
        }
        let corpus = Corpus::read(files, tokenizer, vocabulary)?;
        Ok(Texts::Given(GivenTexts::new(Arc::new(corpus), seed, domains)))
    }

    /// The domains.
    pub fn domains(&self) -> std::ops::Range<u32> {
        0..self.of_tenants().count()
    }

    /// Token ids that the model has.
    pub(crate) fn vocabulary(&self) -> u32 {
        match self {
            Texts::Made(language) => language.vocabulary(),
            Texts::Given(given) => given.corpus.vocabulary,
        }
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

    /// The texts that the root's tables are built from: all domains', and every token that there is as a text of its
    /// own, so that each has a representation. What a decoder generates may be any token of the vocabulary, whether a
    /// text has it or not.
    pub fn whole_corpus(&self, context: Context) -> Box<dyn Iterator<Item = Vec<u32>> + '_> {
        let given = match self {
            Texts::Made(language) => return Box::new(language.whole_corpus(context)),
            Texts::Given(given) => &given.corpus,
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
            Texts::Given(given) => format!("texts{}-{}", given.domains.count(), &given.corpus.hash.to_hex()[..16]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
            text.split_once(".txt: ").map_or(text.clone(), |(_, rest)| rest.to_owned())
        })
    }

    fn lines(first: u32) -> String {
        (0..20).map(|line| format!("{} {} {}\n", first + line, first + line + 1, first)).collect()
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
        let singles: Vec<Vec<u32>> = texts.whole_corpus(Context::Both).filter(|text| text.len() == 1).collect();
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

    /// Token ids as spreadsheets and editors write them.
    #[test]
    fn ids_are_read_with_tabs_and_a_byte_order_mark() {
        let plain = given(&[&lines(0)], 200).unwrap();
        let tabs = format!("\u{feff}{}", lines(0).replace(' ', "\t").replace('\n', "\r\n"));
        let texts = given(&[&tabs], 200).unwrap();
        assert!(texts.corpus(0).eq(plain.corpus(0)));
    }

    #[test]
    fn a_file_that_is_no_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("latin-1.txt");
        fs::write(&path, b"1 2\n\xfcber\n").unwrap();
        let refused = Texts::new(&[path], None, 7, 200, &Domains::IN_TURNS).unwrap_err();
        let refused = refused.to_string();
        let expected = "latin-1.txt: text: must be UTF-8, got another byte after the first 4";
        assert!(refused.ends_with(expected), "{refused}");
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
                "texts: must be at least 10 texts, one a line, of which each tenth is kept for requests, got 9",
            ),
            (
                "to be or not to be\n".repeat(20),
                15,
                "text: must be token ids separated by spaces where there is no tokenizer.json beside the model's \
                 weights, got other text (text 1)",
            ),
            (
                "1 2\n-1 2 3\n".repeat(20),
                15,
                "text: must be token ids separated by spaces where there is no tokenizer.json beside the model's \
                 weights, got other text (text 2)",
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
