//! The tables that a pool looks up in: built once, with progress, and found again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tch::Device;
use tenantry_core::spec::PlotSpec;
use tenantry_plot::{
    Batch, Builder, Counters, DomainId, Engine, Node, PlotError, Select, Text, Texts, Tier, Tiers, Tree,
};
use tenantry_profiles::{DType, ModelKind, ModelShape};
use tenantry_traces::generate::Domains;

use super::building::{EncodeFragments, TreeBuilding, Version, WatchBuilding, shape_of};
use super::lower::LowerLayers;
use crate::error::ExecutorError;
use crate::files::{Files, fingerprint};
use crate::host::forget_cached;

/// What tables were built from, for who changes the language, the corpus or the layers' initialisation.
const CORPUS_VERSION: u32 = 2;

/// What a table's folder has of its model's name at most: file systems take names of 255 bytes, and more than a model's
/// is in it.
const NAME_BYTES: usize = 80;

/// Where tables are kept from one run to the next: the user's cache, or the folder for temporary files where there is
/// none.
pub fn tables_folder() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("tenantry").join("plot")
}

/// What tables are made of: the model that `seed` initialises and the language of the same seed, or what users' files
/// have in their places.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Of what is random.
    pub seed: u64,
    /// In its place.
    pub files: &'a Files,
    /// Of the workload's tenants.
    pub domains: &'a Domains,
    /// Whether domains are updated: there is then a second version of the table of each, where its layers are random.
    /// Users' checkpoints have no second version; an update reads the first again.
    pub updates: bool,
}

/// A pool's version tree, and the texts that are looked up in it.
#[derive(Clone)]
pub struct Tables {
    tree: Arc<Tree>,
    /// The tree's.
    folder: PathBuf,
    /// By domain; none where only the root answers.
    domains: Vec<Option<DomainId>>,
    /// By domain.
    states: Arc<[DomainState]>,
    /// Whether each domain has a second version.
    updates: bool,
    texts: Arc<Texts>,
}

/// How a domain's own table is.
struct DomainState {
    /// Whoever reads its table from the disk: two at once would both take the same for the one in use.
    reloading: Mutex<()>,
    /// Where it is not there, the root answers for the domain.
    there: AtomicBool,
    /// Whether the second version is in use.
    updated: AtomicBool,
}

impl Tables {
    /// The tables of the lower layers of a model over texts, both as `origin` has them: opened, if they lie in a folder
    /// of their own in `folder`, and otherwise built there, which may take minutes. What was interrupted is gone on
    /// with.
    ///
    /// A domain's table holds the fragments that are `domain_hits_ppm` of the domain's occurrences; the root's, all but
    /// the `fallbacks_ppm` rarest occurrences.
    ///
    /// # Errors
    /// A model that has no such layers, a full disk, or no memory.
    pub fn open_or_build(
        folder: &Path,
        model: &ModelShape,
        plot: &PlotSpec,
        origin: Origin<'_>,
        device: Device,
        watch: WatchBuilding<'_>,
    ) -> Result<Tables, ExecutorError> {
        let Origin {
            seed,
            files,
            domains,
            updates,
        } = origin;
        if plot.lower_layers >= model.layers {
            let must = format!("below {}, the layers of {}", model.layers, model.name);
            return Err(ExecutorError::input(
                "lower layers of the table",
                must,
                plot.lower_layers,
            ));
        }
        let weights = match &files.model {
            None => format!("seed{seed}"),
            Some(path) => fingerprint([path].into_iter().chain(&files.domains))?,
        };
        // All that rows hang on: shapes of one's own are mostly called alike.
        let kind = match (model.kind, model.gated) {
            (ModelKind::Encoder, _) => "encoder",
            (ModelKind::Decoder, false) => "decoder",
            (ModelKind::Decoder, true) => "gated",
        };
        let name = format!(
            "{}-{kind}-{}x{}-{}h-{}kv-{}i-{}v-{}p-{weights}-lower{}",
            short_name(&model.name),
            model.layers,
            model.hidden,
            model.heads,
            model.kv_heads,
            model.intermediate,
            model.vocabulary,
            model.positions,
            plot.lower_layers
        );
        let mut root = None;
        let mut of_domain: Option<(Version, LowerLayers)> = None;
        let mut encode = |version, fragment_tokens: usize, fragments: &[u32], rows: &mut [f32]| {
            // Only now, since tables that are there need no model.
            let root = match &mut root {
                Some(layers) => layers,
                none => none.insert(match &files.model {
                    None => LowerLayers::random(model, seed, DType::F32, device)?,
                    Some(path) => LowerLayers::read(path, model, DType::F32, device)?,
                }),
            };
            let layers = match version {
                Version::Root => root,
                Version::Domain(domain) | Version::Updated(domain) => {
                    // Tables are built one after the other: what another domain's were filled with is needed no longer.
                    let known = of_domain.take().filter(|(known, _)| *known == version);
                    let update = u32::from(version == Version::Updated(domain));
                    let (_, own) = match (known, files.domains.get(domain as usize), &files.model) {
                        (Some(known), ..) => known,
                        (None, Some(path), _) => (version, LowerLayers::read(path, model, DType::F32, device)?),
                        (None, None, None) => (version, root.of_domain(domain, update, plot.lower_layers, seed)?),
                        // Nobody has pretrained the user's model for this domain.
                        (None, None, Some(_)) => (version, root.share()),
                    };
                    &of_domain.insert((version, own)).1
                }
            };
            layers.encode(plot.lower_layers, fragment_tokens, fragments, rows)?;
            Ok(())
        };
        let tokenizer = files.tokenizer();
        let texts = Texts::new(&files.corpus, tokenizer.as_deref(), seed, model.vocabulary, domains)?;
        let tables = Tables::with_encoder(folder, &name, model, plot, texts, &mut encode, watch);
        let tables = tables.and_then(|tables| match updates && files.model.is_none() {
            true => tables.with_updates(&name, model, plot, &mut encode, watch),
            false => Ok(tables),
        });
        tables.map_err(|error| error.of_tables_in(folder))
    }

    /// Likewise, of layers of a model of this kind and width that are given and known by `name`.
    pub(crate) fn with_encoder(
        folder: &Path,
        name: &str,
        model: &ModelShape,
        plot: &PlotSpec,
        texts: Texts,
        encode: EncodeFragments<'_>,
        watch: WatchBuilding<'_>,
    ) -> Result<Tables, ExecutorError> {
        let PlotSpec {
            fragment_tokens,
            domain_hits_ppm,
            fallbacks_ppm,
            domains,
            ..
        } = *plot;
        // The policies know of as many domains as there are texts of.
        if domains != texts.domains().len() as u32 {
            let must = format!("{}, as many as the texts'", texts.domains().len());
            return Err(ExecutorError::input("domains of the table", must, domains));
        }
        let name = full_name(name, plot, &texts);
        let plain = |letter: char| match letter.is_ascii_alphanumeric() || "-_.".contains(letter) {
            true => letter,
            false => '_',
        };
        let folder = folder.join(name.chars().map(plain).collect::<String>());
        let mut building = TreeBuilding {
            tree: &folder,
            shape: shape_of(model, fragment_tokens),
            name: &name,
            encode,
            watch,
        };
        let tiers = Tiers {
            root: tier(plot.tier),
            domains: Tier::Memory { locked: false },
        };
        let of_domains = Select::of_domain(domain_hits_ppm);
        let is_published = |node: PathBuf| node.join("CURRENT").exists();
        let has_root = || is_published(folder.join("root"));
        let has_domain = |domain| is_published(folder.join("domains").join(domain_name(domain)));
        // What is whole may lie where nobody may write.
        let is_whole = has_root() && (of_domains.is_none() || texts.domains().all(has_domain));
        let _lock = (!is_whole).then(|| lock(&folder)).transpose()?;
        if !has_root() {
            building.root(&texts, Select::of_root(fallbacks_ppm))?;
            Tree::found(&folder, tiers)?;
        }
        let opened = Tree::open(&folder, tiers).and_then(|tree| building.check_root(tree));
        let tree = opened.map_err(|source| ExecutorError::KeptTables {
            folder: folder.clone(),
            source,
        })?;
        if let Some(select) = of_domains {
            for domain in texts.domains() {
                let name = domain_name(domain);
                if tree.snapshot().domain(&name).is_none() {
                    building.domain(&name, Version::Domain(domain), select, texts.corpus(domain))?;
                    tree.publish(Node::Domain(&name))?;
                }
            }
        }
        let snapshot = tree.snapshot();
        Ok(Tables {
            domains: texts.domains().map(|domain| snapshot.domain(&domain_name(domain))).collect(),
            states: texts.domains().map(|_| DomainState::new()).collect(),
            updates: false,
            tree: Arc::new(tree),
            folder,
            texts: Arc::new(texts),
        })
    }

    /// With a second version of each domain's own table, of the same fragments, for updates: built where the tree
    /// stages what comes next, and never published, so that the next run begins with the first as this one did.
    pub(crate) fn with_updates(
        self,
        name: &str,
        model: &ModelShape,
        plot: &PlotSpec,
        encode: EncodeFragments<'_>,
        watch: WatchBuilding<'_>,
    ) -> Result<Tables, ExecutorError> {
        let Some(select) = Select::of_domain(plot.domain_hits_ppm) else {
            return Ok(Tables { updates: true, ..self });
        };
        let domains = self.folder.join("domains");
        let is_built = |domain| {
            let next = domains.join(domain_name(domain)).join("next");
            Builder::is_done(next.join(format!("{}.plot", plot.fragment_tokens)))
        };
        let built: Vec<bool> = self.texts.domains().map(is_built).collect::<Result<_, PlotError>>()?;
        let _lock = built.contains(&false).then(|| lock(&self.folder)).transpose()?;
        let mut building = TreeBuilding {
            tree: &self.folder,
            shape: shape_of(model, plot.fragment_tokens),
            name: &full_name(name, plot, &self.texts),
            encode,
            watch,
        };
        for domain in self.texts.domains() {
            let corpus = self.texts.corpus(domain);
            building.domain(&domain_name(domain), Version::Updated(domain), select, corpus)?;
        }
        Ok(Tables { updates: true, ..self })
    }

    /// Reads a domain's own table from the disk: the first version where it had none, and otherwise the other of its
    /// two, in place of the one in use. Batches that were looked up keep what they found. Nothing where only the root
    /// answers.
    ///
    /// # Errors
    /// A table that can no longer be read; what was there stays.
    pub(crate) fn reload(&self, domain: u32) -> Result<(), ExecutorError> {
        let state = &self.states[domain as usize];
        // Who panicked with it left the state as it was.
        let _reloading = state.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = self.domains[domain as usize] {
            let name = domain_name(domain);
            let in_use = state.updated.load(Ordering::Relaxed);
            // Who was withdrawn comes back as it first was.
            let updated = self.updates && state.there.load(Ordering::Relaxed) && !in_use;
            for table in self.tree.snapshot().branch(id)?.tables() {
                table.drop_page_cache()?;
            }
            match updated {
                true => {
                    let staged = Tree::stage(&self.folder, Node::Domain(&name))?;
                    let staged = staged.join(format!("{}.plot", self.fragment_tokens()));
                    // Its pages may still be there from when it was built.
                    let forget = || forget_cached(&fs::File::open(&staged)?);
                    forget().map_err(ExecutorError::file(&staged))?;
                    self.tree.preview(&name)?;
                }
                false => self.tree.reload(Node::Domain(&name))?,
            }
            state.updated.store(updated, Ordering::Relaxed);
        }
        state.there.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The root answers for a domain from now on.
    pub(crate) fn withdraw(&self, domain: u32) {
        self.states[domain as usize].there.store(false, Ordering::Relaxed);
    }

    /// Looks the texts of requests up, each given by ticket, tenant and tokens, from drawing their token ids on, which
    /// stands for reading them: fills `out`, `[requests, width, hidden]`.
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
            // A text longer than the row is refused with the batch.
            let own = row.len().min(length as usize);
            self.texts.write(ticket, tenant, &mut row[..own]);
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
        let domain = self.texts.domain_of(tenant) as usize;
        self.domains[domain].filter(|_| self.states[domain].there.load(Ordering::Relaxed))
    }

    /// The token ids of a request's prompt.
    pub(crate) fn prompt(&self, ticket: u64, tenant: u32, tokens: u32) -> Vec<u32> {
        let mut prompt = vec![0; tokens as usize];
        self.texts.write(ticket, tenant, &mut prompt);
        prompt
    }

    /// Tokens before a text's end that the representation of its last one may depend on, itself included.
    pub(crate) fn fragment_tokens(&self) -> usize {
        self.tree.snapshot().root().shape().fragment_tokens as usize
    }

    /// Looks the ends of texts up, each given by its tenant, tokens and the first token that is wanted: fills `out`,
    /// `[wanted of all texts, hidden]`.
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

    /// Width of a representation.
    pub(crate) fn hidden(&self) -> usize {
        self.tree.snapshot().root().shape().hidden as usize
    }

    /// The tree as it was opened.
    pub(crate) fn snapshot(&self) -> Arc<tenantry_plot::Snapshot> {
        self.tree.snapshot()
    }
}

impl DomainState {
    fn new() -> DomainState {
        DomainState {
            reloading: Mutex::new(()),
            there: AtomicBool::new(true),
            updated: AtomicBool::new(false),
        }
    }
}

/// What a folder's name has of a model's: a long one ends in a hash, by which it is told from those that begin alike.
fn short_name(model: &str) -> String {
    if model.len() <= NAME_BYTES {
        return model.to_owned();
    }
    let begin = model.floor_char_boundary(NAME_BYTES - 17);
    let hash = blake3::hash(model.as_bytes()).to_hex();
    format!("{}-{}", &model[..begin], &hash[..16])
}

/// All that tables of layers of this name depend on.
fn full_name(name: &str, plot: &PlotSpec, texts: &Texts) -> String {
    let PlotSpec {
        fragment_tokens,
        domain_hits_ppm,
        fallbacks_ppm,
        ..
    } = *plot;
    format!(
        "{name}-n{fragment_tokens}-domains{domain_hits_ppm}-fallbacks{fallbacks_ppm}-{}-v{CORPUS_VERSION}",
        texts.name()
    )
}

/// Held while tables are built: another process, or another thread of this one, may be building the same.
fn lock(folder: &Path) -> Result<fs::File, ExecutorError> {
    let file_error = ExecutorError::file(folder);
    fs::create_dir_all(folder).map_err(&file_error)?;
    let lock = fs::File::create(folder.join("lock")).map_err(&file_error)?;
    lock.lock().map_err(&file_error)?;
    Ok(lock)
}

/// What a version tree calls a domain.
pub(crate) fn domain_name(domain: u32) -> String {
    format!("domain-{domain}")
}

fn tier(tier: tenantry_profiles::Tier) -> Tier {
    match tier {
        tenantry_profiles::Tier::Memory => Tier::Memory { locked: false },
        tenantry_profiles::Tier::Disk => Tier::Disk,
    }
}

#[cfg(test)]
mod tests;
