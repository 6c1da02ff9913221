//! What look-ups of texts would meet in tables that are built from a corpus: counted by keys alone, without layers, rows or files.
//!
//! A simulation has no tables. What it assumes of them should be what the real machine's tables give, and that is a matter of token ids.

use std::collections::HashSet;
use std::env;

use crate::count::{COUNTING_BYTES, Counter};
use crate::{Context, Counters, PlotError, Select, Texts};

type Keys = HashSet<Box<[u32]>>;

/// Which whole fragments the root's table and each domain's would have.
pub struct Forecast {
    fragment_tokens: usize,
    context: Context,
    root: Keys,
    /// By domain; empty where only the root answers.
    domains: Vec<Keys>,
}

impl Forecast {
    /// Of tables that are built from such texts: the root's from those of all domains, and one of each domain's own, if domains have any.
    ///
    /// # Errors
    /// No space to sort what does not fit into memory.
    pub fn new(
        texts: &Texts,
        fragment_tokens: u32,
        context: Context,
        root: Select,
        domains: Option<Select>,
    ) -> Result<Forecast, PlotError> {
        let keys = |corpus: &mut dyn Iterator<Item = Vec<u32>>, select| {
            let folder = env::temp_dir();
            let mut keys = Keys::new();
            let count = || {
                let mut counter = Counter::new(&folder, fragment_tokens as usize, COUNTING_BYTES)?;
                for text in corpus {
                    counter.push(&text)?;
                }
                counter.select(select, |key| {
                    keys.insert(key.into());
                    Ok(())
                })
            };
            count().map_err(PlotError::io(&folder))?;
            Ok(keys)
        };
        let domain = |select| {
            let of = |domain| keys(&mut texts.corpus(domain), select);
            texts.domains().map(of).collect::<Result<_, PlotError>>()
        };
        Ok(Forecast {
            fragment_tokens: fragment_tokens as usize,
            context,
            root: keys(&mut texts.whole_corpus(context), root)?,
            domains: domains.map(domain).transpose()?.unwrap_or_default(),
        })
    }

    /// Whole fragments of a domain's own table, in the mean over the domains; none where these have no tables.
    pub fn domain_fragments(&self) -> u64 {
        let all: usize = self.domains.iter().map(HashSet::len).sum();
        (all / self.domains.len().max(1)) as u64
    }

    /// What the fragments of a tenant's text would meet: each in its domain's table, the root's, or neither (Eq. 3).
    pub fn meet(&self, tokens: &[u32], domain: u32) -> Counters {
        let mut counters = Counters {
            tokens: tokens.len() as u64,
            ..Counters::default()
        };
        let cut_short = match self.context {
            Context::Both if tokens.is_empty() => 0,
            // A text that is shorter than a fragment is looked up as what it is.
            Context::Both => usize::from(tokens.len() < self.fragment_tokens),
            Context::Preceding => tokens.len().min(self.fragment_tokens - 1),
        };
        counters.fallbacks = cut_short as u64;
        for key in tokens.windows(self.fragment_tokens) {
            let in_domain = self.domains.get(domain as usize).is_some_and(|keys| keys.contains(key));
            match in_domain {
                true => counters.domain_hits += 1,
                false if self.root.contains(key) => counters.root_hits += 1,
                false => counters.fallbacks += 1,
            }
        }
        counters
    }
}
