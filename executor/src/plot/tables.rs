//! The tables that a pool looks up in: built once, with progress, and found again.

use std::convert::Infallible;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tch::Device;
use tenantry_core::spec::PlotSpec;
use tenantry_plot::{
    Batch, BuildSpec, Builder, Cause, Context, Counters, DomainId, Encode, Engine, Node, PlotError, Progress, Select,
    Shape, Text, Tier, Tiers, Tree,
};
use tenantry_profiles::{DType, ModelKind, ModelShape};

use super::language::{DOMAINS, Language};
use super::lower::LowerLayers;
use crate::error::ExecutorError;

/// What building goes through, for a line of progress.
#[derive(Clone, Copy, Debug)]
pub struct Building<'a> {
    /// Of the version tree: `root`, or a domain's.
    pub node: &'a str,
    /// Tokens of the table's fragments.
    pub fragment_tokens: u32,
    /// How far it is.
    pub progress: Progress,
}

/// Told how the building of tables goes on.
pub type WatchBuilding<'a> = &'a mut dyn FnMut(Building<'_>);

/// Runs lower layers over fragments of so many tokens: from `[count, tokens]` to `[count, tokens, hidden]` or, for a decoder, to
/// `[count, hidden]`.
pub(crate) type EncodeFragments<'a> = &'a mut dyn FnMut(usize, &[u32], &mut [f32]) -> Result<(), Cause>;

/// Fragments encoded at once.
const CHUNK_FRAGMENTS: u32 = 1024;
/// For counting; the corpus takes far less.
const COUNTING_BYTES: usize = 256 << 20;
/// What tables were built from, for who changes the language, the corpus or the layers' initialisation.
const CORPUS_VERSION: u32 = 1;

/// Where tables are kept from one run to the next: the user's cache, or the folder for temporary files where there is none.
pub fn tables_folder() -> PathBuf {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("tenantry").join("plot")
}

/// A pool's version tree, and the language of what is looked up in it.
#[derive(Clone)]
pub struct Tables {
    tree: Arc<Tree>,
    /// By domain; none where only the root answers.
    domains: Vec<Option<DomainId>>,
    /// By domain: whether its own table is there. Where not, the root answers for it.
    there: Arc<[AtomicBool]>,
    language: Arc<Language>,
}

impl Tables {
    /// The tables of the lower layers of the model that `seed` initialises, over the language of the same seed: opened, if they lie in a
    /// folder of their own in `folder`, and otherwise built there, which may take minutes. What was interrupted is gone on with.
    ///
    /// A domain's table holds the fragments that are `domain_hits_ppm` of the domain's occurrences; the root's, all but the `fallbacks_ppm`
    /// rarest occurrences.
    ///
    /// # Errors
    /// A model that has no such layers, a full disk, or no memory.
    pub fn open_or_build(
        folder: &Path,
        model: &ModelShape,
        plot: &PlotSpec,
        seed: u64,
        device: Device,
        watch: WatchBuilding<'_>,
    ) -> Result<Tables, ExecutorError> {
        if plot.lower_layers >= model.layers {
            let must = format!("below {}, the layers of {}", model.layers, model.name);
            return Err(ExecutorError::input(
                "lower layers of the table",
                must,
                plot.lower_layers,
            ));
        }
        let name = format!(
            "{}-{}x{}-{}h-{}i-{}v-{}p-seed{seed}-lower{}",
            model.name,
            model.layers,
            model.hidden,
            model.heads,
            model.intermediate,
            model.vocabulary,
            model.positions,
            plot.lower_layers
        );
        let mut layers = None;
        let mut encode = |fragment_tokens: usize, fragments: &[u32], rows: &mut [f32]| {
            // Only now, since tables that are there need no model.
            let layers = match &mut layers {
                Some(layers) => layers,
                none => none.insert(LowerLayers::random(model, seed, DType::F32, device)?),
            };
            layers.encode(plot.lower_layers, fragment_tokens, fragments, rows)?;
            Ok(())
        };
        let language = Language::new(seed, model.vocabulary);
        Tables::with_encoder(folder, &name, model, plot, language, &mut encode, watch)
    }

    /// Likewise, of layers of a model of this kind and width that are given and known by `name`.
    pub(crate) fn with_encoder(
        folder: &Path,
        name: &str,
        model: &ModelShape,
        plot: &PlotSpec,
        language: Language,
        encode: EncodeFragments<'_>,
        watch: WatchBuilding<'_>,
    ) -> Result<Tables, ExecutorError> {
        let plain = |letter: char| match letter.is_ascii_alphanumeric() || "-_.".contains(letter) {
            true => letter,
            false => '_',
        };
        let PlotSpec {
            fragment_tokens,
            domain_hits_ppm,
            fallbacks_ppm,
            ..
        } = *plot;
        let name = format!(
            "{name}-n{fragment_tokens}-domains{domain_hits_ppm}-fallbacks{fallbacks_ppm}-corpus{}-v{CORPUS_VERSION}",
            language.corpus_sequences()
        );
        let folder = folder.join(name.chars().map(plain).collect::<String>());
        let file_error = |source| ExecutorError::File {
            path: folder.clone(),
            source,
        };
        fs::create_dir_all(&folder).map_err(file_error)?;
        // Another process, or another thread of this one, may be building the same.
        let lock = fs::File::create(folder.join("lock")).map_err(file_error)?;
        lock.lock().map_err(file_error)?;

        let mut building = TreeBuilding {
            tree: &folder,
            shape: Shape {
                fragment_tokens,
                context: match model.kind {
                    ModelKind::Encoder => Context::Both,
                    ModelKind::Decoder => Context::Preceding,
                },
                hidden: model.hidden,
            },
            name: &name,
            language: &language,
            encode,
            watch,
        };
        let tiers = Tiers {
            root: tier(plot.tier),
            domains: Tier::Memory { locked: false },
        };
        if !folder.join("root").join("CURRENT").exists() {
            let keep = f64::from(1_000_000 - fallbacks_ppm.min(1_000_000)) / 1e6;
            building.root(match fallbacks_ppm {
                0 => Select::All,
                _ => Select::Coverage(keep),
            })?;
            Tree::found(&folder, tiers)?;
        }
        let tree = Tree::open(&folder, tiers)?;
        if domain_hits_ppm > 0 {
            for domain in 0..DOMAINS {
                let name = domain_name(domain);
                if tree.snapshot().domain(&name).is_none() {
                    building.domain(
                        domain,
                        Select::Coverage(f64::from(domain_hits_ppm.min(1_000_000)) / 1e6),
                    )?;
                    tree.publish(Node::Domain(&name))?;
                }
            }
        }
        let snapshot = tree.snapshot();
        Ok(Tables {
            domains: (0..DOMAINS)
                .map(|domain| snapshot.domain(&domain_name(domain)))
                .collect(),
            there: (0..DOMAINS).map(|_| AtomicBool::new(true)).collect(),
            tree: Arc::new(tree),
            language: Arc::new(language),
        })
    }

    /// Reads a domain's own table from the disk, in place of what it had, if anything. Nothing where only the root answers.
    ///
    /// # Errors
    /// A table that can no longer be read; what was there stays.
    pub(crate) fn reload(&self, domain: u32) -> Result<(), ExecutorError> {
        if let Some(id) = self.domains[domain as usize] {
            for table in self.tree.snapshot().branch(id)?.tables() {
                table.drop_page_cache()?;
            }
            self.tree.reload(Node::Domain(&domain_name(domain)))?;
        }
        self.there[domain as usize].store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The root answers for a domain from now on.
    pub(crate) fn withdraw(&self, domain: u32) {
        self.there[domain as usize].store(false, Ordering::Relaxed);
    }

    /// Looks the texts of requests up, each given by ticket, tenant and tokens, from drawing their token ids on, which stands for reading
    /// them: fills `out`, `[requests, width, hidden]`.
    ///
    /// # Errors
    /// A table that can no longer be read, or a text longer than `width`.
    pub(crate) fn retrieve(
        &self,
        engine: &Engine,
        requests: impl ExactSizeIterator<Item = (u64, u32, u32)>,
        width: usize,
        out: &mut [f32],
    ) -> Result<Counters, PlotError> {
        let count = requests.len();
        let mut tokens = vec![0; count * width];
        let (mut lengths, mut domains) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for ((ticket, tenant, length), row) in requests.zip(tokens.chunks_mut(width.max(1))) {
            let text = self.language.request(ticket, tenant).take(length as usize);
            row.iter_mut().zip(text).for_each(|(token, id)| *token = id);
            lengths.push(length);
            domains.push(self.domain_of(tenant));
        }
        let batch = Batch {
            tokens: &tokens,
            width,
            lengths: &lengths,
            domains: &domains,
        };
        engine.retrieve(&self.tree.snapshot(), &batch, out)
    }

    /// Where a tenant's texts are looked up first; nothing where the root answers alone.
    fn domain_of(&self, tenant: u32) -> Option<DomainId> {
        let domain = (tenant % DOMAINS) as usize;
        self.domains[domain].filter(|_| self.there[domain].load(Ordering::Relaxed))
    }

    /// The token ids of a request's prompt.
    pub(crate) fn prompt(&self, ticket: u64, tenant: u32, tokens: u32) -> impl Iterator<Item = u32> + '_ {
        self.language.request(ticket, tenant).take(tokens as usize)
    }

    /// Tokens before a text's end that the representation of its last one may depend on, itself included.
    pub(crate) fn fragment_tokens(&self) -> usize {
        self.tree.snapshot().root().shape().fragment_tokens as usize
    }

    /// Looks the ends of texts up, each given by its tenant, tokens and the first token that is wanted: fills `out`, `[wanted of all
    /// texts, hidden]`.
    ///
    /// # Errors
    /// A table that can no longer be read.
    pub(crate) fn retrieve_ends(
        &self,
        engine: &Engine,
        texts: &[(u32, &[u32], usize)],
        out: &mut [f32],
    ) -> Result<Counters, PlotError> {
        let text = |&(tenant, tokens, first): &(u32, _, usize)| Text {
            tokens,
            first,
            domain: self.domain_of(tenant),
        };
        let texts: Vec<Text<'_>> = texts.iter().map(text).collect();
        engine.retrieve_ends(&self.tree.snapshot(), &texts, out)
    }

    /// The root's tables alone.
    pub(crate) fn without_domains(self) -> Tables {
        Tables {
            domains: vec![None; DOMAINS as usize],
            ..self
        }
    }

    /// Width of a representation.
    pub(crate) fn hidden(&self) -> usize {
        self.tree.snapshot().root().shape().hidden as usize
    }

    /// The tree as it was opened.
    #[cfg(test)]
    pub(crate) fn snapshot(&self) -> Arc<tenantry_plot::Snapshot> {
        self.tree.snapshot()
    }
}

fn domain_name(domain: u32) -> String {
    format!("domain-{domain}")
}

fn tier(tier: tenantry_profiles::Tier) -> Tier {
    match tier {
        tenantry_profiles::Tier::Memory => Tier::Memory { locked: false },
        tenantry_profiles::Tier::Disk => Tier::Disk,
    }
}

/// A version tree being built.
struct TreeBuilding<'a, 'b, 'c> {
    tree: &'a Path,
    /// Of the longest fragments.
    shape: Shape,
    name: &'a str,
    language: &'a Language,
    encode: EncodeFragments<'b>,
    watch: WatchBuilding<'c>,
}

impl TreeBuilding<'_, '_, '_> {
    /// The root's table, and those of shorter fragments that stand in for what it has not.
    fn root(&mut self, select: Select) -> Result<(), ExecutorError> {
        let language = self.language;
        let decodes = self.shape.context == Context::Preceding;
        for fragment_tokens in 1..=self.shape.fragment_tokens {
            let select = match fragment_tokens == self.shape.fragment_tokens {
                true => select,
                // Each text of a decoder begins with a fragment of every shorter length. Of an encoder's fragments longer than three, the parts
                // of one or two are enough: all lengths would each take as much as the longest.
                false if decodes || fragment_tokens <= 2 => Select::All,
                false => continue,
            };
            let texts = (0..DOMAINS).flat_map(|domain| language.corpus(domain));
            // What a decoder generates may be any token.
            let single = language.lexicon(decodes);
            self.table(Node::Root, "root", fragment_tokens, select, texts.chain(single))?;
        }
        Ok(())
    }

    fn domain(&mut self, domain: u32, select: Select) -> Result<(), ExecutorError> {
        let (name, language) = (domain_name(domain), self.language);
        let fragment_tokens = self.shape.fragment_tokens;
        self.table(
            Node::Domain(&name),
            &name,
            fragment_tokens,
            select,
            language.corpus(domain),
        )
    }

    fn table(
        &mut self,
        node: Node<'_>,
        node_name: &str,
        fragment_tokens: u32,
        select: Select,
        corpus: impl Iterator<Item = Vec<u32>>,
    ) -> Result<(), ExecutorError> {
        let path = Tree::stage(self.tree, node)?.join(format!("{fragment_tokens}.plot"));
        if path.exists() {
            return Ok(());
        }
        let spec = BuildSpec {
            shape: self.shape.with_fragment_tokens(fragment_tokens),
            select,
            chunk_fragments: CHUNK_FRAGMENTS,
            memory_bytes: COUNTING_BYTES,
        };
        let mut encoder = Named {
            name: self.name,
            fragment_tokens: fragment_tokens as usize,
            encode: &mut *self.encode,
        };
        let mut tell = |progress| {
            (self.watch)(Building {
                node: node_name,
                fragment_tokens,
                progress,
            });
            ControlFlow::Continue(())
        };
        let texts = corpus.map(Ok::<_, Infallible>);
        Builder::open(&path, spec)?.run(texts, &mut encoder, &mut tell)?;
        Ok(())
    }
}

/// Layers and their name.
struct Named<'a> {
    name: &'a str,
    fragment_tokens: usize,
    encode: EncodeFragments<'a>,
}

impl Encode for Named<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn encode(&mut self, fragments: &[u32], rows: &mut [f32]) -> Result<(), Cause> {
        (self.encode)(self.fragment_tokens, fragments, rows)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tch::{Kind, Tensor};

    use super::*;
    use crate::decoder::Decoder;
    use crate::model::Encoder;
    use crate::plot::lower::encoder_layers;
    use crate::whole_models::WholeModel;

    const PLOT: PlotSpec = PlotSpec {
        lower_layers: 2,
        fragment_tokens: 6,
        threads: 1,
        tier: tenantry_profiles::Tier::Memory,
        domain_hits_ppm: 500_000,
        fallbacks_ppm: 0,
        domain_bytes: 0,
    };

    fn model() -> ModelShape {
        ModelShape {
            name: "three".into(),
            layers: 3,
            ..ModelShape::builtin("tiny").unwrap()
        }
    }

    fn lower(encoder: &Encoder, tokens: &[u32], layers: std::ops::Range<usize>) -> Tensor {
        let ids: Vec<i64> = tokens.iter().map(|&token| token.into()).collect();
        let input = encoder.input(&[ids], tokens.len()).unwrap();
        encoder
            .layers(encoder.embed(&input).unwrap(), layers, &input, None)
            .unwrap()
    }

    /// A fragment as long as the input stands for the lower layers, up to half precision; longer inputs are averages of what their
    /// fragments give each token; and the second time nothing is built.
    #[test]
    fn tables_stand_for_the_lower_layers() {
        let folder = tempfile::tempdir().unwrap();
        let model = model();
        let encoder = Encoder::random(&model, 5, DType::F32, Device::Cpu).unwrap();
        let encoded = Cell::new(0);
        let open = || {
            let mut encode = |fragment_tokens: usize, fragments: &[u32], rows: &mut [f32]| {
                encoded.set(encoded.get() + fragments.len());
                Ok(encoder_layers(&encoder, 2, fragment_tokens, fragments, rows)?)
            };
            let language = Language::new(5, model.vocabulary).with_corpus(2);
            Tables::with_encoder(
                folder.path(),
                "three",
                &model,
                &PLOT,
                language,
                &mut encode,
                &mut |_| {},
            )
            .unwrap()
        };
        let tables = open();
        let built = encoded.get();
        let retrieve = |tokens: &[u32]| {
            let mut found = vec![0f32; tokens.len() * 128];
            let batch = Batch {
                tokens,
                width: tokens.len(),
                lengths: &[tokens.len() as u32],
                domains: &[tables.domains[1]],
            };
            let met = Engine::new(1)
                .unwrap()
                .retrieve(&tables.snapshot(), &batch, &mut found)
                .unwrap();
            (met, Tensor::from_slice(&found).view([1, tokens.len() as i64, 128]))
        };
        let assert_close = |found: &Tensor, expected: &Tensor| {
            let difference = (found - expected).abs().max().double_value(&[]);
            assert!(difference < 4e-3, "off by {difference}");
        };
        let text = tables.language.corpus(1).next().unwrap();
        for start in [0, 17, 100] {
            let fragment = &text[start..start + 6];
            let (met, found) = retrieve(fragment);
            assert_eq!((met.domain_hits + met.root_hits, met.fallbacks, met.misses), (1, 0, 0));
            assert_close(&found, &lower(&encoder, fragment, 0..2));
            // With the upper layer on top, the whole model.
            let input = crate::Input::of_lengths(&[6], 6, Kind::Float, Device::Cpu).unwrap();
            let upper = Encoder::random_upper(&model, 2, 5, DType::F32, Device::Cpu).unwrap();
            assert_eq!(upper.device_bytes(), 4 * model.layer_parameters());
            assert_close(
                &upper.layers(found, 2..3, &input, None).unwrap(),
                &lower(&encoder, fragment, 0..3),
            );
        }
        // Seven tokens: two fragments, whose overlap is averaged.
        let (_, found) = retrieve(&text[40..47]);
        let [first, second] = [40, 41].map(|start| lower(&encoder, &text[start..start + 6], 0..2));
        assert_close(&found.narrow(1, 0, 1), &first.narrow(1, 0, 1));
        assert_close(
            &found.narrow(1, 1, 5),
            &((first.narrow(1, 1, 5) + second.narrow(1, 0, 5)) / 2),
        );
        assert_close(&found.narrow(1, 6, 1), &second.narrow(1, 5, 1));

        open();
        assert_eq!(encoded.get(), built, "what was built is found again");
    }

    /// hGPT: with fragments as long as the text, what is looked up of every token is what the lower layers of the whole decoder make of it, up
    /// to half precision; with shorter ones, what they make of the fragment that ends there; and a token that no corpus had is itself.
    #[test]
    fn tables_stand_for_a_decoders_lower_layers() {
        for name in ["tiny-opt", "tiny-llama"] {
            let folder = tempfile::tempdir().unwrap();
            let model = ModelShape {
                layers: 3,
                vocabulary: 150,
                ..ModelShape::builtin(name).unwrap()
            };
            let decoder = Decoder::random(&model, 5, DType::F32, Device::Cpu).unwrap();
            // Weights that let a token's neighbours show.
            decoder.load(&(decoder.parameters() * 5.0)).unwrap();
            let layers = LowerLayers::Decoder(decoder.share());
            let open = |fragment_tokens| {
                let mut encode =
                    |tokens: usize, fragments: &[u32], rows: &mut [f32]| Ok(layers.encode(2, tokens, fragments, rows)?);
                let plot = PlotSpec {
                    fragment_tokens,
                    ..PLOT
                };
                let language = Language::new(5, model.vocabulary).with_corpus(1);
                Tables::with_encoder(folder.path(), name, &model, &plot, language, &mut encode, &mut |_| {}).unwrap()
            };
            let lower = |tokens: &[u32]| -> Tensor {
                let ids: Vec<i64> = tokens.iter().map(|&token| token.into()).collect();
                decoder.lower_layers(&[ids], 2).unwrap().get(0)
            };
            let retrieve = |tables: &Tables, tokens: &[u32], first: usize| {
                let mut found = vec![0f32; (tokens.len() - first) * 128];
                let engine = Engine::new(1).unwrap();
                let met = tables
                    .retrieve_ends(&engine, &[(1, tokens, first)], &mut found)
                    .unwrap();
                assert_eq!(met.misses, 0);
                (met, Tensor::from_slice(&found).view([-1, 128]))
            };
            let assert_close = |found: &Tensor, expected: &Tensor| {
                let scale = expected.abs().max().double_value(&[]);
                let difference = (found - expected).abs().max().double_value(&[]);
                assert!(difference < 1e-3 * scale, "{name}: off by {difference} of {scale}");
            };
            let tables = open(6);
            let text = tables.language.corpus(1).next().unwrap();
            for start in [0, 17, 100] {
                // As long as the text: every token's fragment is all that comes before it.
                let text = &text[start..start + 6];
                let (met, found) = retrieve(&tables, text, 0);
                assert_eq!(
                    (met.tokens, met.domain_hits + met.root_hits),
                    (6, 1),
                    "the others are shorter"
                );
                assert_close(&found, &lower(text));
            }
            let trigrams = open(3);
            let (_, found) = retrieve(&trigrams, &text[..20], 7);
            for (row, end) in (7..20).enumerate() {
                let expected = lower(&text[end - 2..=end]).get(2);
                assert_close(&found.get(row as i64), &expected);
            }
            let whole = lower(&text[..20]).get(19);
            assert!(
                !found.get(12).allclose(&whole, 1e-2, 1e-2, false),
                "three tokens are not the whole text"
            );
            // Never in this order, and perhaps never at all.
            let (met, found) = retrieve(&trigrams, &[149, 148, 149], 2);
            assert_eq!(met.fallbacks, 1);
            let longest = [lower(&[148, 149]).get(1), lower(&[149]).get(0)];
            assert!(longest.iter().any(|row| found.get(0).allclose(row, 1e-3, 1e-2, false)));
        }
    }

    #[test]
    fn a_table_leaves_a_layer_to_compute() {
        let folder = tempfile::tempdir().unwrap();
        let plot = PlotSpec {
            lower_layers: 3,
            ..PLOT
        };
        let refused = Tables::open_or_build(folder.path(), &model(), &plot, 5, Device::Cpu, &mut |_| {});
        let message = refused.err().expect("nothing would be left").to_string();
        assert_eq!(
            message,
            "lower layers of the table: must be below 3, the layers of three, got 3"
        );
    }
}
