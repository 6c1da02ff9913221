//! The language in which requests to a pool with a table are written: tables have something to find only where texts
//! repeat.
//!
//! A word is mostly followed by one of a few words, the same in all domains; now and then a topic begins anew, with a
//! word that is frequent in the text's domain. So there are fragments that a domain's own table has, others that the
//! root has, and some that no corpus had.

use tenantry_traces::draw::{Draws, Purpose, Stream};
use tenantry_traces::generate::Domains;

use crate::Context;

/// Different words, where the vocabulary has as many.
const WORDS: u32 = 1024;
/// Words that may follow a word.
const SUCCESSORS: usize = 6;
/// One word in so many begins a new topic.
const TOPIC_WORDS: u64 = 16;
/// Zipf's exponents, of successors by rank and of a domain's words by rank.
const SUCCESSOR_EXPONENT: f64 = 1.2;
const WORD_EXPONENT: f64 = 1.0;
/// Sequences of each domain in the corpus, and their tokens.
const CORPUS_SEQUENCES: u64 = 192;
const CORPUS_TOKENS: usize = 128;

/// Parts of the draws: requests, by ticket, have none.
const SUCCESSION: u64 = 0;
const TOPICS: u64 = 1;
const CORPUS: u64 = 2;

/// Texts that are a function of the seed, the domain and the ticket alone.
#[derive(Debug)]
pub struct Language {
    seed: u64,
    vocabulary: u32,
    words: u32,
    domains: Domains,
    /// Of each domain.
    corpus_sequences: u64,
    /// Of all words, by rank in their domain; cumulated, of 2³².
    word_shares: Vec<u64>,
    /// Of a word's successors, likewise.
    successor_shares: Vec<u64>,
}

impl Language {
    /// By which it is drawn.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The language of a seed, in tokens below `vocabulary`, of the domains of a workload that says nothing of them.
    pub fn new(seed: u64, vocabulary: u32) -> Language {
        let words = WORDS.min(vocabulary);
        Language {
            seed,
            vocabulary,
            words,
            domains: Domains::IN_TURNS,
            corpus_sequences: CORPUS_SEQUENCES,
            word_shares: zipf(words as usize, WORD_EXPONENT),
            successor_shares: zipf(SUCCESSORS, SUCCESSOR_EXPONENT),
        }
    }

    /// The token ids of a request; an endless text, of which it has the beginning.
    pub fn request(&self, ticket: u64, tenant: u32) -> impl Iterator<Item = u32> + '_ {
        let stream = Draws::new(self.seed, Purpose::Tokens).about(ticket);
        self.text(stream, self.domains.of(tenant))
    }

    /// The texts that a domain's tables are built from.
    pub fn corpus(&self, domain: u32) -> impl Iterator<Item = Vec<u32>> + '_ {
        (0..self.corpus_sequences).map(move |index| self.corpus_text(domain, index).collect())
    }

    /// One of them.
    pub fn corpus_text(&self, domain: u32, index: u64) -> impl Iterator<Item = u32> + '_ {
        let draws = Draws::new(self.seed, Purpose::Tokens).part(CORPUS);
        let stream = draws.about(u64::from(domain) << 32 | index);
        self.text(stream, domain).take(CORPUS_TOKENS)
    }

    /// Token ids that there are.
    pub(crate) fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    /// The domains.
    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// The texts that the root's tables are built from: all domains', and every word as a text of its own, so that each
    /// has a representation. What a decoder generates may be any token of the vocabulary, whether it is a word or not.
    pub fn whole_corpus(&self, context: Context) -> impl Iterator<Item = Vec<u32>> + '_ {
        let texts = (0..self.domains.count()).flat_map(|domain| self.corpus(domain));
        texts.chain(self.lexicon(context == Context::Preceding))
    }

    /// Sequences of each domain in the corpus.
    pub fn corpus_sequences(&self) -> u64 {
        self.corpus_sequences
    }

    /// With another corpus than its own of 192 sequences of each domain.
    pub fn with_corpus(self, corpus_sequences: u64) -> Language {
        Language {
            corpus_sequences,
            ..self
        }
    }

    /// Of other domains.
    pub fn with_domains(self, domains: Domains) -> Language {
        Language { domains, ..self }
    }

    fn lexicon(&self, all_tokens: bool) -> impl Iterator<Item = Vec<u32>> + '_ {
        let count = if all_tokens { self.vocabulary } else { self.words };
        (0..count).map(move |index| vec![if all_tokens { index } else { self.token(index) }])
    }

    fn text(&self, mut stream: Stream, domain: u32) -> impl Iterator<Item = u32> + '_ {
        let draws = Draws::new(self.seed, Purpose::Tokens);
        let (topics, succession) = (draws.part(TOPICS), draws.part(SUCCESSION));
        let mut word = None;
        std::iter::repeat_with(move || {
            let rank = |stream: &mut Stream, shares: &[u64]| {
                let draw = stream.bits() >> 32;
                shares.partition_point(|&share| share <= draw) as u64
            };
            let next = match word {
                Some(word) if stream.below(TOPIC_WORDS) != 0 => {
                    let rank = rank(&mut stream, &self.successor_shares);
                    succession.about(u64::from(word) << 32 | rank)
                }
                _ => {
                    let rank = rank(&mut stream, &self.word_shares);
                    topics.about(u64::from(domain) << 32 | rank)
                }
            }
            .below(self.words.into()) as u32;
            word = Some(next);
            self.token(next)
        })
    }

    /// Words are spread over the vocabulary.
    fn token(&self, word: u32) -> u32 {
        (u64::from(word) * u64::from(self.vocabulary) / u64::from(self.words)) as u32
    }
}

/// Cumulated shares of `count` ranks by Zipf's law, of 2³².
fn zipf(count: usize, exponent: f64) -> Vec<u64> {
    let share = |rank: usize| libm::pow(rank as f64, -exponent);
    let all: f64 = (1..=count).map(share).sum();
    let mut sum = 0.0;
    let mut shares: Vec<u64> = (1..=count)
        .map(|rank| {
            sum += share(rank);
            (sum / all * (1u64 << 32) as f64) as u64
        })
        .collect();
    // Rounding must not leave a draw without a rank.
    *shares.last_mut().expect("there are ranks") = 1 << 32;
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_depend_on_ticket_domain_and_seed_alone() {
        let text = |seed, ticket, tenant| -> Vec<u32> {
            Language::new(seed, 30_522).request(ticket, tenant).take(40).collect()
        };
        assert_eq!(text(7, 3, 1), text(7, 3, 1 + Domains::UNSAID));
        assert_ne!(text(7, 3, 1), text(7, 3, 2));
        assert_ne!(text(7, 3, 1), text(7, 4, 1));
        assert_ne!(text(7, 3, 1), text(8, 3, 1));
        assert!(text(7, 3, 1).iter().all(|&token| token < 30_522));
        let few = Language::new(7, 50);
        assert!(few.request(1, 1).take(500).all(|token| token < 50));
    }

    /// New topics of a domain differ from another's; what follows a word does not.
    #[test]
    fn domains_share_what_follows_a_word() {
        let language = Language::new(7, 1024);
        let mut follows = std::collections::BTreeMap::<u32, std::collections::BTreeSet<u32>>::new();
        for domain in 0..Domains::UNSAID {
            for text in language.corpus(domain) {
                for pair in text.windows(2) {
                    follows.entry(pair[0]).or_default().insert(pair[1]);
                }
            }
        }
        let pairs: usize = follows.values().map(|after| after.len()).sum();
        // Six successors a word and the topics' beginnings, far from the million that there could be.
        assert!((4_000..30_000).contains(&pairs), "{pairs}");
    }
}
