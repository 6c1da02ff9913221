//! Points of look-ups in tables of precomputed representations, from drawing token ids to sums in host memory.
//!
//! What a look-up takes depends on how wide rows are, how many tokens a fragment has and which tables have it, not on
//! the numbers in them: tables are built from the corpus that serving builds them from, with rows that no layer
//! computed. Each outcome (Eq. 3) is measured for itself, over running texts of which every fragment has it: in
//! domains' tables that hold all of their texts; in the root's, where a domain's holds none of them; and in tables that
//! hold only shorter fragments of them. What a mixture takes follows from these.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tempfile::TempDir;
use tenantry_plot::{
    Batch, Cause, Counters, DomainId, Engine, Language, Node, PlotError, Select, Snapshot, Text, Texts, Tier as Place,
    Tiers, Tree,
};
use tenantry_profiles::{LookupOutcome, ModelKind, ModelShape, PlotLookupRow, Tables as Rows, Tier, TokensOf};
use tenantry_traces::generate::Domains;

use super::Suite;
use super::axes::Knots;
use super::held_out::{HoldOut, Spot};
use super::schedule::{Measure, Point};
use crate::error::ExecutorError;
use crate::plot::{TreeBuilding, Version, domain_name, shape_of};

/// Threads that share a batch's look-ups, as far as there are cores.
const THREADS: [u32; 4] = [1, 2, 4, 8];
/// Tokens of a batch of texts, closest where it begins to be worth a second thread.
const TOKENS: Knots = Knots {
    quick: &[8, 16, 32, 128, 512, 2048, 8192],
    full: &[8, 16, 32, 64, 96, 128, 160, 192, 256, 512, 1024, 2048, 8192],
};
/// Of prompts.
const PROMPTS_TOKENS: Knots = Knots {
    quick: &[1, 8, 32, 128, 512, 2048],
    full: &[1, 4, 8, 16, 32, 64, 128, 192, 256, 320, 384, 512, 768, 1024, 2048],
};
/// Of sequences, one of each.
const SEQUENCES: Knots = Knots {
    quick: &[1, 4, 8, 16, 32, 128],
    full: &[1, 2, 3, 4, 6, 8, 16, 24, 32, 48, 64, 96, 128],
};
/// Tokens of each text, where a batch has as many, and of each prompt.
const TEXT_TOKENS: u32 = 32;
const PROMPT_TOKENS: u32 = 64;
/// Of the batch that is looked up beside computation.
const TOKENS_BESIDE: u32 = 512;
/// Sets apart the seed of a language of which texts have no fragments in common with ours.
const ELSEWHERE: u64 = 0x005E_ED0F_0731;
const MEMORY: Place = Place::Memory { locked: false };

/// A model's tables, on both tiers and for each outcome.
pub(crate) struct LookupSubject {
    model: String,
    kind: ModelKind,
    language: Language,
    tables: Vec<Tables>,
    engines: Vec<(u32, Engine)>,
    /// Removed when dropped.
    _folder: TempDir,
}

/// Tables in which all of a text's fragments meet the same.
struct Tables {
    fragment_tokens: u32,
    tier: Tier,
    outcome: LookupOutcome,
    tree: Arc<Snapshot>,
    /// Where a domain's texts are looked up first.
    domains: Vec<Option<DomainId>>,
}

impl LookupSubject {
    /// Tables of a model's width for fragments of each of these lengths, in a folder of their own in `scratch`.
    pub fn new(
        shape: &ModelShape,
        fragment_tokens: &[u32],
        seed: u64,
        scratch: &Path,
    ) -> Result<LookupSubject, ExecutorError> {
        let folder = tempfile::tempdir_in(scratch).map_err(ExecutorError::file(scratch))?;
        let language = Language::new(seed, shape.vocabulary);
        let mut tables = Vec::new();
        for &fragment_tokens in fragment_tokens {
            let folder = folder.path().join(fragment_tokens.to_string());
            let made = Making {
                folder: &folder,
                shape,
                fragment_tokens,
                texts: Texts::Made(Language::new(seed, shape.vocabulary)),
                elsewhere: Language::new(seed ^ ELSEWHERE, shape.vocabulary),
            };
            made.found(&mut tables)?;
            // Nothing is shorter than a token.
            if fragment_tokens > 1 {
                made.absent(&mut tables)?;
            }
        }
        let cores = tenantry_profiles::cores();
        let engines = THREADS.into_iter().filter(|&threads| threads == 1 || threads <= cores);
        Ok(LookupSubject {
            model: shape.name.clone(),
            kind: shape.kind,
            language,
            tables,
            engines: engines
                .map(|threads| Ok((threads, Engine::new(threads as usize)?)))
                .collect::<Result<_, ExecutorError>>()?,
            _folder: folder,
        })
    }

    /// All points.
    pub fn points(&self, suite: Suite, hold_out: HoldOut) -> Vec<Point<'_>> {
        let batches: &[(TokensOf, &[u32])] = match self.kind {
            ModelKind::Encoder => &[(TokensOf::Texts, TOKENS.of(suite))],
            ModelKind::Decoder => &[
                (TokensOf::Texts, PROMPTS_TOKENS.of(suite)),
                (TokensOf::Sequences, SEQUENCES.of(suite)),
            ],
        };
        let mut points = Vec::new();
        for &(tokens_of, grid) in batches {
            // Whole texts, or the beginning of one.
            let text_tokens = self.text_tokens(tokens_of);
            let whole =
                |[tokens]: [u32; 1]| Some([tokens - if tokens < text_tokens { 0 } else { tokens % text_tokens }]);
            let spots = hold_out.spots(grid.iter().map(|&tokens| [tokens]).collect(), whole);
            for tables in &self.tables {
                for &(threads, ref engine) in &self.engines {
                    let of = |&spot| self.point(tables, (threads, engine), tokens_of, spot);
                    points.extend(spots.iter().map(of));
                }
            }
        }
        points
    }

    fn point<'a>(
        &'a self,
        tables: &'a Tables,
        (threads, engine): (u32, &'a Engine),
        tokens_of: TokensOf,
        Spot { at: [tokens], held_out }: Spot<1>,
    ) -> Point<'a> {
        let Tables {
            fragment_tokens,
            tier,
            outcome,
            ..
        } = *tables;
        let model = self.model.clone();
        let record = move |rows: &mut Rows, stats| {
            rows.plot_lookup.push(PlotLookupRow {
                model: model.clone(),
                tier,
                outcome,
                tokens_of,
                threads,
                tokens,
                fragment_tokens,
                stats,
            });
        };
        let table = format!("plot_lookup of {}, {tier}, {outcome}, {tokens_of}", self.model);
        Point::new(table, self.measure(tables, engine, tokens_of, tokens), record).held_out(held_out)
    }

    /// Tokens of each text, where a batch has as many.
    fn text_tokens(&self, tokens_of: TokensOf) -> u32 {
        match (self.kind, tokens_of) {
            (_, TokensOf::Sequences) => 1,
            (ModelKind::Encoder, TokensOf::Texts) => TEXT_TOKENS,
            (ModelKind::Decoder, TokensOf::Texts) => PROMPT_TOKENS,
        }
    }

    /// Measures look-ups by one thread in memory.
    pub fn beside(&self) -> Measure<'_> {
        let (_, engine) = &self.engines[0];
        self.measure(&self.tables[0], engine, TokensOf::Texts, TOKENS_BESIDE)
    }

    /// Numbers of threads that share a look-up's work: the least and the most that are measured.
    pub fn least_and_most_threads(&self) -> Vec<u32> {
        let all: Vec<u32> = self.engines.iter().map(|(threads, _)| *threads).collect();
        let mut ends = vec![all[0], all[all.len() - 1]];
        ends.dedup();
        ends
    }

    /// Measures look-ups of so many tokens in memory by so many of these threads.
    ///
    /// # Panics
    /// If no look-up is measured by so many.
    pub fn by_threads(&self, threads: u32, tokens: u32) -> Measure<'_> {
        let engine = self.engines.iter().find(|(of, _)| *of == threads);
        let (_, engine) = engine.expect("one of those that are measured");
        self.measure(&self.tables[0], engine, TokensOf::Texts, tokens)
    }

    /// Measures a batch, at each call of other texts.
    fn measure<'a>(&'a self, tables: &'a Tables, engine: &'a Engine, tokens_of: TokensOf, tokens: u32) -> Measure<'a> {
        let mut out = vec![0.0; tokens as usize * tables.tree.root().shape().hidden as usize];
        let mut first = 0;
        Box::new(move || {
            let start = Instant::now();
            let (texts, _) = self.look_up(tables, engine, (tokens_of, tokens), first, &mut out)?;
            first += texts;
            Ok(start.elapsed())
        })
    }

    /// Looks up so many tokens of texts from number `first` on, and says how many texts that were.
    fn look_up(
        &self,
        tables: &Tables,
        engine: &Engine,
        (tokens_of, tokens): (TokensOf, u32),
        first: u64,
        out: &mut [f32],
    ) -> Result<(u64, Counters), PlotError> {
        let width = tokens.min(self.text_tokens(tokens_of));
        let texts = u64::from(tokens / width);
        match self.kind {
            ModelKind::Encoder => {
                let (mut ids, mut domains) = (Vec::with_capacity(tokens as usize), Vec::new());
                for number in first..first + texts {
                    let (domain, text) = self.text(number);
                    ids.extend(text.take(width as usize));
                    domains.push(tables.domains[domain]);
                }
                let batch = Batch {
                    tokens: &ids,
                    width: width as usize,
                    lengths: &vec![width; texts as usize],
                    domains: &domains,
                };
                Ok((texts, engine.retrieve(&tables.tree, &batch, out)?))
            }
            // What comes before makes a whole fragment of the first.
            ModelKind::Decoder => {
                let before = tables.fragment_tokens as usize - 1;
                // Side by side, as a server has them: memory for each text takes as long as looking one token of it up.
                let each = before + width as usize;
                let (mut ids, mut domains) = (Vec::with_capacity(texts as usize * each), Vec::new());
                for number in first..first + texts {
                    let (domain, text) = self.text(number);
                    ids.extend(text.take(each));
                    domains.push(tables.domains[domain]);
                }
                let ends = ids.chunks_exact(each).zip(domains);
                let ends: Vec<Text<'_>> = ends
                    .map(|(tokens, domain)| Text {
                        tokens,
                        first: before,
                        domain,
                    })
                    .collect();
                Ok((texts, engine.retrieve_ends(&tables.tree, &ends, out)?))
            }
        }
    }

    /// One of the corpus's texts, with its domain: all domains in turns.
    fn text(&self, number: u64) -> (usize, impl Iterator<Item = u32> + '_) {
        let domain = (number % u64::from(DOMAINS)) as u32;
        let index = number / u64::from(DOMAINS) % self.language.corpus_sequences();
        (domain as usize, self.language.corpus_text(domain, index))
    }
}

/// The tables of one length of fragment, being made.
struct Making<'a> {
    folder: &'a Path,
    shape: &'a ModelShape,
    fragment_tokens: u32,
    texts: Texts,
    elsewhere: Language,
}

impl Making<'_> {
    /// Tables that hold all texts: in the domain that they are looked up in, or in the root alone.
    fn found(&self, tables: &mut Vec<Tables>) -> Result<(), ExecutorError> {
        let folder = self.folder.join("found");
        self.build(&folder, |building| building.root(&self.texts, Select::All))?;
        Tree::found(&folder, tiers(Place::Disk))?;
        self.publish_elsewhere(&folder)?;
        let on_disk = Tree::open(&folder, tiers(Place::Disk))?.snapshot();
        let in_memory = Tree::open(&folder, tiers(MEMORY))?;
        for domain in self.texts.domains() {
            let name = domain_name(domain);
            self.build(&folder, |building| {
                building.domain(&name, Version::Root, Select::All, self.texts.corpus(domain))
            })?;
            in_memory.publish(Node::Domain(&name))?;
        }
        let in_memory = in_memory.snapshot();
        let own = self.texts.domains().map(|domain| in_memory.domain(&domain_name(domain)));
        let own = own.collect();
        tables.push(self.of(Tier::Memory, LookupOutcome::DomainHit, in_memory.clone(), own));
        for (tier, tree) in [(Tier::Memory, in_memory), (Tier::Disk, on_disk)] {
            let none = elsewhere(&tree);
            tables.push(self.of(tier, LookupOutcome::RootHit, tree, none));
        }
        Ok(())
    }

    /// Tables that hold the shorter fragments of the texts, and whole ones of others.
    fn absent(&self, tables: &mut Vec<Tables>) -> Result<(), ExecutorError> {
        let folder = self.folder.join("absent");
        self.build(&folder, |building| {
            building.shorter(&self.texts)?;
            building.root_table(self.fragment_tokens, Select::All, self.elsewhere.corpus(0))
        })?;
        Tree::found(&folder, tiers(Place::Disk))?;
        self.publish_elsewhere(&folder)?;
        for (tier, place) in [(Tier::Memory, MEMORY), (Tier::Disk, Place::Disk)] {
            let tree = Tree::open(&folder, tiers(place))?.snapshot();
            let none = elsewhere(&tree);
            tables.push(self.of(tier, LookupOutcome::Fallback, tree, none));
        }
        Ok(())
    }

    /// A domain that holds none of the texts; all of them, where a fragment is a token.
    fn publish_elsewhere(&self, folder: &Path) -> Result<(), ExecutorError> {
        if self.fragment_tokens == 1 {
            return Ok(());
        }
        self.build(folder, |building| {
            building.domain(NOBODYS, Version::Root, Select::All, self.elsewhere.corpus(0))
        })?;
        Tree::open(folder, tiers(Place::Disk))?.publish(Node::Domain(NOBODYS))?;
        Ok(())
    }

    fn build(
        &self,
        tree: &Path,
        build: impl FnOnce(&mut TreeBuilding<'_, '_, '_>) -> Result<(), ExecutorError>,
    ) -> Result<(), ExecutorError> {
        let hidden = self.shape.hidden as usize;
        build(&mut TreeBuilding {
            tree,
            shape: shape_of(self.shape, self.fragment_tokens),
            name: "pattern",
            encode: &mut |_, _, fragments: &[u32], rows: &mut [f32]| pattern(hidden, fragments, rows),
            watch: &mut |_| ControlFlow::Continue(()),
        })
    }

    fn of(&self, tier: Tier, outcome: LookupOutcome, tree: Arc<Snapshot>, domains: Vec<Option<DomainId>>) -> Tables {
        Tables {
            fragment_tokens: self.fragment_tokens,
            tier,
            outcome,
            tree,
            domains,
        }
    }
}

/// Domains of the texts.
const DOMAINS: u32 = Domains::UNSAID;
/// The domain that holds none of the texts.
const NOBODYS: &str = "elsewhere";

fn elsewhere(tree: &Snapshot) -> Vec<Option<DomainId>> {
    vec![tree.domain(NOBODYS); DOMAINS as usize]
}

fn tiers(root: Place) -> Tiers {
    Tiers { root, domains: MEMORY }
}

/// Rows of numbers as large as hidden states: a vector for each token of a fragment or, for a decoder, for its last.
fn pattern(hidden: usize, fragments: &[u32], rows: &mut [f32]) -> Result<(), Cause> {
    let vectors = rows.len() / hidden;
    let last = fragments.len() / vectors - 1;
    let tokens = fragments.iter().skip(last).step_by(last + 1);
    for (&token, vector) in tokens.zip(rows.chunks_exact_mut(hidden)) {
        let mut state = token;
        for value in vector {
            state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            *value = (state >> 20) as f32 / 1024.0 - 2.0;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a table of the profile says it is of, it is of.
    #[test]
    fn all_look_ups_of_a_point_meet_the_same() {
        let folder = tempfile::tempdir().unwrap();
        for (name, lengths) in [("tiny", [1, 3].as_slice()), ("tiny-opt", &[2, 4])] {
            let shape = ModelShape {
                hidden: 16,
                heads: 2,
                kv_heads: 2,
                vocabulary: 2000,
                ..ModelShape::builtin(name).unwrap()
            };
            let subject = LookupSubject::new(&shape, lengths, 7, folder.path()).unwrap();
            let mut seen = Vec::new();
            for tables in &subject.tables {
                let mut out = vec![0.0; 512 * 16];
                let (_, engine) = &subject.engines[0];
                let (texts, met) = subject.look_up(tables, engine, (TokensOf::Texts, 512), 0, &mut out).unwrap();
                let (fragments, all) = match subject.kind {
                    ModelKind::Encoder => (texts * u64::from(TEXT_TOKENS - tables.fragment_tokens + 1), 1.0),
                    // A bigram may be one of another language's too.
                    ModelKind::Decoder => (512, 0.97),
                };
                assert_eq!(met.domain_hits + met.root_hits + met.fallbacks, fragments, "{met:?}");
                let expected = match tables.outcome {
                    LookupOutcome::DomainHit => met.domain_hits,
                    LookupOutcome::RootHit => met.root_hits,
                    LookupOutcome::Fallback => met.fallbacks,
                    LookupOutcome::Any => unreachable!("nothing is measured so"),
                };
                assert!(
                    expected as f64 >= all * fragments as f64,
                    "{:?}: {met:?}",
                    tables.outcome
                );
                assert_eq!(met.misses, 0, "{:?}: {met:?}", tables.outcome);
                assert!(out.iter().any(|value| *value != 0.0));
                seen.push((tables.fragment_tokens, tables.tier, tables.outcome));
            }
            let outcomes_of = |length| if length == 1 { 3 } else { 5 };
            assert_eq!(
                seen.len(),
                lengths.iter().map(|&length| outcomes_of(length)).sum::<usize>()
            );
        }
    }
}
