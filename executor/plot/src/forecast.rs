//! What look-ups of texts would meet in tables that are built from a corpus: counted by keys alone, without layers,
//! rows or files.
//!
//! A simulation has no tables. What it assumes of them should be what the real machine's tables give, and that is a
//! matter of token ids.

use std::collections::HashSet;
use std::env;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;

use crate::count::{COUNTING_BYTES, Counter};
use crate::{Context, Counters, PlotError, Select, Texts};

type Keys = HashSet<Box<[u32]>>;

/// Keys of tables, kept for other forecasts that they hang on as well: what is swept mostly leaves texts and tables as
/// they are.
#[derive(Default)]
pub struct KeySets {
    /// Of the root's table, or of each domain's; those last asked for last.
    kept: Mutex<Vec<(Built, Arc<[Keys]>)>>,
}

/// What the keys of a table hang on.
#[derive(Clone, PartialEq)]
struct Built {
    texts: String,
    vocabulary: u32,
    fragment_tokens: u32,
    select: Select,
    /// What the root's texts are for; nothing of domains' tables.
    of_root: Option<Context>,
}

/// Fragments that are kept, each of some 60 bytes: those of a thousand domains of the made-up language.
const KEPT_FRAGMENTS: usize = 1 << 23;

impl KeySets {
    /// The keys of tables that are built so, counted where they are not kept. Nothing is locked meanwhile: a thread
    /// that waits for others' part of the counting may turn to another forecast.
    fn of(&self, built: Built, count: impl FnOnce() -> Result<Vec<Keys>, PlotError>) -> Result<Arc<[Keys]>, PlotError> {
        if let Some(keys) = self.known(&built) {
            return Ok(keys);
        }
        let keys: Arc<[Keys]> = count()?.into();
        let mut kept = self.lock();
        kept.push((built, Arc::clone(&keys)));
        let fragments = |kept: &[(Built, Arc<[Keys]>)]| -> usize {
            kept.iter().flat_map(|(_, keys)| keys.iter()).map(HashSet::len).sum()
        };
        while kept.len() > 1 && fragments(&kept) > KEPT_FRAGMENTS {
            kept.remove(0);
        }
        Ok(keys)
    }

    fn known(&self, built: &Built) -> Option<Arc<[Keys]>> {
        let mut kept = self.lock();
        let at = kept.iter().position(|(of, _)| of == built)?;
        kept[at..].rotate_left(1);
        kept.last().map(|(_, keys)| Arc::clone(keys))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Built, Arc<[Keys]>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys of a table of one of these texts.
fn keys(corpus: impl Iterator<Item = Vec<u32>>, fragment_tokens: u32, select: Select) -> Result<Keys, PlotError> {
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
}

/// Which whole fragments the root's table and each domain's would have.
pub struct Forecast {
    fragment_tokens: usize,
    context: Context,
    /// One table's.
    root: Arc<[Keys]>,
    /// By domain; empty where only the root answers.
    domains: Arc<[Keys]>,
}

impl Forecast {
    /// Of tables that are built from such texts: the root's from those of all domains, and one of each domain's own, if
    /// domains have any. What was counted before is in `kept`, and what is counted now is from then on.
    ///
    /// # Errors
    /// No space to sort what does not fit into memory.
    pub fn new(
        texts: &Texts,
        fragment_tokens: u32,
        context: Context,
        root: Select,
        domains: Option<Select>,
        kept: &KeySets,
    ) -> Result<Forecast, PlotError> {
        let built = |select, of_root| Built {
            texts: texts.name(),
            vocabulary: texts.vocabulary(),
            fragment_tokens,
            select,
            of_root,
        };
        let of_root = || {
            kept.of(built(root, Some(context)), || {
                Ok(vec![keys(texts.whole_corpus(context), fragment_tokens, root)?])
            })
        };
        let of_domains = || {
            let Some(select) = domains else {
                return Ok(Arc::default());
            };
            kept.of(built(select, None), || {
                let all = texts.domains().into_par_iter();
                all.map(|domain| keys(texts.corpus(domain), fragment_tokens, select)).collect()
            })
        };
        let (root, domains) = rayon::join(of_root, of_domains);
        Ok(Forecast {
            fragment_tokens: fragment_tokens as usize,
            context,
            root: root?,
            domains: domains?,
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
                false if self.root[0].contains(key) => counters.root_hits += 1,
                false => counters.fallbacks += 1,
            }
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys are counted once for each table that they are of.
    #[test]
    fn keys_are_counted_once() {
        let kept = KeySets::default();
        let built = |texts: &str, fragment_tokens, select| Built {
            texts: texts.into(),
            vocabulary: 100,
            fragment_tokens,
            select,
            of_root: None,
        };
        let counts = |of: Built| {
            let mut counted = false;
            let count = || {
                counted = true;
                Ok(vec![Keys::from([[1, 2, 3].into()])])
            };
            assert_eq!(kept.of(of, count).unwrap().len(), 1);
            counted
        };
        let one = || built("one", 3, Select::All);
        assert!(counts(one()) && !counts(one()));
        assert!(counts(built("another", 3, Select::All)));
        assert!(counts(built("one", 2, Select::All)));
        assert!(counts(built("one", 3, Select::Coverage(0.5))));
        assert!(counts(Built {
            of_root: Some(Context::Both),
            ..one()
        }));
        assert!(!counts(one()));
    }
}
